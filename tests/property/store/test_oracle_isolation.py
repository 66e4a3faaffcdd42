"""Random transactions beside each other, against a plain model of what each level permits.

The seed is printed when a run fails; `TIDELOCK_SEED` replays it (but for threads, whose order is
the machine's), `TIDELOCK_FAULT_SECONDS` goes on for longer.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from tests.property.models.isolation_model import (
    TABLES,
    Condition,
    Duplicate,
    Model,
    Outcome,
    Step,
    View,
    pairs,
    run_on_lake,
)
from tests.support.lakes import NUMBERS_DDL, SETTINGS, check_log, fault_seconds, rows_of, seed_of

import tidelock
from tidelock import Lake, Transaction, errors

KINDS = {
    "append": 3,
    "upsert": 2,
    "update": 4,
    "rekey": 2,
    "delete": 3,
    "overwrite": 0.4,
    "count": 2,
    "rows": 2,
}


def random_step(chance: random.Random, view: View, kinds: dict[str, float], most: int) -> Step:
    """A step on rows whose ids are below `most` at first."""
    table = chance.choice(TABLES)
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    if kind == "upsert" and table == "plain":
        kind = "append"
    ids = chance.sample(range(most), chance.randint(1, 3))
    if kind == "append" and table == "keyed":
        taken = {row[0] for row in view.tables[table].values()}
        kind = "upsert" if taken.issuperset(ids) else kind
        ids = ids if kind == "upsert" else [one for one in ids if one not in taken]
    rows = tuple((one, chance.randrange(5)) for one in ids)
    there = [row[0] for row in view.tables[table].values()]
    low = chance.choice([*there, chance.randrange(most)])
    where: Condition | None = Condition(
        low, low + chance.choice([1, 1, 2, 5]), chance.choice([None, None, 3])
    )
    if kind in ("count", "rows") and chance.random() < 0.05:
        where = None
    return Step(kind, table, rows, where)  # type: ignore[arg-type]


@dataclass
class Open:
    """One transaction in a lake and in the model."""

    tx: Transaction
    view: View
    since: int
    serializable: bool
    program: list[tuple[Step, object]] = field(default_factory=list)


class Machine:
    """A lake with two handles, a model, and transactions that are open at the same time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        # Every run has its own habits: what is frequent in one of them is rare in others.
        self.kinds = {kind: self.chance.choice([0.2, 1, 3]) * n for kind, n in KINDS.items()}
        self.ids = self.chance.choice([6, 16, 40])
        self.model = Model()
        self.outcomes: Counter[tuple[bool, Outcome]] = Counter()
        uri = f"memory://{uuid.uuid4().hex}"
        self.lakes = [tidelock.open(uri, create=True), tidelock.open(uri)]
        with self.lakes[0].transaction() as tx:
            tx.create_table("keyed", NUMBERS_DDL, key="id")
            tx.create_table("plain", NUMBERS_DDL)
        self.open: list[Open] = []
        first = self.begin(serializable=False)
        for table in TABLES:
            rows = tuple((one, 0) for one in range(0, self.ids, 2))
            self.do(first, Step("append", table, rows))
        self.commit(first)

    def step(self) -> None:
        """One thing that may happen."""
        chance = self.chance.random()
        if chance < 0.2 and len(self.open) < 4:
            self.begin(serializable=self.chance.random() < 0.5)
        elif chance < 0.7 and self.open:
            one = self.chance.choice(self.open)
            self.do(one, random_step(self.chance, one.view, self.kinds, self.ids))
        elif chance < 0.93 and self.open:
            self.commit(self.chance.choice(self.open))
        elif chance < 0.97:
            self.chance.choice(self.lakes).optimize()
        elif chance < 0.99:
            assert not self.chance.choice(self.lakes).collect_garbage(older_than=0).errors
        else:
            self.prune()

    def begin(self, *, serializable: bool) -> Open:
        level = "serializable" if serializable else "snapshot"
        tx = self.chance.choice(self.lakes).transaction(isolation=level)
        one = Open(tx, self.model.begin(), len(self.model.commits), serializable)
        self.open.append(one)
        return one

    def do(self, one: Open, step: Step) -> None:
        """A step in both, which see the same."""
        try:
            expected = one.view.run(step)
        except Duplicate:
            with pytest.raises(errors.DuplicateKey):
                run_on_lake(one.tx, step)
            self.drop(one)
            return
        assert run_on_lake(one.tx, step) == expected, step
        one.program.append((step, expected))

    def drop(self, one: Open) -> None:
        one.tx.rollback()
        self.open.remove(one)

    def commit(self, one: Open) -> None:
        self.open.remove(one)
        if not one.view.effects:
            one.tx.publish()
            return
        before = self.model.tables
        expected = self.model.judge(one.view, one.since, serializable=one.serializable)
        found: Outcome = "committed"
        try:
            one.tx.publish()
        except errors.CommitConflict:
            found = "conflict"
        except errors.DuplicateKey:
            found = "duplicate"
        assert found == expected, [step for step, _ in one.program]
        self.outcomes[one.serializable, found] += 1
        self.check()
        if found == "committed" and one.serializable:
            # As if it had run alone, now.
            alone = View(before)
            for step, result in one.program:
                assert alone.run(step) == result, step
            for table in TABLES:
                assert rows_of(self.lakes[0].table(table)) == Counter(alone.tables[table].values())

    def prune(self) -> None:
        """Retention, as a transaction of its own."""
        one = self.begin(serializable=False)
        step = Step("delete", "plain", where=Condition(0, self.ids, self.chance.randrange(2)))
        row_ids = one.tx.prune("plain", step.where.sql if step.where else "true")
        assert len(row_ids) == one.view.run(step)
        if len(row_ids):
            self.commit(one)
        else:
            self.drop(one)

    def check(self) -> None:
        snapshot = self.lakes[0].snapshot()
        for table in TABLES:
            assert rows_of(snapshot.table(table)) == Counter(self.model.tables[table].values())

    def finish(self) -> None:
        for one in list(self.open):
            self.commit(one)
        check_log(self.lakes[0])
        for lake in self.lakes:
            lake.close()


