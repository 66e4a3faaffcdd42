"""The part of the Lake handle that is about sinks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, overload

import pyarrow as pa

from tidelock.deliver.delivery.quarantine import QuarantinedChunk, ResendReport
from tidelock.deliver.destinations.protocol import never
from tidelock.deliver.reports import DeliveryReport, ManifestReport, SinkStatus
from tidelock.deliver.retention import PruneReport, prune
from tidelock.deliver.sinks import Sinks
from tidelock.errors import InvalidOption
from tidelock.model.listing import Listing
from tidelock.model.names import is_hidden
from tidelock.model.sinks import Feed
from tidelock.model.streams import UPSTREAM
from tidelock.store.branches import MAIN
from tidelock.store.lookup.by_sequence import NOTHING, SEQUENCE, find_stretches, read_rows
from tidelock.store.store import Store

PAGE_ROWS = 10_000


@dataclass(frozen=True)
class Page:
    """Rows in the order of their sequence, and where to go on."""

    rows: pa.Table
    """The table's columns and `_sequence`."""
    token: int
    """Give it as `after` to get what follows."""
    more: bool
    """Whether there is more now."""
    version: int

    def __repr__(self) -> str:
        more = "more follow" if self.more else "no more now"
        return f"Page({self.rows.num_rows} rows, token={self.token}, {more})"


