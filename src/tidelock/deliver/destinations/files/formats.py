"""File formats: writing a stream of rows to one file, in bounded memory.

Law: the same rows give the same bytes, whatever batches they come in: what is written at once is
cut by counting rows, and the count follows from the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.deliver.destinations.files.csv_lines import encode_csv, encode_header
from tidelock.store.rows.json_values import encode_lines, join_lines

GROUP_ROWS_MAX = 131_072
GROUP_BYTES = 64 * 1024 * 1024
SAMPLE_ROWS = 1000

Where = Path | IO[bytes]
Write = Callable[[Where, pa.Schema, Iterator[pa.RecordBatch]], None]


def write_parquet(where: Where, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> None:
    """With the types as they are; only a field of a struct may be NULL, because the struct may."""
    shown = pa.schema([field.with_type(_loose(field.type)) for field in schema])
    with pq.ParquetWriter(where, shown, compression="zstd", compression_level=1) as writer:
        for table in regrouped(rows, schema):
            writer.write_table(table.cast(shown), row_group_size=max(1, table.num_rows))


def _loose(kind: pa.DataType) -> pa.DataType:
    """A type without required fields in structs, of which Arrow's writer wants a value in each."""
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([pa.field(one.name, _loose(one.type)) for one in fields])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_loose(kind.value_type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_loose(key.type)), item.with_type(_loose(item.type)))
    return kind


def write_jsonl(where: Where, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> None:
    with where.open("wb") if isinstance(where, Path) else nullcontext(where) as file:
        for batch in rows:
            file.write(join_lines(encode_lines(batch)))


def write_csv(where: Where, schema: pa.Schema, rows: Iterator[pa.RecordBatch]) -> None:
    """With a header."""
    with where.open("wb") if isinstance(where, Path) else nullcontext(where) as file:
        file.write(encode_header(schema.names))
        for batch in rows:
            file.write(encode_csv(batch))


def regrouped(rows: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The same rows in tables of a size that depends on the rows alone."""
    first, rows = _sample(rows)
    if first is None:
        return
    size = max(1, first.nbytes // max(1, first.num_rows))
    count = max(1, min(GROUP_ROWS_MAX, GROUP_BYTES // size))
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in rows:
        while held_rows + batch.num_rows >= count:
            taken = count - held_rows
            yield _joined([*held, batch.slice(0, taken)], schema)
            batch = batch.slice(taken)
            held, held_rows = [], 0
        if batch.num_rows:
            held.append(batch)
            held_rows += batch.num_rows
    if held:
        yield _joined(held, schema)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    # In one piece: a writer looks at the end of each piece whether a page is full.
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _sample(
    rows: Iterator[pa.RecordBatch],
) -> tuple[pa.Table | None, Iterator[pa.RecordBatch]]:
    """The first rows, by which the size of all is judged, and all of them again."""
    seen: list[pa.RecordBatch] = []
    count = 0
    for batch in rows:
        seen.append(batch)
        count += batch.num_rows
        if count >= SAMPLE_ROWS:
            break
    if not seen:
        return None, iter(())
    sample = pa.Table.from_batches(seen).slice(0, SAMPLE_ROWS).combine_chunks()
    return sample.take(pa.array(range(sample.num_rows))), chain(seen, rows)


FORMATS: dict[str, tuple[str, Write]] = {
    "parquet": ("parquet", write_parquet),
    "jsonl": ("jsonl", write_jsonl),
    "csv": ("csv", write_csv),
}
