"""`tidelock sql`: a Spark SQL query over one snapshot."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelock.cli import interrupts
from tidelock.cli.call import Call, command
from tidelock.cli.options import SNAPSHOT_PANEL, AtOption, SnapshotBranchOption
from tidelock.cli.show.cells import count
from tidelock.cli.show.engines import starting
from tidelock.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from tidelock import Snapshot

ROWS_SHOWN = 100
EXAMPLE = """
tidelock sql "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
tidelock sql -f report.sql --tag q1 -o report.csv
"""


class Format(enum.StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    jsonl = "jsonl"
    parquet = "parquet"


def register(app: typer.Typer) -> None:
    command(app, "sql", example=EXAMPLE, engine=True)(sql)


def sql(
    call: Call,
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="The query; - reads it from stdin.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read the query from a file."),
    ] = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", "-F", help="Else by the name of the output file, else a table."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the result to a file."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            help="How many rows; 0 is all. A table shows 100, others all.",
        ),
    ] = None,
    branch: SnapshotBranchOption = None,
    at: AtOption = None,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            metavar="VERSION",
            min=0,
            help="Short for --at with a version.",
            rich_help_panel=SNAPSHOT_PANEL,
        ),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(
            "--tag",
            metavar="TAG",
            help="Short for --at with a tag.",
            rich_help_panel=SNAPSHOT_PANEL,
        ),
    ] = None,
) -> None:
    """Run a Spark SQL query over one snapshot of the lake.

    --json gives one document with the snapshot, the columns and the rows; --format json gives the
    rows alone, --format jsonl one object per line. Decimals are strings, moments ISO 8601 in UTC.
    Apache Spark takes some seconds to start; --engine sail is quick for small questions.
    """
    from tidelock.cli import reach
    from tidelock.cli.show import results
    from tidelock.store.spark.sessions import could_not, engine_errors

    text = read_query(query, file)
    form = _form(call, format_, output)
    if output is not None:
        results.check_target(output)
    place = _one_point(at, version, tag)
    rows_max = limit if limit is not None else (ROWS_SHOWN if form == "table" else 0)
    with call.open() as lake:
        snapshot = reach.find_snapshot(lake, place, branch)
        with call.output.waiting(starting(**call.engine)):
            frame = snapshot.sql(text)
        # The engine may have put its own handler in place.
        interrupts.raise_from_now(writes=False)
        failed = could_not("could not run the query")
        with call.output.waiting("Running the query…"), engine_errors(frame.sparkSession, failed):
            rows, more = _fetch(frame, rows_max, counted=form == "table")
        _give(call, form, output, snapshot, rows, more)


def _one_point(at: str | None, version: int | None, tag: str | None) -> str | None:
    given = [str(one) for one in (at, version, tag) if one is not None]
    if len(given) > 1:
        raise InvalidOption("A snapshot is named by one of --at, --version and --tag.", given=given)
    return given[0] if given else None


def read_query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise InvalidOption("Give a query, --file FILE, or - to read it from stdin: one of them.")
    if file is not None:
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidOption(
                f"{str(file)!r} cannot be read: {error}.", file=str(file)
            ) from error
    else:
        text = sys.stdin.read() if query == "-" else str(query)
    # A statement in a file often ends with one, and Spark does not want it.
    text = text.strip().rstrip(";").strip()
    if not text:
        raise InvalidOption("The query is empty.")
    return text


def _form(call: Call, given: Format | None, file: Path | None) -> str:
    from tidelock.cli.show.results import choose_format

    if call.json:
        if given is not None or file is not None:
            raise InvalidOption("--json answers on stdout. Use --format json with --output.")
        return "document"
    form = choose_format(given.value if given else None, file)
    if form == "table" and file is not None:
        raise InvalidOption("A table is for people. Write csv, json, jsonl or parquet to a file.")
    if form == "parquet" and file is None and sys.stdout.isatty():
        raise InvalidOption("Parquet is not for a terminal. Use -o FILE, or a pipe.")
    return form


def _fetch(frame: DataFrame, rows_max: int, *, counted: bool) -> tuple[pa.Table, int]:
    """The first rows, and how many more there are, if that is asked for."""
    if not rows_max:
        return frame.toArrow(), 0
    rows = frame.limit(rows_max + 1).toArrow()
    if rows.num_rows <= rows_max:
        return rows, 0
    return rows.slice(0, rows_max), frame.count() - rows_max if counted else 1


def _give(
    call: Call, form: str, file: Path | None, snapshot: Snapshot, rows: pa.Table, more: int
) -> None:
    from tidelock.cli.show import results

    if form == "document":
        call.output.document(_document(snapshot, rows, more))
    elif form == "table":
        results.show_rows(call.output, rows)
        told = f"{count(rows.num_rows, 'row')} at version {snapshot.version}"
        call.output.note(told + (f"; {more:,} more: --limit 0 shows all" if more else ""))
    else:
        results.write_rows(rows, form, file)
        if file is not None:
            call.output.note(f"{count(rows.num_rows, 'row')} written to {file}")


def _document(snapshot: Snapshot, rows: pa.Table, more: int) -> dict[str, Any]:
    from tidelock.cli.show.results import rows_as_objects
    from tidelock.model.ddl import type_name

    return {
        "branch": snapshot.branch,
        "version": snapshot.version,
        "columns": [{"name": f.name, "type": type_name(f.type)} for f in rows.schema],
        "rows": rows_as_objects(rows),
        "complete": not more,
    }
