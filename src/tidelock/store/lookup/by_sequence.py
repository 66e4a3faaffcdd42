"""Rows by their sequence: Lance's stable row ids, given out at commit, in commit order.

Owns: finding the rows of one pin whose sequence lies in a range, and reading them in order, in
bounded memory. Which rows there are is told by the pin's metadata; data files are opened only to
read the rows themselves.

Laws: a row keeps its sequence through updates and compaction; rows of a later commit have higher
ones; so of two pins of one lineage, the later has no new row at or below the earlier one's last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.store.changes.changes import live_row_ids
from tidelock.store.lookup.by_place import look_up_rows
from tidelock.store.tables.fragments import Addresses, Dataset

NOTHING = -1
"""The sequence before the first."""
SEQUENCE = "_sequence"
READ_ROWS = 65_536
READ_BYTES = 16 * 1024 * 1024
BATCHES_PER_SCAN = 4
"""Lance reads all that a scan asks for as fast as it can, and glibc keeps what large reads took for
each thread that made one."""
MIXED_ROWS_MIN = 8192
MIXED_GROWTH_MAX = 8
"""So many times READ_BYTES may be looked up at once."""
PINS_REMEMBERED = 16
ROWS_REMEMBERED_MAX = 1024 * 1024

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Live rows of one pin with sequences first..last, which no other stretch has rows between."""

    fragments: tuple[int, ...]
    first: int
    last: int
    rows: int
    ascending: bool
    """Whether its rows lie together in one fragment, in the order of their sequences."""


def find_stretches(
    dataset: Dataset, after: int = NOTHING, newer_than: int = -1
) -> tuple[Stretch, ...]:
    """The rows with a sequence above `after`, in order.

    `newer_than` is the id of a fragment up to which none has such rows.
    """
    fragments = (one.fragment_id for one in dataset.get_fragments())
    whole = (_stretch(dataset, one) for one in fragments if one > newer_than)
    found = [_above(dataset, one, after) for one in whole if one is not None and one.last > after]
    return tuple(_apart(sorted(found, key=lambda one: one.first)))


def _stretch(dataset: Dataset, fragment_id: int) -> Stretch | None:
    """All live rows of a fragment; a reader that goes page by page asks for them again and
    again."""
    pin = (dataset.uri, dataset.version)
    with _lock:
        known = _stretches.setdefault(pin, {})
        _stretches.move_to_end(pin)
        if len(_stretches) > PINS_REMEMBERED:
            _stretches.popitem(last=False)
    if fragment_id not in known:
        known[fragment_id] = _stretch_of(fragment_id, live_row_ids(dataset, fragment_id))
    return known[fragment_id]


_stretches: OrderedDict[tuple[str, int], dict[int, Stretch | None]] = OrderedDict()
_lock = threading.Lock()


def _stretch_of(fragment_id: int, row_ids: Addresses) -> Stretch | None:
    if not len(row_ids):
        return None
    ids = row_ids.astype(np.int64)
    ascending = bool(np.all(ids[1:] > ids[:-1]))
    return Stretch((fragment_id,), int(ids.min()), int(ids.max()), len(ids), ascending)


def _above(dataset: Dataset, whole: Stretch, after: int) -> Stretch:
    """Those rows of a fragment that have a sequence above `after`."""
    if whole.first > after:
        return whole
    ordered = _in_order(dataset, whole.fragments)
    begin = int(np.searchsorted(ordered.ids, after, side="right"))
    live = ordered.live[begin:]
    together = live.max() - live.min() + 1 == len(live)
    ascending = bool(together and np.all(live[1:] > live[:-1]))
    return Stretch(whole.fragments, int(ordered.ids[begin]), whole.last, len(live), ascending)


@dataclass(frozen=True)
class _Ordered:
    """The live rows of some fragments in the order of their sequences."""

    ids: Ids
    live: Ids
    """Where each is among all of them, fragment by fragment."""


def _in_order(dataset: Dataset, fragments: tuple[int, ...]) -> _Ordered:
    """Asked for each part of a long delivery, and each page: the last answer is kept, and others as
    far as they are few rows."""
    place = (dataset.uri, dataset.version, fragments)
    with _lock:
        if place in _orders:
            _orders.move_to_end(place)
            return _orders[place]
    ids = np.concatenate([live_row_ids(dataset, one) for one in fragments]).astype(np.int64)
    live = np.arange(len(ids))
    if not np.all(ids[1:] > ids[:-1]):
        live = np.argsort(ids, kind="stable")
        ids = ids[live]
    ordered = _Ordered(ids, live)
    with _lock:
        _orders[place] = ordered
        while len(_orders) > 1 and _rows_remembered() > ROWS_REMEMBERED_MAX:
            _orders.popitem(last=False)
    return ordered


