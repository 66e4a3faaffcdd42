"""`tidelock sql`: a query over one snapshot, or statements that become one commit."""

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

    from tidelock import Snapshot

ROWS_SHOWN = 100
COMMIT_PANEL = "The commit, of statements that change tables"
EXAMPLE = """
tidelock sql "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
tidelock sql -f report.sql --tag q1 -o report.csv
tidelock sql "DELETE FROM orders WHERE id = :id" --param id:int=7 -m "a mistake"
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
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="The value of :NAME in the text; NAME:int=5 and the like for other types than "
            "string: int, double, decimal, boolean, date, timestamp, null. May be repeated.",
        ),
    ] = None,
    message: Annotated[
        str,
        typer.Option("--message", "-m", metavar="TEXT", help="Why.", rich_help_panel=COMMIT_PANEL),
    ] = "",
    operation_id: Annotated[
        str | None,
        typer.Option(
            "--operation-id",
            metavar="ID",
            help="Execute once: a second run with this id does nothing.",
            rich_help_panel=COMMIT_PANEL,
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
    """Run a Spark SQL query over one snapshot, or statements that change tables.

    INSERT, UPDATE, DELETE, MERGE, TRUNCATE, CREATE TABLE and DROP TABLE, separated by semicolons,
    are one commit, or nothing is changed; queries among them see what those before them did.

    --json gives one document with the snapshot, the columns and the rows; --format json gives the
    rows alone, --format jsonl one object per line. Decimals are strings, moments ISO 8601 in UTC.
    Apache Spark takes some seconds to start; --engine sail is quick for small questions.
    """
    from tidelock.cli import reach
    from tidelock.cli.commands.sql.script import Script, execute_script, show_queries
    from tidelock.cli.parameters import read_parameters
    from tidelock.cli.show import results
    from tidelock.store.spark.sessions import could_not, engine_errors

    text = read_query(query, file)
    form = _form(call, format_, output)
    if output is not None:
        results.check_target(output)
    place = _one_point(at, version, tag)
    rows_max = limit if limit is not None else (ROWS_SHOWN if form == "table" else 0)
    script = Script.of(text, read_parameters(param or ()))
    if not script.is_one_query and form not in ("document", "table"):
        raise InvalidOption("--format and --output are for one query. Run it by itself.")
    if script.changes:
        if place is not None:
            raise InvalidOption(
                "Statements change the newest version: --at, --version and --tag are for queries."
            )
        execute_script(
            call,
            script,
            branch=branch,
            message=message,
            operation_id=operation_id,
            rows_max=rows_max,
        )
        return
    if message or operation_id:
        raise InvalidOption(
            "A query changes nothing: there is no commit that --message or --operation-id is for."
        )
    with call.open() as lake:
        snapshot = reach.find_snapshot(lake, place, branch)
        if not script.is_one_query:
            show_queries(call, script, snapshot, rows_max)
            return
        with call.output.waiting(starting(**call.engine)):
            frame = snapshot.sql(script.bound.text, script.bound.values)
        # The engine may have put its own handler in place.
        interrupts.raise_from_now(writes=False)
        failed = could_not("could not run the query")
        with call.output.waiting("Running the query…"), engine_errors(frame.sparkSession, failed):
            rows, more = results.fetch(frame, rows_max, counted=form == "table")
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
    from tidelock.cli.show.results import as_document

    return {
        "branch": snapshot.branch,
        "version": snapshot.version,
        **as_document(rows, more),
    }
