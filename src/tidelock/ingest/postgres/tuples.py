"""The rows of pgoutput's messages, decoded column by column.

Owns: the layout of INSERT, UPDATE and DELETE messages of one relation, many at a time.

    I  [xid]  relation  N tuple
    U  [xid]  relation  (K tuple | O tuple)?  N tuple       the old key, or the whole old row
    D  [xid]  relation  (K tuple | O tuple)
    tuple     int16 columns, and for each: n (NULL) | u (not sent) | t int32 length, text

The xid is there inside of streamed blocks. Numbers are big-endian. What comes out are, for each
column, a byte for each row that says what it has, and its texts as one Arrow array, NULL where it
has none. There is no loop over rows: what a row costs is a few places in arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

INSERT, UPDATE, DELETE = b"IUD"
OLD_KEY, OLD_ROW, NEW_ROW = b"KON"
TEXT, NULL, UNCHANGED = b"tnu"
HEADER_BYTES = 25
"""What comes before a message in the stream: `w`, two positions in the log, and the time."""
_PADDING = b"\0" * 8
"""So that a number may be read where a last column has none."""

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tuples:
    """Rows of one relation: `kinds[c]` says what each has in column c, `texts[c]` its texts."""

    kinds: tuple[Bytes, ...]
    texts: tuple[pa.Array, ...]
    rows: int

    def missing(self, column: int) -> npt.NDArray[np.bool_]:
        """Which rows do not have the value of a column, because it is what it was."""
        found: npt.NDArray[np.bool_] = self.kinds[column] == UNCHANGED
        return found


@dataclass(frozen=True)
class Changes:
    """INSERT, UPDATE and DELETE messages of one relation, in their order.

    `new` has the new rows of those in `has_new`, `old_keys` and `old_rows` what was sent of the old
    ones of those in `has_old_key` and `has_old_row`; each in the order of the messages.
    """

    kinds: Bytes
    xids: npt.NDArray[np.uint32]
    """The transaction, or the subtransaction, of each, where the messages tell."""
    new: Tuples
    has_new: npt.NDArray[np.bool_]
    old_keys: Tuples
    has_old_key: npt.NDArray[np.bool_]
    old_rows: Tuples
    has_old_row: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.kinds)


class MalformedMessage(ValueError):
    """Bytes that no version of pgoutput that we know would send."""


def decode_changes(messages: Sequence[bytes], columns: int, *, streamed: bool) -> Changes:
    """Decode messages as they came, with their headers, all of one relation of so many columns."""
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64) + HEADER_BYTES
    buffer = np.frombuffer(b"".join([*messages, _PADDING]), np.uint8)
    kinds = buffer[begins]
    begins = begins + 1
    xids = np.zeros(len(messages), np.uint32)
    if streamed:
        xids = _uint32(buffer, begins).astype(np.uint32)
        begins = begins + 4
    places = begins + 4
    first = buffer[places]
    has_old_key, has_old_row = first == OLD_KEY, first == OLD_ROW
    has_new = kinds != DELETE
    places = places + 1
    old_keys, ends = _decode(buffer, places[has_old_key], columns)
    places[has_old_key] = ends + 1
    old_rows, ends = _decode(buffer, places[has_old_row], columns)
    places[has_old_row] = ends + 1
    if (buffer[places[has_new] - 1] != NEW_ROW).any():
        raise MalformedMessage("A message has no new row where one was expected.")
    new, _ = _decode(buffer, places[has_new], columns)
    return Changes(kinds, xids, new, has_new, old_keys, has_old_key, old_rows, has_old_row)


def relation_of(message: bytes, *, streamed: bool) -> int:
    """The relation of an INSERT, UPDATE or DELETE message."""
    begin = HEADER_BYTES + (5 if streamed else 1)
    return int.from_bytes(message[begin : begin + 4], "big")


def relations_of(messages: Sequence[bytes], *, streamed: bool) -> npt.NDArray[np.int64]:
    """The relation of each of many INSERT, UPDATE and DELETE messages."""
    begin = HEADER_BYTES + (5 if streamed else 1)
    told = b"".join([message[begin : begin + 4] for message in messages])
    return np.frombuffer(told, ">u4").astype(np.int64)


def _decode(buffer: Bytes, places: Places, columns: int) -> tuple[Tuples, Places]:
    """The tuples that begin at these places, and where each of them ends."""
    rows = len(places)
    if not rows:
        empty = pa.array([], pa.string())
        nothing = np.zeros(0, np.uint8)
        return Tuples((nothing,) * columns, (empty,) * columns, 0), places
    counts = (buffer[places].astype(np.int64) << 8) | buffer[places + 1]
    if (counts != columns).any():
        raise MalformedMessage(
            f"A row has {int(counts[counts != columns][0])} columns, and its relation {columns}."
        )
    places = places + 2
    kinds: list[Bytes] = []
    texts: list[pa.Array] = []
    for _ in range(columns):
        kind = buffer[places]
        sent = kind == TEXT
        if not (sent | (kind == NULL) | (kind == UNCHANGED)).all():
            raise MalformedMessage("A column is of a kind that is not known.")
        sizes = np.where(sent, _uint32(buffer, places + 1), 0)
        kinds.append(kind)
        texts.append(_texts(buffer, places + 5, sizes, sent))
        places = places + np.where(sent, sizes + 5, 1)
    return Tuples(tuple(kinds), tuple(texts), rows), places


def _uint32(buffer: Bytes, places: Places) -> Places:
    parts = [buffer[places + offset].astype(np.int64) for offset in range(4)]
    return (parts[0] << 24) | (parts[1] << 16) | (parts[2] << 8) | parts[3]


def _texts(buffer: Bytes, begins: Places, sizes: Places, sent: npt.NDArray[np.bool_]) -> pa.Array:
    """Gather texts of these sizes at these places into an Arrow array."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    total = int(offsets[-1])
    index = np.repeat(begins - offsets[:-1], sizes)
    index += np.arange(total)
    data = buffer[index]
    nulls: Any = None
    if not sent.all():
        nulls = pa.py_buffer(np.packbits(sent, bitorder="little").tobytes())
    narrow = total < 2**31
    return pa.Array.from_buffers(
        pa.string() if narrow else pa.large_string(),
        len(sizes),
        [nulls, pa.py_buffer(offsets.astype(np.int32 if narrow else np.int64)), pa.py_buffer(data)],
    )
