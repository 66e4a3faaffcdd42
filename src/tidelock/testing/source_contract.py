"""The contract of sources, as tests that anybody can run on a source of their own.

    class TestMySource(SourceContract):
        kind = "my_package.my_module:MySource"

        @pytest.fixture(autouse=True)
        def prepare(self, tmp_path):
            self.options = {"path": str(tmp_path / "queue")}

        def put(self, numbers):
            rows = [{"id": n, "v": f"row {n}"} for n in numbers]
            ... make them come at the source, as one transaction or more
            return {"orders": rows}

pytest makes an object for every test. Each test makes a lake in memory and a source of it, as users
do, lets things come, reads them with whatever trouble it is about, and compares the lake's tables
with what came, as multisets.

Law: whatever `poll` gives for a position comes after all that was given up to it, and is given
again, the same, until it is acknowledged. So however reading is cut short and begun again, each row
is in the lake exactly once.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import tidelock
from tidelock.errors import SourceMoved, StoreUnavailable
from tidelock.ingest.kinds import open_source
from tidelock.ingest.protocol import Source
from tidelock.ingest.reader import SourceReader
from tidelock.ingest.sources import tables_of
from tidelock.run.lake import Lake
from tidelock.store.objects.failpoints import armed

NAME = "contract"
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


class SourceContract:
    """Tests that a source keeps the law. Subclass it, and say what comes and how it is opened."""

    kind: str
    options: Mapping[str, Any]
    into: str | None = None

    def put(self, numbers: Iterable[int]) -> Rows:
        """Make rows come at the source, some for each number; what they are, by tables of the lake.
        Rows of other numbers are other rows."""
        raise AssertionError("say what comes")

    def ready(self) -> None:
        """Wait, if need be, until what was put can be read."""

    # The tests

    def test_what_there_is_arrives_once(self) -> None:
        with self._story() as story:
            story.put(range(5))
            assert story.ingest().rows > 0
            story.check()

    def test_what_comes_later_arrives_after_what_came_before(self) -> None:
        with self._story() as story:
            positions = [story.position]
            for start in (0, 10, 20):
                story.put(range(start, start + 3))
                story.ingest()
                story.check()
                positions.append(story.position)
            assert len(set(positions)) == 4, f"positions do not move on: {positions}"

    def test_a_round_in_which_nothing_came_publishes_nothing(self) -> None:
        with self._story() as story:
            story.put(range(3))
            story.ingest()
            before = story.lake.snapshot().version, story.position
            assert story.ingest().commits == 0, "it gives something, though nothing came"
            assert (story.lake.snapshot().version, story.position) == before

    def test_it_tells_of_the_same_tables_each_time(self) -> None:
        with self._story() as story:
            told = []
            for _ in range(2):
                with closing(open_source(story.definition)) as source:
                    told.append([table.name for table in source.discover()])
            assert told[0] == told[1]
            assert len(set(told[0])) == len(told[0]) > 0

    def test_what_was_not_published_is_given_again_the_same(self) -> None:
        with self._story() as story:
            story.put(range(5))
            first, again = story.first_given(), story.first_given()
            assert first == again, f"it gave {first}, and then {again}"
            assert first[0] != story.position, "what comes has the position of what came before"
            story.ingest()
            story.check()

    def test_a_reader_that_dies_before_it_publishes_is_followed_by_one_that_does(self) -> None:
        self._break_off("ingest.before_publish")

    def test_a_reader_that_dies_before_it_acknowledges_repeats_nothing(self) -> None:
        self._break_off("ingest.after_publish")

    def test_a_reader_that_dies_after_it_acknowledged_loses_nothing(self) -> None:
        self._break_off("ingest.after_acknowledge")

    def _break_off(self, failpoint: str) -> None:
        with self._story() as story:
            story.put(range(3))
            story.ingest()
            story.put(range(10, 16))
            for _ in range(2):
                with armed(failpoint, "error@1"):
                    story.break_off()
            story.ingest()
            story.check()
            story.put(range(20, 22))
            story.ingest()
            story.check()

    def test_a_reader_that_is_stopped_is_followed_by_one_that_goes_on(self) -> None:
        with self._story() as story:
            story.put(range(6))
            stop = threading.Event()
            stop.set()
            story.lake.ingest(NAME, stop=stop)
            story.put(range(10, 12))
            story.ingest()
            story.check()

    def test_of_two_readers_of_one_position_one_publishes(self) -> None:
        with self._story() as story:
            story.put(range(4))
            with closing(open_source(story.definition)) as source:
                late = story.reader(source)
                given = source.poll(late.desk)
                first = next(given)
                story.ingest()
                story.check()
                try:
                    late._take(first)
                except SourceMoved:
                    pass
                else:
                    raise AssertionError("what another has published is published again")
                first.drop()
                getattr(given, "close", lambda: None)()
            story.check()

    def test_what_is_acknowledged_twice_or_late_stays_acknowledged(self) -> None:
        with self._story() as story:
            positions = []
            for start in (0, 10):
                story.put(range(start, start + 3))
                story.ingest()
                positions.append(story.position)
            with closing(open_source(story.definition)) as source:
                for position in (positions[1], positions[1], positions[0]):
                    source.acknowledge(position)
            story.put(range(20, 23))
            story.ingest()
            story.check()

    def test_rows_that_go_to_storage_as_they_come_arrive_once(self) -> None:
        with self._story() as story:
            before, Source.fragment_bytes = Source.fragment_bytes, 1
            try:
                story.put(range(8))
                story.ingest()
            finally:
                Source.fragment_bytes = before
            story.check()

    def test_a_source_that_was_dropped_can_be_made_again(self) -> None:
        with self._story() as story:
            story.put(range(3))
            story.ingest()
            story.lake.drop_source(NAME)
            story.lake.drop_source(story.create("another"))
            assert not story.lake.sources()

    @contextmanager
    def _story(self) -> Iterator[Story]:
        uri = f"memory://source-contract-{uuid.uuid4().hex}"
        with tidelock.open(uri, create=True, actor="contract") as lake:
            yield Story(self, lake)


class Story:
    """What came at one source, and what must be in the lake in the end."""

    def __init__(self, contract: SourceContract, lake: Lake) -> None:
        self._contract = contract
        self._came: dict[str, Counter[str]] = {}
        self.lake = lake
        self.create(NAME)

    def create(self, name: str) -> str:
        contract = self._contract
        self.lake.create_source(
            name, kind=contract.kind, into=contract.into, schedule=None, **contract.options
        )
        return name

    @property
    def definition(self) -> Any:
        return self.lake._sources.registry.definition(NAME)

    @property
    def position(self) -> str:
        return self.lake.source_status(NAME).position

    def put(self, numbers: Iterable[int]) -> None:
        for table, rows in self._contract.put(numbers).items():
            self._came.setdefault(table, Counter()).update(map(_shown, rows))
        self._contract.ready()

    def ingest(self) -> Any:
        return self.lake.ingest(NAME)

    def break_off(self) -> None:
        """Read until a step that fails; there may be nothing left that comes to it."""
        try:
            self.lake.ingest(NAME)
        except StoreUnavailable:
            return

    def reader(self, source: Any) -> SourceReader:
        definition = self.definition
        called = {table.name: name for table, name in tables_of(definition, source)}
        return SourceReader(self.lake._store, definition, source, called)

    def first_given(self) -> tuple[str, dict[str, Counter[str]]]:
        """What the source gives first from here on: its position, and the rows of each table."""
        with closing(open_source(self.definition)) as source:
            given = source.poll(self.reader(source).desk)
            first = next(given)
            rows = {
                name: Counter(map(_shown, work.collected.joined().puts.to_pylist()))
                for name, work in first.tables.items()
                if work.collected
            }
            first.drop()
            getattr(given, "close", lambda: None)()
            return first.position, rows

    def check(self) -> None:
        """The lake has what came, each row once."""
        for table, came in self._came.items():
            there = Counter(map(_shown, self.lake.table(table).to_arrow().to_pylist()))
            lost, more = came - there, there - came
            if lost or more:
                raise AssertionError(
                    f"table {table!r}: {lost.total()} rows are missing and {more.total()} should "
                    f"not be there; missing: {list(lost)[:3]}; did not come: {list(more)[:3]}"
                )


def _shown(row: Mapping[str, Any]) -> str:
    return repr(sorted((name, value) for name, value in row.items() if value is not None))
