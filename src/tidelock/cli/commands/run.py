"""`tidelock run`: the scheduler as a process.

Owns: how it begins, what it says and how it ends. What is due is decided from the lake alone, so
that a process which was killed is resumed by starting another.

    SIGTERM, SIGINT     what has begun is finished and published; exit code 0
    the second one      the process ends at once (background.py)
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelock.cli.background import Background
from tidelock.cli.call import Call, command
from tidelock.cli.options import BranchOption
from tidelock.cli.show import documents
from tidelock.cli.show.cells import count, moment, seconds
from tidelock.model.printable import printable

if TYPE_CHECKING:
    from tidelock import Lake
    from tidelock.deliver.reports import DeliveryReport
    from tidelock.derive.attempts.attempts import Attempt
    from tidelock.ingest.reports import IngestReport
    from tidelock.store.leases.single_holder import Holder


def register(app: typer.Typer) -> None:
    command(app, "run", engine=True, example="tidelock run --lake shop.lake")(run)


def run(
    call: Call,
    once: Annotated[bool, typer.Option("--once", help="Do what is due now, and end.")] = False,
    branch: BranchOption = "main",
) -> None:
    """Read sources, refresh stream tables and deliver to sinks as they become due, until SIGTERM
    or Ctrl-C.

    Each refresh, delivery or batch of a source is one line, or one JSON object with --json; a
    terminal shows all sources and tables instead. One process at a time does this for a branch.
    Another one waits, and takes over when the first one ends or dies. With --once sources that are
    due, live ones too, are read as far as they are by now, and a line tells also what is passed
    over because it is suspended or backing off; it ends with exit code 9 when a table failed or was
    passed over so, 10 when a sink could not deliver, and 11 when a source could not be read.
    """
    with call.open(write=True) as lake:
        if once:
            _run_once(call, lake, branch)
        else:
            _run_on(call, lake, branch)


def _run_once(call: Call, lake: Lake, branch: str) -> None:
    from tidelock.cli.commands.sink import end_by as end_by_deliveries
    from tidelock.cli.commands.source import end_by as end_by_sources
    from tidelock.cli.commands.stream.stream import end_by

    background = Background(lake)
    rounds = background.run(lambda: lake.ingest_due(branch=branch, stop=background.stop))
    for round_ in rounds:
        if round_.action != "idle":
            _tell_ingest(call, round_)

    def attempted(attempt: Attempt) -> None:
        if attempt.action != "none":
            _tell_attempt(call, attempt)

    found = background.run(
        lambda: lake.refresh(
            due=True,
            branch=branch,
            progress=attempted,
            begun=lambda unit: background.need_engine(),
            stop=background.stop,
        )
    )
    deliveries = list(lake.deliver(stop=background.stop))
    for report in deliveries:
        if report.action in ("delivered", "refused", "failed"):
            _tell_delivery(call, report)
    end_by(found, background)
    end_by_deliveries(deliveries, background)
    end_by_sources(rounds, background)


def _run_on(call: Call, lake: Lake, branch: str) -> None:
    from tidelock.cli.show.refresh_view import RefreshView
    from tidelock.run.scheduler import Watcher

    background = Background(lake)
    view = RefreshView()
    with nullcontext(False) if call.json else view.shown(call.output) as drawn:

        def attempted(attempt: Attempt) -> None:
            view.attempted(attempt)
            if not drawn and attempt.action != "none":
                _tell_attempt(call, attempt)

        def started() -> None:
            _tell(call, {"event": "started", "branch": branch}, f"Refreshing {branch}")
            if lake.stream_tables(branch=branch):
                # Told apart from a table that fails: without an engine there is nothing to run for.
                background.need_engine()

        shown_at = -1

        def look() -> None:
            nonlocal shown_at
            # What becomes of refreshes is told as it happens; the rest changes with a commit.
            if not drawn:
                return
            view.follow_sources([one for one in lake.sources() if one.branch == branch])
            if (version := lake.snapshot(branch).version) != shown_at:
                view.follow(lake.stream_tables(branch=branch))
                shown_at = version

        def waiting(holder: Holder) -> None:
            _tell_waiting(call, holder, branch)

        def delivered(report: DeliveryReport) -> None:
            if not drawn:
                _tell_delivery(call, report)

        def ingested(report: IngestReport) -> None:
            view.ingested(report)
            if not drawn:
                _tell_ingest(call, report)

        watcher = Watcher(view.begun, attempted, waiting, started, delivered, ingested)
        background.run(
            lambda: lake.serve_schedule(branch=branch, stop=background.stop, watcher=watcher), look
        )
    _tell(call, {"event": "stopped", "branch": branch}, "Stopped.")


def _tell_attempt(call: Call, attempt: Attempt) -> None:
    from tidelock.cli.show.refresh_view import told

    if call.json:
        _tell(call, {"event": "refresh", **documents.of_attempt(attempt)}, "")
    else:
        call.output.line(told(attempt))
        sys.stdout.flush()


def _tell_delivery(call: Call, report: DeliveryReport) -> None:
    if call.json:
        _tell(call, {"event": "delivery", **documents.of_delivery(report)}, "")
        return
    sent = ""
    if report.rows:
        sent = f"{count(report.rows, 'row')} in {count(report.chunks, 'chunk')}"
    now = seconds(moment(datetime.now(UTC)))
    done = ", ".join(filter(None, (report.action, sent, report.reason)))
    call.output.line(printable(f"{now}  {report.sink}  {done}"))
    sys.stdout.flush()


def _tell_ingest(call: Call, report: IngestReport) -> None:
    from tidelock.cli.show.sources import told

    if call.json:
        _tell(call, {"event": "ingest", **documents.of_ingest(report)}, "")
    else:
        call.output.line(told(report))
        sys.stdout.flush()


def _tell_waiting(call: Call, holder: Holder, branch: str) -> None:
    _tell(
        call,
        {"event": "waiting", "branch": branch, "for": holder.owner},
        f"{holder.owner} refreshes {branch} already. Waiting until it ends, or until its lease of "
        f"{holder.lease_seconds:g} s does.",
    )


def _tell(call: Call, document: dict[str, Any], note: str) -> None:
    if call.json:
        call.output.raw(json.dumps(document, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    else:
        call.output.note(note)
