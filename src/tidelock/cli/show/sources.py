"""Sources as people read them: how far behind, how fast, and one line for what came."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelock.cli.show.cells import count, duration, moment, seconds, shortened
from tidelock.model.printable import printable

if TYPE_CHECKING:
    from tidelock.ingest.reports import IngestReport, SourceStatus

FAR_SECONDS = 60.0
FAR_BYTES = 64 * 1024 * 1024
"""A source that is further behind than either is told of by `tidelock status`."""
REASON_WIDTH_MAX = 40


def told(report: IngestReport) -> str:
    """What became of a source, as one line of a log."""
    now = seconds(moment(datetime.now(UTC)))
    if report.action == "ingested":
        done = (
            f"ingested, {count(report.rows, 'row')} in {count(report.transactions, 'transaction')}"
            f", version {report.version}"
        )
    elif report.action == "failed":
        again = ""
        if report.retry_at is not None:
            again = f"; it is tried again at {seconds(moment(report.retry_at))}"
        done = f"{report.state}: {report.reason}{again}"
    else:
        done = ": ".join(filter(None, (report.action, report.reason)))
    return printable(f"{now}  {report.source}  {done}")


def lag(status: SourceStatus) -> str:
    """How far it is behind, as far as the source tells."""
    found = []
    if status.lag_seconds is not None:
        found.append(f"{status.lag_seconds:.1f} s")
    if status.lag_bytes is not None:
        found.append(size(status.lag_bytes))
    return ", ".join(found)


def lag_behind(lag_seconds: float | None, lag_bytes: int | None) -> bool:
    """Whether it is far behind."""
    return (lag_seconds or 0.0) > FAR_SECONDS or (lag_bytes or 0) > FAR_BYTES


def size(number: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} GB"


def rates(status: SourceStatus) -> str:
    return (
        f"{status.rows_per_second:,.1f} rows/s, "
        f"{status.transactions_per_second:,.1f} transactions/s"
    )


def table_rows(status: SourceStatus) -> list[list[str]]:
    """Its tables, each with where it stands."""
    return [
        [
            one.name,
            one.table,
            one.state,
            f"{one.rows:,}" + (f" of {one.expected:,}" if one.expected is not None else ""),
            one.reason,
        ]
        for one in status.tables
    ]


def live_row(status: SourceStatus, last: IngestReport | None, ago: float) -> list[str]:
    """A source as a line that is drawn again and again."""
    came = ""
    if last is not None and last.action == "ingested":
        came = f"{count(last.rows, 'row')} {duration(ago)} ago"
    open_ = f"{size(sum(one.size_bytes for one in status.open))} open" if status.open else ""
    state = ", ".join(filter(None, (status.state, open_)))
    if status.reason:
        state = f"{state}: {shortened(printable(status.reason), REASON_WIDTH_MAX)}"
    return [
        status.name,
        state,
        came,
        f"{status.rows_per_second:,.0f}",
        lag(status),
        f"version {status.commit}" if status.commit is not None else "",
    ]