@pytest.mark.timeout(7200)
def test_each_level_permits_what_the_model_says() -> None:
    deadline = time.monotonic() + fault_seconds(4)
    outcomes: Counter[tuple[bool, Outcome]] = Counter()
    runs = 0
    while not runs or (time.monotonic() < deadline and "TIDELOCK_SEED" not in SETTINGS):
        runs += 1
        with seed_of() as seed:
            machine = Machine(seed)
            for _ in range(250):
                machine.step()
            machine.finish()
        outcomes += machine.outcomes
    if "TIDELOCK_SEED" not in SETTINGS:
        # A run in which nothing is refused, or nothing is let through, would show nothing.
        for level in (True, False):
            assert outcomes[level, "committed"]
            assert outcomes[level, "conflict"]


# Threads, whose order is known when they are done


@dataclass
class Done:
    """What a thread's transaction did and saw, and where it came to stand."""

    began: int
    version: int
    program: list[tuple[Step, object]]
    touched: set[tuple[str, int]]


def lake_of_threads(rows: int) -> list[Lake]:
    uri = f"memory://{uuid.uuid4().hex}"
    lakes = [tidelock.open(uri, create=True), tidelock.open(uri)]
    with lakes[0].transaction() as tx:
        for table in TABLES:
            tx.create_table(table, NUMBERS_DDL, key="id" if table == "keyed" else None)
            run_on_lake(tx, Step("append", table, tuple((one, 0) for one in range(rows))))
    return lakes


