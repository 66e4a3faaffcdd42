"""A lake against a model: random transactions over many tables, with a store that fails by a seed.

After every step the lake shows exactly what the model says, as multisets: what was acknowledged is
there, what failed is not, and what was unknown is one of both, for good. At the end every version
is read again, and changes add up: rows(until) = rows(since) + changes.

The seed is printed when a run fails; `TIDELOCK_SEED` replays it, `TIDELOCK_FAULT_SECONDS` goes on
for longer.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.lakes import (
    NUMBERS_DDL,
    SETTINGS,
    Rows,
    age,
    check_log,
    contents,
    fault_seconds,
    fresh_seed,
    numbers,
    streamed,
)

import tidelock
from tidelock import Lake, Transaction, errors
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore

State = dict[str, Rows]
TABLES = ("keyed", "plain", "other")
OPERATIONS = ("append", "append", "upsert", "update", "delete", "overwrite", "drop")
UNCERTAIN = (errors.StoreUnavailable, errors.OutcomeUnknown, errors.LeaseLost)


class Machine:
    """One lake, one model of it, and the chance that drives both."""

    def __init__(self, uri: str, seed: int, *, rate: float, collecting: bool) -> None:
        self.uri = uri
        self.chance = random.Random(seed)
        self.rate = rate
        self.collecting = collecting
        self.stores: list[FaultyStore] = []
        self.model: dict[str, State] = {"main": {}}
        self.history: dict[str, dict[int, State]] = {"main": {0: {}}}
        self.names = 0
        self.unknown = 0
        tidelock.open(uri, create=True).close()
        self.clean = tidelock.open(uri, read_only=True)
        self.lake = self.open()

    def open(self) -> Lake:
        """A handle whose store fails now and then; opening it may take several attempts."""
        while True:
            try:
                return tidelock.open(self.uri, actor="machine", objects=self._faulty)
            except errors.StoreUnavailable:
                continue

    def _faulty(self, inner: Objects) -> Objects:
        seed = self.chance.randrange(1_000_000)
        store = FaultyStore(inner, seed, rate=self.rate, slow_seconds=0.0)
        self.stores.append(store)
        return store

    def step(self) -> None:
        steps: dict[Callable[[], None], float] = {
            self.write: 20,
            self.reopen: 2,
            self.tidy: 2,
            self.fork: 1,
            self.delete: 0.5,
            self.collect: 2 if self.collecting else 0,
        }
        self.chance.choices(list(steps), list(steps.values()))[0]()
        self.check()

    def check(self) -> None:
        live = {ref.name for ref in self.clean.branches()}
        assert live == set(self.model)
        for branch, expected in self.model.items():
            assert contents(self.clean, branch=branch) == expected, branch

    # Steps

    def write(self) -> None:
        branch = self.chance.choice(list(self.model))
        before = self.model[branch]
        after = {name: Counter(rows) for name, rows in before.items()}
        self.names += 1
        operation = f"operation {self.names}" if self.chance.random() < 0.5 else None
        used = operation
        self._cut_off()
        try:
            tx = self.lake.transaction(branch=branch, operation_id=operation)
            used = tx.operation_id
            with tx:
                for _ in range(self.chance.randint(1, 4)):
                    self._operation(tx, after)
        except UNCERTAIN as error:
            self._settle(branch, used, after, error)
            if operation is not None and self.chance.random() < 0.5:
                self._retry(branch, operation, after)
            return
        self._committed(branch, after, tx.commit)

    def _cut_off(self) -> None:
        """Now and then the log cannot be reached for longer than a writer waits."""
        store = self.stores[-1]
        store.forget()
        if self.rate and self.chance.random() < 0.1:
            when = self.chance.choice(["before", "after", "timeout"])
            store.fail_next("put_new", key_contains="/log/", when=when, times=4)  # type: ignore[arg-type]

    def _operation(self, tx: Transaction, after: State) -> None:
        """One random operation, done to the transaction and to the model."""
        chance = self.chance
        missing = [name for name in TABLES if name not in after]
        if missing and (len(missing) == len(TABLES) or chance.random() < 0.5):
            name = chance.choice(missing)
            tx.create_table(name, NUMBERS_DDL, key="id" if name == "keyed" else None)
            after[name] = Counter()
        name = chance.choice(list(after))
        rows = after[name]
        new = {chance.randrange(20): chance.randrange(5) for _ in range(chance.randint(1, 6))}
        give = streamed if chance.random() < 0.3 else list
        low = chance.randrange(20)
        match chance.choice(OPERATIONS):
            case "append" | "upsert" if name == "keyed":
                tx.upsert(name, give(numbers(*new.items())))
                after[name] = Counter([r for r in rows if r[0] not in new]) + Counter(new.items())
            case "append" | "upsert":
                tx.append(name, give(numbers(*new.items())))
                after[name] = rows + Counter(new.items())
            case "update":
                count = tx.update(name, {"v": "v + 1"}, where=f"id >= {low} AND v < 3")
                hit = Counter({r: n for r, n in rows.items() if r[0] >= low and r[1] < 3})
                assert count == hit.total()
                moved = Counter({(r[0], r[1] + 1): n for r, n in hit.items()})
                after[name] = rows - hit + moved
            case "delete":
                count = tx.delete(name, where=f"id < {low}")
                after[name] = Counter({r: n for r, n in rows.items() if r[0] >= low})
                assert count == (rows - after[name]).total()
            case "overwrite":
                tx.overwrite(name, give(numbers(*new.items())))
                after[name] = Counter(new.items())
            case "drop" if chance.random() < 0.3:
                tx.drop_table(name)
                del after[name]

    def _settle(
        self, branch: str, operation: str | None, after: State, error: errors.TidelockError
    ) -> None:
        """What an error left: decided once everything that lives has run out."""
        self.reopen()
        found = self.clean.find_operation(operation, branch=branch) if operation else None
        if isinstance(error, errors.OutcomeUnknown):
            self.unknown += 1
        else:
            assert found is None, f"it was told that nothing was written: {error!r}"
        if found is not None:
            self._committed(branch, after, found)

    def _retry(self, branch: str, operation: str, after: State) -> None:
        """The same operation again: it is published once, or was."""
        found = self.clean.find_operation(operation, branch=branch)
        if found is None:
            return
        while True:
            try:
                with self.lake.transaction(branch=branch, operation_id=operation) as tx:
                    tx.append("plain", numbers((999, 999)))
            except errors.TableNotFound:
                return
            except UNCERTAIN:
                continue
            assert tx.commit == found
            return

    def _committed(self, branch: str, after: State, commit: tidelock.Commit | None) -> None:
        if commit is None:
            assert after == self.model[branch]
            return
        self.model[branch] = after
        self.history[branch][commit.version] = after

    def reopen(self) -> None:
        self.lake.close()
        age(self.uri)
        self.lake = self.open()

    def tidy(self) -> None:
        branch = self.chance.choice(list(self.model))
        try:
            self.lake.optimize(branch=branch)
            if "keyed" in self.model[branch]:
                ref = self.lake._store.branches.head(branch).branch
                self.lake._store.maintainer.index(ref, "keyed", rows_min=1)
        except UNCERTAIN:
            self.reopen()

    def collect(self) -> None:
        try:
            assert not self.lake.collect_garbage(older_than=0, versions=1).errors
        except UNCERTAIN:
            self.reopen()

    def fork(self) -> None:
        if len(self.model) > 3:
            return
        origin = self.chance.choice(list(self.model))
        self.names += 1
        name = f"branch {self.names}"
        try:
            self.lake.create_branch(name, branch=origin)
        except UNCERTAIN:
            if name not in [ref.name for ref in self.clean.branches()]:
                return
        self.model[name] = dict(self.model[origin])
        (version,) = (ref.fork_version for ref in self.clean.branches() if ref.name == name)
        self.history[name] = {version: dict(self.model[origin])}

    def delete(self) -> None:
        name = self.chance.choice(list(self.model))
        if name == "main":
            return
        try:
            self.lake.delete_branch(name)
        except UNCERTAIN:
            if name in [ref.name for ref in self.clean.branches()]:
                return
        del self.model[name]
        del self.history[name]

    # The end

    def finish(self) -> None:
        self.rate = 0.0
        self.reopen()
        self.check()
        assert not self.lake.intents()
        rows = [row.operation_id for row in self.lake.recoveries()]
        assert len(rows) == len(set(rows))
        for branch in self.model:
            commits = check_log(self.lake, branch)
            data = [c.version for c in commits if c.kind != "maintenance"]
            known = [version for version in self.history[branch] if version]
            first = min(self.history[branch])
            assert [version for version in data if version > first] == [
                version for version in known if version > first
            ], "a commit that nobody was told of, or one that is gone"
            if not self.collecting:
                self._check_past(branch)
        assert not self.lake.collect_garbage(older_than=0).errors
        self.check()
        self.lake.close()
        self.clean.close()

    def _check_past(self, branch: str) -> None:
        past = self.history[branch]
        for version, state in past.items():
            assert contents(self.lake, branch=branch, version=version) == state
        for _ in range(5):
            since, until = sorted(self.chance.choices(list(past), k=2))
            states = [
                self.lake.snapshot(branch, version=version).states() for version in (since, until)
            ]
            for name, rows in past[until].items():
                one = states[0].find(name)
                if one is None or one.id != states[1][name].id:
                    continue
                self._check_changes(branch, name, since, until, past[since][name], rows)

    def _check_changes(
        self, branch: str, name: str, since: int, until: int, before: Rows, after: Rows
    ) -> None:
        changes = self.lake.changes(name, since, until, branch=branch).read_all()
        found = Counter(before)
        for one, value, weight in zip(
            *(changes[column].to_pylist() for column in ("id", "v", "_weight")), strict=True
        ):
            found[one, value] += weight
        assert {row: n for row, n in found.items() if n} == dict(after)
        versions = changes["_version"].to_pylist()
        assert versions == sorted(versions)
        assert all(since < version <= until for version in versions)


def run_machine(seed: int, steps: int, *, rate: float, collecting: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(str(Path(folder, "lake")), seed, rate=rate, collecting=collecting)
        try:
            for _ in range(steps):
                machine.step()
            machine.finish()
        except BaseException:
            sys.stderr.write(f"\nseed {seed}: run it again with TIDELOCK_SEED={seed}\n")
            raise


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("rate", "collecting"),
    [(0.0, False), (0.0, True), (0.05, False), (0.05, True), (0.25, False)],
    ids=["calm", "collecting", "faults", "faults and collecting", "many faults"],
)
def test_a_lake_is_what_its_model_says(rate: float, collecting: bool) -> None:
    seed = fresh_seed()
    deadline = time.monotonic() + fault_seconds(5) / 5 * 2
    while True:
        run_machine(seed, 40, rate=rate, collecting=collecting)
        seed += 1
        if time.monotonic() > deadline or "TIDELOCK_SEED" in SETTINGS:
            return


def test_a_model_run_is_not_vacuous() -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(str(Path(folder, "lake")), 7, rate=0.15, collecting=False)
        for _ in range(60):
            machine.step()
        assert len(machine.stores) > 10, "there were few errors"
        assert machine.unknown > 0
        assert sum(map(len, machine.history.values())) > 10
        machine.finish()
