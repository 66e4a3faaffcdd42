"""The sender: the chunks of one part of a plan go to a destination, one after the other.

Owns: handing rows to a destination, telling its failures from those of reading, and putting aside
what it refuses. For a destination that takes pieces, the next piece is read and encoded by another
thread while one is on its way, so that few of them are in memory.

Invariant: a chunk is told as sent when all of it was taken, or put aside in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from tidelock.deliver.delivery.calls import Calls, destination
from tidelock.deliver.delivery.quarantine import Quarantine, QuarantinedChunk
from tidelock.deliver.destinations.protocol import Piece, PieceReceiver, SentChunk, Sink
from tidelock.errors import BrokenInvariant, ChunkRefused
from tidelock.model.sinks import SinkDefinition
from tidelock.store.objects.failpoints import hit
from tidelock.store.rows.batch_stream import BatchStream

T = TypeVar("T")
Chunks = Iterator[tuple[SentChunk, Iterator[pa.RecordBatch]]]


@dataclass(frozen=True, slots=True)
class ChunkReceipt:
    """One chunk that was sent."""

    chunk: SentChunk
    rows: int
    """Those that were taken: not what was refused, or was deleted before a replay."""
    size_bytes: int
    quarantined: int = 0
    """How many pieces of it were refused and put aside."""
    refused: QuarantinedChunk | None = None
    """The last of those."""


class Sender:
    """Sends to one destination. `check` raises when no more is to be sent, or not by us.

    Owns: the thread that reads and encodes ahead.
    """

    def __init__(
        self,
        sink: Sink,
        definition: SinkDefinition,
        quarantine: Quarantine,
        calls: Calls,
        check: Callable[[], None],
    ) -> None:
        self._sink = sink
        self._receiver = sink.in_pieces()
        self._definition = definition
        self._quarantine = quarantine
        self._calls = calls
        self._check = check
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tidelock-sink")

    def close(self) -> None:
        self._pool.shutdown()

    def send(self, chunks: Chunks) -> Iterator[ChunkReceipt]:
        """Send chunks, and tell of each when it is sent."""
        if self._receiver is not None:
            yield from self._send_pieces(self._receiver, chunks)
            return
        for chunk, batches in chunks:
            self._check()
            rows = BatchStream(batches)
            write = partial(self._sink.write, chunk, _interruptible(rows))
            try:
                with destination(self._definition, rows):
                    size_bytes = self._calls.run(write)
            except ChunkRefused as error:
                self._check()
                refused = self._quarantine.put_aside(chunk, error)
                yield ChunkReceipt(chunk, max(0, rows.rows - refused.rows), 0, 1, refused)
            else:
                yield ChunkReceipt(chunk, rows.rows, size_bytes)

    def _send_pieces(self, receiver: PieceReceiver, chunks: Chunks) -> Iterator[ChunkReceipt]:
        rows = size_bytes = quarantined = 0
        refused: QuarantinedChunk | None = None
        with closing(ahead(self._pool, self._divided(receiver, chunks))) as pieces:
            for chunk, piece, is_last in pieces:
                self._check()
                try:
                    with destination(self._definition):
                        size_bytes += self._calls.run(partial(receiver.send, chunk, piece))
                    rows += piece.rows
                except ChunkRefused as error:
                    self._check()
                    refused = self._quarantine.put_aside(chunk, error)
                    quarantined += 1
                if is_last:
                    yield ChunkReceipt(chunk, rows, size_bytes, quarantined, refused)
                    rows = size_bytes = quarantined = 0
                    refused = None

    def _divided(
        self, receiver: PieceReceiver, chunks: Chunks
    ) -> Generator[tuple[SentChunk, Piece, bool], None, None]:
        """The pieces of all chunks, and whether each is the last of its chunk."""
        for chunk, batches in chunks:
            rows = BatchStream(batches)
            with destination(self._definition, rows):
                held: Piece | None = None
                for piece in receiver.divide(chunk, _interruptible(rows)):
                    if held is not None:
                        yield chunk, held, False
                    held = piece
            if held is None:
                raise BrokenInvariant(
                    f"chunk {chunk.id} has no rows, and {chunk.rows} were planned"
                )
            yield chunk, held, True


def ahead(pool: ThreadPoolExecutor, items: Generator[T, None, None]) -> Generator[T, None, None]:
    """The same items, each made by the pool while the one before it is used."""
    following = pool.submit(next, items, None)
    try:
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item
    finally:
        # Nobody reads on once this has ended, whether or not everything was used.
        following.cancel()
        wait([following])
        items.close()


def _interruptible(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        hit("deliver.mid_chunk")
