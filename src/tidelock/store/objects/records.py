"""The bytes of a commit record, and of every other small object of a lake.

A record holds one or more consecutive commits of one branch and the snapshot after the last:

    {"previous": 41, "commits": [Commit, …], "tables": [TableState, …], "fence": 17, "merge": 23,
     "format": 1}

`previous` is the number of the branch's record before this one (0: there is none), `fence` the
version of the newest commit that fences writers off (fences.py; 0: there is none), `merge` that of
the newest commit that merges another branch (merges.py), on the branch or before its fork. The
object's number is the version of its first commit. Records above 16 KiB are Zstandard frames of
the same JSON; a reader tells them apart by the first byte. All end in a checksum (checksums.py).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tidelock.errors import Advice, CorruptObject, FormatError, NewerFormat
from tidelock.model.history.commit import Commit, Tables, TableState
from tidelock.store.objects.checksums import check_signed, is_signed, signed
from tidelock.store.objects.layout import FORMAT

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESS_ABOVE_BYTES = 16 * 1024
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Record:
    previous: int
    commits: tuple[Commit, ...]
    tables: tuple[TableState, ...]
    fence: int = 0
    merge: int = 0
    format: int = FORMAT

    @property
    def first(self) -> int:
        return self.commits[0].version

    @property
    def last(self) -> int:
        return self.commits[-1].version

    def commit(self, version: int) -> Commit:
        return self.commits[version - self.first]

    def snapshot_after(self, version: int) -> Tables:
        """The tables after the commit of that version, which must be one of this record's."""
        tables = Tables.of(self.tables)
        for commit in reversed(self.commits):
            if commit.version == version:
                return tables
            tables = tables.before(commit.tables)
        raise KeyError(version)


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, OSError, ValueError, MemoryError)
_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_making = threading.Lock()
"""Held while a decoder is made: msgspec shows other threads a type that it half knows, and they
crash the interpreter."""


def encode(value: object) -> bytes:
    data = signed(_encoder.encode(value))
    if len(data) > COMPRESS_ABOVE_BYTES:
        size = len(data).to_bytes(4, "little")
        frame = _codec(level=1).compress(data, asbytes=True)
        return bytes(frame) + size
    return data


def decode(data: bytes, kind: type[T], key: str) -> T:
    """The value in these bytes; an error names the object when it cannot be trusted."""
    try:
        text = _decompress(data)
        check_signed(text)
        value: T = (_decoders.get(kind) or _decoder(kind)).decode(text)
    except _UNREADABLE as error:
        raise _distrust(data, key, error) from error
    found = getattr(value, "format", FORMAT)
    if found > FORMAT:
        raise _refusal(key, found)
    return value


def content(data: bytes, key: str) -> bytes:
    """The JSON in these bytes, whatever it is of; an error as from decode."""
    try:
        text = _decompress(data)
        check_signed(text)
    except _UNREADABLE as error:
        raise _distrust(data, key, error) from error
    return text


def _distrust(data: bytes, key: str, error: Exception) -> FormatError:
    newer = _newer_format(data)
    if newer is not None:
        return _refusal(key, newer)
    return CorruptObject(
        f"The object {key!r} of this lake cannot be read: {str(error).rstrip('.')}. Nothing was "
        "changed.",
        Advice(
            "Restore it from a copy of the lake, or see lake.repair().",
            "Restore it from a copy of the lake, or see `tidelock repair`.",
        ),
        key=key,
        cause=str(error),
    )


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    with _making:
        if kind not in _decoders:
            _decoders[kind] = msgspec.json.Decoder(kind)
        return _decoders[kind]


def _decompress(data: bytes) -> bytes:
    if data[:4] != _ZSTD_MAGIC:
        return data
    size = int.from_bytes(data[-4:], "little")
    return bytes(_codec().decompress(data[:-4], decompressed_size=size, asbytes=True))


def _codec(level: int | None = None) -> pa.Codec:
    # Imported for records that are large: a command that reads small ones ends sooner than this
    # import does.
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=level)


def _newer_format(data: bytes) -> int | None:
    try:
        text = _decompress(data)
        if is_signed(text):
            # It is of ours, so that it was changed since, its format perhaps.
            return None
        found = msgspec.json.decode(text)
    except _UNREADABLE:
        return None
    number = found.get("format") if isinstance(found, dict) else None
    return number if isinstance(number, int) and number > FORMAT else None


def _refusal(key: str, found: int) -> NewerFormat:
    return NewerFormat(
        f"The object {key!r} has format {found}; this version of Tidelock reads up to {FORMAT}. "
        "Upgrade Tidelock to write to this lake.",
        key=key,
        expected=FORMAT,
        actual=found,
    )
