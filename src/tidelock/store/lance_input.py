"""Batches as Lance can take them.

Lance 14 panics, or fails in its encoder, on rows that are valid Arrow:

- 128-bit decimals that are not aligned to 16 bytes, which is how they come out of IPC: from a Spark
  worker, or from a mapped file;
- some slices of nested arrays, also those that it makes itself where a batch crosses the end of a
  file.

So such columns are looked at, and copied where it is needed. Schemas without them pass untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tidelock.store.chunks import unsliced_batch

DECIMAL_ALIGNMENT_BYTES = 16


class Watched:
    """Passes batches on and remembers why they ended: Arrow's C stream keeps only the message."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise


def table_for_lance(table: pa.Table, rows_per_file: int) -> pa.Table:
    if not any(_traits(table.schema)):
        return table
    batches = batches_for_lance(table.to_batches(), table.schema, rows_per_file)
    return pa.Table.from_batches(list(batches), table.schema)


def batches_for_lance(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows_per_file: int
) -> Iterator[pa.RecordBatch]:
    nested, wide = _traits(schema)
    if nested:
        batches = map(unsliced_batch, _cut_at(batches, rows_per_file))
    return map(_align, batches) if wide else iter(batches)


def _cut_at(batches: Iterable[pa.RecordBatch], rows_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows, in batches of which none crosses a multiple of `rows_max`."""
    room = rows_max
    for batch in batches:
        while batch.num_rows > room:
            yield batch.slice(0, room)
            batch = batch.slice(room)
            room = rows_max
        yield batch
        room = (room - batch.num_rows) or rows_max


@lru_cache(maxsize=256)
def _traits(schema: pa.Schema) -> tuple[bool, bool]:
    """Whether a schema has nested columns, and whether it has 128-bit decimals."""
    return any(map(pa.types.is_nested, schema.types)), any(map(_is_wide, schema.types))


def _is_wide(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    return any(_is_wide(kind.field(number).type) for number in range(kind.num_fields))


def _align(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [column if _is_aligned(column) else _copied(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_aligned(column: pa.Array) -> bool:
    if not _is_wide(column.type):
        return True
    return all(
        buffer is None or buffer.address % DECIMAL_ALIGNMENT_BYTES == 0
        for buffer in column.buffers()
    )


def _copied(column: pa.Array) -> pa.Array:
    return column.take(pa.array(np.arange(len(column))))
