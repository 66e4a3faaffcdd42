"""Replaying: which files are written again, and how many rows that would take away.

A replay sends what the lake has now. Rows that were deleted or pruned since they were delivered are
not there to be sent, and what is written again is written without them.

Law: rows lost = rows that the destination has in the range, less those that the lake still has
there, in the same partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tidelock.deliver.feeds import Positioned
from tidelock.deliver.files import FileSink
from tidelock.deliver.partitions import WHOLE
from tidelock.deliver.planning import by_path
from tidelock.deliver.sink import Sink
from tidelock.deliver.tables import TableSink
from tidelock.model.commit import TableState
from tidelock.model.sinks import Chunk, Lag, SinkDefinition
from tidelock.store.sequences import SEQUENCE, Ids, find_stretches, read_rows, sequences_in
from tidelock.store.store import Store


def same_files(sink: FileSink, partition: str | None, since: int, version: int) -> dict[str, Lag]:
    """The files that hold what is to be sent again, each to be written in its place."""
    again: dict[str, list[Chunk]] = {}
    for one in sink.listed():
        if one.until > since and partition in (None, one.partition):
            again.setdefault(one.partition, []).append(Chunk(one.after, one.until, one.rows))
    found = {}
    for path, chunks in again.items():
        ordered = tuple(sorted(chunks, key=lambda chunk: chunk.after))
        found[path] = Lag(ordered[0].after, ordered, version)
    return found


def rows_lost(
    store: Store,
    definition: SinkDefinition,
    sink: Sink,
    table: TableState,
    partition: str | None,
    since: int,
) -> int:
    """How many rows a replay would take from a destination and not give back.

    A change is kept with its version, and is there or cannot be read; and what becomes of a request
    that is sent again is the receiver's business.
    """
    if definition.feed == "changes":
        return 0
    if isinstance(sink, FileSink):
        again = same_files(sink, partition, since, 0)
        chunks = {path: lag.chunks for path, lag in again.items()}
        there = sum(one.rows for ordered in chunks.values() for one in ordered)
        return max(0, there - _rows_kept(store, table, definition.partition_by, chunks))
    if isinstance(sink, TableSink) and (found := sink.load()) is not None and found.mark:
        until = found.mark.until
        chunks = {WHOLE: (Chunk(since, until, 0),)} if until > since else {}
        return max(0, sink.rows_above(SEQUENCE, since) - _rows_kept(store, table, (), chunks))
    return 0


def _rows_kept(
    store: Store,
    table: TableState,
    columns: Sequence[str],
    chunks: Mapping[str, Sequence[Chunk]],
) -> int:
    """How many rows a table has now in the ranges of some chunks, each in its partition."""
    if not chunks:
        return 0
    after = min(one.after for ordered in chunks.values() for one in ordered)
    until = max(one.until for ordered in chunks.values() for one in ordered)
    kept = 0
    for path, places in _places(store, table, columns, after, until):
        for one in chunks.get(path, ()):
            begin, end = np.searchsorted(places, [one.after, one.until], side="right")
            kept += int(end - begin)
    return kept


def _places(
    store: Store, table: TableState, columns: Sequence[str], after: int, until: int
) -> Iterator[tuple[str, Ids]]:
    """The sequences of rows in (after, until], in order, with the path of their partition."""
    dataset = store.files.read(table)
    stretches = find_stretches(dataset, after)
    if not columns:
        # Told by the metadata alone.
        for stretch in stretches:
            yield WHOLE, sequences_in(dataset, stretch, after, until)
        return
    with store.files.reading(table):
        for batch in read_rows(dataset, stretches, after, until, columns):
            rows: Positioned = (batch, batch.column(SEQUENCE).to_numpy())
            for path, (_, places) in by_path([rows], columns).items():
                yield path, places
