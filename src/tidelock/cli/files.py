"""Files of rows: which there are, how they are read, and where in them an error is.

Owns: the formats that `tidelock load` reads, and the wording of errors that name file and line.
Invariant: what comes out are batches of exactly the table's schema, in the order of the files and
of their rows; memory is bounded by one block, whatever the size of a file.

    parquet           .parquet .pq
    csv               .csv .tsv          csv_rows.py
    jsonl             .jsonl .ndjson .json   jsonl_rows.py

All but Parquet may be compressed: .gz .bz2 .zst .lz4 .br. A file without content is refused: a CSV
has at least its header, JSON lines at least one row.
"""

from __future__ import annotations

import glob
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.cli.text import NOT_UTF8, NotUtf8, Utf8Stream
from tidelock.errors import InputError, InvalidOption, RequiredColumnNull, WrongType
from tidelock.model.zones import UTC

if TYPE_CHECKING:
    from tidelock.model.schema import TableSchema

STDIN = "-"
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
BY_SUFFIX = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
FORMATS = ("parquet", "csv", "jsonl")


@dataclass(frozen=True)
class Reading:
    """How files are to be read. What is None is told from each file's name."""

    format: str | None = None
    delimiter: str | None = None
    nulls: tuple[str, ...] = ("",)
    columns: tuple[str, ...] | None = None
    zone: str = UTC
    """In which times without a zone are read."""


@dataclass(frozen=True)
class RowFile:
    """One file of rows, or stdin."""

    name: str
    format: str
    reading: Reading = field(default_factory=Reading)

    @property
    def shown(self) -> str:
        return "stdin" if self.name == STDIN else self.name

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The bytes of the file, decompressed."""
        if self.name == STDIN:
            yield pa.PythonFile(sys.stdin.buffer, mode="r")
            return
        try:
            compression = None if self.format == "parquet" else "detect"
            stream = pa.input_stream(self.name, compression=compression)
        except OSError as error:
            raise unreadable(self.shown, error) from error
        with stream:
            yield stream


class Rows(Protocol):
    """The rows of one file as batches; `line_of` finds the line of a row, counted from 0."""

    def batches(self) -> Iterator[pa.RecordBatch]: ...

    def line_of(self, row: int) -> int | None: ...


def find_files(names: Sequence[str], reading: Reading) -> list[RowFile]:
    """The files that were named; a folder stands for the files of rows directly in it, a pattern
    for the files that it matches."""
    if not names or list(names) == [STDIN]:
        if not names and sys.stdin.isatty():
            raise InvalidOption("Name the files to load, or pipe rows to stdin.")
        if reading.format is None:
            raise InvalidOption("Say what stdin holds: --format csv, jsonl or parquet.")
        return [RowFile(STDIN, reading.format, reading)]
    if STDIN in names:
        raise InvalidOption("Load either files or stdin (-), not both.")
    found: list[RowFile] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            found.extend(_in_folder(path, reading))
        elif path.exists():
            found.append(RowFile(name, reading.format or format_of(path), reading))
        else:
            found.extend(_matching(name, reading))
    return found


def _matching(pattern: str, reading: Reading) -> list[RowFile]:
    paths = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
    if not paths:
        raise InvalidOption(f"There is no file {pattern!r}.", file=pattern)
    return [RowFile(path, reading.format or format_of(Path(path)), reading) for path in paths]


def _in_folder(folder: Path, reading: Reading) -> list[RowFile]:
    paths = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and _kind(path) in BY_SUFFIX and not path.name.startswith((".", "_"))
    )
    inside = f"{folder}/**/*.csv"
    if not paths:
        raise InvalidOption(
            f"There is no Parquet, CSV or JSON lines file directly in {str(folder)!r}. Files "
            f"further inside are named by a pattern in quotes: {inside!r}.",
            file=str(folder),
        )
    formats = sorted({format_of(path) for path in paths})
    if len(formats) > 1 and reading.format is None:
        raise InvalidOption(
            f"{str(folder)!r} holds files of several kinds: {', '.join(formats)}. Name those that "
            f"are meant, such as {str(folder / '*.csv')!r}.",
            file=str(folder),
            formats=formats,
        )
    return [RowFile(str(path), reading.format or format_of(path), reading) for path in paths]


def format_of(path: Path) -> str:
    found = BY_SUFFIX.get(_kind(path))
    if found is None:
        raise InvalidOption(
            f"The format cannot be told from {path.name!r}. Say --format parquet, csv or jsonl.",
            file=str(path),
        )
    return found


def _kind(path: Path) -> str:
    """The suffix that tells the format: `.csv` of `a.csv.gz`."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in COMPRESSED else suffix


def read_file(file: RowFile, schema: TableSchema, table: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file as batches of the table's schema; errors name the file and the line."""
    from tidelock.store.inputs import read_input

    with file.open() as stream:
        rows = _rows(file, stream, schema, table)
        try:
            yield from read_input(rows.batches(), schema, table, file.reading.zone).batches()
        except InputError as error:
            raise _located(error, file, rows) from error
        except (NotUtf8, UnicodeDecodeError) as error:
            raise _located(WrongType(NOT_UTF8, table=table), file, rows) from error
        except (pa.ArrowException, OSError, EOFError) as error:
            raise unreadable(file.shown, error) from error


def _rows(file: RowFile, stream: Any, schema: TableSchema, table: str) -> Rows:
    from tidelock.cli.csv_rows import CsvRows
    from tidelock.cli.jsonl_rows import JsonlRows

    if file.format == "csv":
        return CsvRows(file, Utf8Stream(stream), schema, table)
    if file.format == "jsonl":
        return JsonlRows(Utf8Stream(stream), schema, table, file.reading.zone)
    return ParquetRows(file, stream)


class ParquetRows:
    """Batches as they are in the file; the store matches and converts their columns."""

    def __init__(self, file: RowFile, stream: Any) -> None:
        self._file = file
        self._stream = stream

    def batches(self) -> Iterator[pa.RecordBatch]:
        with _seekable(self._file, self._stream) as source:
            yield from pq.ParquetFile(source).iter_batches()

    def line_of(self, row: int) -> int | None:
        return None


@contextmanager
def _seekable(file: RowFile, stream: Any) -> Iterator[Any]:
    """A Parquet file is read from its end, so what comes through a pipe is kept on disk first."""
    if file.name != STDIN:
        yield file.name
        return
    with tempfile.NamedTemporaryFile(suffix=".parquet") as kept:
        _copy(sys.stdin.buffer, kept)
        kept.flush()
        yield kept.name


def _copy(source: IO[bytes], target: Any, piece_bytes: int = 1 << 20) -> None:
    while piece := source.read(piece_bytes):
        target.write(piece)


def parquet_schema(path: Path) -> pa.Schema:
    """The columns of a Parquet file."""
    try:
        return pq.read_schema(path).remove_metadata()
    except (OSError, pa.ArrowException) as error:
        raise unreadable(str(path), error) from error


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
    return type(error)(f"{where}: {message} Nothing was loaded.", **evidence)


def unreadable(name: str, error: BaseException) -> InputError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return WrongType(
        f"{name}: It cannot be read: {reason.strip().rstrip('.')}. Nothing was loaded.", file=name
    )
