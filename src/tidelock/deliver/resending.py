"""Resending: what is in quarantine is sent once more, or given up.

Invariant: a chunk leaves the quarantine when its destination has taken it under the id that it was
refused under, or when somebody gives it up.
After a crash: it is still there; sent again, it has the same id and the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidelock.deliver.duty import on_duty
from tidelock.deliver.kinds import open_sink
from tidelock.deliver.quarantine import Quarantine, Quarantined
from tidelock.deliver.sending import destination
from tidelock.deliver.sink import Piece, PieceSink, SentChunk
from tidelock.errors import ChunkRefused, InvalidOption
from tidelock.model.sinks import Chunk, SinkDefinition
from tidelock.store.store import Store


@dataclass(frozen=True, slots=True)
class Resent:
    """What became of chunks that were sent once more."""

    taken: tuple[Quarantined, ...]
    refused: tuple[Quarantined, ...]
    """Refused again: they are kept, with the new answer."""

    def __repr__(self) -> str:
        return f"Resent({len(self.taken)} taken, {len(self.refused)} refused again)"


def resend(store: Store, definition: SinkDefinition, number: str | None) -> Resent:
    """Send one chunk of the quarantine again, or all of them; DestinationFailed ends it."""
    quarantine = Quarantine(store.objects, definition)
    taken, refused = [], []
    with on_duty(store, definition):
        sink = open_sink(definition)
        try:
            if not isinstance(sink, PieceSink):
                raise InvalidOption(
                    f"A sink of kind {definition.kind!r} cannot be sent a kept chunk. Replay what "
                    f"it covers with `tidelock sink replay {definition.name}`, and discard it.",
                    kind=definition.kind,
                )
            for one in quarantine.chosen(number):
                chunk = _chunk(definition, one)
                try:
                    with destination(definition):
                        sink.send(chunk, Piece(one.id, one.rows, quarantine.body(one)))
                except ChunkRefused as error:
                    refused.append(quarantine.put_aside(chunk, error))
                else:
                    quarantine.discard(one)
                    taken.append(one)
        finally:
            sink.close()
    return Resent(tuple(taken), tuple(refused))


def discard(
    store: Store, definition: SinkDefinition, number: str | None
) -> tuple[Quarantined, ...]:
    """Give up one chunk of the quarantine, or all of them; those that were."""
    quarantine = Quarantine(store.objects, definition)
    with on_duty(store, definition):
        found = quarantine.chosen(number)
        for one in found:
            quarantine.discard(one)
    return tuple(found)


def _chunk(definition: SinkDefinition, refused: Quarantined) -> SentChunk:
    chunk = Chunk(refused.after, refused.until, refused.rows)
    return SentChunk(
        definition.id, definition.feed, refused.path, chunk, refused.generation, pa.schema([])
    )
