"""Many threads that change one table at once: several transactions in one record, by row."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import NUMBERS_DDL, check_log, numbers, rows_of, wait_until

import tidelock
from tidelock import Lake, errors
from tidelock.store.objects.failpoints import armed
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore

THREADS = 8


@pytest.fixture
def lake() -> Iterator[Lake]:
    with tidelock.open(f"memory://{uuid.uuid4().hex}", create=True, actor="tests") as lake:
        fill(lake)
        yield lake


def fill(lake: Lake) -> None:
    lake.create_table("keyed", NUMBERS_DDL, key="id")
    lake.create_table("plain", NUMBERS_DDL)
    with lake.transaction() as tx:
        for table in ("keyed", "plain"):
            tx.append(table, numbers(*[(one, 0) for one in range(2 * THREADS)]))


def at_once(count: int, function: Callable[[int], Any]) -> list[Any]:
    """Run a function in as many threads, all at once; raises the first error."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        barrier.wait()
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def most_in_one_record(lake: Lake) -> int:
    log, branch = lake._store.log, lake._store.branches.head("main").branch
    versions = range(1, lake.snapshot().version + 1)
    return max(len(log.record_at(branch, version).commits) for version in versions)


@pytest.mark.parametrize("table", ["keyed", "plain"])
def test_threads_that_change_different_rows_never_conflict(lake: Lake, table: str) -> None:
    def work(number: int) -> None:
        for _ in range(10):
            with lake.transaction() as tx:
                assert tx.update(table, {"v": "v + 1"}, where=f"id = {number}") == 1

    with armed("publish.before_put", "sleep:0.01"):
        at_once(THREADS, work)
    expected = {number: 10 if number < THREADS else 0 for number in range(2 * THREADS)}
    assert rows_of(lake.table(table)) == Counter(expected.items())
    assert most_in_one_record(lake) > 1
    check_log(lake)


@pytest.mark.parametrize("table", ["keyed", "plain"])
def test_of_those_that_change_one_row_at_once_one_wins(lake: Lake, table: str) -> None:
    began = [lake.transaction() for _ in range(THREADS)]
    for number, tx in enumerate(began):
        tx.update(table, {"v": "v + 1"}, where=f"id IN (0, {number + 1})")

    def publish(number: int) -> object:
        try:
            began[number].publish()
        except errors.CommitConflict as error:
            return error.row
        return "won"

    with armed("publish.before_put", "sleep:0.02"):
        outcomes = Counter(at_once(THREADS, publish))
    assert outcomes == {"won": 1, (0,) if table == "keyed" else 0: THREADS - 1}
    assert sum(value for _, value in rows_of(lake.table(table)).elements()) == 2


def test_one_record_may_hold_every_kind_of_change_to_one_table(lake: Lake) -> None:
    def work(number: int) -> None:
        for round in range(6):
            own = 1000 * (number + 1) + round
            with lake.transaction() as tx:
                match (number + round) % 4:
                    case 0:
                        tx.update("keyed", {"v": "v + 1"}, where=f"id = {number}")
                    case 1:
                        tx.append("keyed", numbers((own, 1), (own + 100, 1)))
                        tx.update("keyed", {"v": "v + 1"}, where=f"id = {own}")
                        tx.delete("keyed", where=f"id = {own + 100}")
                    case 2:
                        tx.upsert("keyed", numbers((number, 500), (own, 7)))
                    case 3:
                        tx.delete("keyed", where=f"id = {number + THREADS}")
                        tx.upsert("keyed", numbers((number + THREADS, round)))

    with armed("publish.before_put", "sleep:0.01"):
        at_once(THREADS, work)
    assert most_in_one_record(lake) > 1
    found = dict(rows_of(lake.table("keyed")).keys())
    for number in range(THREADS):
        value, last = 0, 0
        for round in range(6):
            own = 1000 * (number + 1) + round
            kind = (number + round) % 4
            value = {0: value + 1, 2: 500}.get(kind, value)
            last = round if kind == 3 else last
            assert found.pop(own, None) == {1: 2, 2: 7}.get(kind)
            assert own + 100 not in found
        assert (found.pop(number), found.pop(number + THREADS)) == (value, last)
    assert not found


