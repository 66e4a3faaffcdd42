"""Publication within one process: threads that share tables, puts and operation ids."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import NUMBERS_DDL, check_log, contents, numbers, rows_of, streamed

import tidelock
from tidelock import Lake, errors
from tidelock.store.objects.failpoints import armed
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore

THREADS = 8


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[tuple[Lake, FaultyStore]]:
    stores: list[FaultyStore] = []

    def wrap(inner: Objects) -> Objects:
        stores.append(FaultyStore(inner, seed=1))
        return stores[0]

    with tidelock.open(tmp_path / "lake", create=True, objects=wrap) as lake:
        yield lake, stores[0]


@pytest.fixture
def lake(faulty: tuple[Lake, FaultyStore]) -> Lake:
    return faulty[0]


def at_once(count: int, function: Callable[[int], Any]) -> list[Any]:
    """Run a function in as many threads, all at once; raises the first error."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait()
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def append(lake: Lake, table: str, *pairs: tuple[int, int], **options: Any) -> tidelock.Commit:
    with lake.transaction(**options) as tx:
        tx.append(table, numbers(*pairs))
    assert tx.commit is not None
    return tx.commit


def test_threads_on_tables_of_their_own_all_commit(lake: Lake) -> None:
    for number in range(THREADS):
        lake.create_table(f"t{number}", NUMBERS_DDL)

    def write(number: int) -> None:
        for round in range(10):
            append(lake, f"t{number}", (number, round))

    at_once(THREADS, write)
    expected = {f"t{n}": Counter((n, r) for r in range(10)) for n in range(THREADS)}
    assert contents(lake) == expected
    data = [commit for commit in check_log(lake) if commit.kind == "data"]
    assert len(data) == THREADS * 10


