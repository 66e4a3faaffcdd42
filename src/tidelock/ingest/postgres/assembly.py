"""From blocks of messages to transactions, in the order in which they were committed.

    whole       B rows… C                    small ones, sent when they are committed
    streamed    S rows… E  S rows… E  c      large ones, sent while they are open; several at once
                … A                          rolled back, as a whole or a subtransaction of it

Owns: which transactions are open, what relations are called by now, and how far everything was
read. Rows of a whole transaction wait as they came, and are decoded together with those of others;
rows of a streamed one are decoded block by block, and go on from there to storage.
Invariant: transactions end in the order of their commits; nothing of one that is rolled back is
handed on. Framing is not stable: nothing here is kept for later but positions of commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

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
from tidelock.ingest.postgres.tuples import HEADER_BYTES, relations_of


@dataclass
class Run:
    """Rows of one relation, as they came."""

    relation: Relation
    messages: list[bytes] = field(default_factory=list)


@dataclass
class Whole:
    """A transaction that was sent whole."""

    begin: Begin
    steps: list[Run | Truncate] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0
    end: End | None = None


@dataclass
class Streamed:
    """A transaction that is sent while it is open."""

    xid: int
    incoming: Incoming
    since: datetime
    relations: dict[int, Relation] = field(default_factory=dict)
    """As it has them: a table that it altered is otherwise for others."""
    end: End | None = None


@dataclass(frozen=True)
class Passed:
    """Nothing of ours is open or waiting before this position."""

    position: int


Ended = Whole | Streamed | Passed


class Assembly:
    """Owns the transactions that are open in one stream."""

    def __init__(
        self,
        begin: Callable[[], Incoming],
        take: Callable[[Incoming, Relation, Sequence[bytes]], None],
        empty: Callable[[Incoming, Relation, int], None],
    ) -> None:
        """`take` puts rows of a streamed transaction into it, `empty` that a table was emptied."""
        self._begin = begin
        self._take = take
        self._empty = empty
        self._relations: dict[int, Relation] = {}
        self._whole: Whole | None = None
        self._streamed: Streamed | None = None
        """The one whose block is being read."""
        self.open: dict[int, Streamed] = {}

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

    def _rows(self, messages: list[bytes]) -> None:
        streamed = self._streamed
        oids = relations_of(messages, streamed=streamed is not None)
        known = self._relations if streamed is None else {**self._relations, **streamed.relations}
        if (oids == oids[0]).all():
            parts = [(known[int(oids[0])], messages)]
        else:
            by_oid: dict[int, list[bytes]] = {}
            for oid, message in zip(oids.tolist(), messages, strict=True):
                by_oid.setdefault(oid, []).append(message)
            parts = [(known[oid], some) for oid, some in by_oid.items()]
        if streamed is not None:
            for relation, some in parts:
                self._take(streamed.incoming, relation, some)
            return
        whole = self._whole
        assert whole is not None
        for relation, some in parts:
            whole.steps.append(Run(relation, some))
        whole.rows += len(messages)
        whole.size_bytes += sum(map(len, messages))

    def _control(self, data: bytes) -> Ended | None:
        message = read_message(data, streamed=self._streamed is not None)
        match message:
            case Begin():
                self._whole = Whole(message)
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
                if message.xid not in self.open:
                    self.open[message.xid] = Streamed(message.xid, self._begin(), datetime.now(UTC))
                self._streamed = self.open[message.xid]
            case StreamStop():
                self._streamed = None
            case StreamAbort():
                self._abort(message)
            case Relation():
                where = self._relations if self._streamed is None else self._streamed.relations
                where[message.oid] = message
            case Truncate():
                self._truncate(message)
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
            if gone is not None:
                gone.incoming.drop()
        elif message.xid in self.open:
            self.open[message.xid].incoming.undo(message.subxid)

    def _truncate(self, message: Truncate) -> None:
        streamed = self._streamed
        if streamed is None:
            assert self._whole is not None
            self._whole.steps.append(message)
            return
        for oid in message.relations:
            relation = streamed.relations.get(oid) or self._relations.get(oid)
            if relation is not None:
                self._empty(streamed.incoming, relation, message.xid)

    def relation(self, oid: int) -> Relation | None:
        return self._relations.get(oid)

    def drop(self) -> None:
        """Give up what is open: it is sent again."""
        for streamed in self.open.values():
            streamed.incoming.drop()
        self.open.clear()
