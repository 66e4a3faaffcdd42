"""Folding and indexing: what is decided, and that no row notices."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.lakes import NUMBERS_DDL, check_log, numbers, rows_of, seed_of, settle_chores

import tidelock
from tidelock import Lake, errors
from tidelock.store.tables.indexes import index_segments
from tidelock.store.upkeep.fold_plan import (
    BACKLOG,
    DELETED_FRACTION_MAX,
    FANOUT,
    FULL_BYTES,
    TIER_ROWS,
    FragmentSize,
    SegmentSize,
    fold_is_due,
    may_be_due,
    plan_compaction,
    plan_fold,
    plan_segment,
)

FRAGMENTS_MAX = FANOUT * 5
"""More fragments than these mean that folding does not keep up."""


def sizes(*rows: int) -> list[FragmentSize]:
    return [FragmentSize(number, count, 0, count * 100) for number, count in enumerate(rows)]


def test_a_full_tier_is_folded_with_all_below_it() -> None:
    assert plan_fold(sizes(*[1] * (FANOUT - 1))) == []
    assert plan_fold(sizes(*[1] * FANOUT)) == list(range(FANOUT))
    middle = TIER_ROWS[0]
    assert plan_fold(sizes(1, *[middle] * FANOUT, 10**9)) == list(range(FANOUT + 1))
    assert plan_fold(sizes(*[10**9] * 100)) == []
    huge = [FragmentSize(n, 1, 0, FULL_BYTES) for n in range(100)]
    assert plan_fold(huge) == []


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=300), st.booleans())
@example([1] * 1000, True)
@settings(max_examples=50, deadline=None)
def test_however_a_table_is_written_fragments_are_few_and_rows_rewritten_seldom(
    commits: list[int], among_rivals: bool
) -> None:
    fragments: list[FragmentSize] = []
    rewritten = 0
    for number, rows in enumerate(commits):
        fragments.append(FragmentSize(number, rows, 0, rows * 100))
        due = may_be_due(len(fragments), among_rivals) and fold_is_due(fragments, among_rivals)
        plan = set(plan_fold(fragments)) if due else set()
        if plan:
            joined = sum(f.rows for f in fragments if f.id in plan)
            rewritten += joined
            kept = [f for f in fragments if f.id not in plan]
            fragments = [*kept, FragmentSize(-number - 1, joined, 0, joined * 100)]
        assert len(fragments) <= FRAGMENTS_MAX * (2 if among_rivals else 1)
    assert sum(f.rows for f in fragments) == sum(commits)
    assert rewritten <= sum(commits) * (len(TIER_ROWS) + 1) * 2


def test_compaction_joins_what_is_small_and_rewrites_what_is_worn() -> None:
    assert plan_compaction(sizes(10, 20, 30), 100) == [[0, 1, 2]]
    assert plan_compaction(sizes(10), 100) == []
    worn = int(100 * DELETED_FRACTION_MAX) + 1
    fragments = [
        FragmentSize(0, 100 - worn, worn, 1),
        FragmentSize(1, 100, 0, 1),
        FragmentSize(2, 5, 1, 1),
    ]
    assert plan_compaction(fragments, 100) == [[0], [2]]
    groups = plan_compaction(sizes(*[40] * 7), 100)
    assert groups == [[0, 1], [2, 3], [4, 5]]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=30))
def test_compaction_takes_a_fragment_at_most_once(rows: list[tuple[int, int]]) -> None:
    fragments = [FragmentSize(n, live, dead, live) for n, (live, dead) in enumerate(rows)]
    planned = [one for group in plan_compaction(fragments, 100) for one in group]
    assert len(planned) == len(set(planned))


def test_an_index_segment_swallows_those_that_are_not_much_larger() -> None:
    assert plan_segment(sizes(10, 10), [], rows_min=50) == ([], [])
    assert plan_segment(sizes(30, 30), [], rows_min=50) == ([0, 1], [])
    fragments = sizes(30, 30, 60)
    small = SegmentSize("small", frozenset({0, 1}), 60)
    assert plan_segment(fragments, [small], rows_min=50) == ([0, 1, 2], ["small"])
    large = SegmentSize("large", frozenset({0}), 10_000)
    assert plan_segment(sizes(10_000, 60), [large], rows_min=50) == ([1], [])
    gone = SegmentSize("gone", frozenset({99}), 0)
    assert plan_segment(sizes(60), [gone], rows_min=50) == ([0], ["gone"])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        yield lake


def fragments_of(lake: Lake, table: str) -> int:
    return len(lake.table(table).dataset.get_fragments())


def test_a_table_written_by_single_rows_stays_small_and_right(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    for number in range(150):
        with lake.transaction() as tx:
            tx.append("t", numbers((number, number)))
        # Folding is done beside commits; a writer that left it too far behind does it first.
        assert fragments_of(lake, "t") < BACKLOG + FRAGMENTS_MAX
    settle_chores(lake)
    assert fragments_of(lake, "t") < FRAGMENTS_MAX
    assert rows_of(lake.table("t")) == Counter((n, n) for n in range(150))
    commits = check_log(lake)
    folds = [commit for commit in commits if commit.kind == "maintenance"]
    assert folds
    for fold in folds:
        change = fold.table("t")
        assert change.before is not None
        assert change.after is not None
        assert (change.inserted, change.updated, change.deleted) == (0, 0, 0)
        assert (change.before.rows, change.before.changed) == (
            change.after.rows,
            change.after.changed,
        )
        at = [rows_of(lake.snapshot(version=fold.version - n).table("t")) for n in (0, 1)]
        assert at[0] == at[1]
        assert lake.changes("t", fold.version - 1, fold.version).read_all().num_rows == 0


def test_folding_keeps_row_sequences(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")

    def sequences() -> dict[int, int]:
        found = lake.table("t").dataset.to_table(columns=["id"], with_row_id=True)
        return dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))

    before: dict[int, int] = {}
    for number in range(1, 40):
        with lake.transaction() as tx:
            tx.upsert("t", numbers((number, 0), (number // 2, 1)))
        after = sequences()
        assert {key: after[key] for key in before} == before
        assert after[number] >= max(before.values(), default=0)
        before = after
    lake.optimize()
    assert sequences() == before


def test_threads_that_append_while_others_fold_lose_no_row(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)

    def write(number: int) -> None:
        for round in range(30):
            with lake.transaction() as tx:
                tx.append("t", numbers((number, round)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows_of(lake.table("t")) == Counter((n, r) for n in range(4) for r in range(30))
    settle_chores(lake)
    assert fragments_of(lake, "t") < FRAGMENTS_MAX
    data = [commit for commit in check_log(lake) if commit.kind == "data"]
    assert len(data) == 120


def test_optimizing_without_pause_neither_starves_nor_disturbs_writers(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    with lake.transaction() as tx:
        tx.append("t", numbers(*((n, 0) for n in range(200))))
    stop = threading.Event()
    failures: list[BaseException] = []
    optimized = []
    expected = [dict.fromkeys(range(50 * n, 50 * n + 50), 0) for n in range(3)]

    def optimize() -> None:
        try:
            while not stop.is_set():
                optimized.extend(lake.optimize())
        except BaseException as error:
            failures.append(error)
            raise

    def write(number: int) -> None:
        chance = random.Random(number)
        mine = expected[number]
        try:
            for round in range(1, 25):
                choice = chance.random()
                keys = chance.sample(sorted(mine), 5 if choice < 0.7 else 2)

                def change(tx: tidelock.Transaction, keys=keys, choice=choice, round=round) -> None:
                    listed = ", ".join(map(str, keys))
                    if choice < 0.4:
                        tx.upsert("t", numbers(*((key, round) for key in keys)))
                    elif choice < 0.7:
                        tx.update("t", {"v": "v + 1000"}, where=f"id IN ({listed})")
                    else:
                        tx.delete("t", where=f"id IN ({listed})")

                lake.run(change, retries=1000)
                for key in keys:
                    if choice < 0.4:
                        mine[key] = round
                    elif choice < 0.7:
                        mine[key] += 1000
                    else:
                        del mine[key]
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    keeper = threading.Thread(target=optimize)
    for thread in [*threads, keeper]:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    keeper.join()
    assert not failures
    assert optimized, "maintenance was starved"
    rows = {key: value for part in expected for key, value in part.items()}
    rows.update(dict.fromkeys(range(150, 200), 0))
    assert rows_of(lake.table("t")) == Counter(rows.items())
    check_log(lake)


def test_results_are_right_with_any_coverage_of_the_key_index(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    main = lake._store.branches.main()
    rows: dict[int, int] = {}
    with seed_of() as seed:
        chance = random.Random(seed)
        for round in range(60):
            picked = [chance.randrange(60) for _ in range(5)]
            rows = change_keyed(lake, chance, rows, picked, round)
            if chance.random() < 0.5:
                lake._store.maintainer.index(main, "t", rows_min=1)
            if chance.random() < 0.2:
                lake.optimize()
            table = lake.table("t")
            assert rows_of(table) == Counter(rows.items())
            for one in [*picked, 0, 3, 102, 103]:
                found = rows_of(table.to_arrow(filter=f"id = {one}"))
                assert found == Counter([(one, rows[one])] if one in rows else [])


def change_keyed(
    lake: Lake, chance: random.Random, rows: dict[int, int], picked: list[int], round: int
) -> dict[int, int]:
    """One random transaction; returns the rows that must be there after it."""
    choice = chance.random()
    if choice < 0.5:
        new = dict.fromkeys(picked, round)
        with lake.transaction() as tx:
            tx.upsert("t", numbers(*new.items()))
        return {**rows, **new}
    if choice < 0.7:
        with lake.transaction() as tx:
            tx.delete("t", where=f"id IN ({', '.join(map(str, picked))})")
        return {key: value for key, value in rows.items() if key not in picked}
    if choice < 0.85:
        # Keys move to where the index does not know them, and back, unless somebody is there.
        step, low = (100, 0) if chance.random() < 0.5 else (-100, 100)
        moving = {key for key in rows if low <= key < low + 5}
        collides = any(key + step in rows for key in moving)
        try:
            with lake.transaction() as tx:
                tx.update("t", {"id": f"id + ({step})"}, where=f"id >= {low} AND id < {low + 5}")
        except errors.DuplicateKey:
            assert collides
            return rows
        assert not collides
        return {key + step if key in moving else key: value for key, value in rows.items()}
    with lake.transaction() as tx:
        tx.overwrite("t", numbers(*rows.items()))
    return rows


def test_an_index_that_several_build_at_once_is_kept_once(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", "a BIGINT", key=["a"])
        lake.run(lambda tx: tx.append("t", pa.table({"a": range(40_000)})))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: lake.optimize("t"), range(4)))
        assert lake._store.chores.finish(30)
        dataset = lake._store.files.read(lake._store.branches.head("main").tables["t"])
        covered = [one.fragments for one in index_segments(dataset)]
        assert len(covered) == 1, covered
