"""`tidelock init` and `tidelock status`: a lake as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelock.cli.call import Call, command
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count, moment, seconds, shortened
from tidelock.cli.show.documents import Document
from tidelock.cli.show.sources import lag_behind
from tidelock.cli.show.writers import Writer, find_writers, show_writers
from tidelock.errors import InvalidOption, LakeExists
from tidelock.ingest.troubles import TROUBLES
from tidelock.model.printable import printable

if TYPE_CHECKING:
    from tidelock import Lake
    from tidelock.ingest.reports import SourceStatus

TOLD_MAX = 10
"""How many stream tables are named that something is wrong with."""
STATUS_WIDTH_MAX = 160


def register(app: typer.Typer) -> None:
    command(app, "init", example="tidelock init shop.lake")(init)
    command(app, "status", example="tidelock status --lake shop.lake")(status)


def init(
    call: Call,
    uri: Annotated[
        str | None,
        typer.Argument(metavar="URI", help="Where the lake is to be; else --lake, else here."),
    ] = None,
    exist_ok: Annotated[
        bool, typer.Option("--exist-ok", help="Succeed when there is a lake already.")
    ] = False,
) -> None:
    """Create an empty lake."""
    import os

    import tidelock
    from tidelock.store.lake_info import create_lake
    from tidelock.store.objects.kinds.location import locate
    from tidelock.store.objects.own_folder import is_lake

    if uri and call.lake and uri != call.lake:
        raise InvalidOption(f"Two lakes were named: {uri!r} and {call.lake!r}. Name one.")
    where = uri or call.lake or os.environ.get("TIDELOCK_LAKE") or "."
    location = locate(where, call.storage_options)
    if location.kind == "memory":
        raise InvalidOption(
            f"{where!r} would be gone when this command ends. Use a path or s3://bucket/prefix.",
            uri=where,
        )
    created = True
    try:
        objects = location.objects()
        is_lake(location, objects)
        create_lake(objects, on_files=location.kind == "file")
    except LakeExists:
        if not exist_ok:
            raise LakeExists(
                f"There is a lake at {where!r} already. Use it, or say --exist-ok.", uri=where
            ) from None
        created = False
    lake = tidelock.open(where, read_only=True, storage_options=call.storage_options)
    document = {"uri": lake.uri, "id": lake.info.id, "created": created}

    def show() -> None:
        verb = "Created an empty lake" if created else "There is a lake"
        call.output.line(f"{verb} at {lake.uri}")

    call.output.answer(document, show)


def status(
    call: Call,
    branch: Annotated[
        str, typer.Option("--branch", "-b", metavar="BRANCH", help="Whose tables to list.")
    ] = "main",
) -> None:
    """Show a lake as a whole: branches, tables, who is writing, what needs a decision.

    Also which sources are stopped or far behind, which stream tables are not kept up to date and
    why, which sinks are behind, and whether a process reads, refreshes and delivers what is due.
    """
    with call.open() as lake:
        writers = find_writers(call)
        document = _status(lake, branch, writers)
    call.output.answer(document, lambda: _show_status(call, document, writers))


def _status(lake: Lake, branch: str, writers: list[Writer]) -> Document:
    return {
        "uri": lake.uri,
        "id": lake.info.id,
        "format": lake.info.format,
        "created": moment(lake.info.created),
        "branches": [_branch(lake, ref.name) for ref in lake.branches()],
        "branch": branch,
        "tables": [documents.of_table(state) for state in lake.tables(branch=branch)],
        "tags": len(lake.tags()),
        "intents": [documents.of_writer(writer) for writer in writers],
        "unreadable_intents": [
            documents.of_unreadable(intent) for intent in lake.unreadable_intents()
        ],
        "recoveries": len(lake.recoveries()),
        "foreign_commits": [documents.of_foreign(one) for one in lake.foreign_commits()],
        "sources": [_source(one) for one in lake.sources()],
        "sinks": [{"name": sink.name, "state": sink.state} for sink in lake.sinks(newest=False)],
        "stream_tables": [
            {"name": one.name, "status": one.status, "schedule": one.schedule}
            for one in lake.stream_tables(branch=branch)
        ],
        "scheduler": documents.of_holder(lake.scheduler(branch=branch)),
    }


def _branch(lake: Lake, name: str) -> Document:
    snapshot = lake.snapshot(name)
    states = snapshot.tables()
    return {
        "name": name,
        "version": snapshot.version,
        # The empty lake was not made at any time.
        "time": moment(snapshot.time) if snapshot.time and snapshot.version else None,
        "tables": len(states),
        "rows": sum(state.rows for state in states),
    }


def _source(status: SourceStatus) -> Document:
    told = documents.of_source(status)
    shown = "name branch schedule state reason lag_seconds lag_bytes"
    return {
        **{name: told[name] for name in shown.split()},
        "far_behind": lag_behind(status.lag_seconds, status.lag_bytes),
    }


def _show_status(call: Call, document: Document, writers: list[Writer]) -> None:
    output = call.output
    output.facts(
        [
            ("lake", document["uri"]),
            ("id", document["id"]),
            ("format", str(document["format"])),
            ("created", seconds(document["created"])),
            ("tags", str(document["tags"])),
            ("recoveries", str(document["recoveries"])),
        ]
    )
    output.line()
    output.listing(
        ["branch", "version", "last commit", "tables", "rows"],
        [
            [b["name"], str(b["version"]), seconds(b["time"]), str(b["tables"]), f"{b['rows']:,}"]
            for b in document["branches"]
        ],
        "",
    )
    output.line()
    output.listing(
        ["table", "rows", "key", "changed in"],
        [
            [t["name"], f"{t['rows']:,}", ", ".join(t["key"]), f"version {t['changed']}"]
            for t in document["tables"]
        ],
        'No tables yet. Create one: tidelock table create orders "id BIGINT NOT NULL" --key id',
    )
    _show_sources(call, document["sources"])
    _show_streams(call, document["stream_tables"])
    _show_sinks(call, [sink["state"] for sink in document["sinks"]])
    _show_scheduler(call, document)
    show_writers(call, writers)
    _show_decisions(call, document)


def _show_streams(call: Call, streams: list[Document]) -> None:
    if not streams:
        return
    kinds = {
        "suspended": "suspended",
        "failed": "failing",
        "held back": "held back",
        "never": "never refreshed",
    }
    statuses = [one["status"] for one in streams]
    wanting = {
        told: sum(status.startswith(begin) for status in statuses) for begin, told in kinds.items()
    }
    call.output.line()
    _tell_counts(call, count(len(streams), "stream table"), wanting, "tidelock stream list")
    wrong = [one for one in streams if one["status"].startswith(("suspended", "failed"))]
    for one in wrong[:TOLD_MAX]:
        status = shortened(printable(one["status"]), STATUS_WIDTH_MAX)
        call.output.line(f"{one['name']}: {status}", "bold red")


def _show_sources(call: Call, sources: list[Document]) -> None:
    if not sources:
        return
    states = [one["state"] for one in sources]
    kinds = ("suspended", "stopped", "unreachable", "failing")
    wanting = {kind: states.count(kind) for kind in kinds}
    wanting["far behind"] = sum(one["far_behind"] for one in sources)
    call.output.line()
    _tell_counts(call, count(len(sources), "source"), wanting, "tidelock source list")
    for one in [one for one in sources if one["state"] in TROUBLES][:TOLD_MAX]:
        reason = shortened(printable(one["reason"]), STATUS_WIDTH_MAX)
        call.output.line(f"{one['name']}: {one['state']}: {reason}", "bold red")


def _show_sinks(call: Call, states: list[str]) -> None:
    if not states:
        return
    wanting = {state: states.count(state) for state in dict.fromkeys(states) if state != "current"}
    call.output.line()
    _tell_counts(call, count(len(states), "sink"), wanting, "tidelock sink list")


def _tell_counts(call: Call, all_: str, wanting: dict[str, int], where: str) -> None:
    said = ", ".join(f"{number:,} {told}" for told, number in wanting.items() if number)
    call.output.line(f"{all_}{f', of which {said}' if said else ''}: {where}")


def _show_scheduler(call: Call, document: Document) -> None:
    """Who keeps the stream tables and sinks up to date, if there are such that want it."""
    holder, branch = document["scheduler"], document["branch"]
    if holder is not None:
        since = f" since {seconds(holder['since'])}" if holder["since"] else ""
        call.output.line(f"{holder['owner']} refreshes and delivers on {branch}{since}")
    elif document["sinks"] or any(
        one["schedule"] for one in (*document["stream_tables"], *document["sources"])
    ):
        call.output.line(
            f"No process refreshes and delivers on {branch} by itself. Start one: tidelock run"
        )


def _show_decisions(call: Call, document: Document) -> None:
    """What stays as it is until an operator decides."""
    output = call.output
    for intent in document["unreadable_intents"]:
        output.line()
        output.line(f"The intent {intent['file']} cannot be read ({intent['cause']}).", "bold red")
        output.line(
            "Writing is refused until it is looked into. Then remove it: "
            f"tidelock repair --discard-intent {intent['file']}"
        )
    for foreign in document["foreign_commits"]:
        output.line()
        output.line(
            f"Somebody else committed Lance version {foreign['actual']} of {foreign['table']} "
            f"({count(foreign['rows'], 'row')}).",
            "bold red",
        )
        output.line(f"Decide: tidelock repair {foreign['table']} --adopt, or --discard")