def run_threads(
    lakes: list[Lake], seed: int, isolation: str, kinds: dict[str, float], *, rows: int
) -> tuple[list[Done], int]:
    """What four threads committed, in commit order, and how many conflicts they had."""
    done: list[Done] = []
    conflicts: list[int] = []
    new_ids = iter(range(1000, 1_000_000))
    lock = threading.Lock()

    def work(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        for _ in range(12):
            tx = lakes[number % 2].transaction(isolation=isolation)  # type: ignore[arg-type]
            program: list[tuple[Step, object]] = []
            touched: set[tuple[str, int]] = set()
            try:
                with tx:
                    for _ in range(chance.randint(2, 4)):
                        step = thread_step(chance, kinds, rows, new_ids, lock)
                        if step.kind in ("update", "delete"):
                            found = run_on_lake(tx, Step("rows", step.table, where=step.where))
                            touched |= {(step.table, row[0]) for row in found}  # type: ignore[attr-defined]
                        program.append((step, run_on_lake(tx, step)))
            except errors.CommitConflict:
                conflicts.append(number)
                continue
            if tx.commit is not None:
                done.append(Done(tx.base_version, tx.commit.version, program, touched))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    return sorted(done, key=lambda one: one.version), len(conflicts)


def thread_step(
    chance: random.Random,
    kinds: dict[str, float],
    rows: int,
    new_ids: Iterator[int],
    lock: threading.Lock,
) -> Step:
    table = chance.choice(TABLES)
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    with lock:
        new = next(new_ids)
    low = chance.randrange(rows)
    where = Condition(low, low + chance.choice([1, 2]))
    if chance.random() < 0.1:
        where = Condition(1000, 1_000_000, chance.randrange(3))
    return Step(kind, table, ((new, chance.randrange(3)),), where)  # type: ignore[arg-type]


@pytest.mark.timeout(7200)
def test_serializable_threads_are_as_if_they_came_one_after_the_other() -> None:
    deadline = time.monotonic() + fault_seconds(2)
    kinds = {"append": 2.0, "update": 3, "delete": 0.5, "count": 2, "rows": 2}
    conflicts = runs = 0
    while not runs or time.monotonic() < deadline:
        runs += 1
        with seed_of() as seed:
            lakes = lake_of_threads(8)
            done, lost = run_threads(lakes, seed, "serializable", kinds, rows=8)
            conflicts += lost
            alone = View({name: {} for name in TABLES})
            for table in TABLES:
                alone.run(Step("append", table, tuple((one, 0) for one in range(8))))
            for one in done:
                for step, result in one.program:
                    assert alone.run(step) == result, (one.version, step)
            for table in TABLES:
                found = Counter(pairs(lakes[0].table(table).to_arrow()))
                assert found == Counter(alone.tables[table].values())
            check_log(lakes[0])
            for lake in lakes:
                lake.close()
    assert conflicts, "nobody was in anybody's way"


@pytest.mark.timeout(7200)
def test_snapshot_threads_never_touch_a_row_that_another_touched_first() -> None:
    deadline = time.monotonic() + fault_seconds(2)
    kinds = {"append": 1.0, "update": 4}
    conflicts = runs = 0
    while not runs or time.monotonic() < deadline:
        runs += 1
        with seed_of() as seed:
            lakes = lake_of_threads(16)
            done, lost = run_threads(lakes, seed, "snapshot", kinds, rows=16)
            conflicts += lost
            for one in done:
                rivals = [rival for rival in done if one.began < rival.version < one.version]
                assert not any(one.touched & rival.touched for rival in rivals), one
            # No update is lost: a row counts how often it was touched, each time from what it was.
            for table in TABLES:
                updates: Counter[int] = Counter()
                for one in done:
                    updates.update(
                        row
                        for step, _ in one.program
                        if step.kind == "update" and step.table == table and step.where
                        for row in range(step.where.low, min(step.where.high, 16))
                    )
                found = dict(pairs(lakes[0].table(table).to_arrow(filter="id < 16")))
                assert found == {row: updates[row] for row in range(16)}
            for lake in lakes:
                lake.close()
    assert conflicts, "nobody was in anybody's way"
