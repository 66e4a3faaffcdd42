"""Rows by their sequence: Lance's stable row ids, given out at commit, in commit order.

Owns: finding the rows of one pin whose sequence lies in a range, and reading them in order, in
bounded memory. Which rows there are is told by the pin's metadata; data files are opened only to
read the rows themselves.

Laws: a row keeps its sequence through updates and compaction; rows of a later commit have higher
ones; so of two pins of one lineage, the later has no new row at or below the earlier one's last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.store.changes import live_row_ids
from tidelock.store.tables import Dataset

NOTHING = -1
"""The sequence before the first."""
SEQUENCE = "_sequence"
READ_ROWS = 65_536
READ_BYTES = 16 * 1024 * 1024
BATCHES_PER_SCAN = 4
"""Lance reads all that a scan asks for as fast as it can, and glibc keeps what large reads took for
each thread that made one."""

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
    found = []
    for fragment in dataset.get_fragments():
        if fragment.fragment_id <= newer_than:
            continue
        ids = _ids(dataset, fragment.fragment_id)
        places = np.flatnonzero(ids > after)
        ids = ids[places]
        if len(ids):
            together = places[-1] - places[0] + 1 == len(places)
            ascending = bool(together and np.all(ids[1:] > ids[:-1]))
            first, last = int(ids.min()), int(ids.max())
            found.append(Stretch((fragment.fragment_id,), first, last, len(ids), ascending))
    return tuple(_apart(sorted(found, key=lambda one: one.first)))


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


def _ids(dataset: Dataset, fragment_id: int) -> Ids:
    return live_row_ids(dataset, fragment_id).astype(np.int64)


def sequences_in(dataset: Dataset, stretch: Stretch, after: int, until: int) -> Ids:
    """The sequences of a stretch's live rows in (after, until], in order."""
    ids = np.concatenate([_ids(dataset, one) for one in stretch.fragments])
    ids = ids[(ids > after) & (ids <= until)]
    return ids if stretch.ascending else np.sort(ids)


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
        ids = _ids(dataset, fragment_id)
        places = np.flatnonzero((ids > after) & (ids <= until) & (ids >= stretch.first))
        if not len(places):
            return
        begin, end = int(places[0]), int(places[0]) + len(places)
    rows = _rows_at_once(fragment)
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


def _rows_at_once(fragment: Any) -> int:
    """How many rows to read at once, so that rows of any size fit in memory."""
    meta = fragment.metadata
    size_bytes: int = sum(file.file_size_bytes or 0 for file in meta.files)
    row_bytes: int = max(1, size_bytes // max(1, meta.physical_rows))
    return max(1, min(READ_ROWS, READ_BYTES // row_bytes))


def _read_mixed(
    dataset: Dataset, stretch: Stretch, after: int, until: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of fragments whose sequences interleave, looked up in the order of their sequences."""
    by_fragment = [_ids(dataset, one) for one in stretch.fragments]
    ids = np.concatenate(by_fragment)
    owners = np.repeat(np.arange(len(by_fragment)), [len(one) for one in by_fragment])
    offsets = np.concatenate([np.arange(len(one)) for one in by_fragment])
    wanted = np.flatnonzero((ids > after) & (ids <= until))
    wanted = wanted[np.argsort(ids[wanted], kind="stable")]
    for begin in range(0, len(wanted), READ_ROWS):
        some = wanted[begin : begin + READ_ROWS]
        parts, order = [], []
        for number in np.unique(owners[some]):
            mine = some[owners[some] == number]
            fragment = dataset.get_fragment(stretch.fragments[number])
            places = np.argsort(offsets[mine], kind="stable")
            parts.append(fragment.take(offsets[mine][places].tolist(), columns=columns))
            order.append(ids[mine][places])
        sequences = np.concatenate(order)
        rows = pa.concat_tables(parts).take(pa.array(np.argsort(sequences, kind="stable")))
        rows = rows.append_column("_rowid", pa.array(np.sort(sequences).astype(np.uint64)))
        yield from rows.combine_chunks().to_batches()


def _with_sequence(batch: pa.RecordBatch) -> pa.RecordBatch:
    number = batch.schema.get_field_index("_rowid")
    sequences = batch.column(number).cast(pa.int64())
    fields = [batch.schema.field(one) for one in range(batch.num_columns) if one != number]
    columns = [batch.column(one) for one in range(batch.num_columns) if one != number]
    schema = pa.schema([*fields, pa.field(SEQUENCE, pa.int64(), nullable=False)])
    return pa.RecordBatch.from_arrays([*columns, sequences], schema=schema)
