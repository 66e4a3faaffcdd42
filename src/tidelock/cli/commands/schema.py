"""`tidelock schema`: what tables are declared as, what they shall be, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.options import (
    POINT,
    SNAPSHOT_PANEL,
    BranchOption,
    CascadeOption,
    MessageOption,
    SnapshotBranchOption,
    TableArgument,
)
from tidelock.cli.show import documents
from tidelock.cli.show.cells import moment, seconds
from tidelock.model.printable import printable

if TYPE_CHECKING:
    from tidelock.model.schema.plan.plan import SchemaPlan

PathArgument = Annotated[
    str,
    typer.Argument(metavar="PATH", help="A .sql file of CREATE TABLE statements, or a folder."),
]
DropOption = Annotated[
    bool,
    typer.Option("--drop-undeclared", help="Drop tables that are in the lake and not declared."),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--version",
        "--at",
        metavar="POINT",
        help=f"{POINT}. Else the newest.",
        rich_help_panel=SNAPSHOT_PANEL,
    ),
]


def register(app: typer.Typer) -> None:
    schema = typer.Typer(
        no_args_is_help=True, help="Show, plan, apply and trace what tables are declared as."
    )
    command(
        schema,
        "show",
        example="tidelock schema show orders --version 2",
    )(show)
    command(schema, "plan", example="tidelock schema plan schema/")(plan)
    command(
        schema,
        "apply",
        example="tidelock schema apply schema/\n"
        "tidelock schema apply schema/ --allow-data-loss -m 'drop what nobody uses'",
    )(apply)
    command(schema, "history", example="tidelock schema history orders")(history)
    app.add_typer(schema, name="schema")


def show(
    call: Call,
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="The table. Else all of them.")
    ] = None,
    branch: SnapshotBranchOption = None,
    at: AtOption = None,
) -> None:
    """Show tables as the statements that create them.

    Columns, keys, defaults and rules are as at one version. What is shown of all tables is a file
    that `tidelock schema apply` reads.
    """
    from tidelock.cli import reach

    with call.open() as lake:
        snapshot = reach.find_snapshot(lake, at, branch)
        names = [] if table is None else [table]
        if table is None:
            names = [state.name for state in snapshot.tables() if state.stream is None]
        found = [
            lake.schema(name, branch=snapshot.branch, version=snapshot.version) for name in names
        ]
    told = [one.to_dict() for one in found]

    def show_statements() -> None:
        for number, one in enumerate(found):
            call.output.line(("\n" if number else "") + _lines(f"{one.ddl};"))
        if not found:
            call.output.line("No tables yet. Declare some: tidelock schema apply schema/")

    call.output.answer(told if table is None else told[0], show_statements)


def plan(
    call: Call,
    path: PathArgument,
    drop_undeclared: DropOption = False,
    branch: BranchOption = "main",
) -> None:
    """Show what would bring the tables to what is declared; change nothing.

    Each step says why, what it costs (metadata only, or how many rows are read or rewritten) and
    what it destroys.
    """
    with call.open() as lake:
        found = lake.plan_schema(path, branch=branch, drop_undeclared=drop_undeclared)
    call.output.answer(found.to_dict(), lambda: _show(call, found))


def apply(
    call: Call,
    path: PathArgument,
    allow_data_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss", help="Also do what destroys something, such as drop a column."
        ),
    ] = False,
    cascade: CascadeOption = False,
    drop_undeclared: DropOption = False,
    message: MessageOption = "",
    branch: BranchOption = "main",
) -> None:
    """Bring the tables to what is declared, as one commit, or not at all.

    Tables that are not declared are left alone. Without a difference there is no commit.
    """
    with call.open(write=True) as lake, call.output.warning():
        found = lake.plan_schema(path, branch=branch, drop_undeclared=drop_undeclared)
        commit = lake.apply_schema(
            found, allow_data_loss=allow_data_loss, cascade=cascade, message=message
        )
    document = {
        **found.to_dict(),
        "commit": None if commit is None else documents.of_commit(commit),
    }

    def show_applied() -> None:
        _show(call, found)
        if commit is not None:
            call.output.line(f"Applied: version {commit.version}")

    call.output.answer(document, show_applied)


def history(
    call: Call,
    table: TableArgument,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", metavar="N", min=0, help="How many changes; 0 shows all."),
    ] = 20,
    branch: BranchOption = "main",
) -> None:
    """Show every commit that created, altered or renamed a table, newest first."""
    with call.open() as lake:
        found = lake.schema_history(table, limit or None, branch=branch)
    document = [documents.of_schema_version(one) for one in found]

    def show_versions() -> None:
        for one in found:
            when = f"version {one.version}  {seconds(moment(one.time))}  {one.actor}"
            call.output.line(printable(f"{when}  {one.message}".rstrip()))
            for line in (line for change in one.changes for line in change.split("\n")):
                call.output.line(_lines(f"  {line}"))

    call.output.answer(document, show_versions)


def _show(call: Call, found: SchemaPlan) -> None:
    call.output.line(_lines(found.to_text()))


def _lines(text: str) -> str:
    return "\n".join(printable(line.replace("\t", "    ")) for line in text.split("\n"))
