"""The part of the Lake handle that is about sources."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast, overload

from tidelock.model.sources import LIVE, Suspension
from tidelock.run.rooms import Rooms
from tidelock.store.branches import MAIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from tidelock.ingest.files.quarantine import Quarantined
    from tidelock.ingest.reports import IngestReport, SourceStatus
    from tidelock.ingest.streams.batches import Lake as BatchLake
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
    def ingest(
        self,
        name: str,
        *,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> IngestReport: ...

    @overload
    def ingest(
        self,
        *,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Listing[IngestReport]: ...

    def ingest(
        self,
        name: str | None = None,
        *,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> IngestReport | Listing[IngestReport]:
        """One round of a source: all that there is by now. Without a name, of all sources; of these
        one that fails is in the report, and stops no other.

        `progress` is called with the number of rows of each commit.
        """
        from tidelock.ingest.reports import list_reports

        stopped = (stop or threading.Event()).is_set
        told = progress or (lambda rows: None)
        if name is not None:
            return self._sources.ingest(name, stopped=stopped, progress=told)
        return list_reports(self._sources.ingest_all(stopped, told))

    def ingest_due(
        self, *, branch: str = MAIN, stop: threading.Event | None = None
    ) -> Listing[IngestReport]:
        """One round of each source of a branch that is due by its schedule, as live ones always
        are: for who runs what is due at moments of one's own, as `tidelock run --once` does."""
        from tidelock.ingest.reports import list_reports

        stopped = (stop or threading.Event()).is_set
        return list_reports(self._sources.ingest_due(branch, stopped))

    def sources(self) -> Listing[SourceStatus]:
        """All sources, and where each stands."""
        from tidelock.ingest.reports import list_sources
        from tidelock.ingest.status import statuses_of

        known = self._registry.definitions()
        return list_sources(statuses_of(self._store, self._registry, known))

    def source_status(self, name: str) -> SourceStatus:
        """Where a source stands: its state, its position, and how far it is behind."""
        from tidelock.ingest.status import status_of

        return status_of(self._store, self._registry, self._registry.definition(name))

    def suspend_source(self, name: str, reason: str = "by hand") -> None:
        """Read nothing of a source until it is resumed."""
        self._store.refuse_read_only()
        self._registry.suspend(self._registry.definition(name), self._by_hand(reason))

    def resume_source(self, name: str) -> None:
        """Let a suspended source go on where it was; one that is stopped is tried again at once."""
        self._store.refuse_read_only()
        self._registry.resume(self._registry.definition(name), self._by_hand("resumed"))

    def write_stream(
        self,
        frame: DataFrame,
        *,
        table: str,
        mode: str = "append",
        checkpoint: str | os.PathLike[str],
        branch: str = MAIN,
        trigger: str | Mapping[str, Any] | None = None,
        query_name: str | None = None,
        output_mode: str | None = None,
        create: bool = False,
        key: str | Sequence[str] | None = None,
        evolve: bool = False,
        repeated: str = "check",
    ) -> StreamingQuery:
        """Write a streaming DataFrame into a table: each micro-batch is one commit, exactly once.

        `mode` is "append", or "upsert" by the table's key. `checkpoint` is where Spark keeps how
        far it has read; a query that is started again with it goes on there. `trigger` is a
        duration, "available_now", or what Spark's own takes, as a dict. With `create` the table is
        made, with `key`, if it is missing; with `evolve` columns are added that it does not have.
        A batch that was published before is passed over if it has the same rows, else refused;
        with `repeated="skip"` it is passed over unseen, for streams whose rows are random.

        Returns Spark's query. An error of a batch ends it, and is told by its exception.
        """
        from tidelock.ingest.streams.batches import StreamTarget
        from tidelock.ingest.streams.start import check_lake, check_stream, start_stream

        self._store.refuse_read_only()
        self._store.branches.head(branch)
        check_stream(frame, mode, checkpoint, repeated)
        target = StreamTarget(table, mode, branch, query_name or "", evolve, repeated == "check")
        if create and self._store.branches.head(branch).tables.find(table) is None:
            with self._store.begin(branch, message=f"create table {table}") as transaction:
                transaction.create_table(table, frame.schema, key=key)
        check_lake(self._store, frame, target)
        return start_stream(
            frame,
            target,
            cast("BatchLake", self),
            self._open_elsewhere,
            checkpoint=str(checkpoint),
            trigger=trigger,
            output_mode=output_mode,
        )

    def _by_hand(self, reason: str) -> Suspension:
        return Suspension(reason, self._store.actor, self._store.clock.now())

    def resnapshot(
        self,
        name: str,
        *,
        tables: Sequence[str] | None = None,
        stop: threading.Event | None = None,
    ) -> IngestReport:
        """Bring tables of a source, or all of them, to what the source has. What differs is
        changed; a process that reads it steps aside meanwhile.

        InvalidOption if the kind of source cannot do that.
        """
        return self._sources.resnapshot(name, tables, (stop or threading.Event()).is_set)

    def drop_source(self, name: str) -> None:
        """Forget a source, with what was made for it at the source. Its tables stay."""
        self._sources.drop(name)

    def source_quarantine(self, name: str) -> Listing[Quarantined]:
        """The records that a source has put aside, with file, line, reason and text: what is in the
        table `<name>_quarantine`, of which rows that were dealt with may be deleted."""
        return self._sources.quarantined(name)
