"""Rows that were written just now: folding needs them again soon, and reading costs more.

Owns: the last few small inputs that this handle wrote, by the data file that they went to, and the
files in which processes on one machine leave theirs for each other. Tables may share one: data
files have names of their own.
Law: whatever is found here is what the data file holds; whatever is not found is read from there.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress

import pyarrow as pa

ROWS_BYTES_MAX = 64 * 1024
TABLES_MAX = 512
SHARED_ROWS_BYTES_MAX = 4 * 1024
FILES_MAX = 64
SHARED_FILE_BYTES_MAX = 256 * 1024

_ENTRY = struct.Struct("<4sIII")
"""Magic, the lengths of a name and of a record batch, and the checksum of both, which follow."""
_MAGIC = b"tlr1"


class RecentRows:
    def __init__(self, folder: str | None) -> None:
        """`folder` is where processes leave rows for each other; None if they cannot."""
        self._folder = folder
        self._lock = threading.Lock()
        self._rows: OrderedDict[str, pa.Table] = OrderedDict()

    def keep(self, data_file: str, rows: pa.Table) -> None:
        # What keeping them keeps in memory: rows may be a small part of their buffers.
        if rows.get_total_buffer_size() > ROWS_BYTES_MAX:
            return
        with self._lock:
            self._rows[data_file] = rows
            if len(self._rows) > TABLES_MAX:
                self._rows.popitem(last=False)

    def find(self, data_file: str) -> pa.Table | None:
        return self._rows.get(data_file)

    def share(self, table_id: str, data_file: str) -> None:
        """Leave rows that were kept for whoever folds the table."""
        rows = self.find(data_file)
        if self._folder is None or rows is None:
            return
        batches = rows.to_batches()
        data = batches[0].serialize().to_pybytes() if len(batches) == 1 else b""
        if not 0 < len(data) <= SHARED_ROWS_BYTES_MAX:
            return
        named = data_file.encode() + data
        entry = _ENTRY.pack(_MAGIC, len(named) - len(data), len(data), zlib.crc32(named)) + named
        with suppress(OSError):
            _append(self._path(table_id), entry)

    def shared(self, table_id: str) -> Mapping[str, bytes]:
        """The record batches that processes left, by data file, without their schema."""
        if self._folder is None:
            return {}
        try:
            with open(self._path(table_id), "rb") as file:
                content = file.read(2 * SHARED_FILE_BYTES_MAX)
        except OSError:
            return {}
        return _entries(content)

    def _path(self, table_id: str) -> str:
        return f"{self._folder}/{zlib.crc32(table_id.encode()) % FILES_MAX:02d}"


def _append(path: str, entry: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o666)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(os.path.dirname(path))
        file = os.open(path, flags, 0o666)
    try:
        if os.fstat(file).st_size > SHARED_FILE_BYTES_MAX:
            os.ftruncate(file, 0)
        os.write(file, entry)
    finally:
        os.close(file)


def _entries(content: bytes) -> dict[str, bytes]:
    """What is whole, up to the first entry that is not: somebody may be writing it."""
    found: dict[str, bytes] = {}
    start = 0
    while start + _ENTRY.size <= len(content):
        magic, name_bytes, data_bytes, checksum = _ENTRY.unpack_from(content, start)
        name_start = start + _ENTRY.size
        start = name_start + name_bytes + data_bytes
        named = content[name_start:start]
        if magic != _MAGIC or len(named) < name_bytes + data_bytes or zlib.crc32(named) != checksum:
            break
        found[named[:name_bytes].decode()] = named[name_bytes:]
    return found
