"""The part of the Lake handle that is about sources."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, overload

from tidelock.model.sources import LIVE
from tidelock.run.rooms import Rooms
from tidelock.store.branches import MAIN

if TYPE_CHECKING:
    from tidelock.ingest.files.quarantine import Quarantined
    from tidelock.ingest.reports import IngestReport, SourceStatus
    from tidelock.model.listing import Listing


class SourceMethods(Rooms):
    """Sources: what feeds tables of the lake by itself."""

    def create_source(
        self,
        name: str,
        *,
        kind: str,
        into: str | None = None,
        schedule: str | None = LIVE,
        branch: str = MAIN,
        **options: Any,
    ) -> SourceStatus:
        """Define a source, and create the tables that it feeds. Nothing is read before it is
        ingested, by `lake.ingest` or by the scheduler.

        `into` is what tables are called: a name, or a pattern with `{table}` and `{schema}`.
        `schedule` is "live", a duration, a cron expression, or None for only when asked.
        """
        definition = self._sources.create(name, kind, into, schedule, branch, options)
        return self._sources.status(definition)

    def alter_source(self, name: str, **options: Any) -> SourceStatus:
        """Give options of a source other values, such as `on_error="quarantine"`; None takes one
        back to its default. What the source is and what it feeds cannot be altered."""
        return self._sources.status(self._sources.alter(name, options))

    @overload
    def ingest(self, name: str, *, stop: threading.Event | None = None) -> IngestReport: ...

    @overload
    def ingest(self, *, stop: threading.Event | None = None) -> Listing[IngestReport]: ...

    def ingest(
        self, name: str | None = None, *, stop: threading.Event | None = None
    ) -> IngestReport | Listing[IngestReport]:
        """One round of a source: all that there is by now. Without a name, of all sources."""
        from tidelock.ingest.reports import list_reports

        stopped = (stop or threading.Event()).is_set
        if name is not None:
            return self._sources.ingest(name, stopped=stopped)
        return list_reports(self._sources.ingest_all(stopped))

    def sources(self) -> Listing[SourceStatus]:
        """All sources, and where each stands."""
        from tidelock.ingest.reports import list_sources

        known = self._sources.registry.definitions()
        return list_sources([self._sources.status(one) for one in known])

    def source_status(self, name: str) -> SourceStatus:
        """Where a source stands: its state, its position, and how far it is behind."""
        return self._sources.status(self._sources.registry.definition(name))

    def suspend_source(self, name: str, reason: str = "by hand") -> None:
        """Read nothing of a source until it is resumed."""
        self._sources.suspend(name, reason)

    def resume_source(self, name: str) -> None:
        """Let a suspended source go on where it was."""
        self._sources.resume(name)

    def drop_source(self, name: str) -> None:
        """Forget a source, with what was made for it at the source. Its tables stay."""
        self._sources.drop(name)

    def source_quarantine(self, name: str) -> Listing[Quarantined]:
        """The records that a source has put aside, with file, line, reason and text: what is in the
        table `<name>_quarantine`, of which rows that were dealt with may be deleted."""
        return self._sources.quarantined(name)
