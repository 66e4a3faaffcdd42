"""`lake.diff` against a comparison of everything: random histories of branches, any two points.

Tables with a key and without are written, altered, renamed, dropped and compacted on branches of
branches; then any two states are compared, and the diff tells exactly what a look at all rows of
both tells. The seed is printed when a run fails; `TIDELOCK_SEED` replays it.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.property.models.diff_model import (
    ModelTable,
    State,
    Told,
    copied,
    fresh,
    pairs,
    tell_apart,
)
from tests.support.lakes import fault_seconds, seed_of

import tidelock
from tidelock import Lake, Transaction
from tidelock.model.history.diffs import Diff, TableDiff

COLUMNS = {"id": "BIGINT NOT NULL", "n": "INT", "f": "DOUBLE", "s": "STRING"}
NAMES = ("a", "b", "c")
SPARE = ("n", "f", "s", "x", "y")
KEYS = 12
STEPS = 16
COMPARED = 12
RUNS_MIN = 6
VALUES: dict[str, list[Any]] = {
    "n": [None, 0, 1, 2],
    "f": [None, 0.0, -0.0, float("nan"), 1.5],
    "s": [None, "", "é", "NULL"],
}


class Histories:
    """A lake, and what each state of it is."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.chance = random.Random(seed)
        self.now: dict[str, State] = {"main": {}}
        self.then: dict[tuple[str, int], State] = {("main", 0): {}}
        self.kinds: dict[int, str] = {}
        """The type of each column by its number."""
        self.rows_told: Counter[str] = Counter()

    def step(self) -> None:
        steps: dict[Callable[[str, State], None], int] = {
            self.write: 8,
            self.create: 2,
            self.alter: 3,
            self.rename: 1,
            self.drop: 1,
            self.compact: 2,
            self.fork: 2,
        }
        branch = self.chance.choice(list(self.now))
        step = self.chance.choices(list(steps), list(steps.values()))[0]
        step(branch, self.now[branch])
        for one, state in self.now.items():
            version = self.lake.snapshot(one).version
            while (one, version) not in self.then:
                # Commits that came along are maintenance.
                self.then[one, version] = copied(state)
                version -= 1

    def create(self, branch: str, state: State) -> None:
        name = next((name for name in NAMES if name not in state), None)
        if name is None:
            return
        keyed = self.chance.random() < 0.5
        columns = {fresh(): column for column in COLUMNS}
        self.kinds.update(columns)
        ddl = ", ".join(f"{column} {kind}" for column, kind in COLUMNS.items())
        self.lake.create_table(name, ddl, "id" if keyed else None, branch=branch)
        state[name] = ModelTable(fresh(), keyed, columns)

    def write(self, branch: str, state: State) -> None:
        if not state:
            return self.create(branch, state)
        with self.lake.transaction(branch=branch) as tx:
            for name in self.chance.sample(list(state), self.chance.randint(1, len(state))):
                self._write(tx, name, state[name])
        return None

    def _write(self, tx: Transaction, name: str, table: ModelTable) -> None:
        kinds = ["append", "update", "update", "delete", "overwrite"]
        kind = self.chance.choices(kinds + ["upsert"] * table.keyed)[0]
        key = table.number_of("id")
        if kind in ("append", "upsert", "overwrite"):
            taken = {row[key] for row in table.rows.values()}
            keys = range(KEYS) if kind != "append" or not table.keyed else set(range(KEYS)) - taken
            chosen = self.chance.sample(sorted(keys), min(len(keys), self.chance.randint(1, 6)))
            rows = [self._row(table, one) for one in chosen]
            if kind == "overwrite":
                table.rows.clear()
            getattr(tx, kind)(name, [table.named(row) for row in rows])
            for row in rows:
                known = [tag for tag, one in table.rows.items() if one[key] == row[key]]
                replaced = kind == "upsert" and known
                table.rows[known[0] if replaced else fresh()] = row
            return
        some = self.chance.sample(range(KEYS), 4)
        where = f"id IN ({', '.join(map(str, some))})"
        tags = [tag for tag, row in table.rows.items() if row[key] in some]
        if kind == "delete":
            tx.delete(name, where)
            for tag in tags:
                del table.rows[tag]
            return
        numbers = [number for number in table.columns if self.kinds[number] == "n"]
        if not numbers:
            return
        number = self.chance.choice(numbers)
        # Some of them have that value already.
        tx.update(name, {table.columns[number]: "1"}, where)
        for tag in tags:
            table.rows[tag][number] = 1

    def _row(self, table: ModelTable, key: int) -> dict[int, Any]:
        row = {}
        for number in table.columns:
            kind = self.kinds[number]
            row[number] = key if kind == "id" else self.chance.choice(VALUES[kind])
        return row

    def alter(self, branch: str, state: State) -> None:
        if not state:
            return
        name = self.chance.choice(list(state))
        table = state[name]
        others = [number for number, column in table.columns.items() if column != "id"]
        free = [one for one in SPARE if one not in table.columns.values()]
        kind = self.chance.choice(["add", "fill", "rename", "drop", "widen", "comment"])
        if kind in ("add", "fill") and free:
            number, column = fresh(), self.chance.choice(free)
            default = " DEFAULT 2" if kind == "fill" else ""
            self.lake.alter_table(name, f"ADD COLUMN {column} INT{default}", branch=branch)
            table.columns[number] = column
            self.kinds[number] = "n"
            for row in table.rows.values():
                row[number] = 2 if default else None
        elif kind == "rename" and free and others:
            number, column = self.chance.choice(others), self.chance.choice(free)
            old = table.columns[number]
            self.lake.alter_table(name, f"RENAME COLUMN {old} TO {column}", branch=branch)
            table.columns[number] = column
        elif kind == "drop" and len(others) > 1:
            number = self.chance.choice(others)
            self.lake.alter_table(name, f"DROP COLUMN {table.columns[number]}", branch=branch)
            del table.columns[number]
        elif kind == "widen":
            narrow = [n for n in others if self._is_int(branch, name, table, n)]
            if narrow:
                column = table.columns[self.chance.choice(narrow)]
                self.lake.alter_table(name, f"ALTER COLUMN {column} TYPE BIGINT", branch=branch)
        elif kind == "comment":
            self.lake.alter_table(name, "ALTER COLUMN id COMMENT 'the id'", branch=branch)

    def _is_int(self, branch: str, name: str, table: ModelTable, number: int) -> bool:
        schema = self.lake.schema(name, branch=branch).schema
        return str(schema.column(table.columns[number]).type) == "int32"

    def rename(self, branch: str, state: State) -> None:
        free = [name for name in NAMES if name not in state]
        if state and free:
            old, new = self.chance.choice(list(state)), self.chance.choice(free)
            self.lake.alter_table(old, f"RENAME TO {new}", branch=branch)
            state[new] = state.pop(old)

    def drop(self, branch: str, state: State) -> None:
        if state:
            name = self.chance.choice(list(state))
            self.lake.drop_table(name, branch=branch)
            del state[name]

    def compact(self, branch: str, state: State) -> None:
        self.lake.optimize(branch=branch)

    def fork(self, branch: str, state: State) -> None:
        if len(self.now) < 4:
            version = self.chance.choice([v for one, v in self.then if one == branch])
            name = f"b{len(self.now)}"
            self.lake.create_branch(name, version, branch=branch)
            self.now[name] = copied(self.then[branch, version])
            for (one, known), then in list(self.then.items()):
                if one == branch and known <= version:
                    self.then[name, known] = then

    # Comparing

    def compare(self) -> None:
        one, other = (self.chance.choice(list(self.then)) for _ in range(2))
        before, after = (self.lake.snapshot(branch, version=v).commit for branch, v in (one, other))
        diff = self.lake.diff(before or 0, after or 0, examples=None)
        json.dumps(diff.to_dict())
        assert diff.to_text()
        old, new = self.then[one], self.then[other]
        names = set(pairs(old, new))
        base = self._base(one, other)
        for was, name in names:
            self._check(diff, old, new, was, name, base)
        assert {*(t.name for t in diff.tables), *diff.same} == {new or old for old, new in names}

    def _base(self, one: tuple[str, int], other: tuple[str, int]) -> dict[int, ModelTable]:
        """The tables where two states parted, by number: what both have of one history."""
        versions = range(min(one[1], other[1]) + 1)
        shared = [v for v in versions if self.then[one[0], v] is self.then[other[0], v]]
        return {table.number: table for table in self.then[one[0], max(shared)].values()}

    def _check(
        self,
        diff: Diff,
        old: State,
        new: State,
        was: str | None,
        name: str | None,
        base: dict[int, ModelTable],
    ) -> None:
        before, after = old.get(was or ""), new.get(name or "")
        number = (after or before or ModelTable(0, False, {})).number
        known = frozenset(base[number].columns) if number in base else frozenset()
        told = tell_apart(before, after, known)
        called = name or was
        what = _what(before, after)
        found = next((t for t in diff.tables if (t.name, t.what) == (called, what)), None)
        where = f"{called}: {diff.before} {diff.after}"
        if found is None:
            assert told == Told(), where
            assert (what, was) == ("changed", name), where
            return
        assert (found.inserted, found.updated, found.deleted) == (
            told.inserted.total(),
            told.updated.total(),
            told.deleted.total(),
        ), where
        assert Counter(dict(found.by_column)) == told.by_column, where
        expected = {
            *(("inserted", "None", row, ()) for row in told.inserted),
            *(("deleted", row, "None", ()) for row in told.deleted),
            *(("updated", *row) for row in told.updated),
        }
        rows = found.rows().read_all().to_pylist()
        assert {_text(row) for row in rows} == expected, where
        assert len(rows) == found.rows_differ, where
        assert Counter(map(_example, found.examples)) == Counter(map(_text, rows)), where
        altered = {
            (what, one.name)
            for one in found.columns
            for what in one.what
            if what in ("added", "dropped", "renamed")
        }
        assert altered == told.columns, where
        if found.what == "changed":
            assert found.was == (was if was != name else None)
        self.rows_told.update({"updated": found.updated, "inserted": found.inserted})
        self.rows_told[found.what] += 1


