"""`tidelock branch` and `tidelock tag`: names for places in the history."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tidelock.cli.call import Call, command
from tidelock.cli.commands import merge
from tidelock.cli.options import AtOption, BranchOption, DiffLimitOption, DiffTableOption
from tidelock.cli.show import documents
from tidelock.cli.show.diffs import EXAMPLES, answer_diff
from tidelock.errors import InvalidOption


class _TagGroup(TyperGroup):
    """`tidelock tag q1` is short for `tidelock tag create q1`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["create", *args]
        return super().resolve_command(ctx, args)


def register(app: typer.Typer) -> None:
    told = "Create, list, compare, merge and delete branches."
    branch = typer.Typer(no_args_is_help=True, help=told)
    command(branch, "create", example="tidelock branch create dev --at 1")(create_branch)
    command(branch, "list", example="tidelock branch list")(list_branches)
    command(branch, "diff", example="tidelock branch diff main dev")(diff_branches)
    merge.register(branch)
    command(branch, "delete", example="tidelock branch delete dev")(delete_branch)
    app.add_typer(branch, name="branch")
    tag = typer.Typer(
        no_args_is_help=True,
        cls=_TagGroup,
        help="Name commits. [bold]tidelock tag NAME[/bold] tags the newest.",
    )
    command(tag, "create", example="tidelock tag create q1 --version 1")(create_tag)
    command(tag, "list", example="tidelock tag list")(list_tags)
    command(tag, "delete", example="tidelock tag delete q1")(delete_tag)
    app.add_typer(tag, name="tag")


def create_branch(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new branch.")],
    at: AtOption = None,
    branch: BranchOption = "main",
) -> None:
    """Create a branch. It costs nothing: tables are shared until they are written."""
    from tidelock.cli import reach

    with call.open(write=True) as lake:
        with reach.named(at or ""):
            made = lake.create_branch(name, reach.point(at) if at else None, branch=branch)
        document = documents.of_branch(made, lake.snapshot(name).version)
    call.output.answer(
        document,
        lambda: call.output.line(f"Created branch {name} at version {document['version']}"),
    )


def list_branches(call: Call) -> None:
    """List the branches."""
    with call.open() as lake:
        found = lake.branches()
        document = [documents.of_branch(one, lake.snapshot(one.name).version) for one in found]
    call.output.answer(document, lambda: call.output.listed(found, ""))


def diff_branches(
    call: Call,
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="A branch, or another point in the history.")
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The same.")],
    table: DiffTableOption = None,
    limit: DiffLimitOption = EXAMPLES,
) -> None:
    """Show what leads from one branch to another: `tidelock diff` by its other name.

    Rows that only AFTER has are inserted, those that only BEFORE has are deleted: so `main dev`
    shows what dev would bring to main, and `dev main` what dev is behind.
    """
    answer_diff(call, before, after, "main", table, limit)


def delete_branch(
    call: Call, name: Annotated[str, typer.Argument(metavar="NAME", help="The branch to delete.")]
) -> None:
    """Delete a branch. A writer that is still at it is refused; tags keep what they name."""
    with call.open(write=True) as lake:
        lake.delete_branch(name)
    call.output.answer({"deleted": name}, lambda: call.output.line(f"Deleted branch {name}"))


def create_tag(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new tag.")],
    at: AtOption = None,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="VERSION", min=1, help="Short for --at with a version."),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option("--commit", metavar="COMMIT", help="Short for --at with a commit id."),
    ] = None,
    branch: BranchOption = "main",
) -> None:
    """Name a commit, and keep it readable for as long as the tag exists."""
    from tidelock.cli import reach

    if sum(one is not None for one in (at, version, commit)) > 1:
        raise InvalidOption("A tag names one commit: give one of --at, --version and --commit.")
    with call.open(write=True) as lake:
        if at is not None:
            commit = reach.find_commit(lake, at, branch).id
        document = documents.of_tag(lake.tag(name, version, commit=commit, branch=branch))
    call.output.answer(
        document, lambda: call.output.line(f"Tagged version {document['version']} as {name}")
    )


def list_tags(call: Call) -> None:
    """List the tags."""
    with call.open() as lake:
        found = lake.tags()
    call.output.answer(
        [documents.of_tag(tag) for tag in found],
        lambda: call.output.listed(found, "No tags yet. Name the newest commit: tidelock tag q1"),
    )


def delete_tag(
    call: Call, name: Annotated[str, typer.Argument(metavar="NAME", help="The tag to delete.")]
) -> None:
    """Delete a tag. The commit stays, and is retained like any other."""
    with call.open(write=True) as lake:
        lake.delete_tag(name)
    call.output.answer({"deleted": name}, lambda: call.output.line(f"Deleted tag {name}"))
