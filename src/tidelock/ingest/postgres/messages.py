"""The messages of pgoutput that say what rows belong to: transactions, relations, truncations.

Rows themselves are decoded many at a time (tuples.py); a message of any other kind is read here.

    B begin          C commit            R relation      Y type      T truncate     O origin
    S stream start   E stream stop       c stream commit             A stream abort
    b begin prepare  P prepare           K commit prepared  r rollback prepared  p stream prepare

Positions in the log (LSN) are 64-bit numbers, written `16/B374D848`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from tidelock.ingest.postgres.tuples import HEADER_BYTES, MalformedMessage

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""PostgreSQL counts microseconds from here."""
ROWS = frozenset(b"IUD")


@dataclass(frozen=True, slots=True)
class Begin:
    final_lsn: int
    time: datetime
    xid: int


@dataclass(frozen=True, slots=True)
class End:
    """A transaction has committed. `end_lsn` is where to read on from."""

    commit_lsn: int
    end_lsn: int
    time: datetime
    xid: int = 0
    """0 for one that was sent whole: its Begin tells."""


@dataclass(frozen=True, slots=True)
class StreamStart:
    xid: int
    first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    pass


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A transaction was rolled back, or, where the two differ, a subtransaction of it."""

    xid: int
    subxid: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type_oid: int
    typmod: int
    is_key: bool
    """Whether it is part of what identifies a row; with identity FULL all of them are."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as it is from here on in the stream."""

    oid: int
    namespace: str
    name: str
    identity: str
    """`d` the primary key, `i` an index, `f` the whole row, `n` nothing."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]
    xid: int = 0


@dataclass(frozen=True, slots=True)
class TwoPhase:
    """A message of a prepared transaction, which is only sent to those who ask for them."""

    kind: str


@dataclass(frozen=True, slots=True)
class Other:
    """A message that says nothing about rows: a type, an origin, a message of an application."""

    kind: str


Message: TypeAlias = (
    Begin | End | StreamStart | StreamStop | StreamAbort | Relation | Truncate | TwoPhase | Other
)


def read_message(data: bytes, *, streamed: bool) -> Message:
    """The message in what was received, with its header, of any kind but rows."""
    try:
        return _read(data[HEADER_BYTES : HEADER_BYTES + 1], data[HEADER_BYTES + 1 :], streamed)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedMessage(f"A message of pgoutput cannot be read: {error}") from error


def _read(kind: bytes, body: bytes, streamed: bool) -> Message:
    if kind == b"B":
        lsn, micros, xid = struct.unpack_from("!QqI", body)
        return Begin(lsn, moment(micros), xid)
    if kind == b"C":
        _, commit_lsn, end_lsn, micros = struct.unpack_from("!BQQq", body)
        return End(commit_lsn, end_lsn, moment(micros))
    if kind == b"S":
        xid, first = struct.unpack_from("!IB", body)
        return StreamStart(xid, first == 1)
    if kind == b"E":
        return StreamStop()
    if kind == b"c":
        xid, _, commit_lsn, end_lsn, micros = struct.unpack_from("!IBQQq", body)
        return End(commit_lsn, end_lsn, moment(micros), xid)
    if kind == b"A":
        return StreamAbort(*struct.unpack_from("!II", body))
    if kind == b"R":
        return _relation(body[4:] if streamed else body)
    if kind == b"T":
        return _truncate(body, streamed)
    if kind in (b"b", b"P", b"K", b"r", b"p"):
        return TwoPhase(kind.decode())
    if kind in (b"Y", b"O", b"M"):
        return Other(kind.decode())
    raise MalformedMessage(f"A message of pgoutput is of the unknown kind {kind!r}.")


def _relation(body: bytes) -> Relation:
    (oid,) = struct.unpack_from("!I", body)
    namespace, name, rest = body[4:].split(b"\0", 2)
    identity, count = rest[:1].decode(), struct.unpack_from("!H", rest, 1)[0]
    columns = []
    place = 3
    for _ in range(count):
        end = rest.index(b"\0", place + 1)
        type_oid, typmod = struct.unpack_from("!Ii", rest, end + 1)
        columns.append(
            RelationColumn(rest[place + 1 : end].decode(), type_oid, typmod, rest[place] & 1 == 1)
        )
        place = end + 9
    # An empty namespace is pg_catalog.
    return Relation(
        oid, namespace.decode() or "pg_catalog", name.decode(), identity, tuple(columns)
    )


def _truncate(body: bytes, streamed: bool) -> Truncate:
    xid = 0
    if streamed:
        (xid,) = struct.unpack_from("!I", body)
        body = body[4:]
    count, _ = struct.unpack_from("!IB", body)
    return Truncate(struct.unpack_from(f"!{count}I", body, 5), xid)


def moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def show_lsn(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def read_lsn(text: str) -> int:
    """A position as PostgreSQL writes it; 0 for none."""
    if not text:
        return 0
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)
