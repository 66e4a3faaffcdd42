"""The row id that a pin gives out next, read from its manifest.

Lance numbers new rows from there on, in the order of a commit's fragments. It keeps the number in
its manifest and shows it nowhere, so that it is read here from the manifest's bytes: a message of
Protocol Buffers, of which this is field 14 of the format's `Manifest`.

Law: every row of a pin has a lower id than this; rows that are added to it get this one and the
next ones.
"""

from __future__ import annotations

from tidelock.errors import BrokenInvariant
from tidelock.store.tables.fragments import Dataset

_NEXT_ROW_ID = 14
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


def next_row_id(dataset: Dataset) -> int:
    """The id of the first row that is added to a pin."""
    manifest: bytes = dataset._ds.serialized_manifest()
    place = 0
    while place < len(manifest):
        tag, place = _varint(manifest, place)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, place = _varint(manifest, place)
            if number == _NEXT_ROW_ID:
                return value
        elif kind == _BYTES:
            length, place = _varint(manifest, place)
            place += length
        elif kind in (_FIXED_64, _FIXED_32):
            place += 8 if kind == _FIXED_64 else 4
        else:
            raise BrokenInvariant(f"A manifest of Lance has a field of an unknown kind {kind}.")
    # A number that is 0 is not written.
    return 0


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number that is written seven bits at a time, and where it ends."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
