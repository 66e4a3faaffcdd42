"""Pieces of rows: streams regrouped within bounds, and arrays that stand on their own.

Owns: how rows are cut before they are written.
Invariants: a chunk has at most rows_max rows, and at most bytes_max bytes unless it is one row;
no row is lost, repeated or moved.

Lance 14 fails on some slices of nested arrays (a struct in a struct, a nullable BOOLEAN in a
struct, strings in an empty list): loudly, in its encoder, after staging began. So nothing nested
leaves here as a slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def rechunk(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.Table]:
    """The rows of a stream, in their order, in tables within both bounds. Empty batches vanish."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch, rows_max, bytes_max):
            piece_bytes = piece.nbytes
            if held and (rows + piece.num_rows > rows_max or size + piece_bytes > bytes_max):
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows += piece.num_rows
            size += piece_bytes
    if held:
        yield pa.Table.from_batches(held)


def _pieces(batch: pa.RecordBatch, rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    for piece in cut(batch, rows_max, bytes_max):
        yield unsliced_batch(piece)


def cut(rows: Any, rows_max: int, bytes_max: int) -> Iterator[Any]:
    """Slices of a batch or an array, each within both bounds, or of one row."""
    count, size = len(rows), rows.nbytes
    if count <= 1 or (count <= rows_max and size <= bytes_max):
        yield rows
        return
    step = max(1, min(rows_max, count * bytes_max // max(size, 1), count - 1))
    for start in range(0, count, step):
        # Rows differ in size, so a slice may still be too large.
        yield from cut(rows.slice(start, step), rows_max, bytes_max)


def unsliced_table(table: pa.Table) -> pa.Table:
    """The table, with nothing nested cut by a slice, also when it is read by batches."""
    layouts = {tuple(len(c) for c in column.chunks) for column in table.columns}
    if len(layouts) == 1 and all(
        _stands_alone(chunk) for column in table.columns for chunk in column.chunks
    ):
        return table
    batches = [unsliced_batch(batch) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, schema=table.schema)


def unsliced_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, with nothing nested cut by a slice."""
    if all(_stands_alone(column) for column in batch.columns):
        return batch
    columns = [c if _stands_alone(c) else _copy(c) for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _copy(array: pa.Array) -> pa.Array:
    # Concatenating with nothing copies exactly what the slice shows.
    return pa.concat_arrays([array, array.slice(0, 0)])


def _stands_alone(array: Any) -> bool:
    """Whether the array is not nested, or shows the whole of its buffers."""
    return not pa.types.is_nested(array.type) or _is_whole(array)


def _is_whole(array: Any) -> bool:
    if array.offset:
        return False
    type_ = array.type
    if pa.types.is_struct(type_):
        return all(_is_whole(array.field(i)) for i in range(type_.num_fields))
    if pa.types.is_list(type_):
        parts = [array.values]
    elif pa.types.is_map(type_):
        parts = [array.keys, array.items]
    else:
        return True
    offsets = array.offsets
    return (
        offsets[0].as_py() == 0
        and offsets[len(array)].as_py() == len(parts[0])
        and all(_is_whole(part) for part in parts)
    )
