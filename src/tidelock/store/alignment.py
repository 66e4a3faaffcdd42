"""Alignment: buffers that Lance can take over as they are.

Arrow data that came through IPC (from a Spark worker, from a mapped file) is aligned to 8 bytes.
Lance needs 16 for 128-bit decimals, and panics otherwise. So batches with such a column are looked
at, and copied where it is needed; all others pass untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

DECIMAL_ALIGNMENT_BYTES = 16


def align_table(table: pa.Table) -> pa.Table:
    if not _has_decimals(table.schema):
        return table
    return pa.Table.from_batches(align_batches(table.to_batches()), table.schema)


def align_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield _align(batch) if _has_decimals(batch.schema) else batch


@lru_cache(maxsize=256)
def _has_decimals(schema: pa.Schema) -> bool:
    return any(_is_wide(kind) for kind in schema.types)


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
