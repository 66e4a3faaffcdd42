"""Pieces are made ahead by another thread; what goes wrong there is told at its place."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa
import pytest
from tests.support.sinks.receivers import define

from tidelock.deliver.delivery.calls import Calls
from tidelock.deliver.delivery.quarantine import Quarantine
from tidelock.deliver.delivery.sender import ChunkReceipt, Sender, ahead
from tidelock.deliver.destinations.protocol import Piece, SentChunk, Sink
from tidelock.errors import ChunkRefused, DestinationFailed, StoreUnavailable
from tidelock.model.sinks import Chunk, DeliveryPlan, SinkState
from tidelock.store.objects.kinds.location import locate

SCHEMA = pa.schema([("n", pa.int64())])
DEFINITION = define("own", "own:sink", "somewhere")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as found:
        yield found


def test_the_next_item_is_made_while_one_is_used(pool: ThreadPoolExecutor) -> None:
    made = threading.Event()

    def items() -> Generator[int, None, None]:
        yield 1
        made.set()
        yield 2

    found = ahead(pool, items())
    assert next(found) == 1
    assert made.wait(timeout=10)
    assert list(found) == [2]


def test_an_error_comes_after_the_items_before_it(pool: ThreadPoolExecutor) -> None:
    def items() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise StoreUnavailable("gone")

    found = ahead(pool, items())
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(StoreUnavailable):
        next(found)


def test_whoever_stops_early_leaves_nothing_running(pool: ThreadPoolExecutor) -> None:
    ended: list[str] = []

    def items() -> Generator[int, None, None]:
        try:
            yield from range(100)
        finally:
            ended.append("closed")

    with closing(ahead(pool, items())) as found:
        assert next(found) == 0
    assert ended == ["closed"]
    assert list(ahead(pool, iter_of(3))) == [0, 1, 2]


def iter_of(count: int) -> Generator[int, None, None]:
    yield from range(count)


class OwnSink(Sink):
    """Takes each row for itself, refuses multiples of seven, and fails at a hundred."""

    rows_per_chunk = 10

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def plan(self, plan: DeliveryPlan, schema: pa.Schema) -> None: ...

    def write(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> int:
        raise AssertionError("pieces are sent one by one")

    def confirm(self, plan: DeliveryPlan, state: SinkState) -> None: ...

    def close(self) -> None: ...

    def in_pieces(self) -> OwnSink:
        return self

    def divide(self, chunk: SentChunk, rows: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
        for batch in rows:
            for value in batch.column(0).to_pylist():
                yield Piece(f"{chunk.id}.{value}", 1, str(value).encode())

    def send(self, chunk: SentChunk, piece: Piece) -> int:
        if int(piece.body) == 100:
            raise OSError("full")
        if int(piece.body) % 7 == 0:
            raise ChunkRefused("no", id=piece.id, rows=1, body=piece.body, status=400, answer="no")
        self.taken.append(piece.body)
        return len(piece.body)


def chunk_of(*values: int) -> tuple[SentChunk, Iterator[pa.RecordBatch]]:
    chunk = SentChunk(
        "own-1", "inserts", "", Chunk(values[0] - 1, values[-1], len(values)), 1, SCHEMA
    )
    return chunk, iter([pa.record_batch({"n": [value]}) for value in values])


def broken() -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": [8]})
    raise StoreUnavailable("the lake cannot be read")


@pytest.fixture
def quarantine() -> Quarantine:
    return Quarantine(locate("memory://quarantine").objects(), DEFINITION)


@pytest.fixture
def sink() -> OwnSink:
    return OwnSink()


@pytest.fixture
def sender(sink: OwnSink, quarantine: Quarantine) -> Iterator[Sender]:
    found = Sender(sink, DEFINITION, quarantine, Calls(lambda: False), lambda: None)
    yield found
    found.close()


def test_a_refused_piece_is_put_aside_and_those_after_it_are_sent(
    sink: OwnSink, sender: Sender, quarantine: Quarantine
) -> None:
    found = list(sender.send(iter([chunk_of(1, 2), chunk_of(6, 7, 8), chunk_of(14)])))
    assert [(one.size_bytes, one.quarantined) for one in found] == [(2, 0), (2, 1), (0, 1)]
    assert sink.taken == [b"1", b"2", b"6", b"8"]
    assert [quarantine.body(one) for one in quarantine.list()] == [b"7", b"14"]


def test_a_failure_to_read_is_not_taken_for_one_of_the_destination(
    sink: OwnSink, sender: Sender
) -> None:
    chunk, _ = chunk_of(8, 9)
    found: list[ChunkReceipt] = []
    with pytest.raises(StoreUnavailable):
        found.extend(sender.send(iter([chunk_of(1, 2), (chunk, broken())])))
    assert sink.taken[:2] == [b"1", b"2"]


def test_a_failure_of_the_destination_leaves_its_chunk_unsent(
    sink: OwnSink, sender: Sender
) -> None:
    found = sender.send(iter([chunk_of(1, 2), chunk_of(99, 100, 101), chunk_of(102)]))
    assert next(found).chunk.chunk.until == 2
    with pytest.raises(DestinationFailed, match="full"):
        next(found)
    assert sink.taken == [b"1", b"2", b"99"]
    assert [one.chunk.chunk.until for one in sender.send(iter([chunk_of(102)]))] == [102]
