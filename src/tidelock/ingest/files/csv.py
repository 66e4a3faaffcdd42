"""The rows of a CSV file.

Owns: how a field becomes a value. A field that is empty, or is one of the given nulls, is NULL; in
quotes it never is, so that "" is the empty string. Other text is read as text.py says; a nested
column holds JSON. Columns are matched by the header, without regard to case, or are given.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from tidelock.errors import InputError, WrongType
from tidelock.ingest.files.jsonl import array_from_json_text
from tidelock.ingest.files.row_file import STDIN, RowFile
from tidelock.ingest.files.text import NOT_UTF8, TextMisfit, array_from_text, misfit_error

if TYPE_CHECKING:
    from tidelock.model.schema.schema import Column, TableSchema

BLOCK_BYTES = 4 << 20


class CsvRows:
    def __init__(self, file: RowFile, stream: Any, schema: TableSchema, table: str) -> None:
        self._file = file
        self._stream = stream
        self._schema = schema
        self._table = table
        reading = file.reading
        self._columns = reading.columns
        self._delimiter = delimiter_of(file)
        self._nulls = list(reading.nulls)
        self._zone = reading.zone
        self._invalid: Any = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        row = 0
        try:
            reader = self._open()
            wanted = [self._schema.find(name) for name in reader.schema.names]
            # A file without rows must have the right columns too.
            yield self._typed(pa.RecordBatch.from_pylist([], reader.schema), wanted, 0)
            for batch in reader:
                yield self._typed(batch, wanted, row)
                row += batch.num_rows
        except pa.ArrowInvalid as error:
            if "Empty CSV file" in str(error):
                raise WrongType(self._empty(), table=self._table, empty=True) from error
            raise self._malformed(error) from error

    def _empty(self) -> str:
        return "It is empty." if self._columns else "It is empty: it has not even a header."

    def _open(self) -> Any:
        options = pyarrow.csv
        return options.open_csv(
            self._stream,
            # One thread, because only then a malformed row is known by its number.
            read_options=options.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, column_names=self._columns
            ),
            parse_options=options.ParseOptions(
                delimiter=self._delimiter,
                newlines_in_values=True,
                invalid_row_handler=self._note_invalid,
            ),
            convert_options=options.ConvertOptions(
                default_column_type=pa.string(),
                null_values=self._nulls,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _note_invalid(self, row: Any) -> str:
        self._invalid = row
        return "error"

    def _malformed(self, error: pa.ArrowInvalid) -> InputError:
        row = self._invalid
        header = self._columns is None
        if row is None:
            if "invalid UTF8" in str(error):
                found = re.search(r"Row #(\d+)", str(error))
                rows = [int(found[1]) - 1 - header] if found else []
                return WrongType(NOT_UTF8, table=self._table, rows=rows)
            return WrongType(f"It is not CSV: {str(error).rstrip('.')}.", table=self._table)
        record = row.number - 1 - header
        return WrongType(
            f"There are {row.actual_columns} fields, and {row.expected_columns} columns: "
            f"{row.text[:100]!r}.",
            table=self._table,
            rows=[record],
        )

    def _typed(
        self, batch: pa.RecordBatch, wanted: list[Column | None], first_row: int
    ) -> pa.RecordBatch:
        arrays = []
        names = []
        for n, column in enumerate(wanted):
            # A name that the table does not have, or that comes twice, is refused by the store.
            names.append(batch.schema.names[n])
            array = batch.column(n)
            arrays.append(array if column is None else self._column(array, column, first_row))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _column(self, texts: pa.Array, column: Column, first_row: int) -> pa.Array:
        try:
            if pa.types.is_nested(column.type):
                return array_from_json_text(texts, column.type, column.name, self._zone)
            return array_from_text(texts, column.type, self._zone)
        except TextMisfit as misfit:
            raise misfit_error(misfit, column, self._table, first_row) from misfit

    def line_of(self, row: int) -> int | None:
        """The line on which a row begins, found by reading the file again; a pipe has no again."""
        if self._file.place == STDIN:
            return None
        with self._file.open() as stream:
            text = io.TextIOWrapper(
                io.BufferedReader(_Readable(stream)), "utf-8", errors="replace", newline=""
            )
            reader = csv.reader(text, delimiter=self._delimiter)
            position = -1 if self._columns is None else 0
            line = 1
            for record in reader:
                if record and position == row:
                    return line
                position += bool(record)
                line = reader.line_num + 1
        return None


def delimiter_of(file: RowFile) -> str:
    """What stands between fields: as it was given, or as the name tells."""
    return file.reading.delimiter or ("\t" if ".tsv" in file.name.lower() else ",")


class _Readable(io.RawIOBase):
    """An Arrow stream as Python's text layer wants it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)
