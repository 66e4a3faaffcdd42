"""The manifest of a destination of files: what is there, and up to where.

    {"format": 1, "sink": …, "plan": 7, "watermark": 4711, "left_by": "5d…", "files": [
      {"path": "region=EU/0000000000000000000-0000000000000004711.parquet", "rows": 4712, …}]}

Owns: its bytes. It is plain JSON whatever its size, for it is read by others. Positions are those
of docs/sinks.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from tidelock.errors import CorruptObject, NewerFormat

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file, as the manifest lists it."""

    path: str
    partition: str
    after: int
    until: int
    rows: int
    size_bytes: int
    plan: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a destination holds."""

    sink: str
    sink_id: str
    table: str
    feed: str
    format_of_files: str
    plan: int
    watermark: int
    lagging: dict[str, int]
    generation: int
    written: datetime
    files: tuple[ManifestEntry, ...]
    previous: str | None = None
    """The manifest with the entries before these."""
    left_by: str = ""
    """The identity of the plan that it was written by; empty before the first."""
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class _Format:
    format: int = FORMAT


_decoder = msgspec.json.Decoder(Manifest)
_format_decoder = msgspec.json.Decoder(_Format)


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest)


def decode_manifest(data: bytes, where: str) -> Manifest:
    """The manifest in these bytes; CorruptObject or NewerFormat when it cannot be trusted."""
    try:
        written_format = _format_decoder.decode(data).format
        if written_format > FORMAT:
            raise NewerFormat(
                f"{where} has format {written_format}; this version of Tidelock reads up to "
                f"{FORMAT}. Upgrade Tidelock to deliver there.",
                expected=FORMAT,
                actual=written_format,
            )
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        told = f"{error}" if data else "it is empty"
        raise CorruptObject(f"{where} cannot be read: {told}.", cause=told) from error


def order_of(entry: ManifestEntry) -> tuple[str, int]:
    return entry.partition, entry.after
