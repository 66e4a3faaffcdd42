"""`tidelock log`, `show` and `changes`: what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.options import POINT, BranchOption, TableArgument
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count, for_people, shown_value
from tidelock.cli.show.documents import Document
from tidelock.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelock import Lake

COUNTS = ("inserted", "updated", "deleted")


def register(app: typer.Typer) -> None:
    command(app, "log", example="tidelock log --limit 5 --table orders")(log)
    command(app, "show", example="tidelock show 2")(show)
    command(app, "changes", example="tidelock changes orders 1 2")(changes)


def log(
    call: Call,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", metavar="N", min=0, help="How many commits; 0 shows all."),
    ] = 20,
    branch: BranchOption = "main",
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            "-t",
            metavar="TABLE",
            help="Only commits that changed this table's rows or schema.",
        ),
    ] = None,
) -> None:
    """Show the commits of a branch, newest first."""
    with call.open() as lake:
        commits = lake.log(branch, limit or None, table=table)
    call.output.answer(
        [documents.of_commit(commit) for commit in commits],
        lambda: call.output.listed(
            commits, f"No commits on {branch} yet.", "tidelock show VERSION"
        ),
    )


def show(
    call: Call,
    commit: Annotated[str, typer.Argument(metavar="POINT", help=f"{POINT}.")],
    branch: BranchOption = "main",
) -> None:
    """Show one commit in full."""
    from tidelock.cli import reach

    with call.open() as lake:
        found = reach.find_commit(lake, commit, branch)
    document = documents.of_commit(found)
    call.output.answer(document, lambda: _show_commit(call, document))


def _show_commit(call: Call, document: Document) -> None:
    call.output.facts(
        [
            ("version", str(document["version"])),
            ("id", document["id"]),
            ("parents", ", ".join(document["parents"])),
            ("branch", document["branch"]),
            ("kind", document["kind"]),
            ("actor", document["actor"]),
            ("time", for_people(document["time"])),
            ("operation", document["operation_id"]),
            ("message", document["message"]),
            *((f"  {name}", str(value)) for name, value in document["properties"].items()),
        ]
    )
    call.output.line()
    call.output.listing(
        ["table", *COUNTS, "rows", ""],
        [
            [t["table"], *(f"{t[c]:,}" for c in COUNTS), f"{t['rows']:,}", _event(t)]
            for t in document["tables"]
        ],
        "It changed no table.",
    )


def _event(table: Document) -> str:
    return "created" if table["created"] else "dropped" if table["dropped"] else ""


def changes(
    call: Call,
    table: TableArgument,
    since: Annotated[str, typer.Argument(metavar="SINCE", help=f"{POINT}; not included.")],
    until: Annotated[
        str | None, typer.Argument(metavar="UNTIL", help="The same; included. Else the newest.")
    ] = None,
    branch: BranchOption = "main",
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", metavar="N", min=0, help="How many changes; 0 shows all."),
    ] = 100,
) -> None:
    """Show what commits did to the rows of a table, in order.

    A change is a row with a + if it was inserted and a - if it was deleted; an update is one of
    each. They are netted within each commit, so that a row which it inserts and deletes is not
    shown. What differs between two states, however that came about, is shown by `tidelock diff`.
    """
    from tidelock.cli import reach

    with call.open() as lake:
        first = reach.version_on(lake, since, branch)
        last = reach.version_on(lake, until, branch) if until else lake.snapshot(branch).version
        if first > last:
            raise InvalidOption(
                f"SINCE, version {first}, is after UNTIL, version {last}. Give the older one "
                f"first: tidelock changes {table} {until or last} {since}",
                since=first,
                until=last,
            )
        document, types = _read_changes(lake, branch, table, first, last, limit)
    call.output.answer(document, lambda: _show_changes(call, document, types))


def _read_changes(
    lake: Lake, branch: str, table: str, first: int, last: int, limit: int
) -> tuple[Document, list[pa.DataType]]:
    reader = lake.changes(table, first, last, branch=branch)
    rows: list[Document] = []
    more = 0
    for batch in reader:
        room = batch.num_rows if not limit else min(limit - len(rows), batch.num_rows)
        more += batch.num_rows - room
        rows.extend(_rows_of(batch.slice(0, room)))
    fields = [field for field in reader.schema if field.name not in ("_weight", "_version")]
    document = {
        "branch": branch,
        "since": first,
        "until": last,
        "table": _name_of(lake, branch, table, first, last),
        "columns": [field.name for field in fields],
        "rows": rows,
        "more": more,
    }
    return document, [field.type for field in fields]


def _name_of(lake: Lake, branch: str, table: str, first: int, last: int) -> str:
    """The name as it was given to the table, which need not be there any more."""
    for version in (last, first):
        states = lake.snapshot(branch, version=version).states()
        if table in states:
            return states[table].name
    return table


def _rows_of(batch: Any) -> list[Document]:
    from tidelock.store.rows.json_values import python_values

    columns = [python_values(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _show_changes(call: Call, document: Document, types: list[pa.DataType]) -> None:
    from tidelock.cli.show.results import is_number

    output = call.output
    if not document["rows"]:
        output.line(f"No row of {document['table']} changed {_between(document)}.", "dim")
        return
    names = document["columns"]
    typed = list(zip(names, types, strict=True))
    rows = [
        [
            row["_version"],
            "+" if row["_weight"] > 0 else "-",
            *(shown_value(row[name], type_) for name, type_ in typed),
        ]
        for row in document["rows"]
    ]
    output.rows(["version", "", *names], rows, [True, True, *map(is_number, types)])
    if document["more"]:
        output.note(f"… and {count(document['more'], 'more change')}; --limit 0 shows all")


def _between(document: Document) -> str:
    return f"between version {document['since']} and {document['until']}"
