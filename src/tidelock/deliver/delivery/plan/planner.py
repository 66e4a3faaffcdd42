"""The planner: from the state of a sink to the next plan, written down by nobody yet.

Owns: the feeds that are open during one delivery, and the versions that they are read from. Most of
the time that is the head, which is opened once, and everything that is planned of it later is in it
too. Where the columns of the table were altered, each era is delivered from its last version first.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidelock.deliver.delivery.look import Beginning, pin_at
from tidelock.deliver.delivery.plan.lagging import LaggingPartitions, Step, after_step
from tidelock.deliver.delivery.plan.plan import Window, plan_partitions, plan_whole
from tidelock.deliver.feeds.eras import columns_at, eras_since, schema_at, sent_columns
from tidelock.deliver.feeds.feed import RowFeed, open_feed
from tidelock.errors import SnapshotExpired
from tidelock.model.history.commit import TableState
from tidelock.model.positions import end_of, version_of
from tidelock.model.sinks import DeliveryPlan, Part, SinkDefinition, SinkState
from tidelock.store.store import Store


class Planner:
    """Plans for one delivery."""

    def __init__(
        self,
        store: Store,
        definition: SinkDefinition,
        beginning: Beginning,
        lagging: LaggingPartitions,
        rows_per_chunk: int,
        *,
        one_schema: bool = False,
    ) -> None:
        self._store = store
        self._definition = definition
        self._beginning = beginning
        self._head, self._table = beginning.head, beginning.table
        self._lagging = lagging
        self._rows_per_chunk = rows_per_chunk
        self._one_schema = one_schema
        self._feeds: dict[tuple[int, int], RowFeed] = {}
        """By the version that is read and the one whose columns are shown; one at a time."""

    def next_window(self, state: SinkState) -> Window:
        """What comes next of all partitions that are not behind."""
        *earlier, last = self._versions(state, state.watermark)
        for version in earlier:
            try:
                window = self._window(state, version)
            except SnapshotExpired:
                if self._definition.feed == "changes":
                    raise
                # Its rows come with the columns that they have later on.
                continue
            if window.parts or window.rows:
                return window
        return self._window(state, last)

    def _window(self, state: SinkState, version: int) -> Window:
        feed = self._feed(state, version, state.watermark, newer_than=state.fragment)
        count = self._rows_per_chunk
        if self._definition.partition_by:
            behind = frozenset(state.lagging)
            window = plan_partitions(feed, state.watermark, count, behind)
        else:
            window = plan_whole(feed, state.watermark, count)
        return replace(window, version=version)

    def _versions(self, state: SinkState, after: int) -> list[int]:
        """The versions from which what comes after a position is read, one after the other: the
        last of each era in which there is something, and the head."""
        head, table, definition = self._head, self._table, self._definition
        if not table.schema:
            return [head.version]
        if definition.feed == "inserts":
            since, there = state.read[0], False
            then = self._table_at(since) if since else None
            if then is None or then.schema == table.schema:
                return [head.version]
        else:
            since, first = version_of(after + 1) - 1, definition.snapshot
            there = first is not None and since < first
            since = since if first is None else max(since, first - 1)
        found = []
        for era in eras_since(self._store, head, table, since):
            there = there or (era.inserted if definition.feed == "inserts" else era.changed)
            if there and era.last >= self._floor(state):
                found.append(era.last)
                there = False
        return found if found and found[-1] == head.version else [*found, head.version]

    def _floor(self, state: SinkState) -> int:
        """The version whose columns a destination has that can have no earlier ones."""
        return state.shown if self._one_schema else 0

    def _table_at(self, version: int) -> TableState | None:
        if version == self._head.version:
            return self._table
        return self._store.log.tables_at(self._head.branch, version).same(self._table)

    def reaches_newest(self, window: Window) -> bool:
        """Whether nothing is left behind a window."""
        return window.version == self._head.version and self._is_whole(window)

    def _is_whole(self, window: Window) -> bool:
        """Whether it holds everything of the version that it is read from."""
        return any(
            window.until >= feed.newest
            for (version, _), feed in self._feeds.items()
            if version == window.version
        )

    def plan_window(self, state: SinkState, window: Window) -> DeliveryPlan:
        version = window.version
        table = self._table_at(version)
        assert table is not None
        everything = self._is_whole(window)
        fragment = self._feed(state, version, window.after).fragment
        after = replace(
            state,
            plan=state.plan + 1,
            watermark=window.until,
            lagging=self._lagging.skip(state, window),
            seen=table.changed if everything else state.seen,
            fragment=fragment if everything else state.fragment,
            read=(version, table.pin),
        )
        return self._plan(state, after, window.after, window.until, window.parts, version)

    def next_step(self, state: SinkState, path: str) -> Step:
        """What comes next of a partition that is behind."""
        version, era_end = self._head.version, None
        if self._definition.feed == "changes":
            version = self._versions(state, state.lagging[path].watermark)[0]
            era_end = end_of(version)
        opened = partial(open_feed, self._store, self._definition, self._head.branch, version)
        count = self._rows_per_chunk
        return self._lagging.next_step(state, path, version, count, opened, era_end)

    def plan_step(self, state: SinkState, step: Step) -> DeliveryPlan:
        after = after_step(self._definition, state, step)
        begin = state.lagging[step.path].watermark
        plan = self._plan(state, after, begin, step.until, step.parts, step.version)
        return replace(plan, of=step.of)

    def feed_of(self, plan: DeliveryPlan) -> RowFeed:
        """What a plan reads, at the version that it names."""
        known = self._feeds.get((plan.version, plan.shown))
        if known is not None:
            return known
        return self._open(plan.version, plan.after, plan.shown)

    def _feed(self, state: SinkState, version: int, after: int, newer_than: int = -1) -> RowFeed:
        shown = self._shown(state, version)
        known = self._feeds.get((version, shown))
        if known is None:
            known = self._open(version, after, shown, newer_than)
            self._feeds = {(version, shown): known}
        return known

    def _open(self, version: int, after: int, shown: int, newer_than: int = -1) -> RowFeed:
        branch = self._head.branch
        return open_feed(
            self._store, self._definition, branch, version, after, newer_than, shown or version
        )

    def _shown(self, state: SinkState, version: int) -> int:
        """The version whose columns rows get, if that is not the one that is read."""
        return state.shown if self._floor(state) > version else 0

    def _plan(
        self,
        state: SinkState,
        after: SinkState,
        begin: int,
        until: int,
        parts: tuple[Part, ...],
        version: int,
    ) -> DeliveryPlan:
        shown = self._shown(state, version)
        like = self._table_at(shown or version)
        assert like is not None
        columns = sent_columns(schema_at(self._store, like))
        state = self._with_columns(state)
        if max(shown, version) >= state.shown and parts:
            after = replace(after, columns=columns, shown=max(shown, version))
        return DeliveryPlan(
            number=state.plan + 1,
            sink_id=self._definition.id,
            version=version,
            pin=pin_at(self._store, self._beginning, version),
            after=begin,
            until=until,
            parts=parts,
            before=state,
            next=after,
            generation=state.generation,
            created=self._store.clock.now(),
            columns=columns,
            shown=shown,
        )

    def _with_columns(self, state: SinkState) -> SinkState:
        """The state with the columns that were sent last, which those from before that was kept do
        not have."""
        version = state.read[0]
        then = self._table_at(version) if version and not state.columns else None
        columns = None if then is None else columns_at(self._store, then)
        return state if columns is None else replace(state, columns=columns, shown=version)
