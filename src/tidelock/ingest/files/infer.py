"""The columns of files, told from a sample of their rows.

Owns: which rows are looked at. Files are looked at in their order until SAMPLE_BYTES of them were
read, so that the answer is the same each time, and takes as long whatever there is. Parquet says
what its columns are, and nothing is looked at. Lines that cannot be read say nothing: they are
refused, with their line, when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tidelock.errors import InvalidSchema
from tidelock.ingest.files.csv import delimiter_of
from tidelock.ingest.files.inference import Shape, fields_of, join_fields, shape_of_texts
from tidelock.ingest.files.jsonl import read_blocks
from tidelock.ingest.files.row_file import RowFile, unreadable
from tidelock.ingest.files.text import NotUtf8, Utf8Stream
from tidelock.model.names import fold
from tidelock.model.schema.column_ddl import to_ddl
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.types import normal_type

SAMPLE_BYTES = 64 * 1024 * 1024
BLOCK_BYTES = 4 * 1024 * 1024

Shapes = Mapping[str, tuple[str, Shape]]


@dataclass(frozen=True, repr=False)
class InferredSchema:
    """Columns that were told from files, and of how many rows. `str` is their DDL."""

    columns: tuple[Column, ...]
    rows: int
    """Those that were looked at; 0 of Parquet."""
    files: int
    """Those that were looked at."""

    @property
    def ddl(self) -> str:
        return to_ddl(TableSchema(self.columns))

    def __str__(self) -> str:
        return self.ddl

    def __repr__(self) -> str:
        return f"InferredSchema({self.ddl!r}, rows={self.rows}, files={self.files})"


def infer_schema(files: Sequence[RowFile], sample_bytes: int = SAMPLE_BYTES) -> InferredSchema:
    """The columns of files, in the order in which they occur."""
    parquet = next((file for file in files if file.format == "parquet"), None)
    if parquet is not None:
        return InferredSchema(_of_parquet(parquet), 0, 1)
    shapes: Shapes = {}
    rows = seen = 0
    left = sample_bytes
    for file in files:
        if left <= 0:
            break
        seen += 1
        for count, size_bytes, some in _samples(file, left):
            shapes = join_fields(shapes, some)
            rows += count
            left -= size_bytes
    if not shapes:
        named = ", ".join(file.shown for file in files[:3])
        raise InvalidSchema(f"No row of {named} tells what its columns are. Nothing was loaded.")
    columns = tuple(Column(name, normal_type(shape.type, name)) for name, shape in shapes.values())
    return InferredSchema(columns, rows, seen)


def columns_of(file: RowFile) -> tuple[Column, ...]:
    """All columns of one file, of which every row is looked at."""
    return infer_schema([file], sample_bytes=1 << 62).columns


def _of_parquet(file: RowFile) -> tuple[Column, ...]:
    try:
        schema = pq.read_schema(file.place)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file.shown, error) from error
    return tuple(Column(one.name, normal_type(one.type, one.name), one.nullable) for one in schema)


def _samples(file: RowFile, bytes_max: int) -> Iterator[tuple[int, int, Shapes]]:
    """What some rows say of their columns, how many they are and what they take."""
    read = _of_csv if file.format == "csv" else _of_lines
    try:
        with file.open() as stream:
            left = bytes_max
            for count, size_bytes, shapes in read(file, Utf8Stream(stream)):
                yield count, size_bytes, shapes
                left -= size_bytes
                if left <= 0:
                    return
    except (NotUtf8, UnicodeDecodeError, pa.ArrowException, OSError, EOFError) as error:
        raise unreadable(file.shown, error) from error


def _of_lines(file: RowFile, stream: Any) -> Iterator[tuple[int, int, Shapes]]:
    decode = msgspec.json.Decoder().decode
    for block in read_blocks(stream):
        shapes: Shapes = {}
        rows = 0
        for row in _objects(block, decode):
            shapes = join_fields(shapes, fields_of(row))
            rows += 1
        yield rows, sum(map(len, block)), shapes


def _objects(lines: Iterable[bytes], decode: Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line and not line.isspace():
            try:
                value = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if isinstance(value, dict):
                yield value


def _of_csv(file: RowFile, stream: Any) -> Iterator[tuple[int, int, Shapes]]:
    csv = pyarrow.csv
    reading = file.reading
    try:
        reader = csv.open_csv(
            stream,
            read_options=csv.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, column_names=reading.columns
            ),
            parse_options=csv.ParseOptions(
                delimiter=delimiter_of(file),
                newlines_in_values=True,
                invalid_row_handler=lambda row: "skip",
            ),
            convert_options=csv.ConvertOptions(
                default_column_type=pa.string(),
                null_values=list(reading.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return
        raise
    yield 0, 0, {fold(name): (name, Shape()) for name in reader.schema.names}
    for batch in reader:
        shapes = {
            fold(name): (name, shape_of_texts(column, reading.zone))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        yield batch.num_rows, batch.nbytes, shapes
