"""`tidelock branch merge`: one branch into another, as one commit, or not at all."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.options import MessageOption
from tidelock.cli.show.cells import count
from tidelock.cli.show.engines import starting
from tidelock.cli.show.merges import show_conflicts, show_merge
from tidelock.errors import InvalidOption, MergeConflict

if TYPE_CHECKING:
    from tidelock.model.history.merges import Choice

SIDES: tuple[Literal["source", "target", "fail"], ...] = ("source", "target", "fail")
EVERY_OTHER = "*"
"""Stands for the tables that are not named."""
CONFLICT = 4
"""The exit code of conflicts, which a dry run that finds some ends with too."""


def register(branch: typer.Typer) -> None:
    example = "tidelock branch merge dev --dry-run\ntidelock branch merge dev --into main"
    command(branch, "merge", engine=True, example=example)(merge)


def merge(
    call: Call,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The branch to merge.")],
    into: Annotated[
        str, typer.Option("--into", metavar="BRANCH", help="The branch that it is merged into.")
    ] = "main",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, conflicts included.")
    ] = False,
    on_conflict: Annotated[
        list[str] | None,
        typer.Option(
            "--on-conflict",
            metavar="[TABLE=]SIDE",
            help="Whose values are taken where both changed the same: source, target or fail, for "
            "one table or for all others. May be repeated.",
        ),
    ] = None,
    granularity: Annotated[
        Literal["column", "row"],
        typer.Option(
            "--granularity",
            help="With row, changes of different columns of one row are a conflict too.",
        ),
    ] = "column",
    refresh: Annotated[
        bool,
        typer.Option(
            "--refresh", help="Refresh what follows from merged tables, in the same commit."
        ),
    ] = False,
    delete_branch: Annotated[
        bool, typer.Option("--delete-branch", help="Delete SOURCE when it is merged.")
    ] = False,
    message: MessageOption = "",
) -> None:
    """Merge a branch into another, as one commit with two parents, or not at all.

    Rows are matched by key, or by row sequence in tables without one, and columns by what they are,
    whatever they are called. What both branches changed, each in its own way, is a conflict: all of
    them are shown, and nothing is published.
    """
    choices = read_choices(on_conflict or [])
    # A dry run writes too, and forgets it: rules are compared with rows that are staged.
    with call.open(write=True) as lake, ExitStack() as spinner:
        if refresh:
            spinner.enter_context(call.output.waiting(starting(**call.engine)))
        try:
            done = lake.merge(
                source,
                into,
                on_conflict=choices,
                granularity=granularity,
                refresh=refresh,
                delete_branch=delete_branch,
                dry_run=dry_run,
                message=message,
            )
        except MergeConflict as error:
            spinner.close()
            if not call.output.as_json:
                raise _shown(call, error) from None
            raise
    call.output.answer(done.to_dict(), lambda: show_merge(call.output, done))
    if done.conflicts:
        raise typer.Exit(CONFLICT)


def read_choices(given: list[str]) -> dict[str, Choice]:
    """Sides by table; `*` stands for all tables that are not named."""
    found: dict[str, Choice] = {}
    for text in given:
        table, _, side = text.rpartition("=")
        table = table or EVERY_OTHER
        known = [one for one in SIDES if one == side]
        if not known:
            raise InvalidOption(
                f"--on-conflict {text!r} names no side. Say source, target or fail, or for one "
                "table TABLE=source.",
                option=text,
            )
        if table in found:
            raise InvalidOption(
                f"--on-conflict {text!r}: a side was chosen before. Choose one.", option=text
            )
        found[table] = known[0]
    return found


def _shown(call: Call, error: MergeConflict) -> MergeConflict:
    """The error without the conflicts, which are shown as a table before it."""
    evidence = error.evidence
    show_conflicts(call.output.aside(), evidence["conflicts"], evidence["count"])
    return MergeConflict(
        f"Branch {evidence['source']!r} cannot be merged into {evidence['target']!r}: "
        f"{count(evidence['count'], 'conflict')}. Nothing was written.",
        **evidence,
    )
