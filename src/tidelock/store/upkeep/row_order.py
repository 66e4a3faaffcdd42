"""Rows of several fragments in the order of their ids, in bounded memory.

A fragment that was folded while others committed lies behind theirs, with lower row ids. Rows that
are rewritten are put in order, because of how Lance writes row ids down: ascending ids take a few
bytes, or at most a bit for each row; ids in another order take two to eight bytes for each row, in
every version of the table from then on.

Law: what comes out are the live rows of the fragments, each once, with ascending ids, unless a
fragment that is too large to be sorted in memory has them in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidelock.store.tables.fragments import Addresses, Dataset, numbers

ROW_ID = "_rowid"
SORTED_BYTES_MAX = 64 * 1024 * 1024
"""Files of fragments up to this size are sorted in memory."""


def rows_in_order(base: Dataset, fragments: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    """The live rows of some fragments with their ids, as batches."""
    if size_bytes(fragments) <= SORTED_BYTES_MAX:
        yield from in_order(_scanner(base, fragments).to_table()).to_batches()
        return
    yield from _merged([_Rows(base, fragment) for fragment in fragments])


def in_order(rows: pa.Table) -> pa.Table:
    """Rows sorted by their ids."""
    row_ids = numbers(rows.column(ROW_ID))
    return rows if is_ascending(row_ids) else rows.take(pa.array(np.argsort(row_ids)))


def _sorted(batch: pa.RecordBatch) -> pa.RecordBatch:
    row_ids = batch.column(ROW_ID).to_numpy()
    return batch if is_ascending(row_ids) else batch.take(pa.array(np.argsort(row_ids)))


def is_ascending(row_ids: Addresses) -> bool:
    return bool(np.all(row_ids[1:] > row_ids[:-1]))


def size_bytes(fragments: Sequence[Any]) -> float:
    """How large the data files of fragments are; infinite if that is not known."""
    sizes = [file.file_size_bytes for one in fragments for file in one.metadata.files]
    return float("inf") if None in sizes else float(sum(sizes))


class _Rows:
    """The rows of one fragment on their way into the merged order: a batch at a time."""

    def __init__(self, base: Dataset, fragment: Any) -> None:
        row_ids = numbers(_scanner(base, [fragment], columns=[]).to_table().column(ROW_ID))
        self._batches: Iterator[pa.RecordBatch]
        if is_ascending(row_ids) or size_bytes([fragment]) > SORTED_BYTES_MAX:
            self._batches = iter(_scanner(base, [fragment]).to_batches())
        else:
            self._batches = iter(in_order(_scanner(base, [fragment]).to_table()).to_batches())
        self.batch: pa.RecordBatch | None = None
        self.advance()

    def advance(self) -> None:
        """Go on to the next batch. Those of a fragment that is too large to be sorted are sorted
        each by itself, so that what is taken of one leaves the rest of it."""
        self.batch = next((_sorted(batch) for batch in self._batches if batch.num_rows), None)

    @property
    def last(self) -> int:
        assert self.batch is not None
        return int(np.max(self.batch.column(ROW_ID).to_numpy()))

    def take_until(self, row_id: int) -> pa.RecordBatch:
        """The rows of the batch with ids up to this one, which are taken out of it."""
        assert self.batch is not None
        row_ids = self.batch.column(ROW_ID).to_numpy()
        if row_ids.max() <= row_id:
            taken = self.batch
            self.advance()
            return taken
        count = int(np.searchsorted(row_ids, row_id, side="right"))
        taken, self.batch = self.batch.slice(0, count), self.batch.slice(count)
        return taken


def _merged(streams: list[_Rows]) -> Iterator[pa.RecordBatch]:
    """Merge streams with ascending ids: what no stream has lower ids than is passed on."""
    while streams := [stream for stream in streams if stream.batch is not None]:
        until = min(stream.last for stream in streams)
        taken = [stream.take_until(until) for stream in streams]
        parts = [batch for batch in taken if batch.num_rows]
        yield from in_order(pa.Table.from_batches(parts)).to_batches()


def _scanner(base: Dataset, fragments: Sequence[Any], columns: list[str] | None = None) -> Any:
    return base.scanner(
        columns=columns, fragments=list(fragments), with_row_id=True, scan_in_order=True
    )
