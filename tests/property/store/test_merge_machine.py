"""Branches against a model: random writes, schema changes, rules that come and go, branches,
merges, compactions, crashes and garbage collections, over tables with and without a key.

After every step the branch that was touched shows what the model says; what breaks a rule is
refused, and a merge gives the model's rows, or exactly the model's conflicts. At the end all
branches are merged into main.

The seed is printed when a run fails; `TIDELOCK_SEED` replays it, `TIDELOCK_FAULT_SECONDS` goes on
for longer.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.property.models.merge_model import (
    CHECKED,
    OF_RULES,
    PARENT,
    Conflicting,
    Found,
    Graph,
    Node,
    Rule,
    State,
    Table,
    broken,
)
from tests.support.lakes import SETTINGS, age, fault_seconds, seed_of

import tidelock
from tidelock import Transaction, errors
from tidelock.model.schema.alterations import AddColumn, DropColumn, DropRule, RenameColumn
from tidelock.model.schema.schema import Column
from tidelock.store.objects.failpoints import armed

KEYED, PLAIN = PARENT, "plain"
KEYS = {KEYED: "id", PLAIN: "u"}
"""The column by which the model knows rows; only in one table is it the key."""
CRASHES = ("table.before_commit", "table.after_write", "stage.after_operation", "publish.after_put")


class Machine:
    """One lake, one model of it, and the chance that drives both."""

    def __init__(self, uri: str, seed: int, *, altering: bool, ruled: bool = False) -> None:
        self.uri = uri
        self.chance = random.Random(seed)
        self.altering, self.ruled = altering, ruled
        self.graph = Graph()
        self.numbers = count(1)
        self.columns = count(1)
        self.merges = self.conflicts = self.crossed = self.refusals = 0
        self.kinds: set[str] = set()
        self.lake = tidelock.open(uri, create=True, actor="machine")
        first, second = next(self.columns), next(self.columns)
        self.lake.create_table(KEYED, "id BIGINT NOT NULL, a BIGINT, b BIGINT", key="id")
        self.lake.create_table(PLAIN, "u BIGINT NOT NULL, a BIGINT, b BIGINT")
        labels = {first: "a", second: "b"}
        empty = {KEYED: Table(dict(labels), {}), PLAIN: Table(dict(labels), {})}
        self.heads: dict[str, Node] = {"main": self.graph.add(empty)}
        for _ in range(3):
            self.write()

    def step(self) -> None:
        steps: dict[Callable[[], None], float] = {
            self.write: 12,
            self.alter: 3 if self.altering else 0,
            self.turn_rule: 4 if self.ruled else 0,
            self.merge: 7,
            self.fork: 3,
            self.compact: 2,
            self.delete: 1,
            self.collect: 1,
            self.crash: 1,
            self.reopen: 0.5,
        }
        self.chance.choices(list(steps), list(steps.values()))[0]()

    def check(self, branch: str) -> None:
        for name, table in self.heads[branch].state.items():
            found = self.lake.table(name, branch=branch).to_arrow()
            labels = [one for one in found.column_names if one != KEYS[name]]
            assert sorted(labels) == table.labels(), (branch, name)
            shown = found.select([KEYS[name], *sorted(labels)]).to_pylist()
            rows = sorted((tuple(row.values()) for row in shown), key=lambda row: row[0])
            assert rows == table.shown(), (branch, name)
            rules = {one.name for one in self.lake.rules(name, branch=branch) if one.name}
            assert rules == {_name(rule) for rule in table.rules}, (branch, name)

    def some_branch(self) -> str:
        return self.chance.choice(list(self.heads))

    # Writing

    def write(self) -> None:
        branch = self.some_branch()
        state = dict(self.heads[branch].state)
        tx = self.lake.transaction(branch=branch)
        for _ in range(self.chance.randint(1, 3)):
            name = self.chance.choice([KEYED, PLAIN])
            state[name] = self._write(tx, name, state[name])
        self._publish(tx, branch, state)

    def _publish(self, tx: Transaction, branch: str, state: State) -> None:
        """Commit, unless a rule would not hold then."""
        if any(broken(state)):
            self.refusals += 1
            with pytest.raises(errors.RuleBroken):
                tx.publish()
            self.check(branch)
            return
        tx.publish()
        self._commit(branch, state)

    def _write(self, tx: Transaction, name: str, table: Table) -> Table:
        rows = {key: dict(row) for key, row in table.rows.items()}
        key, chance = KEYS[name], self.chance
        action = chance.choice(["insert", "insert", "update", "update", "delete", "again"])
        if action == "insert" or not rows:
            new = {}
            for _ in range(chance.randint(1, 3)):
                number = chance.randrange(12) if name == KEYED else 100 + next(self.numbers)
                if number not in rows:
                    new[number] = {one: chance.choice([None, 0, 1, 2]) for one in table.columns}
            self._append(tx, name, table, new)
            rows.update(new)
        elif action == "update":
            chosen = chance.choice(list(rows))
            column = chance.choice(list(table.columns))
            value = chance.randrange(4)
            tx.update(name, {table.columns[column]: str(value)}, where=f"{key} = {chosen}")
            rows[chosen][column] = value
        elif action == "delete":
            chosen = chance.choice(list(rows))
            tx.delete(name, where=f"{key} = {chosen}")
            del rows[chosen]
        elif name == KEYED:
            chosen = chance.choice(list(rows))
            tx.delete(name, where=f"{key} = {chosen}")
            rows[chosen] = {one: chance.randrange(4) for one in table.columns}
            self._append(tx, name, table, {chosen: rows[chosen]})
        return replace(table, rows=rows)

    def _append(self, tx: Transaction, name: str, table: Table, rows: dict[int, Any]) -> None:
        if rows:
            given = [
                {KEYS[name]: key, **{table.columns[one]: row[one] for one in table.columns}}
                for key, row in rows.items()
            ]
            tx.append(name, given)

    def alter(self) -> None:
        branch = self.some_branch()
        name = self.chance.choice([KEYED, PLAIN])
        state = dict(self.heads[branch].state)
        table = state[name]
        columns = dict(table.columns)
        rows = {key: dict(row) for key, row in table.rows.items()}
        action = self.chance.choice(["add", "rename", "rename", "drop"])
        with self.lake.transaction(branch=branch) as tx:
            if action == "add":
                one = next(self.columns)
                columns[one] = f"c{one}"
                tx.alter_table(name, AddColumn(Column(columns[one], pa.int64())))
            elif action == "rename":
                one = self.chance.choice(list(columns))
                label = f"r{next(self.columns)}"
                tx.alter_table(name, RenameColumn(columns[one], label))
                columns[one] = label
            elif len(columns) > 1 and (free := set(columns) - {one for _, one in table.rules}):
                one = self.chance.choice(sorted(free))
                tx.alter_table(name, DropColumn(columns.pop(one)))
                for row in rows.values():
                    row.pop(one, None)
            else:
                tx.rollback()
                return
        state[name] = Table(columns, rows, table.rules)
        self._commit(branch, state)

    def turn_rule(self) -> None:
        """A rule comes, or goes."""
        branch = self.some_branch()
        name = self.chance.choice([KEYED, PLAIN])
        state = dict(self.heads[branch].state)
        table = state[name]
        kind = self.chance.choice(["unique", "check", *(["reference"] if name == PLAIN else [])])
        rule = (kind, self.chance.choice(list(table.columns)))
        label = table.columns[rule[1]]
        tx = self.lake.transaction(branch=branch)
        if rule in table.rules:
            tx.alter_table(name, DropRule(_name(rule)))
        else:
            says = {
                "unique": f"UNIQUE ({label})",
                "check": f"CHECK ({label} < {CHECKED})",
                "reference": f"FOREIGN KEY ({label}) REFERENCES {KEYED}",
            }
            tx.alter_table(name, f"ADD CONSTRAINT {_name(rule)} {says[kind]}")
        state[name] = replace(table, rules=table.rules ^ {rule})
        self._publish(tx, branch, state)

    def _commit(self, branch: str, state: State) -> None:
        self.heads[branch] = self.graph.add(state, self.heads[branch])
        self.check(branch)

    # Branches

    def fork(self) -> None:
        if len(self.heads) < 4:
            origin = self.some_branch()
            name = f"b{next(self.numbers)}"
            self.lake.create_branch(name, branch=origin)
            self.heads[name] = self.heads[origin]

    def delete(self) -> None:
        if len(self.heads) > 2:
            name = self.chance.choice([one for one in self.heads if one != "main"])
            self.lake.delete_branch(name)
            del self.heads[name]

    def merge(self) -> None:
        if len(self.heads) > 1:
            source, target = self.chance.sample(list(self.heads), 2)
            self._merge(source, target, by_row=self.chance.random() < 0.2)

    def _merge(self, source: str, target: str, by_row: bool = False, choice: str = "fail") -> None:
        here, there = self.heads[source], self.heads[target]
        bases = self.graph.bases(here, there)
        if len(bases) > 1 and _have_other_columns([here, there, *bases]):
            # Whether a dropped column was changed is told by one base alone.
            return
        self.crossed += len(bases) > 1
        options: Any = {"granularity": "row" if by_row else "column"}
        if choice != "fail":
            options["on_conflict"] = choice
        try:
            expected = self.graph.merged(here, there, choice, by_row)
        except Conflicting as conflicting:
            self._refused(source, target, conflicting.found, options)
            if choice == "target":
                return  # What a rule forbids, or what was dropped, no side can settle.
            following = self.chance.choice(["source", "target"]) if choice == "fail" else "target"
            self._merge(source, target, by_row, following)
            return
        self.merges += 1
        dry = self.lake.merge(source, into=target, dry_run=True, **options)
        assert not dry.conflicts
        done = self.lake.merge(source, into=target, **options)
        assert (done.outcome, done.tables) == (dry.outcome, dry.tables)
        up_to_date = here.number in there.ancestors
        assert done.outcome == "up to date" or not up_to_date
        if done.commit is None:
            assert _shown(expected) == _shown(there.state)
            return
        assert len(done.commit.parents) == 2
        self.heads[target] = self.graph.add(expected, there, here)
        self.check(target)
        assert self.lake.merge(source, into=target).outcome == "up to date"

    def _refused(self, source: str, target: str, expected: Found, options: Any) -> None:
        self.conflicts += 1
        self.kinds |= {kind for _, kind, _ in expected}
        with pytest.raises(errors.MergeConflict) as refused:
            self.lake.merge(source, into=target, **options)
        found = {(one.table, one.kind, _key(one)) for one in refused.value.conflicts}
        # Of a table whose columns are in conflict, rows are compared as far as that goes.
        altered = {table for table, kind, _ in expected if kind == "schema"}
        assert {one for one in found if one[0] not in altered and one[1] not in OF_RULES} == {
            one for one in expected if one[0] not in altered and one[1] not in OF_RULES
        }
        assert altered == {table for table, kind, _ in found if kind == "schema"}
        if {kind for _, kind, _ in expected} <= OF_RULES:
            # Of many rows that break a rule, the first are told.
            assert found <= expected
            assert {one[:2] for one in found} == {one[:2] for one in expected}
        self.check(target)

    # Upkeep

    def compact(self) -> None:
        branch = self.some_branch()
        self.lake.optimize(branch=branch)
        self.check(branch)

    def collect(self) -> None:
        time.sleep(0.03)
        assert not self.lake.collect_garbage(older_than=0).errors

    def crash(self) -> None:
        """A merge that fails half-way leaves nothing, or all of it."""
        if len(self.heads) < 2:
            return
        source, target = self.chance.sample(list(self.heads), 2)
        try:
            self.graph.merged(self.heads[source], self.heads[target])
        except Conflicting:
            return
        point = self.chance.choice(CRASHES)
        try:
            with armed(point, f"error@{self.chance.randint(1, 2)}"):
                self._merge(source, target)
        except (errors.StoreUnavailable, errors.OutcomeUnknown):
            self.reopen()
            self.check(target)
            self._merge(source, target)

    def reopen(self) -> None:
        self.lake.close()
        age(self.uri)
        self.lake = tidelock.open(self.uri, actor="machine")

    def finish(self) -> None:
        for name in self.heads:
            if name != "main":
                self._merge(name, "main")
        for name in self.heads:
            self.check(name)
        self.lake.close()


def _name(rule: Rule) -> str:
    return f"{rule[0]}_{rule[1]}"


def _have_other_columns(nodes: list[Node]) -> bool:
    return any(
        node.state[name].columns != nodes[0].state[name].columns for node in nodes for name in KEYS
    )


def _shown(state: State) -> dict[str, Any]:
    return {
        name: (table.labels(), table.shown(), sorted(table.rules)) for name, table in state.items()
    }


def _key(conflict: Any) -> Any:
    if conflict.kind == "schema":
        return None
    row = conflict.source or conflict.target or conflict.base
    return row[KEYS[conflict.table]]


def run_machine(seed: int, steps: int, *, altering: bool, ruled: bool = False) -> Machine:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(str(Path(folder, "lake")), seed, altering=altering, ruled=ruled)
        for _ in range(steps):
            machine.step()
        machine.finish()
        return machine


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("altering", "ruled"),
    [(False, False), (True, False), (False, True), (True, True)],
    ids=["rows", "rows and columns", "rows and rules", "rows, columns and rules"],
)
def test_merged_branches_are_what_the_model_says(altering: bool, ruled: bool) -> None:
    deadline = time.monotonic() + fault_seconds(10) / 4
    with seed_of() as seed:
        while True:
            run_machine(seed, 40, altering=altering, ruled=ruled)
            if time.monotonic() > deadline or "TIDELOCK_SEED" in SETTINGS:
                return
            seed += 1


def test_a_run_of_the_model_is_not_vacuous() -> None:
    machine = run_machine(17, 80, altering=False)
    assert machine.merges > 10
    assert machine.conflicts > 3
    assert machine.crossed > 0


def test_a_run_of_the_model_with_rules_is_not_vacuous() -> None:
    machines = [run_machine(seed, 80, altering=True, ruled=True) for seed in (3, 4)]
    assert sum(machine.refusals for machine in machines) > 3
    assert {kind for machine in machines for kind in machine.kinds} & OF_RULES
