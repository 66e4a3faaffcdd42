"""`tidelock log`, `show` and `diff`: what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.options import POINT, BranchOption
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count, for_people, shown_value
from tidelock.cli.show.documents import Document

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelock import Lake

COUNTS = ("inserted", "updated", "deleted")


def register(app: typer.Typer) -> None:
    command(app, "log", example="tidelock log --limit 5 --table orders")(log)
    command(app, "show", example="tidelock show 2")(show)
    command(app, "diff", example="tidelock diff 1\ntidelock diff 1 2 --table orders")(diff)


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


def diff(
    call: Call,
    since: Annotated[str, typer.Argument(metavar="FROM", help=f"{POINT}; not included.")],
    until: Annotated[
        str | None, typer.Argument(metavar="TO", help="The same; included. Else the newest.")
    ] = None,
    branch: BranchOption = "main",
    table: Annotated[
        str | None,
        typer.Option("--table", "-t", metavar="TABLE", help="Show the changed rows of this table."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", metavar="N", min=0, help="How many changed rows; 0 shows all."
        ),
    ] = 100,
) -> None:
    """Show what the commits after FROM, up to TO, did.

    Rows that were inserted, updated and deleted are counted for each table over all of these
    commits, as the writers did it: a row that one commit inserts and deletes counts in both. With
    --table the changed rows themselves are shown in commit order: + for inserted, - for deleted; an
    update is one of each. These are netted within each commit, so that a row which it inserts and
    deletes is not shown.
    """
    from tidelock.cli import reach
    from tidelock.errors import InvalidOption

    with call.open() as lake:
        first = reach.version_on(lake, since, branch)
        last = reach.version_on(lake, until, branch) if until else lake.snapshot(branch).version
        if first > last:
            raise InvalidOption(
                f"FROM, version {first}, is after TO, version {last}. Give the older one first: "
                f"tidelock diff {until or last} {since}",
                since=first,
                until=last,
            )
        if table is None:
            document = _count_changes(lake, branch, first, last)
            call.output.answer(document, lambda: _show_counts(call, document))
        else:
            document, types = _read_changes(lake, branch, table, first, last, limit)
            call.output.answer(document, lambda: _show_changes(call, document, types))


def _count_changes(lake: Lake, branch: str, first: int, last: int) -> Document:
    newest = lake.snapshot(branch).version
    tables: dict[str, Document] = {}
    for commit in reversed(lake.log(branch, newest - first) if newest > first else ()):
        if commit.version > last or commit.kind == "maintenance":
            continue
        for change in commit.shown:
            found = tables.setdefault(
                change.table_id,
                {"created": change.before is None, **dict.fromkeys(COUNTS, 0)},
            )
            found["table"] = change.table
            found["id"] = change.table_id
            found["dropped"] = change.after is None
            for name in COUNTS:
                found[name] += getattr(change, name)
    keys = ("table", "id", *COUNTS, "created", "dropped")
    ordered = sorted(tables.values(), key=lambda found: found["table"])
    return {
        "branch": branch,
        "from": first,
        "to": last,
        "tables": [{key: found[key] for key in keys} for found in ordered],
    }


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
        "from": first,
        "to": last,
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


def _show_counts(call: Call, document: Document) -> None:
    call.output.listing(
        ["table", *COUNTS, ""],
        [[t["table"], *(f"{t[c]:,}" for c in COUNTS), _event(t)] for t in document["tables"]],
        f"No row changed {_between(document)}.",
    )


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
        output.note(f"… and {count(document['more'], 'more changed row')}; --limit 0 shows all")


def _between(document: Document) -> str:
    return f"between version {document['from']} and {document['to']}"
