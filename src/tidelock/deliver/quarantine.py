"""Quarantine: chunks that a destination will never take, put aside in sight.

    _tidelock/sinks/<id>/quarantine/<chunk>.json    which chunk, and why
    _tidelock/sinks/<id>/quarantine/<chunk>.body    what was sent, to the byte

Invariant: a chunk that the watermark has passed is in the destination or in here, until somebody
sends it again with success or discards it.
"""

from __future__ import annotations

import builtins
import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from tidelock.deliver.sink import SentChunk
from tidelock.errors import ChunkRefused, CorruptObject, InvalidOption, ObjectMissing
from tidelock.model.sinks import SinkDefinition
from tidelock.store import layout
from tidelock.store.checksums import checksum
from tidelock.store.entries import entries
from tidelock.store.faults import hit
from tidelock.store.objects import Objects
from tidelock.store.records import decode, encode


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One chunk that was refused."""

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
    """The chunks of one sink that were put aside."""

    def __init__(self, objects: Objects, definition: SinkDefinition) -> None:
        self._objects = objects
        self._name = definition.name
        self._folder = f"{layout.sink(definition.id)}/quarantine"

    def put_aside(self, chunk: SentChunk, error: ChunkRefused) -> Quarantined:
        chunk_id = str(error.evidence.get("id", chunk.id))
        number = hashlib.sha256(chunk_id.encode()).hexdigest()[:12]
        body = bytes(error.evidence.get("body", b""))
        refused = Quarantined(
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

    def list(self) -> list[Quarantined]:
        found = []
        for info in entries(self._objects, self._folder):
            with suppress(ObjectMissing):
                found.append(decode(self._objects.get(info.key), Quarantined, info.key))
        return sorted(found, key=lambda one: (one.path, one.after, one.id))

    def count(self) -> int:
        return len(entries(self._objects, self._folder))

    def body(self, refused: Quarantined) -> bytes:
        key = self._body(refused.number)
        found = self._objects.get(key)
        if checksum(found) != refused.body_checksum:
            raise CorruptObject(
                f"The object {key!r} of this lake is damaged: its checksum does not fit its "
                "content. Restore it from a copy of the lake, or discard the chunk.",
                key=key,
            )
        return found

    def chosen(self, number: str | None) -> builtins.list[Quarantined]:
        """All that are there, or the one that is named by its number or id."""
        found = self.list()
        chosen = [one for one in found if number in (None, one.number, one.id)]
        if chosen or number is None:
            return chosen
        raise InvalidOption(
            f"Sink {self._name!r} has no chunk {number!r} in quarantine. "
            f"`tidelock sink quarantine {self._name}` lists them.",
            number=number,
        )

    def discard(self, refused: Quarantined) -> None:
        self._objects.delete(f"{self._folder}/{refused.number}.json")
        self._objects.delete(self._body(refused.number))

    def _body(self, number: str) -> str:
        return f"{self._folder}/{number}.body"
