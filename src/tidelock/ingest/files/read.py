"""Reading a file of rows: batches of exactly a table's schema, and errors that name file and line.

Invariant: what comes out are batches of exactly the table's schema, in the order of the rows;
memory is bounded by one block, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from tidelock.errors import InputError, RequiredColumnNull, WrongType
from tidelock.ingest.files.csv import CsvRows
from tidelock.ingest.files.jsonl import JsonlRows
from tidelock.ingest.files.parquet import ParquetRows
from tidelock.ingest.files.row_file import RowFile, unreadable
from tidelock.ingest.files.text import NOT_UTF8, NotUtf8, Utf8Stream
from tidelock.model.schema.schema import TableSchema
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults
from tidelock.store.rows.inputs import read_input


class Rows(Protocol):
    """The rows of one file as batches; `line_of` finds the line of a row, counted from 0."""

    def batches(self) -> Iterator[pa.RecordBatch]: ...

    def line_of(self, row: int) -> int | None: ...


def read_file(
    file: RowFile, schema: TableSchema, table: str, defaults: Defaults = NO_DEFAULTS
) -> Iterator[pa.RecordBatch]:
    """The rows of a file as batches of the table's schema; errors name the file and the line."""
    with file.open() as stream:
        rows = _rows(file, stream, schema, table, defaults)
        try:
            given = read_input(rows.batches(), schema, table, file.reading.zone, defaults)
            yield from given.batches()
        except InputError as error:
            raise _located(error, file, rows) from error
        except (NotUtf8, UnicodeDecodeError) as error:
            raise _located(WrongType(NOT_UTF8, table=table), file, rows) from error
        except (pa.ArrowException, OSError, EOFError) as error:
            raise unreadable(file.shown, error) from error


def _rows(file: RowFile, stream: Any, schema: TableSchema, table: str, defaults: Defaults) -> Rows:
    if file.format == "csv":
        return CsvRows(file, Utf8Stream(stream), schema, table)
    if file.format == "jsonl":
        reading = file.reading
        return JsonlRows(
            Utf8Stream(stream), schema, table, reading.zone, defaults, as_text=reading.as_text
        )
    return ParquetRows(file, stream)


def _located(error: InputError, file: RowFile, rows: Rows) -> InputError:
    """The same error, with the file and, where there is one, the line of its first row."""
    found = error.evidence.get("rows") or []
    line = error.evidence.get("line")
    if line is None and found:
        line = rows.line_of(found[0])
    where = file.shown
    if line is not None:
        where += f", line {line}"
    elif found:
        where += f", row {found[0] + 1}"
    message = error.message
    if found and isinstance(error, RequiredColumnNull):
        # The store counts rows from 0; here the place is told already.
        message = f"Column {error.column!r} of table {error.table!r} is NOT NULL, and is NULL here."
    evidence = {**error.evidence, "file": file.shown}
    if line is not None:
        evidence["line"] = line
    return type(error)(f"{where}: {message} Nothing was loaded.", error.advice, **evidence)
