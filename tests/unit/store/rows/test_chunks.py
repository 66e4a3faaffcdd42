"""Streams regrouped within bounds, and arrays that stand on their own."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelock.store.rows.pieces import rechunk, unsliced_batch, unsliced_table

SIZES = st.lists(st.integers(0, 40), max_size=8)


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(1, 50), st.integers(1, 2000), st.integers(0, 200))
def test_chunks_keep_every_row_in_order_and_stay_within_bounds(
    sizes: list[int], rows_max: int, bytes_max: int, width: int
) -> None:
    counter = iter(range(10_000))
    batches = []
    for size in sizes:
        numbers = [next(counter) for _ in range(size)]
        texts = ["x" * (n % 7 * width // 6) for n in numbers]
        batches.append(
            pa.record_batch({"n": pa.array(numbers, pa.int64()), "t": pa.array(texts, pa.string())})
        )
    chunks = list(rechunk(batches, rows_max, bytes_max))
    assert [n for chunk in chunks for n in chunk.column("n").to_pylist()] == list(range(sum(sizes)))
    for chunk in chunks:
        assert 0 < chunk.num_rows <= rows_max
        assert chunk.num_rows == 1 or chunk.nbytes <= bytes_max


def test_small_batches_are_grouped_and_large_ones_split() -> None:
    small = pa.record_batch({"n": pa.array([1], pa.int64())})
    assert [c.num_rows for c in rechunk([small] * 10, 4, 1 << 20)] == [4, 4, 2]
    large = pa.record_batch({"n": pa.array(range(10), pa.int64())})
    assert [c.num_rows for c in rechunk([large], 4, 1 << 20)] == [4, 4, 2]
    assert [c.num_rows for c in rechunk([large], 100, 40)] == [5, 5]
    assert list(rechunk([], 4, 4)) == []


def test_a_stream_is_not_read_ahead_of_the_chunk() -> None:
    taken = 0

    def batches():  # type: ignore[no-untyped-def]
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield pa.record_batch({"n": pa.array([1, 2], pa.int64())})

    next(rechunk(batches(), 2, 1 << 20))
    assert taken <= 2


STRUCTS = pa.array(
    [{"a": {"b": i}, "t": None if i % 3 else True} if i % 4 else None for i in range(20)]
)
CUT = {
    "struct": STRUCTS.slice(3, 7),
    "list": pa.ListArray.from_arrays(pa.array([2, 5, 9], pa.int32()), STRUCTS),
    "list of a slice": pa.ListArray.from_arrays(
        pa.array([0, 3, 7], pa.int32()), STRUCTS.slice(3, 7)
    ),
    "map": pa.MapArray.from_arrays(pa.array([0, 3, 7], pa.int32()), pa.array(range(20)), STRUCTS),
    "struct of a slice": pa.StructArray.from_arrays([STRUCTS.slice(5)], ["s"]),
    "list of no strings": pa.array([["x"], [], None]).slice(1),
    "struct of a sliced boolean": pa.StructArray.from_arrays(
        [pa.array([True, None, False]).slice(1)], ["t"]
    ),
    "sliced list": pa.array([[{"a": 1}], None, [{"a": None}]]).slice(1),
}


@pytest.mark.parametrize("name", CUT)
def test_what_is_nested_and_a_slice_is_copied_and_stays_the_same(name: str) -> None:
    array = CUT[name]
    batch = pa.record_batch({"c": array, "n": pa.array(range(len(array)))})
    out = unsliced_batch(batch)
    assert out is not batch
    assert out.equals(batch)
    assert out.column("c").offset == 0
    assert unsliced_batch(out) is out


def test_what_stands_alone_or_is_not_nested_is_not_copied() -> None:
    plain = pa.record_batch({"n": pa.array(range(9)), "t": pa.array(["x"] * 9)}).slice(2, 3)
    assert unsliced_batch(plain) is plain
    whole = pa.table({"c": STRUCTS})
    assert unsliced_table(whole) is whole


def test_columns_whose_chunks_differ_are_aligned() -> None:
    table = pa.table(
        {
            "c": pa.chunked_array([STRUCTS]),
            "n": pa.chunked_array([pa.array(range(7)), pa.array(range(7, 20))]),
        }
    )
    out = unsliced_table(table)
    assert out.equals(table)
    assert [batch.column("c").offset for batch in out.to_batches()] == [0, 0]
