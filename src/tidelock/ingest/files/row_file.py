"""A file of rows: its name, its format, how it is to be read, and its bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidelock.errors import InputError, WrongType
from tidelock.model.time.zones import UTC

STDIN = "-"
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
    as_text: bool = False
    """Whether a STRING takes JSON that is no string, as its text."""


@dataclass(frozen=True)
class RowFile:
    """One file of rows, or stdin."""

    name: str
    format: str
    reading: Reading = field(default_factory=Reading)
    kept: str | None = None
    """Where stdin was kept, if it is to be read more than once."""

    @property
    def place(self) -> str:
        return self.kept or self.name

    @property
    def shown(self) -> str:
        return "stdin" if self.name == STDIN else self.name

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The bytes of the file, decompressed."""
        if self.place == STDIN:
            yield pa.PythonFile(sys.stdin.buffer, mode="r")
            return
        try:
            compression = None if self.format == "parquet" else "detect"
            stream = pa.input_stream(self.place, compression=compression)
        except OSError as error:
            raise unreadable(self.shown, error) from error
        with stream:
            yield stream


def unreadable(name: str, error: BaseException) -> InputError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return WrongType(
        f"{name}: It cannot be read: {reason.strip().rstrip('.')}. Nothing was loaded.", file=name
    )
