"""Numbering keys: which of some wanted keys a row has, told exactly, for many rows at once.

Owns: the comparison of keys, of one column or of several. Arrow's kernels hash the values, and
compare those whose hashes are equal; nothing is decided by a hash alone.

Cost: a kernel hashes all wanted values each time that it is called. So rows are looked at in slabs
of at least as many rows as there are wanted keys, and all in all it takes as long as there are rows
and keys, whatever the sizes of the batches in which they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SLAB_ROWS_MIN = 65_536
SLAB_BYTES_MAX = 128 * 1024 * 1024


class Numbering:
    """Unique keys; the number of each is its position."""

    def __init__(self, keys: pa.Table) -> None:
        """`keys` has the key columns and no others, without NULL."""
        self._names = keys.column_names
        self._steps: list[tuple[pa.Array, pa.Array | None]] = []
        """For each column its values, and the combinations with the columns before it."""
        if len(self._names) == 1:
            self._steps.append((whole(keys.column(0)), None))
            return
        codes: pa.Array | None = None
        for column in keys.columns:
            column = whole(column)
            values = column.unique()
            found = pc.index_in(column, value_set=values)
            if codes is None:
                codes = found
                self._steps.append((values, None))
                continue
            joint = _joint(codes, found, len(values))
            combinations = joint.unique()
            codes = pc.index_in(joint, value_set=combinations)
            self._steps.append((values, combinations))

    def find(self, rows: pa.Table) -> pa.ChunkedArray:
        """For each row the number of its key; NULL if it is not wanted."""
        codes: pa.ChunkedArray | None = None
        for name, (values, combinations) in zip(self._names, self._steps, strict=True):
            found = pc.index_in(rows.column(name), value_set=values)
            if codes is None or combinations is None:
                codes = found
            else:
                joint = _joint(codes, found, len(values))
                codes = pc.index_in(joint, value_set=combinations)
        return codes


def _joint(codes: pa.Array, found: pa.Array, count: int) -> pa.Array:
    """One number for each pair. Both are below 2^31, so that none is too large."""
    return pc.add(pc.multiply(codes.cast(pa.int64()), count), found.cast(pa.int64()))


def slabs(
    batches: Iterable[pa.RecordBatch], rows_min: int, bytes_max: int = SLAB_BYTES_MAX
) -> Iterator[pa.Table]:
    """The rows of a stream in tables of at least so many rows, unless those have too many bytes."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= max(rows_min, SLAB_ROWS_MIN) or size_bytes >= bytes_max:
            yield pa.Table.from_batches(held)
            held, rows, size_bytes = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def is_among(values: npt.NDArray[Any], ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which values are among others that are in order: unlike `numpy.isin`, it does not sort those
    again each time that it is asked."""
    if not len(ordered):
        return np.zeros(len(values), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    among: npt.NDArray[np.bool_] = ordered[places] == values
    return among
