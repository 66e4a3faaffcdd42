"""Checksums: how damage is told from content.

Every object of a lake is JSON whose last field is the checksum of what the object would be without:

    {"record": 8, "format": 1, "checksum": "3f1a90c2"}     of  {"record": 8, "format": 1}

so that it stays JSON for people who look into it. Objects of other forms end in `TLCK` and the
checksum as four little-endian bytes.

Law: of the bytes of an object, none can be changed, added or taken away without notice, but with
a chance of 2^-32. The checksum is CRC-32, which notices every change of up to 32 bits in a row: it
is there for disks, networks and editors, not against those who mean harm, and takes no time.
"""

from __future__ import annotations

import zlib

from tidelock.errors import CorruptObject

_FIELD = b',"checksum":"'
_FIELD_BYTES = len(_FIELD) + 8 + 2
_MARK = b"TLCK"

checksum = zlib.crc32


def signed(text: bytes) -> bytes:
    """JSON of an object that is not empty, with its checksum in it."""
    return b'%b%b%08x"}' % (text[:-1], _FIELD, checksum(text))


def check_signed(text: bytes) -> None:
    """ValueError that says how JSON differs from what was signed."""
    if not text:
        raise ValueError("it is empty")
    if not is_signed(text):
        raise ValueError("it has no checksum, so that it was cut off or is not Tidelock's")
    if int(text[-10:-2], 16) != checksum(text[:-_FIELD_BYTES] + b"}"):
        raise ValueError("its checksum does not fit its content")


def is_signed(text: bytes) -> bool:
    digits = text[-10:-2]
    fits = text[-_FIELD_BYTES:-10] == _FIELD and text[-2:] == b'"}'
    return fits and all(digit in b"0123456789abcdef" for digit in digits)


def stamped(data: bytes) -> bytes:
    """Bytes of any kind, with their checksum after them."""
    return data + _MARK + checksum(data).to_bytes(4, "little")


def unstamped(data: bytes, key: str) -> bytes:
    """What was stamped; CorruptObject names the object that it is no longer in."""
    content, mark, digits = data[:-8], data[-8:-4], data[-4:]
    if mark != _MARK or int.from_bytes(digits, "little") != checksum(content):
        raise CorruptObject(
            f"The object {key!r} of this lake is damaged: its checksum does not fit its content. "
            "Restore it from a copy of the lake; nothing was changed.",
            key=key,
            cause="checksum",
        )
    return content