def _what(before: ModelTable | None, after: ModelTable | None) -> str:
    if before is None or after is None:
        return "created" if before is None else "dropped"
    return "changed" if before.number == after.number else "replaced"


def _text(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["what"], str(row["before"]), str(row["after"]), tuple(row["columns"])


def _example(row: Any) -> tuple[Any, ...]:
    return row.what, str(row.before), str(row.after), row.columns


def compare_histories(seed: int) -> Counter[str]:
    with tidelock.open(f"memory://diffs-{seed}", create=True) as lake:
        histories = Histories(lake, seed)
        for _ in range(STEPS):
            histories.step()
        for _ in range(COMPARED):
            histories.compare()
        return histories.rows_told


def test_a_diff_tells_what_a_look_at_everything_tells() -> None:
    deadline = time.monotonic() + fault_seconds(5)
    seen: Counter[str] = Counter()
    runs = 0
    while runs < RUNS_MIN or time.monotonic() < deadline:
        runs += 1
        with seed_of() as seed:
            seen += compare_histories(seed)
    assert all(seen[one] for one in ("updated", "inserted", "changed", "created", "replaced"))


def test_a_table_diff_is_a_value() -> None:
    one = TableDiff("t", "t-1", "changed", inserted=1)
    assert one == TableDiff("t", "t-1", "changed", inserted=1)
    assert repr(one) == "t  +1"
