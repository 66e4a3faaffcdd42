"""The part of the Lake handle that is about sinks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

from tidelock.model.listing import Listing
from tidelock.model.positions import NOTHING
from tidelock.model.streams import UPSTREAM
from tidelock.run.rooms import Rooms
from tidelock.store.branches import MAIN

if TYPE_CHECKING:
    from tidelock.deliver.delivery.quarantine import QuarantinedChunk, ResendReport
    from tidelock.deliver.feeds.pages import Page
    from tidelock.deliver.reports import DeliveryReport, ManifestReport, SinkStatus
    from tidelock.deliver.retention import PruneReport
    from tidelock.model.sinks import Feed

PAGE_ROWS = 10_000


class SinkMethods(Rooms):
    """Sinks: destinations outside of the lake that follow a table."""

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
        stopped = (stop or threading.Event()).is_set
        if name is not None:
            return self._sinks.deliver(name, stopped=stopped)
        return list_deliveries(self._sinks.deliver_all(stopped))

    def sinks(self, *, newest: bool = True) -> Listing[SinkStatus]:
        """All sinks, and where each stands.

        Without `newest`, no table is opened to find out how far each could be: one whose table has
        changed since it was last delivered to is behind.
        """
        from tidelock.deliver.status import statuses_of

        definitions = self._ledger.readable_definitions()
        return list_sinks(statuses_of(self._store, self._ledger, definitions, newest=newest))

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
        from tidelock.deliver.retention import prune

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
        from tidelock.deliver.feeds.pages import read_page

        return read_page(self._store, table, after, limit, columns, branch)

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


def list_sinks(statuses: Sequence[SinkStatus]) -> Listing[SinkStatus]:
    """Sinks in a table; what is in order with all of them is not told of each."""
    columns: dict[str, Callable[[SinkStatus], object]] = {
        "name": lambda s: s.name,
        "table": lambda s: s.table,
        "kind": lambda s: s.kind,
        "feed": lambda s: s.feed,
        "state": lambda s: s.state,
        "lagging": lambda s: len(s.lagging),
        "quarantined": lambda s: s.quarantined,
        "watermark": lambda s: s.watermark,
        "newest": lambda s: s.newest,
        "schedule": lambda s: s.schedule,
        "to": lambda s: s.to,
    }
    for name in ("lagging", "quarantined"):
        if not any(columns[name](status) for status in statuses):
            del columns[name]
    return Listing.of("Sinks", statuses, columns)


def list_deliveries(reports: Sequence[DeliveryReport]) -> Listing[DeliveryReport]:
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
