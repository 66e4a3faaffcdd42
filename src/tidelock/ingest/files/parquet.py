"""The rows of a Parquet file."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidelock.ingest.files.row_file import STDIN, RowFile, unreadable


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
    if file.place != STDIN:
        yield file.place
        return
    with kept_stdin() as kept:
        yield kept


@contextmanager
def kept_stdin() -> Iterator[str]:
    """What comes through a pipe, as a file."""
    with tempfile.NamedTemporaryFile() as kept:
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
