"""Refreshes and sources as people watch them: what runs, and what became of each.

Owns: the view on a terminal, and the words for one attempt. Told from several threads at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidelock.cli.show.cells import count, duration, moment, seconds, shortened
from tidelock.cli.show.sources import live_row
from tidelock.model.printable import printable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from tidelock.cli.output import Output
    from tidelock.derive.attempts.attempts import Attempt
    from tidelock.derive.graph.groups import Unit
    from tidelock.derive.reports import StreamTable
    from tidelock.ingest.reports import IngestReport, SourceStatus

ROWS_SHOWN_MAX = 30
STATUS_WIDTH_MAX = 40


def told(attempt: Attempt) -> str:
    """One attempt as one line of a log."""
    if attempt.action == "failed":
        again = ""
        if attempt.retry_at is not None:
            again = f"; it is tried again at {seconds(moment(attempt.retry_at))}"
        done = f"failed: {attempt.reason}{again}"
    elif attempt.action == "skipped":
        done = f"skipped: {attempt.reason}"
    else:
        done = (
            f"{attempt.action}, {count(attempt.rows_in, 'row')} in, {attempt.rows_out:,} out, "
            f"{attempt.seconds:.2f} s, {attempt.commit}"
        )
    return printable(f"{seconds(moment(attempt.time))}  {attempt.table}  {done}")


@dataclass(frozen=True)
class _Run:
    """A group, or a table on its own, that is being refreshed."""

    members: tuple[str, ...]
    began: float


class RefreshView:
    """What runs and what ran last, as a table that is drawn again and again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, _Run] = {}
        self._last: dict[str, Attempt] = {}
        self._tables: dict[str, StreamTable] = {}
        self._sources: list[SourceStatus] = []
        self._came: dict[str, tuple[float, IngestReport]] = {}

    def begun(self, unit: Unit) -> None:
        with self._lock:
            run = _Run(unit.members, time.monotonic())
            self._running.update(dict.fromkeys(unit.members, run))

    def attempted(self, attempt: Attempt) -> None:
        with self._lock:
            self._running.pop(attempt.table, None)
            self._last[attempt.table] = attempt

    def follow(self, tables: Sequence[StreamTable]) -> None:
        """Show these tables, also while nothing happens to them."""
        with self._lock:
            self._tables = {table.name: table for table in tables}

    def ingested(self, report: IngestReport) -> None:
        with self._lock:
            self._came[report.source] = (time.monotonic(), report)

    def follow_sources(self, sources: Sequence[SourceStatus]) -> None:
        """Show these sources, as they stand."""
        with self._lock:
            self._sources = list(sources)

    @contextmanager
    def shown(self, output: Output) -> Iterator[bool]:
        """Draws the view on a terminal for as long as the block lasts; whether it does."""
        if not output.notes.is_terminal:
            yield False
            return
        from rich.live import Live

        with Live(
            get_renderable=self._draw, console=output.notes, refresh_per_second=4, transient=True
        ):
            yield True

    def _draw(self) -> Group:
        from rich.console import Group

        with self._lock:
            sources = list(self._sources)
        drawn = [self._draw_sources(sources)] if sources else []
        return Group(*drawn, self._draw_tables())

    def _draw_sources(self, sources: Sequence[SourceStatus]) -> Table:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
        for name in ("source", "now", "last", "rows/s", "behind", "commit"):
            table.add_column(name, justify="right" if name == "rows/s" else "left")
        for one in sources[:ROWS_SHOWN_MAX]:
            at, last = self._came.get(one.name, (0.0, None))
            table.add_row(*live_row(one, last, time.monotonic() - at))
        if len(sources) > ROWS_SHOWN_MAX:
            table.add_row(f"… {len(sources) - ROWS_SHOWN_MAX} more")
        return table

    def _draw_tables(self) -> Table:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False)
        for name in ("table", "group", "now", "last", "rows", "rows/s", "next"):
            table.add_column(name, justify="right" if name.startswith("rows") else "left")
        with self._lock:
            shown = list(self._tables) or [*self._running, *self._last]
            # Of many tables those that something happens to, or happened last.
            shown.sort(key=self._rank)
            for name in shown[:ROWS_SHOWN_MAX]:
                table.add_row(*self._row(name))
        if len(shown) > ROWS_SHOWN_MAX:
            table.add_row(f"… {len(shown) - ROWS_SHOWN_MAX} more")
        return table

    def _rank(self, name: str) -> tuple[bool, float]:
        last = self._last.get(name)
        return name not in self._running, -last.time.timestamp() if last else 0

    def _row(self, name: str) -> list[str]:
        last, run, table = self._last.get(name), self._running.get(name), self._tables.get(name)
        now = "" if run is None else self._progress(run)
        head = [name, (table and table.group) or "", now]
        if last is None:
            return [*head, "", "", "", self._next(name)]
        rate = f"{last.rows_in / last.seconds:,.0f}" if last.seconds > 0 and last.rows_in else ""
        ago = duration(max(0.0, (datetime.now(UTC) - last.time).total_seconds()))
        return [*head, f"{last.action} {ago} ago", f"{last.rows_out:,}", rate, self._next(name)]

    def _progress(self, run: _Run) -> str:
        """For how long a group has been running, and for how long it still will.

        Its members are published together, so that they end together.
        """
        spent = time.monotonic() - run.began
        tables = [self._tables.get(name) for name in run.members]
        expected = [one.expected_seconds for one in tables if one and one.expected_seconds]
        if len(expected) < len(run.members):
            return f"running {spent:.0f} s"
        left = sum(expected) - spent
        return f"running {spent:.0f} s, {f'about {left:.0f} s left' if left > 0 else 'late'}"

    def _next(self, name: str) -> str:
        from tidelock.model.time.schedules import parse_schedule

        table, last = self._tables.get(name), self._last.get(name)
        if table is None:
            return ""
        if table.status.startswith(("suspended", "held back")):
            return shortened(printable(table.status), STATUS_WIDTH_MAX)
        if last is not None and last.retry_at is not None:
            return f"tried again at {seconds(moment(last.retry_at))}"
        schedule = parse_schedule(table.schedule)
        if schedule.is_manual:
            return "when asked"
        if schedule.is_upstream:
            return "on change"
        following = schedule.next_after(last.time) if last is not None else None
        return seconds(moment(following)) if following else f"by {schedule.text}"
