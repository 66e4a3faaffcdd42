"""How the rows of a table are divided over tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelock.store.spark.scan import TASK_ROWS_MIN, FragmentSlice, divide

MILLION = 1_000_000


def sizes(
    fragments: list[tuple[int, int]], groups: tuple[tuple[FragmentSlice, ...], ...]
) -> list[int]:
    rows = dict(fragments)
    return [
        sum((rows[p.fragment] if p.stop is None else p.stop) - p.start for p in group)
        for group in groups
    ]


@given(
    st.lists(st.integers(0, 3 * MILLION), max_size=30),
    st.integers(1, 64),
)
def test_every_row_is_in_exactly_one_part(counts: list[int], tasks: int) -> None:
    fragments = [(number * 3, rows) for number, rows in enumerate(counts)]
    groups = divide(fragments, tasks)
    assert len(groups) <= tasks
    assert all(groups)
    reached: dict[int, int] = {}
    for part in (part for group in groups for part in group):
        assert reached.get(part.fragment, 0) == part.start
        reached[part.fragment] = dict(fragments)[part.fragment] if part.stop is None else part.stop
    assert reached == {fragment: rows for fragment, rows in fragments if rows}


@given(st.lists(st.integers(1, 3 * MILLION), min_size=1, max_size=30), st.integers(1, 64))
def test_no_task_has_much_more_than_its_share(counts: list[int], tasks: int) -> None:
    fragments = list(enumerate(counts))
    groups = divide(fragments, tasks)
    share = sum(counts) / min(tasks, -(-sum(counts) // TASK_ROWS_MIN))
    assert max(sizes(fragments, groups)) <= share * 1.11 + 1


@given(st.lists(st.integers(0, 3 * MILLION), max_size=30), st.integers(1, 64))
def test_the_last_part_of_every_fragment_is_open_ended(counts: list[int], tasks: int) -> None:
    last: dict[int, FragmentSlice] = {}
    for group in divide(list(enumerate(counts)), tasks):
        last.update({part.fragment: part for part in group})
    assert all(part.stop is None for part in last.values())


def test_one_large_fragment_is_read_by_all_tasks() -> None:
    assert divide([(7, 4 * MILLION)], 4) == (
        (FragmentSlice(7, 0, MILLION),),
        (FragmentSlice(7, MILLION, 2 * MILLION),),
        (FragmentSlice(7, 2 * MILLION, 3 * MILLION),),
        (FragmentSlice(7, 3 * MILLION),),
    )


def test_fragments_are_not_cut_where_their_edges_are_near() -> None:
    fragments = [(number, 1 << 20) for number in range(9)] + [(9, 600_000)]
    groups = divide(fragments, 2)
    assert [[part.fragment for part in group] for group in groups] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
    ]
    assert all(part == FragmentSlice(part.fragment) for group in groups for part in group)


def test_a_small_table_is_one_task() -> None:
    assert divide([(0, 10), (1, 20)], 64) == ((FragmentSlice(0), FragmentSlice(1)),)


@pytest.mark.parametrize("fragments", [[], [(0, 0)], [(0, 0), (5, 0)]])
def test_a_table_without_rows_has_no_parts(fragments: list[tuple[int, int]]) -> None:
    assert divide(fragments, 8) == ()
