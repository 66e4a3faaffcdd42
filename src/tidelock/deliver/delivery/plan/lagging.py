"""Partitions that are behind: what each has still to get, while the others go on without it.

    _tidelock/sinks/<id>/skipped/<plan>-<hash of the path>.arrow    the positions of its rows

A row of an `inserts` feed belongs where it was when its window was planned, also if its partition
column is updated before the partition catches up: the others have passed it by then. So each plan
that goes on without a partition leaves a note of the partition's rows. It ends in a checksum
(store/objects/checksums.py).

A partition catches up in this order: the chunks that were planned for it, as they were planned;
what it is sent again, by where its rows are now; then its notes, oldest first.

Invariant: a note counts only if the state names it, as `Lag.skipped` or `Lag.of`; one that it does
not name was left by a plan that never began.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tidelock.deliver.delivery.plan.outcome import without
from tidelock.deliver.delivery.plan.plan import Window, plan_noted, plan_one
from tidelock.deliver.feeds.feed import RowFeed
from tidelock.model.sinks import Chunk, Lag, Part, SinkDefinition, SinkState
from tidelock.store.lookup.by_sequence import Ids
from tidelock.store.objects import layout
from tidelock.store.objects.checksums import stamped, unstamped
from tidelock.store.objects.protocol import Objects


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next of a partition that is behind."""

    path: str
    chunks: tuple[Chunk, ...]
    until: int
    version: int
    """The version of the lake that the chunks are read from."""
    of: int = 0
    """The plan whose note tells their rows; 0 when their partition does."""
    rest: tuple[Chunk, ...] = ()
    """What was planned for it behind those, of a later era."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(self.path, self.chunks),) if self.chunks else ()


def goal_of(definition: SinkDefinition, state: SinkState, lag: Lag) -> int:
    """Up to where a partition that is behind is planned from where its rows are now."""
    return state.watermark if definition.feed == "changes" else lag.again


def after_step(definition: SinkDefinition, state: SinkState, step: Step) -> SinkState:
    """The state once a step is delivered: the partition is as far as the others, or lags on."""
    lag = state.lagging[step.path]
    lagging = {path: other for path, other in state.lagging.items() if path != step.path}
    following = replace(
        lag,
        watermark=step.until,
        chunks=step.rest,
        of=step.of if step.rest else 0,
        skipped=without(lag.skipped, step.of),
        trouble=None,
    )
    if step.rest or following.skipped or step.until < goal_of(definition, state, lag):
        lagging[step.path] = following
    return replace(state, plan=state.plan + 1, lagging=lagging)


class LaggingPartitions:
    """The partitions of one sink that are behind.

    Owns: the notes of rows that plans went on without.
    """

    def __init__(self, objects: Objects, definition: SinkDefinition) -> None:
        self._objects = objects
        self._definition = definition
        self._folder = f"{layout.sink(definition.id)}/skipped"

    def skip(self, state: SinkState, window: Window) -> dict[str, Lag]:
        """The partitions that are behind, each with a note of its rows in a window without it."""
        if self._definition.feed == "changes":
            # Where a change belongs does not change: its version stays as it was.
            return state.lagging
        number = state.plan + 1
        lagging = dict(state.lagging)
        for path in lagging.keys() & window.rows.keys():
            self.note(number, path, window.rows[path][1])
            lagging[path] = replace(lagging[path], skipped=(*lagging[path].skipped, number))
        return lagging

    def next_step(
        self,
        state: SinkState,
        path: str,
        version: int,
        rows_per_chunk: int,
        open_feed: Callable[[int], RowFeed],
        era_end: int | None = None,
    ) -> Step:
        """What comes next of a partition; `open_feed` gives what is after a position at a version,
        up to the end of whose era it is planned at most."""
        lag = state.lagging[path]
        if lag.chunks:
            end = lag.chunks[-1].until if era_end is None else era_end
            chunks = tuple(chunk for chunk in lag.chunks if chunk.until <= end)
            rest = lag.chunks[len(chunks) :]
            read = min(lag.version, version)
            return Step(path, chunks, chunks[-1].until, read, lag.of, rest)
        goal = goal_of(self._definition, state, lag)
        if lag.watermark < goal:
            goal = goal if era_end is None else min(goal, era_end)
            feed = open_feed(lag.watermark)
            chunks = plan_one(feed, path, lag.watermark, goal, rows_per_chunk)
            return Step(path, chunks, chunks[-1].until if chunks else goal, version)
        if not lag.skipped:
            return Step(path, (), lag.watermark, version)
        number = lag.skipped[0]
        noted = self.positions(number, path)
        chunks = plan_noted(open_feed(lag.watermark), noted, lag.watermark, rows_per_chunk)
        return Step(path, chunks, int(noted[-1]), version, number)

    # Notes

    def note(self, plan: int, path: str, positions: Ids) -> None:
        batch = pa.record_batch({"position": np.unique(positions)})
        stream = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(stream, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        self._objects.put(self._key(plan, path), stamped(stream.getvalue().to_pybytes()))

    def positions(self, plan: int, path: str) -> Ids:
        """The positions of the rows that a partition has in the window of a plan, in order."""
        key = self._key(plan, path)
        data = unstamped(self._objects.get(key), key)
        noted: Ids = pa.ipc.open_stream(data).read_all().column(0).to_numpy()
        return noted

    def forget(self, plan: int, path: str) -> None:
        self._objects.delete(self._key(plan, path))

    def _key(self, plan: int, path: str) -> str:
        return f"{self._folder}/{plan:012d}-{hashlib.sha256(path.encode()).hexdigest()[:16]}.arrow"
