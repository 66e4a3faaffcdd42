"""Windows and chunks: cutting what there is to deliver, before anything is sent.

Owns: how much goes into one plan. A sink without partitions is planned from positions alone. One
with partitions reads its rows to tell where they belong, so much of them as may be in memory, and
keeps them for sending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.deliver.destinations.partitions import WHOLE, group_rows, path_of, texts_of
from tidelock.deliver.feeds.eras import Divided
from tidelock.deliver.feeds.feed import Positioned, RowFeed, cut
from tidelock.model.sinks import Chunk, Part
from tidelock.store.lookup.by_sequence import Ids
from tidelock.store.lookup.key_numbers import is_among

CHUNKS_PER_PLAN = 200
WINDOW_ROWS = 1_000_000
WINDOW_BYTES = 128 * 1024 * 1024
POSITION = "_tidelock_position"


@dataclass(frozen=True)
class Window:
    """What one plan covers, with the rows if they had to be read."""

    after: int
    until: int
    parts: tuple[Part, ...]
    rows: dict[str, Positioned] = field(default_factory=dict)
    version: int = 0
    """The version that it is read from."""


def plan_whole(feed: RowFeed, after: int, rows_per_chunk: int) -> Window:
    """The next chunks of a sink without partitions."""
    every_chunk = cut(feed.positions(after, feed.newest), after, feed.newest, rows_per_chunk)
    chunks = tuple(islice(every_chunk, CHUNKS_PER_PLAN))
    until = chunks[-1].until if len(chunks) == CHUNKS_PER_PLAN else feed.newest
    return Window(after, until, (Part(WHOLE, chunks),) if chunks else ())


def plan_partitions(feed: RowFeed, after: int, rows_per_chunk: int, skip: frozenset[str]) -> Window:
    """The next chunks of every partition but those that are behind."""
    rows, until = _read_window(feed, after, feed.newest)
    if not rows:
        return Window(after, until, ())
    kept = by_path(rows, feed.divided)
    parts = tuple(
        Part(path, tuple(cut([positions], after, until, rows_per_chunk)))
        for path, (_, positions) in kept.items()
        if path not in skip
    )
    return Window(after, until, parts, kept)


def group_window(feed: RowFeed, after: int, until: int) -> dict[str, Positioned]:
    """The rows of a window that was planned before, by partition."""
    return by_path(list(feed.read(after, until)), feed.divided)


def _read_window(feed: RowFeed, after: int, newest: int) -> tuple[list[Positioned], int]:
    """So many rows as may be in memory, and the position that they reach."""
    window: list[Positioned] = []
    rows = size_bytes = 0
    for batch, positions in feed.read(after, newest):
        window.append((batch, positions))
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= WINDOW_ROWS or size_bytes >= WINDOW_BYTES:
            return window, int(positions[-1])
    return window, newest


def _table(rows: Sequence[Positioned]) -> pa.Table:
    positions = pa.array(np.concatenate([of_batch for _, of_batch in rows]))
    return pa.Table.from_batches([batch for batch, _ in rows]).append_column(POSITION, positions)


def by_path(rows: Sequence[Positioned], divided: Divided) -> dict[str, Positioned]:
    """Rows by the partition that they belong to, in the order in which they come."""
    if not rows:
        return {}
    columns, labels = list(divided.values()), list(divided)
    return {
        path_of(labels, values): (
            _one_batch(mine.drop_columns([POSITION])),
            mine.column(POSITION).to_numpy(),
        )
        for values, mine in group_rows(_table(rows), columns)
    }


def since(rows: Positioned, after: int) -> Positioned:
    """Those of some rows that are after a position."""
    batch, positions = rows
    begin = int(np.searchsorted(positions, after, side="right"))
    return batch.slice(begin), positions[begin:]


def plan_one(
    feed: RowFeed, path: str, after: int, until: int, rows_per_chunk: int
) -> tuple[Chunk, ...]:
    """The next chunks of one partition that is behind; none when it has no rows there."""
    positions = (sequence for _, sequence in rows_of(feed, path, after, until))
    return tuple(islice(cut(positions, after, until, rows_per_chunk), CHUNKS_PER_PLAN))


def plan_noted(feed: RowFeed, noted: Ids, after: int, rows_per_chunk: int) -> tuple[Chunk, ...]:
    """The chunks of rows that were noted, as far as they are still there."""
    last = int(noted[-1])
    left = (positions[is_among(positions, noted)] for positions in feed.positions(after, last))
    return tuple(cut(left, after, last, rows_per_chunk))


def rows_at(feed: RowFeed, noted: Ids, after: int, until: int) -> Iterator[Positioned]:
    """The rows in (after, until] that were noted, wherever they belong now."""
    for batch, positions in feed.read(after, until):
        mask = is_among(positions, noted)
        if mask.any():
            yield batch.filter(pa.array(mask)), positions[mask]


def rows_of(feed: RowFeed, path: str, after: int, until: int) -> Iterator[Positioned]:
    """The rows of one partition in (after, until]."""
    for batch, positions in feed.read(after, until):
        if not feed.divided:
            yield batch, positions
            continue
        mask = _belongs(batch, path, feed.divided)
        if mask.any():
            yield batch.filter(pa.array(mask)), positions[mask]


def _belongs(batch: pa.RecordBatch, path: str, divided: Divided) -> npt.NDArray[np.bool_]:
    names, labels = divided.values(), list(divided)
    texts = [texts_of(pa.chunked_array([batch.column(name)])).to_pylist() for name in names]
    return np.array([path_of(labels, values) == path for values in zip(*texts, strict=True)])


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
