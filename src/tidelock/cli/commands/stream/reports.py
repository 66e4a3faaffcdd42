"""What `tidelock stream` shows: which stream tables there are, and where each of them stands."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.options import BranchOption, StreamArgument
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count, duration
from tidelock.cli.show.documents import Document
from tidelock.cli.show.engines import starting
from tidelock.model.printable import printable

NONE = 'No stream tables yet. Create one: tidelock stream create NAME --query "SELECT …"'


def register(stream: typer.Typer) -> None:
    command(stream, "list", example="tidelock stream list")(list_)
    command(stream, "show", example="tidelock stream show totals")(show)
    command(stream, "explain", engine=True, example="tidelock stream explain totals --sql")(explain)
    command(stream, "history", example="tidelock stream history totals --limit 5")(history)
    command(stream, "graph", example="tidelock stream graph --format mermaid")(graph)
    command(stream, "groups", example="tidelock stream groups")(groups)


def list_(call: Call, branch: BranchOption = "main") -> None:
    """List the stream tables, upstream first, and where they stand."""
    with call.open() as lake:
        found = lake.stream_tables(branch=branch)
    call.output.answer(
        [documents.of_stream(stream) for stream in found],
        lambda: call.output.listed(found, NONE, "tidelock stream show NAME"),
    )


def show(call: Call, name: StreamArgument, branch: BranchOption = "main") -> None:
    """Show a stream table: its query, its options, and how far it is behind its inputs."""
    with call.open() as lake:
        freshness = lake.freshness(name, branch=branch)
        streams = lake.stream_tables(branch=branch)
    found = next(one for one in streams if one.name == freshness.table)
    document = {
        **documents.of_stream(found),
        "freshness": documents.of_freshness(freshness),
    }
    call.output.answer(document, lambda: _show_stream(call, document))


def _show_stream(call: Call, document: Document) -> None:
    for line in document["query"].strip().splitlines():
        call.output.line(printable(line.replace("\t", "    ")))
    call.output.line()
    call.output.facts(
        [
            ("name", document["name"]),
            ("schedule", document["schedule"] or "manual"),
            ("mode", document["refresh_mode"]),
            ("group", document["group"] or "none"),
            ("consistency", document["consistency"]),
            ("policy", document["schedule_policy"]),
            ("inputs", ", ".join(document["inputs"])),
            ("rows", f"{document['rows']:,}"),
            ("as of", f"version {document['as_of']}" if document["as_of"] else "never"),
            ("epoch", str(document["epoch"])),
            ("status", document["status"]),
            ("behind", _behind(document["freshness"])),
            ("defined in", document["origin"] or "no file"),
        ]
    )


def _behind(freshness: Document) -> str:
    if freshness["current"]:
        return "no: nothing that it is computed from has changed since"
    changed = ", ".join(freshness["waiting_for"])
    return (
        f"{count(freshness['behind_versions'], 'commit')} of {changed}, for "
        f"{duration(freshness['behind_seconds'])}"
    )


def explain(
    call: Call,
    name: StreamArgument,
    sql: Annotated[
        bool,
        typer.Option("--sql", help="Show also what the engine is asked when an input changes."),
    ] = False,
    branch: BranchOption = "main",
) -> None:
    """Explain how a stream table is kept: operators, state, and how its next refresh is done."""
    with call.open() as lake, call.output.waiting(starting(**call.engine)):
        found = lake.explain(name, branch=branch)

    def show_text() -> None:
        for line in found.text.splitlines():
            call.output.line(printable(line))
        for one in found.sql if sql else ():
            call.output.line(f"Segment {one.segment}, when {one.input} changes:")
            call.output.line(f"    {printable(one.sql)}")

    call.output.answer(documents.of_explanation(found), show_text)


def history(
    call: Call,
    name: StreamArgument,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", metavar="N", min=0, help="How many attempts; 0 shows all."),
    ] = 20,
    branch: BranchOption = "main",
) -> None:
    """Show every attempt to refresh a stream table, newest first, failures included.

    Rows in and out mean what they mean in the report of `tidelock stream refresh`.
    """
    with call.open() as lake:
        found = lake.history(name, limit or None, branch=branch)
    call.output.answer(
        [documents.of_attempt(attempt) for attempt in found],
        lambda: call.output.listed(
            found,
            f"{name} was never refreshed: tidelock stream refresh {name}",
        ),
    )


def graph(
    call: Call,
    format_: Annotated[
        Literal["text", "mermaid", "dot"],
        typer.Option("--format", "-F", help="For people, for Mermaid, or for Graphviz."),
    ] = "text",
    branch: BranchOption = "main",
) -> None:
    """Draw who is computed from whom, and the groups that are refreshed together."""
    with call.open() as lake:
        found = lake.graph(branch=branch)
    drawn = {"text": found.text, "mermaid": found.mermaid, "dot": found.dot}[format_]
    document = {
        "tables": list(found.nodes),
        "stream_tables": list(found.graph.stream_tables),
        "edges": [list(edge) for edge in found.edges],
        "groups": [{"name": one.name, "members": list(one.members)} for one in found.groups],
    }

    def draw() -> None:
        if found.nodes or format_ != "text":
            call.output.raw(drawn())
        else:
            call.output.line(NONE, "dim")

    call.output.answer(document, draw)


def groups(call: Call, branch: BranchOption = "main") -> None:
    """List the groups that are refreshed in one commit, and what each is waiting for."""
    with call.open() as lake:
        found = lake.groups(branch=branch)
    call.output.answer(
        [documents.of_group(group) for group in found],
        lambda: call.output.listed(
            found,
            "No groups: no two paths from one table meet in a stream table.",
            "tidelock stream groups --json",
        ),
    )
