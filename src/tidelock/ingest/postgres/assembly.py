"""From blocks of messages to transactions, in the order in which they were committed.

    whole       B rows… C                    small ones, sent when they are committed
    streamed    S rows… E  S rows… E  c      large ones, sent while they are open; several at once
                … A                          rolled back, as a whole or a subtransaction of it

Owns: which transactions are open, what relations are called by now, and how far everything was
read. Rows wait as they came until there are many, and are decoded together: those of small whole
transactions with those of others, those of large ones by themselves, and from there they go on to
storage.
Invariants: transactions end in the order of their commits; nothing of one that is rolled back is
handed on; of rows as they came, no more wait than WAITING_BYTES_MAX for each transaction, and what
is read at once. Framing is not stable, a transaction that was streamed may come whole another time:
nothing here is kept for later but positions of commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from tidelock.errors import SourceStopped
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.postgres.messages import (
    ROWS,
    Begin,
    End,
    Other,
    Relation,
    StreamAbort,
    StreamStart,
    StreamStop,
    Truncate,
    TwoPhase,
    read_message,
)
from tidelock.ingest.postgres.replication import Block
from tidelock.ingest.postgres.tuples import HEADER_BYTES, MalformedMessage, relations_of

WAITING_BYTES_MAX = 4 * 1024 * 1024


@dataclass
class Run:
    """Rows of one relation, as they came."""

    relation: Relation
    messages: list[bytes] = field(default_factory=list)


@dataclass
class Open:
    """A transaction that has not ended, or has just now."""

    xid: int
    streamed: bool
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    steps: list[Run | Truncate] = field(default_factory=list)
    """What waits to be decoded."""
    waiting_bytes: int = 0
    incoming: Incoming | None = None
    """What was decoded of it; None for one that is small."""
    relations: dict[int, Relation] = field(default_factory=dict)
    """As it has them: a table that it altered is otherwise for others."""
    undone: set[int] = field(default_factory=set)
    """Its subtransactions that were rolled back."""
    end: End | None = None

    @property
    def ended(self) -> End:
        assert self.end is not None
        return self.end


@dataclass(frozen=True)
class Passed:
    """Nothing of ours is open or waiting before this position."""

    position: int


Ended: TypeAlias = Open | Passed


class Assembly:
    """Owns the transactions that are open in one stream."""

    def __init__(
        self, decode: Callable[[Open], None], waiting_bytes_max: int = WAITING_BYTES_MAX
    ) -> None:
        """`decode` moves what waits of a large transaction into its `incoming`."""
        self._decode = decode
        self._waiting_bytes_max = waiting_bytes_max
        self._relations: dict[int, Relation] = {}
        self._whole: Open | None = None
        self._streamed: Open | None = None
        """The one whose block is being read."""
        self.open: dict[int, Open] = {}

    def read(self, block: Block) -> Iterator[Ended]:
        """What ended in a block, in order."""
        messages = block.messages
        controls = [
            number for number, message in enumerate(messages) if message[HEADER_BYTES] not in ROWS
        ]
        start = 0
        for number in controls:
            if number > start:
                self._rows(messages[start:number])
            ended = self._control(messages[number])
            if ended is not None:
                yield ended
            start = number + 1
        if start < len(messages):
            self._rows(messages[start:])
        if block.keepalive and self._whole is None:
            yield Passed(block.keepalive)

    def move_on(self) -> None:
        """Decode what waits of large transactions. Everything that ended before is published by
        now, so that what their rows were before is to be found."""
        for one in (*self.open.values(), self._whole):
            if one is not None and one.waiting_bytes > self._waiting_bytes_max:
                self._decode(one)

    def relation(self, oid: int, one: Open) -> Relation | None:
        """What a relation is for a transaction."""
        return one.relations.get(oid) or self._relations.get(oid)

    def drop(self) -> None:
        """Give up what is open: it is sent again."""
        for one in (*self.open.values(), self._whole):
            if one is not None and one.incoming is not None:
                one.incoming.drop()
        self.open.clear()
        self._whole = None

    @property
    def _current(self) -> Open:
        current = self._streamed or self._whole
        assert current is not None
        return current

    def _rows(self, messages: list[bytes]) -> None:
        one = self._current
        oids = relations_of(messages, streamed=one.streamed)
        if (oids == oids[0]).all():
            self._wait(one, int(oids[0]), messages)
        else:
            by_oid: dict[int, list[bytes]] = {}
            for oid, message in zip(oids.tolist(), messages, strict=True):
                by_oid.setdefault(oid, []).append(message)
            for oid, some in by_oid.items():
                self._wait(one, oid, some)
        one.waiting_bytes += sum(map(len, messages))

    def _wait(self, one: Open, oid: int, messages: list[bytes]) -> None:
        relation = self.relation(oid, one)
        if relation is None:
            raise MalformedMessage(f"Rows came of relation {oid}, which nobody has described.")
        last = one.steps[-1] if one.steps else None
        if isinstance(last, Run) and last.relation is relation:
            last.messages.extend(messages)
        else:
            one.steps.append(Run(relation, messages))

    def _control(self, data: bytes) -> Ended | None:
        message = read_message(data, streamed=self._streamed is not None)
        match message:
            case Begin():
                self._whole = Open(message.xid, streamed=False)
            case End(xid=0):
                whole, self._whole = self._whole, None
                assert whole is not None
                whole.end = message
                return whole
            case End():
                streamed = self.open.pop(message.xid)
                # What it found of tables is so for all from here on.
                self._relations.update(streamed.relations)
                streamed.end = message
                return streamed
            case StreamStart():
                self._streamed = self.open.setdefault(message.xid, Open(message.xid, streamed=True))
            case StreamStop():
                self._streamed = None
            case StreamAbort():
                self._abort(message)
            case Relation():
                where = self._relations if self._streamed is None else self._streamed.relations
                where[message.oid] = message
            case Truncate():
                self._current.steps.append(message)
            case TwoPhase():
                raise SourceStopped(
                    "The slot sends prepared transactions (two_phase), which are not taken. Drop "
                    "the slot, and let the source make its own.",
                    reason="two_phase",
                )
            case Other():
                pass
        return None

    def _abort(self, message: StreamAbort) -> None:
        if message.xid == message.subxid:
            gone = self.open.pop(message.xid, None)
            if gone is not None and gone.incoming is not None:
                gone.incoming.drop()
        elif message.xid in self.open:
            one = self.open[message.xid]
            one.undone.add(message.subxid)
            if one.incoming is not None:
                one.incoming.undo(message.subxid)
