"""The planner: from the state of a sink to the next plan, written down by nobody yet.

Owns: the feeds that are open during one delivery. What there is at the head is opened once, and
everything that is planned of it later is in it too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidelock.deliver.delivery.beginning import Beginning, pin_at
from tidelock.deliver.delivery.feed import RowFeed, open_feed
from tidelock.deliver.delivery.lagging import LaggingPartitions, Step, after_step
from tidelock.deliver.delivery.plan import Window, plan_partitions, plan_whole
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
    ) -> None:
        self._store = store
        self._definition = definition
        self._beginning = beginning
        self._head, self._table = beginning.head, beginning.table
        self._lagging = lagging
        self._rows_per_chunk = rows_per_chunk
        self._newest_feed: RowFeed | None = None

    def next_window(self, state: SinkState) -> Window:
        """What comes next of all partitions that are not behind."""
        feed = self._feed(state.watermark, newer_than=state.fragment)
        columns, count = self._definition.partition_by, self._rows_per_chunk
        if not columns:
            return plan_whole(feed, state.watermark, count)
        return plan_partitions(feed, state.watermark, columns, count, frozenset(state.lagging))

    def reaches_newest(self, window: Window) -> bool:
        return window.until >= self._feed(window.after).newest

    def plan_window(self, state: SinkState, window: Window) -> DeliveryPlan:
        everything = self.reaches_newest(window)
        fragment = self._feed(window.after).fragment
        after = replace(
            state,
            plan=state.plan + 1,
            watermark=window.until,
            lagging=self._lagging.skip(state, window),
            seen=self._table.changed if everything else state.seen,
            fragment=fragment if everything else state.fragment,
            read=(self._head.version, self._table.pin),
        )
        version = self._head.version
        return self._plan(state, after, window.after, window.until, window.parts, version)

    def next_step(self, state: SinkState, path: str) -> Step:
        """What comes next of a partition that is behind."""
        version = self._head.version
        opened = partial(open_feed, self._store, self._definition, self._head.branch, version)
        return self._lagging.next_step(state, path, version, self._rows_per_chunk, opened)

    def plan_step(self, state: SinkState, step: Step) -> DeliveryPlan:
        after = after_step(self._definition, state, step)
        begin = state.lagging[step.path].watermark
        plan = self._plan(state, after, begin, step.until, step.parts, step.version)
        return replace(plan, of=step.of)

    def feed_of(self, plan: DeliveryPlan) -> RowFeed:
        """What a plan reads, at the version that it names."""
        if plan.version == self._head.version and self._newest_feed is not None:
            return self._newest_feed
        return open_feed(self._store, self._definition, self._head.branch, plan.version, plan.after)

    def _feed(self, after: int, newer_than: int = -1) -> RowFeed:
        if self._newest_feed is None:
            self._newest_feed = open_feed(
                self._store,
                self._definition,
                self._head.branch,
                self._head.version,
                after,
                newer_than,
            )
        return self._newest_feed

    def _plan(
        self,
        state: SinkState,
        after: SinkState,
        begin: int,
        until: int,
        parts: tuple[Part, ...],
        version: int,
    ) -> DeliveryPlan:
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
        )