class SinkMethods:
    """Sinks: destinations outside of the lake that follow a table."""

    _store: Store
    _sinks: Sinks

    def create_sink(
        self,
        name: str,
        *,
        table: str,
        kind: str,
        to: str,
        feed: Feed = "inserts",
        partition_by: Sequence[str] | str | None = None,
        schedule: str | None = UPSTREAM,
        start: str = "beginning",
        hold: str = "7d",
        branch: str = MAIN,
        **options: Any,
    ) -> SinkStatus:
        """Attach a destination to a table. Nothing is sent before the first delivery."""
        definition = self._sinks.create(
            name, table, kind, str(to), feed, partition_by, schedule, start, hold, branch, options
        )
        return self._sinks.status(definition)

    @overload
    def deliver(self, name: str, *, stop: threading.Event | None = None) -> DeliveryReport: ...

    @overload
    def deliver(self, *, stop: threading.Event | None = None) -> Listing[DeliveryReport]: ...

    def deliver(
        self, name: str | None = None, *, stop: threading.Event | None = None
    ) -> DeliveryReport | Listing[DeliveryReport]:
        """Deliver what is new to one sink; without a name, to all of them."""
        stopped = never if stop is None else stop.is_set
        if name is not None:
            return self._sinks.deliver(name, stopped=stopped)
        return list_deliveries(self._sinks.deliver_all(stopped))

    def sinks(self, *, newest: bool = True) -> Listing[SinkStatus]:
        """All sinks, and where each stands.

        Without `newest`, no table is opened to find out how far each could be: one whose table has
        changed since it was last delivered to is behind.
        """
        found = self._sinks.statuses(newest=newest)
        return Listing.of(
            "Sinks",
            found,
            {
                "name": lambda s: s.name,
                "table": lambda s: s.table,
                "kind": lambda s: s.kind,
                "feed": lambda s: s.feed,
                "state": lambda s: s.state,
                "watermark": lambda s: s.watermark,
                "newest": lambda s: s.newest,
                "lagging": lambda s: len(s.lagging),
                "quarantined": lambda s: s.quarantined,
                "schedule": lambda s: s.schedule,
                "to": lambda s: s.to,
            },
        )

    def sink_status(self, name: str, *, verify: bool = False) -> SinkStatus:
        """Where a sink stands.

        With `verify`, what was delivered is compared with what is at the destination; if something
        is gone or was changed, the sink is `damaged` and `damage` tells what.
        """
        return self._sinks.status(self._sinks.ledger.definition(name), verify=verify)

    def suspend_sink(self, name: str, reason: str = "by hand") -> None:
        """Deliver nothing to a sink until it is resumed."""
        self._sinks.suspend(name, reason)

    def resume_sink(self, name: str) -> None:
        """Let a suspended sink go on where it was."""
        self._sinks.resume(name)

    def drop_sink(self, name: str) -> None:
        """Forget a sink. What it delivered stays where it is."""
        self._sinks.drop(name)

    def replay(
        self,
        name: str,
        *,
        partition: str | None = None,
        since: int = NOTHING,
        lose_rows: bool = False,
    ) -> SinkStatus:
        """Let the next delivery send again what comes after a position.

        Refused when that would take rows from the destination which the lake has no longer, unless
        `lose_rows` says that they may go.
        """
        self._sinks.replay(name, partition, since, lose_rows=lose_rows)
        return self.sink_status(name)

    def repair_sink(self, name: str) -> ManifestReport:
        """Write a manifest that is gone or cannot be read anew, from the names of the files.

        Nothing else at the destination is changed. Refused when files are there that this lake
        did not deliver.
        """
        return self._sinks.repair(name)

    def resync_sink(self, name: str) -> SinkStatus:
        """Accept what a lapsed sink has lost; the next delivery goes on with what is there."""
        self._sinks.resync(name)
        return self.sink_status(name)

    def prune(
        self,
        table: str,
        where: str,
        *,
        keep_until_delivered: bool = False,
        branch: str = MAIN,
        message: str = "",
    ) -> PruneReport:
        """Remove rows because of their age: one commit of retention.

        With `keep_until_delivered`, rows that a sink has not delivered stay, unless it is later
        than its `hold` allows.
        """
        return prune(
            self._store,
            table,
            where,
            branch,
            keep_until_delivered=keep_until_delivered,
            message=message,
        )

    def read_since(
        self,
        table: str,
        after: int = NOTHING,
        *,
        limit: int = PAGE_ROWS,
        columns: Sequence[str] | None = None,
        branch: str = MAIN,
    ) -> Page:
        """Rows that came after a sequence, in order: what a consumer of one's own asks for."""
        for name, value, least in (("after", after, NOTHING), ("limit", limit, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidOption(f"{name}={value!r} is not a number from {least} on.")
        head = self._store.branches.head(branch)
        snapshot = self._store.snapshot_at(head.branch, head.version)
        view = snapshot.table(table)
        dataset = view.dataset
        names = [name for name in view.resolve(columns) if not is_hidden(name)]
        with view.files.reading(view.state):
            stretches = find_stretches(dataset, after)
            newest = stretches[-1].last if stretches else after
            found = _first(read_rows(dataset, stretches, after, newest, names), limit)
        fields = [dataset.schema.field(name) for name in names]
        schema = pa.schema([*fields, pa.field(SEQUENCE, pa.int64(), nullable=False)])
        rows = pa.Table.from_batches(found, schema)
        token = rows.column(SEQUENCE)[-1].as_py() if rows.num_rows else after
        return Page(rows, token, token < newest, head.version)

    def quarantine(self, name: str) -> Listing[QuarantinedChunk]:
        """The chunks that a destination refused, put aside in sight."""
        return Listing.of(
            "Quarantine",
            self._sinks.quarantine(name).list(),
            {
                "number": lambda q: q.number,
                "partition": lambda q: q.path,
                "rows": lambda q: q.rows,
                "status": lambda q: q.status,
                "answer": lambda q: q.answer,
                "time": lambda q: q.time,
            },
        )

    def retry_quarantined(self, name: str, number: str | None = None) -> ResendReport:
        """Send what was refused once more: one chunk by its number, or all of them."""
        return self._sinks.resend(name, number)

    def discard_quarantined(
        self, name: str, number: str | None = None
    ) -> tuple[QuarantinedChunk, ...]:
        """Give up what was refused: one chunk by its number, or all of them."""
        return self._sinks.discard(name, number)


def _first(batches: Any, limit: int) -> list[pa.RecordBatch]:
    found = []
    left = limit
    for batch in islice(batches, limit):
        found.append(batch.slice(0, left))
        left -= batch.num_rows
        if left <= 0:
            break
    return found


def list_deliveries(reports: list[DeliveryReport]) -> Listing[DeliveryReport]:
    return Listing.of(
        "Deliveries",
        reports,
        {
            "sink": lambda r: r.sink,
            "action": lambda r: r.action,
            "rows": lambda r: r.rows,
            "chunks": lambda r: r.chunks,
            "bytes": lambda r: r.size_bytes,
            "until": lambda r: r.until,
            "reason": lambda r: r.reason,
        },
    )