_orders: OrderedDict[tuple[str, int, tuple[int, ...]], _Ordered] = OrderedDict()


def _rows_remembered() -> int:
    return sum(len(ordered.ids) for ordered in _orders.values())


def _apart(found: Sequence[Stretch]) -> Iterator[Stretch]:
    """Fragments whose sequences interleave become one stretch."""
    held: Stretch | None = None
    for one in found:
        if held is not None and one.first <= held.last:
            held = Stretch(
                held.fragments + one.fragments,
                held.first,
                max(held.last, one.last),
                held.rows + one.rows,
                ascending=False,
            )
            continue
        if held is not None:
            yield held
        held = one
    if held is not None:
        yield held


def newest_fragment(dataset: Dataset) -> int:
    return max((fragment.fragment_id for fragment in dataset.get_fragments()), default=-1)


def sequences_in(dataset: Dataset, stretch: Stretch, after: int, until: int) -> Ids:
    """The sequences of a stretch's live rows in (after, until], in order."""
    ids = _in_order(dataset, stretch.fragments).ids
    return ids[slice(*_bounds(ids, max(after, stretch.first - 1), until))]


def _bounds(ids: Ids, after: int, until: int) -> tuple[int, int]:
    begin, end = np.searchsorted(ids, [after, until], side="right")
    return int(begin), int(end)


def read_rows(
    dataset: Dataset,
    stretches: Sequence[Stretch],
    after: int,
    until: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The rows with sequences in (after, until], in order, each batch with its `_sequence`."""
    for stretch in stretches:
        if stretch.last <= after or stretch.first > until:
            continue
        read = _read_ascending if stretch.ascending else _read_mixed
        for batch in read(dataset, stretch, after, until, list(columns)):
            if batch.num_rows:
                yield _with_sequence(batch)


def _read_ascending(
    dataset: Dataset, stretch: Stretch, after: int, until: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    (fragment_id,) = stretch.fragments
    fragment = dataset.get_fragment(fragment_id)
    begin, end = 0, fragment.count_rows()
    if after >= stretch.first or until < stretch.last or end > stretch.rows:
        ordered = _in_order(dataset, stretch.fragments)
        first, last = _bounds(ordered.ids, max(after, stretch.first - 1), until)
        if first == last:
            return
        begin, end = int(ordered.live[first]), int(ordered.live[last - 1]) + 1
    rows = rows_at_once(fragment)
    for start in range(begin, end, BATCHES_PER_SCAN * rows):
        scanner = dataset.scanner(
            columns=columns,
            fragments=[fragment],
            with_row_id=True,
            scan_in_order=True,
            batch_size=rows,
            offset=start,
            limit=min(BATCHES_PER_SCAN * rows, end - start),
        )
        yield from scanner.to_batches()


def rows_at_once(fragment: Any) -> int:
    """How many rows to read at once, so that rows of any size fit in memory."""
    meta = fragment.metadata
    size_bytes: int = sum(file.file_size_bytes or 0 for file in meta.files)
    row_bytes: int = max(1, size_bytes // max(1, meta.physical_rows))
    return max(1, min(READ_ROWS, READ_BYTES // row_bytes))


def _read_mixed(
    dataset: Dataset, stretch: Stretch, after: int, until: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of fragments whose sequences interleave, looked up in the order of their sequences.

    Rows that are next to each other by sequence lie far apart, so that a lookup reads more than it
    finds. For a reader that goes on, lookups grow as far as memory allows.
    """
    ordered = _in_order(dataset, stretch.fragments)
    begin, end = _bounds(ordered.ids, max(after, stretch.first - 1), until)
    rows_max = min(rows_at_once(dataset.get_fragment(one)) for one in stretch.fragments)
    rows = min(rows_max, MIXED_ROWS_MIN)
    while begin < end:
        wanted = ordered.ids[begin : min(end, begin + rows)]
        found = look_up_rows(dataset, stretch.fragments, wanted, columns)
        for start in range(0, len(wanted), READ_ROWS):
            yield from found.slice(start, READ_ROWS).combine_chunks().to_batches()
        begin, rows = begin + len(wanted), min(2 * rows, MIXED_GROWTH_MAX * rows_max)


def _with_sequence(batch: pa.RecordBatch) -> pa.RecordBatch:
    number = batch.schema.get_field_index("_rowid")
    sequences = batch.column(number).cast(pa.int64())
    fields = [batch.schema.field(one) for one in range(batch.num_columns) if one != number]
    columns = [batch.column(one) for one in range(batch.num_columns) if one != number]
    schema = pa.schema([*fields, pa.field(SEQUENCE, pa.int64(), nullable=False)])
    return pa.RecordBatch.from_arrays([*columns, sequences], schema=schema)
