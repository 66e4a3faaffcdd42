"""`tidelock load`: files, or stdin, into a table, as one commit."""

from __future__ import annotations

import enum
import sys
from typing import Annotated

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.commands.table import split_names
from tidelock.cli.options import BranchOption, MessageOption
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count
from tidelock.cli.show.documents import Document
from tidelock.errors import InvalidOption

CSV_PANEL = "CSV"
CREATE_PANEL = "A table that is not there yet"
EXAMPLE = """
tidelock load orders orders.csv --mode upsert
cat orders.jsonl | tidelock load orders --format jsonl
tidelock load customers customers.csv --create --key id
tidelock load events 'landing/*.json' --create --only-new --on-bad-row quarantine
"""


class Mode(enum.StrEnum):
    append = "append"
    upsert = "upsert"
    overwrite = "overwrite"


class OnBadRow(enum.StrEnum):
    fail = "fail"
    quarantine = "quarantine"


class Format(enum.StrEnum):
    parquet = "parquet"
    csv = "csv"
    jsonl = "jsonl"


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
            "which the file does not have gets its default; overwrite replaces the table's "
            "content.",
        ),
    ] = Mode.append,
    format_: Annotated[
        Format | None, typer.Option("--format", "-F", help="Else told from each file's name.")
    ] = None,
    evolve: Annotated[
        bool,
        typer.Option("--evolve", help="Add columns that the files have and the table does not."),
    ] = False,
    on_bad_row: Annotated[
        OnBadRow,
        typer.Option(
            "--on-bad-row",
            help="fail refuses all of it; quarantine puts records that cannot be read into the "
            "table TABLE_quarantine, with file, line, reason and text.",
        ),
    ] = OnBadRow.fail,
    only_new: Annotated[
        bool,
        typer.Option("--only-new", help="Pass over files that were loaded with it before."),
    ] = False,
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
            help="Its columns; else they are inferred from the files, and shown.",
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
    Columns are matched by name; those that are not given get their defaults, also in rows that an
    upsert replaces. Those that the table does not have are refused, unless --evolve adds them. Text
    is UTF-8, and times without a zone are read in the session's time zone, which is UTC unless it
    was set. A file without content is refused: a CSV has at least its header, JSON lines at least
    one row. Memory does not grow with the size of the files.
    """
    names = files or ["-"]
    inferred: list[str] = []

    def show_inferred(told: object) -> None:
        inferred.append(str(told))
        if not call.output.as_json:
            call.output.line(f"Creating {table}: {told}")

    if not files and sys.stdin.isatty():
        raise InvalidOption("Name the files to load, or pipe rows to stdin.")
    with call.open(write=True) as lake, call.output.counting(f"loading {table}") as advance:
        report = lake.load(
            table,
            names,
            mode=mode.value,
            format=format_.value if format_ else None,
            delimiter=delimiter,
            nulls=null if null is not None else ("",),
            columns=split_names(columns),
            evolve=evolve,
            create=create,
            schema=schema,
            key=split_names(key),
            message=message,
            branch=branch,
            operation_id=operation_id,
            on_bad_row=on_bad_row.value,
            only_new=only_new,
            progress=advance,
            inferred=show_inferred,
        )
    document = {
        **documents.of_commit(report.commit),
        "loaded": report.loaded,
        "read": report.rows,
        "quarantined": report.quarantined,
        "known": report.known,
        "inferred": inferred[-1] if inferred else None,
    }
    call.output.answer(document, lambda: _show_load(call, document, table, mode))


def _show_load(call: Call, document: Document, table: str, mode: Mode) -> None:
    if document["known"] and not document["loaded"]:
        known = count(document["known"], "file")
        call.output.line(f"Nothing is new: {known} loaded before. Nothing was loaded.")
        return
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
    if document["known"]:
        call.output.line(f"Passed over {count(document['known'], 'file')} loaded before")
    if document["quarantined"]:
        aside = count(document["quarantined"], "record")
        call.output.line(f"Put {aside} aside in {table}_quarantine")