def test_threads_that_upsert_one_table_make_one_line_of_history(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")

    def write(number: int) -> None:
        for round in range(10):
            with lake.transaction(message=f"{number} {round}") as tx:
                tx.upsert("t", numbers((0, number * 100 + round), (number + 1, round)))

    at_once(THREADS, write)
    commits = [commit for commit in check_log(lake) if commit.kind == "data"]
    assert len(commits) == THREADS * 10
    for number in range(THREADS):
        rounds = [c.message for c in commits if c.message.startswith(f"{number} ")]
        assert rounds == [f"{number} {round}" for round in range(10)]
    last = commits[-1].message.split()
    rows = {(number + 1, 9) for number in range(THREADS)}
    assert rows_of(lake.table("t")) == Counter([(0, int(last[0]) * 100 + int(last[1])), *rows])
    for commit in commits[1:]:
        change = commit.table("t")
        assert change.inserted + change.updated == 2


def test_writers_that_wait_share_a_put(faulty: tuple[Lake, FaultyStore]) -> None:
    lake, store = faulty
    for number in range(THREADS):
        lake.create_table(f"t{number}", NUMBERS_DDL)
    store.latency_seconds = 0.03
    store.forget()

    def write(number: int) -> None:
        for round in range(5):
            append(lake, f"t{number}", (number, round))

    began = time.perf_counter()
    at_once(THREADS, write)
    seconds = time.perf_counter() - began
    store.latency_seconds = 0
    puts = store.count("put_new", key_contains="/log/")
    assert puts <= THREADS * 5 / 2, f"{puts} puts for {THREADS * 5} commits"
    assert seconds < THREADS * 5 * 0.06, "as slow as one after the other"
    assert len(check_log(lake)) == THREADS + THREADS * 5


def test_the_versions_of_a_shared_put_are_snapshots_of_their_own(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    with armed("publish.before_put", "sleep:0.05"):
        commits = at_once(THREADS, lambda number: append(lake, "t", (number, number)))
    seen: Counter[tuple[int, ...]] = Counter()
    for commit in sorted(commits, key=lambda commit: commit.version):
        before, seen = seen, contents(lake, version=commit.version)["t"]
        assert seen.total() == before.total() + 1
        assert before <= seen
        changes = lake.changes("t", since=commit.version - 1, until=commit.version).read_all()
        assert rows_of(changes.select(["id", "v"])) == seen - before
    branch = lake.create_branch("middle", at=min(c.version for c in commits) + 3)
    assert contents(lake, branch=branch.name)["t"].total() == 4
    check_log(lake, "middle")


def test_one_that_conflicts_fails_alone(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    append(lake, "t", (0, 0))

    def write(number: int) -> str:
        try:
            with lake.transaction() as tx:
                if number % 2:
                    tx.append("t", numbers((0 if number == 1 else number, number)))
                else:
                    tx.upsert("t", numbers((number + 100, number)))
                time.sleep(0.05)
        except errors.DuplicateKey:
            return "duplicate"
        return "committed"

    with armed("publish.before_put", "sleep:0.02"):
        outcomes = at_once(THREADS, write)
    assert Counter(outcomes) == {"committed": THREADS - 1, "duplicate": 1}
    assert lake.table("t").count() == THREADS


def test_one_that_breaks_in_its_own_way_fails_alone(lake: Lake) -> None:
    for number in range(THREADS):
        lake.create_table(f"t{number}", NUMBERS_DDL)

    def write(number: int) -> str:
        try:
            with lake.transaction() as tx:
                tx.append(f"t{number}", numbers((1, 1)))
                if number == 0:
                    tx.rebase = _broken  # type: ignore[method-assign]
                time.sleep(0.02)
        except ZeroDivisionError:
            return "broken"
        return "committed"

    with armed("publish.before_put", "sleep:0.05"):
        assert Counter(at_once(THREADS, write)) == {"committed": THREADS - 1, "broken": 1}


def _broken(*_: object) -> Any:
    raise ZeroDivisionError


def test_properties_that_cannot_be_written_are_refused_at_once(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    with pytest.raises(errors.InvalidOption, match="properties"):
        lake.transaction(properties={"offset": object()})
    commit = append(lake, "t", (1, 1), properties={"offset": {"part": [1, 2]}, "of": None})
    assert commit.properties == {"offset": {"part": [1, 2]}, "of": None}
    assert lake.log()[0] == commit


@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
def test_one_operation_id_in_many_threads_is_one_commit(lake: Lake, streaming: bool) -> None:
    lake.create_table("t", NUMBERS_DDL)

    def write(_: int) -> tidelock.Commit:
        with lake.transaction(operation_id="load/1 ä") as tx:
            tx.append("t", streamed(numbers((1, 1))) if streaming else numbers((1, 1)))
        assert tx.commit is not None
        return tx.commit

    assert len({commit.version for commit in at_once(THREADS, write)}) == 1
    assert rows_of(lake.table("t")) == Counter([(1, 1)])
    found = lake.find_operation("load/1 ä")
    assert found is not None
    assert found.operation_id == "load/1 ä"
    check_log(lake)


def test_one_operation_id_that_another_handle_publishes_meanwhile_is_one_commit(
    tmp_path: Path,
) -> None:
    first = tidelock.open(tmp_path / "lake", create=True)
    first.create_table("t", NUMBERS_DDL)
    second = tidelock.open(tmp_path / "lake")
    with first.transaction(operation_id="once") as tx:
        tx.append("t", numbers((1, 1)))
        commit = append(second, "t", (1, 1), operation_id="once")
        append(second, "t", (2, 2))
    assert tx.commit == commit
    assert rows_of(first.table("t")) == Counter([(1, 1), (2, 2)])
    first.close()
    second.close()


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "left open by a crash"])
@pytest.mark.parametrize("generations", [1, 2])
def test_an_operation_id_is_honoured_on_a_fork_that_was_made_later(
    lake: Lake, settled: bool, generations: int
) -> None:
    lake.create_table("t", NUMBERS_DDL)
    with armed("claim.before_settle", "sleep:0" if settled else "error"):
        one = append(lake, "t", (1, 1), operation_id="once")
    append(lake, "t", (2, 2))
    branch = "main"
    for number in range(generations):
        lake.create_branch(f"fork {number}", branch=branch)
        branch = f"fork {number}"
        append(lake, "t", (3, 3), branch=branch)
    for _ in range(2):
        assert append(lake, "t", (1, 1), operation_id="once", branch=branch) == one
        assert lake.find_operation("once", branch=branch) == one
    assert lake.table("t", branch=branch).count() == 2 + generations


def test_an_operation_of_the_parent_after_the_fork_is_not_the_forks(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    with lake.transaction(operation_id="once") as tx:
        lake.create_branch("dev")
        tx.append("t", numbers((1, 1)))
    assert lake.find_operation("once", branch="dev") is None
    assert append(lake, "t", (1, 1), operation_id="once", branch="dev") != tx.commit
    assert lake.table("t", branch="dev").count() == 1


def test_an_operation_id_is_per_branch(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    lake.create_branch("dev")
    one = append(lake, "t", (1, 1), operation_id="once")
    other = append(lake, "t", (1, 1), operation_id="once", branch="dev")
    assert one.branch != other.branch
    assert append(lake, "t", (1, 1), operation_id="once") == one
    assert append(lake, "t", (1, 1), operation_id="once", branch="dev") == other


CONFLICTS: dict[str, Callable[[tidelock.Transaction], object]] = {
    "overwrite": lambda tx: tx.overwrite("t", numbers((9, 9))),
    "drop": lambda tx: tx.drop_table("t"),
    "mix": lambda tx: (tx.append("u", numbers((5, 5))), tx.overwrite("t", numbers((9, 9)))),
}


@pytest.mark.parametrize("operation", CONFLICTS)
def test_what_replaces_a_table_conflicts_with_a_commit_that_changed_it(
    lake: Lake, operation: str
) -> None:
    lake.create_table("t", NUMBERS_DDL)
    lake.create_table("u", NUMBERS_DDL)
    append(lake, "t", (1, 1))
    tx = lake.transaction()
    CONFLICTS[operation](tx)
    rival = append(lake, "t", (2, 2))
    with pytest.raises(errors.CommitConflict, match="'t'") as caught:
        tx.publish()
    error = caught.value
    assert (error.table, error.expected, error.actual) == ("t", 3, rival.version)
    assert error.operation_id == tx.operation_id
    assert error.action is errors.Action.REFRESH_AND_RETRY
    assert contents(lake) == {"t": Counter([(1, 1), (2, 2)]), "u": Counter()}


def test_a_function_is_run_again_until_it_wins(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    append(lake, "t", (1, 0))

    def add(_: int) -> None:
        for _ in range(3):
            lake.run(lambda tx: tx.update("t", {"v": "v + 1"}), retries=1000)

    at_once(4, add)
    assert rows_of(lake.table("t")) == Counter([(1, 12)])


def test_two_that_create_one_table_conflict(lake: Lake) -> None:
    tx = lake.transaction()
    tx.create_table("T", NUMBERS_DDL)
    lake.create_table("t", NUMBERS_DDL)
    with pytest.raises(errors.CommitConflict, match="created"):
        tx.publish()
    assert [state.name for state in lake.tables()] == ["t"]


def test_a_name_may_be_dropped_and_created_again_in_one_transaction(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    append(lake, "t", (1, 1))
    with lake.transaction() as tx:
        tx.drop_table("t")
        tx.create_table("t", "name STRING")
        tx.append("t", [{"name": "a"}])
    assert rows_of(lake.table("t")) == Counter([("a",)])
    assert rows_of(lake.snapshot(version=2).table("t")) == Counter([(1, 1)])
    tx = lake.transaction()
    tx.drop_table("t")
    tx.create_table("t", NUMBERS_DDL)
    with lake.transaction() as rival:
        rival.append("t", [{"name": "b"}])
    with pytest.raises(errors.CommitConflict):
        tx.publish()


def test_what_is_staged_survives_maintenance_of_its_table(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    for number in range(6):
        append(lake, "t", (number, number))
    with lake.transaction() as tx:
        tx.append("t", numbers((10, 10), (11, 11)))
        tx.update("t", {"v": "v * 10"}, where="id IN (1, 10)")
        tx.delete("t", where="id IN (2, 11)")
        tx.upsert("t", numbers((3, 33), (12, 12)))
        assert lake.optimize()
        tx.update("t", {"v": "v + 1"}, where="id = 12")
        assert lake.optimize() is not None
    expected = Counter([(0, 0), (1, 10), (3, 33), (4, 4), (5, 5), (10, 100), (12, 13)])
    assert rows_of(lake.table("t")) == expected
    assert tx.commit is not None
    change = tx.commit.table("t")
    changes = lake.changes("t", since=tx.commit.version - 1).read_all()
    before = rows_of(lake.snapshot(version=tx.commit.version - 1).table("t"))
    after = Counter(before)
    for *row, weight, _ in zip(*(c.to_pylist() for c in changes.columns), strict=True):
        after[tuple(row)] += weight
    assert +after == expected
    assert change.after is not None
    assert change.after.rows == 7


def test_an_overwrite_survives_maintenance_of_its_table(lake: Lake) -> None:
    lake.create_table("t", NUMBERS_DDL)
    for number in range(4):
        append(lake, "t", (number, number))
    with lake.transaction() as tx:
        tx.overwrite("t", numbers((9, 9)))
        lake.optimize()
    assert rows_of(lake.table("t")) == Counter([(9, 9)])


def test_a_commit_stands_when_what_comes_after_it_fails(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.create_table("t", NUMBERS_DDL)
    with armed("maintenance.before_publish", "error") as point:
        for number in range(20):
            append(lake, "t", (number, number))
    assert point.hits
    assert lake.table("t").count() == 20
    assert "was put off" in caplog.text


def test_a_handle_sees_what_another_published_at_its_next_snapshot(tmp_path: Path) -> None:
    one = tidelock.open(tmp_path / "lake", create=True)
    one.create_table("t", NUMBERS_DDL)
    other = tidelock.open(tmp_path / "lake", read_only=True)
    for number in range(100):
        append(one, "t", (number, number))
        assert other.table("t").count() == number + 1
    one.close()
    other.close()


def test_a_table_is_named_as_it_is_when_another_case_is_asked_for(lake: Lake) -> None:
    lake.create_table("Sites", "a INT")
    with pytest.raises(errors.TableExists, match="'Sites' exists, and 'sItes' is the same name"):
        lake.create_table("sItes", "a INT")


def test_a_transaction_of_a_closed_lake_stages_nothing(tmp_path: Path) -> None:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "a INT")
    transaction = lake.transaction().__enter__()
    lake.close()
    with pytest.raises(errors.LakeClosed):
        transaction.append("t", [{"a": 1}])
