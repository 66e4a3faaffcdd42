"""Reading a file of rows although some of its records are bad.

Records are read a block at a time, as the readers of whole files do. A block that is refused is
divided until the records that are refused stand alone: those are put aside, with their line, the
reason and their text, and the others are rows.
Invariant: each record is in a batch, or put aside, once; batches and records keep their order.
Law: what is put aside is just what a reader of this record alone would refuse.

A file that is refused as a whole (no Parquet, cut off, not UTF-8, a header with unknown columns) is
put aside as one record without a line. Its rows until then are the caller's to undo.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.errors import ColumnNotFound, InputError
from tidelock.ingest.files.csv import CsvRows, delimiter_of
from tidelock.ingest.files.jsonl import JsonlRows, read_blocks
from tidelock.ingest.files.row_file import RowFile, unreadable
from tidelock.ingest.files.text import NOT_UTF8, NotUtf8, Utf8Stream
from tidelock.model.schema.schema import TableSchema
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults
from tidelock.store.rows.inputs import read_input
from tidelock.store.rows.json_values import encode_lines

BLOCK_RECORDS = 8192
RECORD_CHARACTERS_MAX = 1 << 20


@dataclass(frozen=True)
class BadRecord:
    """A record that was put aside; without a line, all of a file."""

    file: str
    line: int | None
    reason: str
    record: str | None


class FileRefused(Exception):
    """A file that cannot be read as one."""

    def __init__(self, bad: BadRecord, error: BaseException) -> None:
        super().__init__(bad, error)
        self.bad = bad
        self.error = error


@dataclass(frozen=True)
class Target:
    """What records are made into."""

    schema: TableSchema
    table: str
    defaults: Defaults = NO_DEFAULTS


class Block(Protocol):
    """Some records that follow each other."""

    def __len__(self) -> int: ...

    def part(self, start: int, end: int) -> Block: ...

    def batches(self, target: Target) -> Iterator[pa.RecordBatch]: ...

    def told(self) -> tuple[int, str]:
        """The line and the text of its first record."""


def read_tolerantly(
    file: RowFile, target: Target, *, columns_come: bool = False
) -> Iterator[pa.RecordBatch | BadRecord]:
    """The rows of a file and the records that are none; `columns_come`: a column that the table
    does not have is ColumnNotFound, as it may be added."""
    try:
        with file.open() as stream:
            for block in _BLOCKS[file.format](file, stream):
                yield from _sift(block, file, target, columns_come)
    except InputError as error:
        if columns_come and isinstance(error, ColumnNotFound):
            raise
        raise FileRefused(_whole(file, error.message), error) from error
    except (NotUtf8, UnicodeDecodeError) as error:
        raise FileRefused(_whole(file, NOT_UTF8), error) from error
    except (pa.ArrowException, OSError, EOFError) as error:
        told = unreadable(file.shown, error)
        raise FileRefused(_whole(file, told.message), told) from error


def _whole(file: RowFile, message: str) -> BadRecord:
    reason = message.removeprefix(f"{file.shown}: ").removesuffix(" Nothing was loaded.")
    return BadRecord(file.shown, None, reason, None)


def _sift(
    block: Block, file: RowFile, target: Target, columns_come: bool
) -> Iterator[pa.RecordBatch | BadRecord]:
    try:
        # All of them first: a block is refused as a whole.
        batches = list(block.batches(target))
    except (InputError, UnicodeDecodeError, NotUtf8) as error:
        if not len(block) or (columns_come and "columns" in getattr(error, "evidence", {})):
            raise
        if len(block) > 1:
            middle = len(block) // 2
            yield from _sift(block.part(0, middle), file, target, columns_come)
            yield from _sift(block.part(middle, len(block)), file, target, columns_come)
            return
        line, text = block.told()
        reason = error.message if isinstance(error, InputError) else NOT_UTF8
        yield BadRecord(file.shown, line, reason, text[:RECORD_CHARACTERS_MAX])
    else:
        yield from batches


def _typed(
    batches: Iterator[pa.RecordBatch], file: RowFile, target: Target
) -> Iterator[pa.RecordBatch]:
    given = read_input(batches, target.schema, target.table, file.reading.zone, target.defaults)
    return given.batches()


# JSON lines -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lines:
    """Lines of JSON, each with its number."""

    file: RowFile
    lines: Sequence[tuple[int, bytes]]

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, start: int, end: int) -> _Lines:
        return _Lines(self.file, self.lines[start:end])

    def batches(self, target: Target) -> Iterator[pa.RecordBatch]:
        reading = self.file.reading
        rows = JsonlRows(
            io.BytesIO(b"\n".join(text for _, text in self.lines)),
            target.schema,
            target.table,
            reading.zone,
            target.defaults,
            as_text=reading.as_text,
        )
        return _typed(rows.batches(), self.file, target)

    def told(self) -> tuple[int, str]:
        number, text = self.lines[0]
        return number, text.decode("utf-8", "replace").rstrip("\r")


def _line_blocks(file: RowFile, stream: Any) -> Iterator[_Lines]:
    line = 1
    for block in read_blocks(Utf8Stream(stream)):
        numbered = [
            (number, text)
            for number, text in enumerate(block, start=line)
            if text and not text.isspace()
        ]
        line += len(block)
        for start in range(0, len(numbered), BLOCK_RECORDS):
            yield _Lines(file, numbered[start : start + BLOCK_RECORDS])


# CSV --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Records:
    """Records of CSV, each with its first line and its text as it is in the file."""

    file: RowFile
    header: str
    records: Sequence[tuple[int, str]]

    def __len__(self) -> int:
        return len(self.records)

    def part(self, start: int, end: int) -> _Records:
        return _Records(self.file, self.header, self.records[start:end])

    def batches(self, target: Target) -> Iterator[pa.RecordBatch]:
        text = self.header + "".join(_ended(text) for _, text in self.records)
        stream = pa.BufferReader(text.encode("utf-8", "surrogateescape"))
        rows = CsvRows(self.file, stream, target.schema, target.table)
        return _typed(rows.batches(), self.file, target)

    def told(self) -> tuple[int, str]:
        line, text = self.records[0]
        told = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return line, told.rstrip("\r\n")


def _ended(text: str) -> str:
    return text if text.endswith(("\n", "\r")) else f"{text}\n"


def _csv_blocks(file: RowFile, stream: Any) -> Iterator[_Records]:
    records = _records(Utf8Stream(stream), delimiter_of(file))
    header = ""
    if file.reading.columns is None:
        first = next(records, None)
        header = "" if first is None else _ended(first[1])
    # The header is judged first, and by itself: all records have its columns.
    yield _Records(file, header, [])
    some: list[tuple[int, str]] = []
    for record in records:
        some.append(record)
        if len(some) == BLOCK_RECORDS:
            yield _Records(file, header, some)
            some = []
    if some:
        yield _Records(file, header, some)


def _records(stream: Any, delimiter: str) -> Iterator[tuple[int, str]]:
    """The records of CSV that are not empty, as text, each with the line on which it begins."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in _text_lines(stream):
            taken.append(line)
            yield line

    reader = csv.reader(lines(), delimiter=delimiter)
    csv.field_size_limit(1 << 30)
    line = 1
    for fields in reader:
        text = "".join(taken)
        taken.clear()
        if fields:
            yield line, text
        line = reader.line_num + 1


def _text_lines(stream: Any) -> Iterator[str]:
    for block in read_blocks(stream):
        for line in block:
            yield line.decode("utf-8", "surrogateescape") + "\n"


# Parquet ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Rows of a Parquet file; the number of a row stands for its line."""

    file: RowFile
    first: int
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def part(self, start: int, end: int) -> _Rows:
        return _Rows(self.file, self.first + start, self.rows.slice(start, end - start))

    def batches(self, target: Target) -> Iterator[pa.RecordBatch]:
        return _typed(iter([self.rows]), self.file, target)

    def told(self) -> tuple[int, str]:
        return self.first, encode_lines(self.rows.slice(0, 1))[0].as_py().rstrip()


def _parquet_blocks(file: RowFile, stream: Any) -> Iterator[_Rows]:
    first = 1
    for batch in pq.ParquetFile(file.place).iter_batches(BLOCK_RECORDS):
        yield _Rows(file, first, batch)
        first += batch.num_rows


_BLOCKS: dict[str, Callable[[RowFile, Any], Iterator[Block]]] = {
    "jsonl": _line_blocks,
    "csv": _csv_blocks,
    "parquet": _parquet_blocks,
}
