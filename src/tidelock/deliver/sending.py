"""Sending: the chunks of one part of a plan, one after the other.

Owns: handing rows to a destination, telling its failures from those of reading, and putting aside
what it refuses. For a destination that takes pieces, the next piece is read and encoded by another
thread while one is on its way, so that few of them are in memory.

Invariant: a chunk is told as sent when all of it was taken, or put aside in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from tidelock.deliver.quarantine import Quarantine
from tidelock.deliver.sink import Piece, PieceSink, SentChunk, Sink
from tidelock.errors import BrokenInvariant, ChunkRefused, DestinationFailed, SinkStopped
from tidelock.model.sinks import SinkDefinition
from tidelock.store.faults import hit

T = TypeVar("T")
Chunks = Iterator[tuple[SentChunk, Iterator[pa.RecordBatch]]]


@dataclass(frozen=True, slots=True)
class Taken:
    """One chunk that was sent."""

    chunk: SentChunk
    rows: int
    """Those that were handed over: fewer than planned if some were deleted before a replay."""
    size_bytes: int
    quarantined: int


class Sending:
    """Sends to one destination. `check` raises when no more is to be sent."""

    def __init__(
        self,
        sink: Sink,
        definition: SinkDefinition,
        quarantine: Quarantine,
        check: Callable[[], None],
    ) -> None:
        self._sink = sink
        self._pieces = sink if isinstance(sink, PieceSink) else None
        self._definition = definition
        self._quarantine = quarantine
        self._check = check
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tidelock-sink")

    def close(self) -> None:
        self._pool.shutdown()

    def send(self, chunks: Chunks) -> Iterator[Taken]:
        """Send chunks, and tell of each when it is sent."""
        if self._pieces is not None:
            yield from self._send_pieces(self._pieces, chunks)
            return
        for chunk, batches in chunks:
            rows = Rows(batches)
            try:
                with destination(self._definition, rows):
                    size_bytes = self._sink.write(chunk, rows)
            except ChunkRefused as error:
                refused = self._quarantine.put_aside(chunk, error)
                yield Taken(chunk, max(0, rows.count - refused.rows), 0, 1)
            else:
                yield Taken(chunk, rows.count, size_bytes, 0)

    def _send_pieces(self, sink: PieceSink, chunks: Chunks) -> Iterator[Taken]:
        size_bytes = quarantined = 0
        with closing(ahead(self._pool, self._divided(sink, chunks))) as pieces:
            for chunk, piece, is_last in pieces:
                self._check()
                try:
                    with destination(self._definition):
                        size_bytes += sink.send(chunk, piece)
                except ChunkRefused as error:
                    self._quarantine.put_aside(chunk, error)
                    quarantined += 1
                if is_last:
                    yield Taken(chunk, chunk.rows, size_bytes, quarantined)
                    size_bytes = quarantined = 0

    def _divided(
        self, sink: PieceSink, chunks: Chunks
    ) -> Generator[tuple[SentChunk, Piece, bool], None, None]:
        """The pieces of all chunks, and whether each is the last of its chunk."""
        for chunk, batches in chunks:
            rows = Rows(batches)
            with destination(self._definition, rows):
                held: Piece | None = None
                for piece in sink.divide(chunk, rows):
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


class Rows:
    """The rows of a chunk on their way, counted; remembers if reading them is what failed."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._begun = False
        self.count = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._begun:
            hit("deliver.mid_chunk")
        self._begun = True
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.count += batch.num_rows
        return batch


@contextmanager
def destination(definition: SinkDefinition, rows: Rows | None = None) -> Iterator[None]:
    """Whatever a destination raises stops its partition, and nothing else."""
    try:
        yield
    except (DestinationFailed, ChunkRefused, SinkStopped):
        raise
    except Exception as error:
        if rows is not None and rows.error is not None:
            raise rows.error from None
        raise DestinationFailed(
            f"Sink {definition.name!r} could not write to {definition.to}: {error}. It is tried "
            "again.",
            sink=definition.name,
            cause=str(error),
        ) from error
