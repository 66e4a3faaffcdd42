"""`tidelock table`: tables, their columns, and a look at their rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.options import (
    AtOption,
    BranchOption,
    MessageOption,
    SnapshotBranchOption,
    TableArgument,
)
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count
from tidelock.cli.show.documents import Document
from tidelock.errors import InvalidOption
from tidelock.model.time.durations import show_size

if TYPE_CHECKING:
    from tidelock import Table

KeyOption = Annotated[
    str | None,
    typer.Option("--key", "-k", metavar="COLUMNS", help="The key, such as id or region,id."),
]
SCHEMA = "id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2)"


def register(app: typer.Typer) -> None:
    table = typer.Typer(no_args_is_help=True, help="Create, list, show, mirror and drop tables.")
    command(table, "create", example=f'tidelock table create orders "{SCHEMA}" --key id')(create)
    command(table, "list", example="tidelock table list")(list_)
    command(table, "show", example="tidelock table show orders --rows 5")(show)
    command(table, "mirror", example="tidelock table mirror orders")(mirror)
    command(table, "drop", example="tidelock table drop orders")(drop)
    app.add_typer(table, name="table")


def split_names(names: str | None) -> list[str] | None:
    """Columns as they are written on the command line: id or region,id."""
    return [name.strip() for name in names.split(",")] if names else None


def create(
    call: Call,
    name: TableArgument,
    schema: Annotated[
        str | None, typer.Argument(metavar="SCHEMA", help="The columns, in Spark's DDL.")
    ] = None,
    key: KeyOption = None,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like", metavar="FILE", help="Take the columns from a Parquet file instead."
        ),
    ] = None,
    branch: BranchOption = "main",
    message: MessageOption = "",
) -> None:
    """Create an empty table."""
    from tidelock.ingest.files.parquet import parquet_schema

    if (schema is None) == (like is None):
        raise InvalidOption(
            f'Give the columns, such as "{SCHEMA}", or --like file.parquet: one of them.'
        )
    columns: Any = schema if like is None else parquet_schema(like)
    with call.open(write=True) as lake:
        commit = lake.create_table(name, columns, split_names(key), branch=branch, message=message)
    call.output.answer(
        documents.of_commit(commit),
        lambda: call.output.line(f"Created table {name}: version {commit.version}"),
    )


def list_(call: Call, branch: SnapshotBranchOption = None, at: AtOption = None) -> None:
    """List the tables of a snapshot."""
    from tidelock.cli import reach

    with call.open() as lake:
        snapshot = reach.find_snapshot(lake, at, branch)
        found = snapshot.tables()
    call.output.answer(
        [documents.of_table(state) for state in found],
        lambda: call.output.listed(
            found,
            f'No tables yet. Create one: tidelock table create orders "{SCHEMA}" --key id',
        ),
    )


def show(
    call: Call,
    name: TableArgument,
    rows: Annotated[
        int,
        typer.Option("--rows", "-r", metavar="N", min=0, help="Show so many of its rows too."),
    ] = 0,
    branch: SnapshotBranchOption = None,
    at: AtOption = None,
) -> None:
    """Show a table: its columns, its key, how much it holds and where it is."""
    from tidelock.cli import reach

    with call.open() as lake:
        snapshot = reach.find_snapshot(lake, at, branch)
        table = snapshot.table(name)
        document = {"branch": snapshot.branch, "version": snapshot.version, **_describe(table)}
        sample = table.to_arrow(limit=rows) if rows else None
    if sample is not None:
        from tidelock.cli.show.results import rows_as_objects

        document["sample"] = rows_as_objects(sample)
    call.output.answer(document, lambda: _show_table(call, document, sample))


def _describe(table: Table) -> Document:
    from tidelock.model.schema.column_ddl import to_ddl
    from tidelock.model.types import type_name
    from tidelock.store.upkeep.maintenance import fragment_sizes, segments_of

    sizes = fragment_sizes(table.dataset)
    rows = sum(one.rows for one in sizes)
    document = documents.of_table(table.state)
    covered = min(
        (sum(s.rows for s in segments_of(table.dataset, column)) for column in table.key),
        default=0,
    )
    return document | {
        "columns": [
            {"name": c.name, "type": type_name(c.type), "nullable": c.nullable}
            for c in table.schema.columns
        ],
        "ddl": to_ddl(table.schema),
        "fragments": len(sizes),
        "deleted_rows": sum(one.deleted for one in sizes),
        "bytes": sum(one.size_bytes for one in sizes),
        "indexed_rows": min(covered, rows),
        "path": table.path,
    }


def _show_table(call: Call, document: Document, sample: Any) -> None:
    output = call.output
    key = set(document["key"])
    output.listing(
        ["column", "type", "", ""],
        [
            [
                c["name"],
                c["type"],
                "" if c["nullable"] else "NOT NULL",
                "key" if c["name"] in key else "",
            ]
            for c in document["columns"]
        ],
        "",
    )
    output.line()
    output.facts(
        [
            ("rows", f"{document['rows']:,}"),
            (
                "size",
                f"{show_size(document['bytes'])} in {count(document['fragments'], 'fragment')}",
            ),
            *([("key index", _indexed(document))] if key else []),
            ("changed in", f"version {document['changed']}"),
            ("id", document["id"]),
            ("path", document["path"]),
        ]
    )
    if sample is not None:
        from tidelock.cli.show.results import show_rows

        output.line()
        show_rows(output, sample)


def _indexed(document: Document) -> str:
    from tidelock.store.upkeep.fold_plan import INDEX_ROWS_MIN

    if not document["indexed_rows"] and document["rows"] < INDEX_ROWS_MIN:
        return f"none yet (from {INDEX_ROWS_MIN:,} rows)"
    return f"{document['indexed_rows']:,} of {count(document['rows'], 'row')}"


def mirror(call: Call, name: TableArgument) -> None:
    """Make the Lance HEAD of a table equal to main, so that any Lance reader can open it."""
    with call.open(write=True) as lake:
        made = lake.mirror(name)
        path = lake.table(name).path
    document = {"table": name, "path": path, "head": made.head, "pin": made.pin}

    def show_mirror() -> None:
        call.output.line(f"Lance version {made.head} of {name} is what main holds now. Read it:")
        call.output.line(f"  lance.dataset({path!r})")

    call.output.answer(document, show_mirror)


def drop(
    call: Call,
    name: TableArgument,
    cascade: Annotated[
        bool,
        typer.Option(
            "--cascade", help="Drop the stream tables that read it, and what refers to it, too."
        ),
    ] = False,
    branch: BranchOption = "main",
    message: MessageOption = "",
) -> None:
    """Drop a table. Earlier versions still show it while they are retained."""
    with call.open(write=True) as lake:
        commit = lake.drop_table(name, cascade=cascade, branch=branch, message=message)
    call.output.answer(
        documents.of_commit(commit),
        lambda: call.output.line(f"Dropped table {name}: version {commit.version}"),
    )
