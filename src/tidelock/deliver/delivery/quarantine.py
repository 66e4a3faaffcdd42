"""Quarantine: chunks that a destination will never take, put aside in sight.

    _tidelock/sinks/<id>/quarantine/<chunk>.json    which chunk, and why
    _tidelock/sinks/<id>/quarantine/<chunk>.body    what was sent, to the byte

Invariant: a chunk that the watermark has passed is in the destination or in here, until its
destination has taken it under the id that it was refused under, or somebody gives it up.
After a crash: it is still there; sent again, it has the same id and the same bytes.
"""

from __future__ import annotations

import builtins
import hashlib
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from tidelock.deliver.delivery.calls import destination
from tidelock.deliver.delivery.duty import on_duty
from tidelock.deliver.destinations.kinds import open_sink
from tidelock.deliver.destinations.protocol import Piece, SentChunk, Terms
from tidelock.errors import Advice, ChunkRefused, CorruptObject, InvalidOption, ObjectMissing
from tidelock.model.sinks import Chunk, SinkDefinition
from tidelock.store.objects import layout
from tidelock.store.objects.checksums import checksum
from tidelock.store.objects.entries import entries
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode
from tidelock.store.store import Store


@dataclass(frozen=True, slots=True)
class QuarantinedChunk:
    """One chunk, or piece of one, that was refused."""

    number: str
    """A short name for it."""
    id: str
    path: str
    after: int
    until: int
    rows: int
    status: int | None
    answer: str
    time: datetime
    generation: int = 1
    body_checksum: int = 0
    format: int = 1


class Quarantine:
    """The chunks of one sink that were put aside. Owns: their objects."""

    def __init__(self, objects: Objects, definition: SinkDefinition) -> None:
        self._objects = objects
        self._name = definition.name
        self._folder = f"{layout.sink(definition.id)}/quarantine"

    def put_aside(self, chunk: SentChunk, error: ChunkRefused) -> QuarantinedChunk:
        chunk_id = str(error.evidence.get("id", chunk.id))
        number = hashlib.sha256(chunk_id.encode()).hexdigest()[:12]
        body = bytes(error.evidence.get("body", b""))
        refused = QuarantinedChunk(
            number,
            chunk_id,
            chunk.path,
            chunk.chunk.after,
            chunk.chunk.until,
            int(error.evidence.get("rows", chunk.rows)),
            error.evidence.get("status"),
            str(error.evidence.get("answer", error.message)),
            datetime.now(UTC),
            chunk.generation,
            checksum(body),
        )
        hit("quarantine.before_put")
        # The body first: what is listed can be sent again.
        self._objects.put(self._body(number), body)
        self._objects.put(f"{self._folder}/{number}.json", encode(refused))
        return refused

    def list(self) -> list[QuarantinedChunk]:
        chunks = []
        for info in entries(self._objects, self._folder):
            with suppress(ObjectMissing):
                chunks.append(decode(self._objects.get(info.key), QuarantinedChunk, info.key))
        return sorted(chunks, key=lambda chunk: (chunk.path, chunk.after, chunk.id))

    def count(self) -> int:
        return len(entries(self._objects, self._folder))

    def body(self, refused: QuarantinedChunk) -> bytes:
        key = self._body(refused.number)
        body = self._objects.get(key)
        if checksum(body) != refused.body_checksum:
            raise CorruptObject(
                f"The object {key!r} of this lake is damaged: its checksum does not fit its "
                "content. Restore it from a copy of the lake, or discard the chunk.",
                key=key,
            )
        return body

    def chosen(self, number: str | None) -> builtins.list[QuarantinedChunk]:
        """All that are there, or the one that is named by its number or id."""
        chosen = [chunk for chunk in self.list() if number in (None, chunk.number, chunk.id)]
        if chosen or number is None:
            return chosen
        raise InvalidOption(
            f"Sink {self._name!r} has no chunk {number!r} in quarantine.",
            Advice(
                f"lake.quarantine({self._name!r}) lists them.",
                f"`tidelock sink quarantine {self._name}` lists them.",
            ),
            number=number,
        )

    def covered(self, partition: str | None, since: int) -> builtins.list[QuarantinedChunk]:
        """The chunks whose rows a replay of what comes after a position sends again."""
        return [
            chunk
            for chunk in self.list()
            if chunk.until > since and partition in (None, chunk.path)
        ]

    def discard(self, refused: QuarantinedChunk) -> None:
        self._objects.delete(f"{self._folder}/{refused.number}.json")
        self._objects.delete(self._body(refused.number))

    def _body(self, number: str) -> str:
        return f"{self._folder}/{number}.body"


@dataclass(frozen=True, slots=True)
class ResendReport:
    """What became of chunks that were sent once more."""

    taken: tuple[QuarantinedChunk, ...]
    refused: tuple[QuarantinedChunk, ...]
    """Refused again: they are kept, with the new answer."""

    def __repr__(self) -> str:
        return f"ResendReport({len(self.taken)} taken, {len(self.refused)} refused again)"


def resend(store: Store, definition: SinkDefinition, number: str | None) -> ResendReport:
    """Send one chunk of the quarantine again, or all of them; DestinationFailed ends it."""
    quarantine = Quarantine(store.objects, definition)
    taken, refused_again = [], []
    with on_duty(store, definition) as duty, closing(open_sink(definition)) as sink:
        sink.accept(Terms(duty.check))
        receiver = sink.in_pieces()
        if receiver is None:
            raise InvalidOption(
                f"A sink of kind {definition.kind!r} cannot be sent a kept chunk.",
                Advice(
                    f"Replay what it covers with lake.replay({definition.name!r}), and discard it.",
                    f"Replay what it covers with `tidelock sink replay {definition.name}`, and "
                    "discard it.",
                ),
                kind=definition.kind,
            )
        for refused in quarantine.chosen(number):
            chunk = _chunk(definition, refused)
            try:
                with destination(definition):
                    receiver.send(chunk, Piece(refused.id, refused.rows, quarantine.body(refused)))
            except ChunkRefused as error:
                duty.check()
                refused_again.append(quarantine.put_aside(chunk, error))
            else:
                duty.check()
                quarantine.discard(refused)
                taken.append(refused)
    return ResendReport(tuple(taken), tuple(refused_again))


def discard(
    store: Store, definition: SinkDefinition, number: str | None
) -> tuple[QuarantinedChunk, ...]:
    """Give up one chunk of the quarantine, or all of them; those that were."""
    quarantine = Quarantine(store.objects, definition)
    with on_duty(store, definition) as duty:
        given_up = quarantine.chosen(number)
        for chunk in given_up:
            duty.check()
            quarantine.discard(chunk)
    return tuple(given_up)


def _chunk(definition: SinkDefinition, refused: QuarantinedChunk) -> SentChunk:
    chunk = Chunk(refused.after, refused.until, refused.rows)
    return SentChunk(
        definition.id, definition.feed, refused.path, chunk, refused.generation, pa.schema([])
    )
