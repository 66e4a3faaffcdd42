"""The contract of destinations, as tests that anybody can run on a sink of their own.

    class TestMySink(SinkContract):
        @pytest.fixture(autouse=True)
        def prepare(self, tmp_path):
            self.folder = tmp_path

        def open(self, definition):
            return MySink(self.folder, definition.id)

        def read_back(self, definition):
            return pa.Table of all rows that the destination shows, in any order

pytest makes an object for every test, each with a folder of its own. Nothing but values is needed:
no lake, no Spark.

Law: however a plan is cut short and sent again, each row is in the destination exactly once, as it
was sent. Rows are compared as multisets, with all their columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from tidelock.deliver.destinations.partitions import WHOLE, group_rows, path_of
from tidelock.deliver.destinations.protocol import (
    DestinationPosition,
    SentChunk,
    Sink,
    as_planned,
)
from tidelock.model.positions import NOTHING, end_of
from tidelock.model.sinks import (
    Chunk,
    DeliveryPlan,
    Feed,
    Part,
    SinkDefinition,
    SinkState,
)
from tidelock.testing.sink_rows import (
    ODD_VALUES,
    TYPED,
    VALUES,
    Rows,
    as_multiset,
    changed,
    last_version,
    numbered,
    positions,
)


class Broken(Exception):
    """What the rows of a chunk raise that is cut short."""


class SinkContract:
    """Tests that a destination keeps the law. Subclass it, and say how to open and read it."""

    kind = "contract"
    odd_values: Sequence[str | None] = ODD_VALUES

    def open(self, definition: SinkDefinition) -> Sink:
        """The destination; a new object at each call, as another process would have it."""
        raise AssertionError("say how to open the sink")

    def read_back(self, definition: SinkDefinition) -> pa.Table:
        """All rows that the destination shows."""
        raise AssertionError("say how to read what the sink wrote")

    def held(self, rows: pa.Table) -> pa.Table:
        """Rows as the destination holds them, where that differs from how they were sent."""
        return rows

    def define(
        self, partition_by: tuple[str, ...] = (), feed: Feed = "inserts", start: int = NOTHING
    ) -> SinkDefinition:
        """What a sink is opened with. `to` and options are those that `open` wants."""
        moment = datetime(2024, 1, 1, tzinfo=UTC)
        return SinkDefinition(
            name="contract",
            id="contract-1",
            table="rows",
            table_id="rows-1",
            branch="main",
            branch_id="main-1",
            kind=self.kind,
            to="",
            feed=feed,
            partition_by=partition_by,
            schedule=None,
            start=start,
            snapshot=None,
            hold_seconds=0.0,
            options={},
            actor="contract",
            created=moment,
        )

    # The tests

    def test_every_row_arrives_once(self) -> None:
        story = Story(self, numbered(10))
        story.deliver()
        story.deliver(numbered(7, begin=100))
        story.check()

    def test_a_chunk_that_comes_again_adds_nothing(self) -> None:
        story = Story(self, numbered(10))
        with story.opened() as sink:
            sink.plan(story.plan, story.schema)
            for chunk in story.chunks():
                story.send(sink, chunk)
                story.send(sink, chunk)
            sink.confirm(story.plan, story.plan.next)
        story.check()

    def test_a_plan_that_comes_again_as_a_whole_adds_nothing(self) -> None:
        story = Story(self, numbered(10))
        story.deliver()
        story.deliver_again()
        story.deliver_again(batch_rows=1)
        story.check()

    def test_a_chunk_that_breaks_in_the_middle_of_its_rows_is_sent_again(self) -> None:
        story = Story(self, numbered(10))
        for number in range(len(story.chunks())):
            with story.opened() as sink:
                sink.plan(story.plan, story.schema)
                for chunk in story.chunks()[:number]:
                    story.send(sink, chunk)
                story.break_off(sink, story.chunks()[number])
        story.deliver_again()
        story.check()

    def test_a_chunk_that_broke_is_sent_again_by_the_same_process(self) -> None:
        story = Story(self, numbered(10))
        with story.opened() as sink:
            sink.plan(story.plan, story.schema)
            for chunk in story.chunks():
                story.break_off(sink, chunk)
                story.send(sink, chunk)
            sink.confirm(story.plan, story.plan.next)
        story.check()

    def test_every_chunk_may_come_from_another_process(self) -> None:
        story = Story(self, numbered(10))
        for chunk in story.chunks():
            with story.opened() as sink:
                sink.plan(story.plan, story.schema)
                story.send(sink, chunk)
        with story.opened() as sink:
            sink.plan(story.plan, story.schema)
            sink.confirm(story.plan, story.plan.next)
        story.check()

    def test_a_process_that_dies_before_it_confirms_is_followed_by_one_that_does(self) -> None:
        story = Story(self, numbered(10))
        with story.opened() as sink:
            sink.plan(story.plan, story.schema)
            for chunk in story.chunks():
                story.send(sink, chunk)
        story.deliver_again()
        story.deliver(numbered(3, begin=50))
        story.check()

    def test_a_confirmation_may_come_twice(self) -> None:
        story = Story(self, numbered(10))
        story.deliver()
        with story.opened() as sink:
            sink.plan(story.plan, story.schema)
            sink.confirm(story.plan, story.plan.next)
            sink.confirm(story.plan, story.plan.next)
        story.deliver(numbered(3, begin=50))
        story.check()

    def test_partitions_keep_their_rows_whatever_their_values_are(self) -> None:
        story = Story(self, numbered(40, values=self.odd_values), ("region",))
        story.deliver()
        story.deliver(numbered(10, begin=60, values=self.odd_values[::-1]))
        story.deliver_again()
        story.check()

    def test_partitions_that_were_interrupted_go_on(self) -> None:
        story = Story(self, numbered(40, values=self.odd_values), ("region",))
        half = story.chunks()[: len(story.chunks()) // 2]
        with story.opened() as sink:
            sink.plan(story.plan, story.schema)
            for chunk in half:
                story.send(sink, chunk)
        story.deliver_again()
        story.check()

    def test_values_of_every_type_arrive_as_they_were(self) -> None:
        rows = [{**values, "_sequence": number} for number, values in enumerate(VALUES)]
        story = Story(self, pa.Table.from_pylist(rows, TYPED))
        story.deliver()
        story.deliver_again()
        story.check()

    def test_changes_arrive_with_their_operation_and_version(self) -> None:
        story = Story(self, changed(range(1, 4)), feed="changes")
        story.deliver()
        story.deliver(changed(range(6, 8)))
        story.deliver_again()
        story.check()

    def test_a_destination_that_tells_what_it_has_tells_the_truth(self) -> None:
        story = Story(self, numbered(10))
        story.deliver()
        with story.opened() as sink:
            if type(sink).recover is Sink.recover:
                # It does not claim to tell.
                return
            first = sink.recover()
            assert first is not None, "it has rows, and does not tell"
            assert (first.watermark, first.lagging) == (story.plan.until, {})
        story.begin(numbered(9, begin=40))
        with story.opened() as sink:
            sink.plan(story.plan, story.schema)
            story.send(sink, story.chunks()[0])
        with story.opened() as sink:
            told = sink.recover()
            assert told is not None
            ends = {story.plan.after, story.chunks()[0].chunk.until}
            assert told.watermark in ends, f"it tells of {told.watermark}, and chunks end at {ends}"
        # Whatever is after what it told is taken back, and may be cut otherwise.
        story.resume_after(told)
        story.deliver_again()
        story.check()


class Story:
    """What is sent to one destination, plan by plan, and what must be there in the end."""

    def __init__(
        self,
        contract: SinkContract,
        rows: pa.Table,
        partition_by: tuple[str, ...] = (),
        feed: Feed = "inserts",
    ) -> None:
        self._contract = contract
        start = NOTHING if feed == "inserts" else end_of(0)
        self.definition = contract.define(partition_by, feed, start)
        self._state = SinkState(0, start)
        self._expected: list[pa.Table] = []
        self.begin(rows)

    def begin(self, rows: pa.Table) -> None:
        """Plan what comes next, in chunks of few rows."""
        self.rows, self.schema = rows, rows.schema
        self._expected.append(rows)
        self._cut(self._state.watermark, rows, rows_per_chunk=3)

    def resume_after(self, told: DestinationPosition) -> None:
        """Forget how the rest of a plan was cut, and cut it otherwise."""
        left = self._positions_after(told.watermark)
        left_by = (told.left_by,) if told.left_by else ()
        self._state = replace(self._state, watermark=told.watermark, left_by=left_by)
        self._cut(told.watermark, left, rows_per_chunk=4)

    def _positions_after(self, position: int) -> pa.Table:
        every = positions(self.definition.feed, self.rows)
        return self.rows.filter(pa.array([own > position for own in every]))

    def _cut(self, after: int, rows: pa.Table, rows_per_chunk: int) -> None:
        feed = self.definition.feed
        with self.opened() as sink:
            columns = as_planned(self.definition, sink).partition_by
        until = positions(feed, rows)[-1] if feed == "inserts" else end_of(last_version(rows))
        groups = group_rows(rows, columns) if columns else [((), rows)]
        self._rows_of: dict[str, pa.Table] = {}
        parts = []
        for values, mine in groups:
            path = path_of(columns, values) if columns else WHOLE
            self._rows_of[path] = mine
            every = positions(feed, mine)
            chunks, begin = [], after
            for first in range(0, len(every), rows_per_chunk):
                count = min(rows_per_chunk, len(every) - first)
                last = first + count == len(every)
                end = until if last else every[first + count - 1]
                chunks.append(Chunk(begin, end, count))
                begin = end
            parts.append(Part(path, tuple(chunks)))
        before = self._state
        following = replace(before, plan=before.plan + 1, watermark=until)
        self.plan = DeliveryPlan(
            before.plan + 1,
            self.definition.id,
            1,
            after,
            until,
            tuple(parts),
            before,
            following,
            before.generation,
        )

    def chunks(self) -> list[SentChunk]:
        return [
            SentChunk(
                self.definition.id,
                self.definition.feed,
                part.path,
                chunk,
                self.plan.generation,
                self.schema,
                self.plan.identity,
            )
            for part in self.plan.parts
            for chunk in part.chunks
        ]

    def opened(self) -> _Opened:
        return _Opened(lambda: self._contract.open(self.definition))

    def send(self, sink: Sink, chunk: SentChunk, batch_rows: int = 2) -> None:
        sink.write(chunk, iter(self._batches(chunk, batch_rows)))

    def break_off(self, sink: Sink, chunk: SentChunk) -> None:
        """Send a chunk whose rows fail when some of them are read."""

        def broken() -> Iterator[pa.RecordBatch]:
            yield self._batches(chunk, 1)[0]
            raise Broken("the rows cannot be read any further")

        try:
            sink.write(chunk, broken())
        except Exception:  # noqa: BLE001 - a library may wrap what its rows raise
            return
        raise AssertionError(f"{chunk.id} counts as written, though its rows could not be read")

    def _batches(self, chunk: SentChunk, batch_rows: int) -> list[pa.RecordBatch]:
        rows = self._rows_of[chunk.path]
        every = positions(self.definition.feed, rows)
        mine = [chunk.chunk.after < own <= chunk.chunk.until for own in every]
        found = rows.filter(pa.array(mine)).combine_chunks()
        assert found.num_rows == chunk.rows
        return list(found.to_batches(max_chunksize=batch_rows))

    def deliver(self, rows: pa.Table | None = None) -> None:
        """Deliver a plan without trouble: what was planned, or what comes next."""
        if rows is not None:
            self.begin(rows)
        self.deliver_again()

    def deliver_again(self, batch_rows: int = 2) -> None:
        with self.opened() as sink:
            sink.plan(self.plan, self.schema)
            for chunk in self.chunks():
                self.send(sink, chunk, batch_rows)
            sink.confirm(self.plan, self.plan.next)
        self._state = replace(self.plan.next, left_by=(self.plan.identity,))

    def check(self) -> None:
        """The destination holds what was sent, each row once."""
        sent: Rows = Counter()
        for one in self._expected:
            sent += as_multiset(self._contract.held(one))
        there = as_multiset(self._contract.read_back(self.definition))
        lost, more = sent - there, there - sent
        if lost or more:
            raise AssertionError(
                f"{lost.total()} rows are missing and {more.total()} should not be there; missing: "
                f"{list(lost)[:3]}; not sent: {list(more)[:3]}"
            )


class _Opened:
    """A destination that is closed at the end, as by a process that ends."""

    def __init__(self, open_sink: Callable[[], Sink]) -> None:
        self._open = open_sink

    def __enter__(self) -> Sink:
        self._sink = self._open()
        return self._sink

    def __exit__(self, *_: object) -> None:
        self._sink.close()
