"""Rows on their way into Lance: batches as it can take them, and files of a bounded size.

Lance 14 panics, or fails in its encoder, on rows that are valid Arrow:

- 128-bit decimals that are not aligned to 16 bytes, which is how they come out of IPC: from a Spark
  worker, or from a mapped file;
- some slices of nested arrays, also those that it makes itself where a batch crosses the end of a
  file.

So such columns are looked at, and copied where it is needed. Schemas without them pass untouched.

Invariant: memory in use while writing <= max(CACHE_BYTES_MIN, CACHE_BYTES_PER_COLUMN x columns),
twice, and three batches, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from functools import lru_cache
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidelock.store.rows.pieces import unsliced_batch

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata

DECIMAL_ALIGNMENT_BYTES = 16
ROWS_PER_FILE_MAX = 1024 * 1024
BYTES_PER_FILE_MAX = 512 * 1024 * 1024
BATCH_ROWS_MIN = 65_536
ONE_BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Rows up to this size are written as one batch: Lance takes its time for each."""
CACHE_BYTES_MIN = 16 * 1024 * 1024
CACHE_BYTES_PER_COLUMN = 256 * 1024


def write_rows(
    rows: pa.Table | Iterable[pa.RecordBatch],
    schema: pa.Schema,
    dataset: Any,
    *,
    rows_per_file: int = ROWS_PER_FILE_MAX,
    storage_options: dict[str, str] | None = None,
) -> list[FragmentMetadata]:
    """Write rows as fragments that belong to no version yet."""
    # Imported here and not above: Lance must not be loaded before Spark's daemon forks.
    from lance.fragment import write_fragments

    def write(data: pa.Table | pa.RecordBatchReader) -> list[FragmentMetadata]:
        written: list[FragmentMetadata] = write_fragments(
            data,
            dataset,
            mode="append",
            max_rows_per_file=rows_per_file,
            max_bytes_per_file=BYTES_PER_FILE_MAX,
            data_cache_bytes=max(CACHE_BYTES_MIN, CACHE_BYTES_PER_COLUMN * len(schema)),
            storage_options=storage_options,
        )
        return written

    if isinstance(rows, pa.Table):
        if _has_pieces(rows) and rows.nbytes <= ONE_BATCH_BYTES_MAX:
            rows = rows.combine_chunks()
        if any(_traits(schema)):
            ready = _batches_for_lance(rows.to_batches(), schema, rows_per_file)
            rows = pa.Table.from_batches(list(ready), schema)
        return write(rows)
    with closing(_Pulled(rows)) as pulled:
        ready = _batches_for_lance(pulled, schema, rows_per_file)
        return write(pa.RecordBatchReader.from_batches(schema, ready))


def _has_pieces(rows: pa.Table) -> bool:
    return any(column.num_chunks > 1 for column in rows.itercolumns())


class _Pulled:
    """Batches pulled ahead, one at a time, on a thread of their own.

    Lance asks for each batch on whichever thread is free, and glibc keeps freed memory for each
    thread that allocated: rows that are made where they are asked for leave ever more of it behind.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._ready: Queue[pa.RecordBatch | BaseException | None] = Queue(1)
        self._wanted = True
        Thread(target=self._pull, args=(batches,), name="tidelock-rows", daemon=True).start()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (given := self._ready.get()) is not None:
            if isinstance(given, BaseException):
                raise given
            yield given

    def close(self) -> None:
        """Stop pulling, also when rows are left: one place in the queue ends a wait for it."""
        self._wanted = False
        with suppress(Empty):
            self._ready.get_nowait()

    def _pull(self, batches: Iterable[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                self._ready.put(batch)
                del batch
                if not self._wanted:
                    return
            self._ready.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the rows are asked for
            self._ready.put(error)


def _batches_for_lance(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows_per_file: int
) -> Iterator[pa.RecordBatch]:
    nested, wide = _traits(schema)
    batches = _joined(batches, schema)
    if nested:
        batches = map(unsliced_batch, _cut_at(batches, rows_per_file))
    return map(_align, batches) if wide else iter(batches)


def _joined(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are worth Lance's while: small ones cost it several times."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= BATCH_ROWS_MIN or size_bytes >= ONE_BATCH_BYTES_MAX:
            yield _one(held, schema)
            held.clear()
            rows = size_bytes = 0
    if held:
        yield _one(held, schema)


def _one(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    joined = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return joined[0] if joined else batches[0]


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