def test_a_record_that_is_lost_is_prepared_again_from_what_was_read(tmp_path: Path) -> None:
    """Handles beside each other, each with threads: what was prepared on top of a transaction that
    lost its put must not count on it."""
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        fill(lake)
        for one in range(40):
            with lake.transaction() as tx:
                tx.append("plain", numbers((100 + one, 0)))
    handles = [tidelock.open(tmp_path / "lake", actor=f"handle {n}") for n in range(3)]
    done: list[list[int]] = [[] for _ in range(THREADS)]
    conflicts = Counter[str]()

    def work(number: int) -> None:
        chance = random.Random(number)
        mine = handles[number % len(handles)]
        for _ in range(12):
            rows = chance.sample(range(100, 140), 3)
            try:
                with mine.transaction() as tx:
                    tx.append("plain", numbers((1000 + number, 0)))
                    listed = ", ".join(map(str, rows))
                    tx.update("plain", {"v": "v + 1"}, where=f"id IN ({listed})")
                    tx.update("plain", {"v": "v + 1"}, where=f"id = {1000 + number} AND v = 0")
            except errors.CommitConflict:
                conflicts["conflict"] += 1
            else:
                done[number].extend(rows)

    at_once(THREADS, work)
    expected = Counter(row for rows in done for row in rows)
    found: Counter[int] = Counter()
    own: Counter[tuple[int, int]] = Counter()
    for (row, value), count in rows_of(handles[0].table("plain")).items():
        if row >= 1000:
            own[row, value] += count
        elif row >= 100:
            found[row] = value
    assert +found == expected
    assert own == Counter({(1000 + n, 1): len(rows) // 3 for n, rows in enumerate(done) if rows})
    assert expected
    check_log(handles[0])
    for handle in handles:
        handle.close()


class Interrupted(FaultyStore):
    """A store that lets others go first: what is to happen before each put of a record."""

    def __init__(self, inner: Objects) -> None:
        super().__init__(inner, seed=1)
        self.before_puts: list[Callable[[], object]] = []

    def put_new(self, key: str, data: bytes) -> None:
        if "/log/" in key and self.before_puts:
            self.before_puts.pop(0)()
        super().put_new(key, data)


@pytest.mark.parametrize("touched", [0, 1, 5], ids=["the first's", "the second's", "nobody's"])
@pytest.mark.parametrize("rows", [0, 3])
def test_who_was_prepared_on_top_of_one_that_fails_goes_on_from_what_it_read(
    tmp_path: Path, touched: int, rows: int
) -> None:
    stores: list[Interrupted] = []

    def wrap(inner: Objects) -> Objects:
        stores.append(Interrupted(inner))
        return stores[0]

    lake = tidelock.open(tmp_path / "lake", create=True, objects=wrap)
    fill(lake)
    other = tidelock.open(tmp_path / "lake")
    began = [lake.transaction() for _ in range(2)]
    for number, tx in enumerate(began):
        tx.append("plain", numbers((100 + number, 0)))
        tx.update("plain", {"v": "v + 1"}, where=f"id IN ({number}, {100 + number})")
    refused: dict[int, int] = {}

    def publish(number: int) -> None:
        try:
            began[number].publish()
        except errors.CommitConflict as error:
            refused[number] = error.row

    waiting = lake._store.publisher._followers["main"]
    threads = [threading.Thread(target=publish, args=(number,)) for number in range(2)]

    def let_both_wait() -> None:
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: len(waiting) > number)  # type: ignore[misc]

    def publish_first() -> None:
        with other.transaction() as tx:
            tx.append("plain", numbers(*[(200 + one, 0) for one in range(rows)]))
            tx.update("plain", {"v": "v + 7"}, where=f"id = {touched}")

    stores[0].before_puts = [let_both_wait, publish_first]
    with lake.transaction() as leader:
        leader.append("keyed", numbers((500, 0)))
    for thread in threads:
        thread.join()
    assert not stores[0].before_puts
    expected = dict.fromkeys(range(2 * THREADS), 0)
    expected[touched] = 7
    expected.update({200 + one: 0 for one in range(rows)})
    assert refused == ({touched: touched} if touched < 2 else {})
    for number in range(2):
        if number != touched:
            expected[number] += 1
            expected[100 + number] = 1
    assert rows_of(lake.table("plain")) == Counter(expected.items())
    check_log(lake)
    lake.close()
    other.close()
