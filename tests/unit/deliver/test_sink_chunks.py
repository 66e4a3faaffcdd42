"""Cutting: chunks cover what there is once, whatever batches it comes in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.deliver.delivery.plan import plan as sink_plan
from tidelock.deliver.destinations.partitions import path_of
from tidelock.deliver.feeds.feed import Positioned, by_chunk, cut
from tidelock.model.positions import NOTHING, end_of, position_of, version_of
from tidelock.model.sinks import Chunk, SentColumn

Places = list[int]
SCHEMA = pa.schema([("g", pa.string()), ("n", pa.int64())])


@st.composite
def places(draw: st.DrawFn) -> list[Places]:
    """Positions as a feed tells them: ascending, an update's twice, in batches of any size."""
    gaps = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 2)), max_size=40))
    batches: list[Places] = [[]]
    position = -1
    for gap, times in gaps:
        position += gap
        if draw(st.booleans()):
            batches.append([])
        batches[-1] += [position] * times
    return batches


def arrays(batches: Sequence[Places]) -> list[np.ndarray]:
    return [np.array(batch, dtype=np.int64) for batch in batches]


@given(places(), st.integers(1, 9), st.integers(0, 5))
def test_chunks_cover_every_position_once_and_in_order(
    batches: list[Places], most: int, beyond: int
) -> None:
    every = [one for batch in batches for one in batch]
    end = (every[-1] if every else NOTHING) + beyond
    chunks = list(cut(arrays(batches), NOTHING, end, most))
    assert sum(chunk.rows for chunk in chunks) == len(every)
    for chunk in chunks:
        assert chunk.rows == sum(chunk.after < one <= chunk.until for one in every)
        assert 0 < chunk.rows <= max(most, 2)
        assert chunk.after < chunk.until
    for one, following in pairwise(chunks):
        assert one.until == following.after
    if chunks:
        assert (chunks[0].after, chunks[-1].until) == (NOTHING, end)


@given(places(), st.integers(1, 9))
def test_where_chunks_end_does_not_depend_on_batches(batches: list[Places], most: int) -> None:
    whole = [[one for batch in batches for one in batch]]
    end = max(whole[0], default=0)
    one_by_one = [[p] * whole[0].count(p) for p in sorted(set(whole[0]))]
    expected = list(cut(arrays(whole), NOTHING, end, most))
    assert list(cut(arrays(batches), NOTHING, end, most)) == expected
    assert list(cut(arrays(one_by_one), NOTHING, end, most)) == expected


def test_the_two_rows_of_an_update_are_in_one_chunk() -> None:
    found = list(cut(arrays([[0, 1, 1, 2]]), NOTHING, 2, 2))
    assert found == [Chunk(-1, 0, 1), Chunk(0, 1, 2), Chunk(1, 2, 1)]
    assert list(cut(arrays([[3, 3, 4, 4]]), 2, 9, 1)) == [Chunk(2, 3, 2), Chunk(3, 9, 2)]


def rows_at(batches: Sequence[Places]) -> Iterator[Positioned]:
    for batch in batches:
        if batch:
            texts = pa.array([f"g{one % 3}" for one in batch])
            columns = [texts, pa.array(batch, pa.int64())]
            yield (
                pa.RecordBatch.from_arrays(columns, schema=SCHEMA),
                np.array(batch, dtype=np.int64),
            )


@given(places(), st.integers(1, 9))
def test_rows_are_divided_where_the_chunks_end(batches: list[Places], most: int) -> None:
    every = [one for batch in batches for one in batch]
    chunks = list(cut(arrays(batches), NOTHING, max(every, default=0), most))
    for chunk, found in by_chunk(rows_at(batches), chunks):
        sent = [n for batch in found for n in batch.column("n").to_pylist()]
        assert sent == [one for one in every if chunk.after < one <= chunk.until]


def test_a_chunk_that_is_not_read_takes_no_row_of_the_next() -> None:
    chunks = [Chunk(-1, 2, 3), Chunk(2, 4, 2), Chunk(4, 5, 1)]
    found = {}
    for chunk, rows in by_chunk(rows_at([[0, 1], [2, 3, 4, 5]]), chunks):
        if chunk.after != 2:
            found[chunk.until] = [n for batch in rows for n in batch.column("n").to_pylist()]
    assert found == {2: [0, 1, 2], 5: [5]}


class Known:
    """A feed of rows that are known."""

    schema = SCHEMA
    fragment = 0
    columns: tuple[SentColumn, ...] = ()
    divided = {"g": "g"}  # noqa: RUF012

    def __init__(self, batches: Sequence[Places]) -> None:
        self.batches = batches
        self.newest = max(one for batch in batches for one in batch)

    def positions(self, after: int, until: int) -> Iterator[np.ndarray]:
        for _, found in rows_at(self.batches):
            yield found[(found > after) & (found <= until)]

    def read(self, after: int, until: int) -> Iterator[Positioned]:
        for rows, found in rows_at(self.batches):
            mask = (found > after) & (found <= until)
            if mask.any():
                yield rows.filter(pa.array(mask)), found[mask]


@pytest.mark.parametrize("seed", range(5))
def test_windows_of_a_partitioned_sink_cover_everything_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(sink_plan, "WINDOW_ROWS", chance.randint(1, 20))
    positions = sorted(chance.sample(range(500), 120))
    feed = Known([positions[n : n + 7] for n in range(0, 120, 7)])
    sent: list[int] = []
    after, windows = NOTHING, 0
    while after < feed.newest:
        window = sink_plan.plan_partitions(feed, after, 4, frozenset())
        assert after == window.after < window.until
        for part in window.parts:
            assert (part.after, part.until) == (window.after, window.until)
            rows = iter([window.rows[part.path]])
            for chunk, found in by_chunk(rows, part.chunks):
                numbers = [n for batch in found for n in batch.column("n").to_pylist()]
                assert len(numbers) == chunk.rows
                assert {path_of(["g"], [f"g{n % 3}"]) for n in numbers} == {part.path}
                sent += numbers
        again = sink_plan.group_window(feed, window.after, window.until)
        assert {path: list(found[1]) for path, found in again.items()} == {
            path: list(found[1]) for path, found in window.rows.items()
        }
        after = window.until
        windows += 1
    assert sorted(sent) == positions
    assert windows > 3


def test_plans_of_a_whole_sink_cover_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_plan, "CHUNKS_PER_PLAN", 3)
    feed = Known([list(range(0, 70, 2))])
    chunks: list[Chunk] = []
    after = NOTHING
    while after < feed.newest:
        window = sink_plan.plan_whole(feed, after, 4)
        (part,) = window.parts
        assert len(part.chunks) <= 3
        chunks += part.chunks
        after = window.until
    assert sum(chunk.rows for chunk in chunks) == 35
    assert all(one.until == following.after for one, following in pairwise(chunks))


@given(st.integers(0, 2**31), st.integers(0, 2**32 - 1))
def test_positions_of_changes_order_by_version_then_by_place(version: int, place: int) -> None:
    position = position_of(version, place)
    assert version_of(position) == version
    assert end_of(version - 1) < position <= end_of(version)
