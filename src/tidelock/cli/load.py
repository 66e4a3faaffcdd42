"""`tidelock load`: files, or stdin, into a table, as one commit."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelock.cli import documents
from tidelock.cli.call import Call, command
from tidelock.cli.cells import count
from tidelock.cli.documents import Document
from tidelock.cli.options import BranchOption, MessageOption
from tidelock.cli.table import split_key
from tidelock.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelock import Table, Transaction
    from tidelock.cli.files import RowFile
    from tidelock.model.schema import TableSchema

CSV_PANEL = "CSV"
CREATE_PANEL = "A table that is not there yet"
EXAMPLE = """
tidelock load orders orders.csv --mode upsert
cat orders.jsonl | tidelock load orders --format jsonl
tidelock load customers customers.parquet --create --key id
"""


class Mode(enum.StrEnum):
    append = "append"
    upsert = "upsert"
    overwrite = "overwrite"


class Format(enum.StrEnum):
    parquet = "parquet"
    csv = "csv"
    jsonl = "jsonl"


@dataclass(frozen=True)
class Load:
    """What is loaded into which table, and how it is created, if it is to be."""

    table: str
    files: list[RowFile]
    mode: Mode
    create: Callable[[Transaction, str], None] | None


def register(app: typer.Typer) -> None:
    command(app, "load", example=EXAMPLE)(load)


def load(
    call: Call,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table to load into.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Files; folders, for the files directly in them; patterns in quotes, such as "
            "'day/**/*.csv'. None, or -, is stdin.",
        ),
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            "--mode",
            help="append refuses known keys; upsert replaces their whole rows, so that a column "
            "which the file does not have becomes NULL; overwrite replaces the table's content.",
        ),
    ] = Mode.append,
    format_: Annotated[
        Format | None, typer.Option("--format", "-F", help="Else told from each file's name.")
    ] = None,
    message: MessageOption = "",
    branch: BranchOption = "main",
    operation_id: Annotated[
        str | None,
        typer.Option(
            "--operation-id",
            metavar="ID",
            help="Load once: a second run with this id does nothing.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            "--delimiter", "-d", metavar="TEXT", help="Else a comma.", rich_help_panel=CSV_PANEL
        ),
    ] = None,
    null: Annotated[
        list[str] | None,
        typer.Option(
            "--null",
            metavar="TEXT",
            help="What stands for NULL, outside quotes; may be repeated. Else the empty field.",
            rich_help_panel=CSV_PANEL,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="COLUMNS",
            help="The columns of files without a header, such as id,name.",
            rich_help_panel=CSV_PANEL,
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Create the table if it is missing. If it exists, it must be as --schema and "
            "--key say.",
            rich_help_panel=CREATE_PANEL,
        ),
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="DDL",
            help="Its columns; else those of the first Parquet file.",
            rich_help_panel=CREATE_PANEL,
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            "-k",
            metavar="COLUMNS",
            help="Its key, such as id or region,id.",
            rich_help_panel=CREATE_PANEL,
        ),
    ] = None,
) -> None:
    """Load files into a table as one commit.

    All files are loaded, or nothing is: a bad value is reported with its file, line and column.
    Columns are matched by name; those that are not given become NULL, also in rows that an upsert
    replaces. Text is UTF-8, and times without a zone are read in the session's time zone, which is
    UTC unless it was set. A file without content is refused: a CSV has at least its header, JSON
    lines at least one row. Memory does not grow with the size of the files.
    """
    from tidelock.cli.files import Reading, find_files
    from tidelock.run.session import Engine

    if (schema or key) and not create:
        raise InvalidOption("--schema and --key are for --create.")
    reading = Reading(
        format_.value if format_ else None,
        _one_character(delimiter),
        tuple(null) if null is not None else ("",),
        tuple(name.strip() for name in columns.split(",")) if columns else None,
        Engine().zone,
    )
    found = find_files(files or [], reading)
    wanted = Load(table, found, mode, _creation(create, schema, key, found))
    with (
        call.open(write=True) as lake,
        call.output.counting(f"loading {table}") as advance,
        lake.transaction(
            message or _reason(found), branch=branch, operation_id=operation_id
        ) as transaction,
    ):
        read = _stage(wanted, transaction, advance)
    commit = transaction.commit
    assert commit is not None
    # An operation that was published before gives its commit, which this transaction began after.
    loaded = commit.version > transaction.base_version
    document = {**documents.of_commit(commit), "loaded": loaded, "read": read}
    call.output.answer(document, lambda: _show_load(call, document, table, mode))


def _reason(files: list[RowFile]) -> str:
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return f"load {', '.join(file.shown for file in files[:3])}{more}"


def _one_character(delimiter: str | None) -> str | None:
    if delimiter is None:
        return None
    found = "\t" if delimiter in ("\\t", "tab") else delimiter
    if len(found) != 1:
        raise InvalidOption(f"A delimiter is one character, not {delimiter!r}.")
    return found


def _creation(
    create: bool, schema: str | None, key: str | None, files: list[RowFile]
) -> Callable[[Transaction, str], None] | None:
    """What creates the table in the same transaction, if that is wanted and it is missing."""
    from tidelock.cli.files import STDIN, parquet_schema

    if not create:
        return None
    first = files[0]

    def make(transaction: Transaction, table: str) -> None:
        if table in transaction.tables():
            _refuse_contradiction(transaction.table(table), schema, key)
            return
        if schema is None and (first.format != "parquet" or first.name == STDIN):
            raise InvalidOption(
                "Only a Parquet file says what its columns are. Give them: "
                '--schema "id BIGINT NOT NULL, name STRING".'
            )
        columns: Any = schema if schema is not None else parquet_schema(Path(first.name))
        transaction.create_table(table, columns, split_key(key))

    return make


def _refuse_contradiction(table: Table, schema: str | None, key: str | None) -> None:
    """A table that is there must be the one that would have been created."""
    from tidelock.model.ddl import parse_schema, to_ddl
    from tidelock.model.names import fold

    given, actual = split_key(key), list(table.key)
    if given is not None and [*map(fold, given)] != [*map(fold, actual)]:
        shown = f"the key ({', '.join(actual)})" if actual else "no key"
        raise InvalidOption(
            f"The table {table.name!r} exists and has {shown}, not ({', '.join(given)}). Leave "
            "--key out, or load into another table.",
            table=table.name,
            expected=given,
            actual=actual,
        )
    if schema is None:
        return
    wanted = parse_schema(schema)
    if _columns_of(wanted, actual) != _columns_of(table.schema, actual):
        raise InvalidOption(
            f"The table {table.name!r} exists and has the columns {to_ddl(table.schema)}, not "
            f"{to_ddl(wanted)}. Leave --schema out, or load into another table.",
            table=table.name,
            expected=to_ddl(wanted),
            actual=to_ddl(table.schema),
        )


def _columns_of(schema: TableSchema, key: list[str]) -> dict[str, tuple[pa.DataType, bool]]:
    """Types and whether they may be NULL, which a key may not, whether or not that was written."""
    from tidelock.model.names import fold

    required = {fold(name) for name in key}
    return {
        fold(column.name): (column.type, column.nullable and fold(column.name) not in required)
        for column in schema.columns
    }


def _stage(wanted: Load, transaction: Transaction, advance: Callable[[int], None]) -> int:
    """Stage all rows of all files; returns how many there were."""
    from tidelock.cli.files import read_file

    if wanted.create is not None:
        wanted.create(transaction, wanted.table)
    target = transaction.table(wanted.table)
    read = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for file in wanted.files:
            for batch in read_file(file, target.schema, target.name):
                read += batch.num_rows
                advance(batch.num_rows)
                yield batch

    stage = {
        Mode.append: transaction.append,
        Mode.upsert: transaction.upsert,
        Mode.overwrite: transaction.overwrite,
    }[wanted.mode]
    stage(wanted.table, batches())
    return read


def _show_load(call: Call, document: Document, table: str, mode: Mode) -> None:
    if not document["loaded"]:
        call.output.line(
            f"This operation was done before, as version {document['version']}. Nothing was loaded."
        )
        return
    change = next((t for t in document["tables"] if not t["dropped"]), None)
    total = f", {count(change['rows'], 'row')} in all" if change else ", which changed no row"
    call.output.line(
        f"Loaded {count(document['read'], 'row')} into {table} ({mode.value}): "
        f"version {document['version']}{total}"
    )
