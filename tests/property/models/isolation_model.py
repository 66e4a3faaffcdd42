"""Transactions as programs, and a plain model of what each level of isolation lets happen.

A row of the model has a number of its own, as a row of a lake has a sequence. A transaction of the
model works on a copy of what it began with, and notes what it did, row by row (its effects). When
it commits, the law of its level is applied to those, and to what others committed since:

    a row that it updated or deleted was touched since          conflict
    it overwrites a table that changed since                    conflict
    serializable, and a row that changed meets a condition      conflict
    a key would be there twice                                  duplicate
    otherwise                                                   its effects, on top of the newest
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
from tests.support.lakes import numbers

from tidelock import Transaction

Values = tuple[int, int]
State = dict[Any, Values]
"""The rows of a table by their numbers; a row of an open transaction by (operation, position)."""
TABLES = ("keyed", "plain")
Outcome = Literal["committed", "conflict", "duplicate"]


@dataclass(frozen=True)
class Condition:
    low: int
    high: int
    below: int | None = None

    @property
    def sql(self) -> str:
        text = f"id >= {self.low} AND id < {self.high}"
        return text if self.below is None else f"({text}) AND v < {self.below}"

    def holds(self, row: Values) -> bool:
        return self.low <= row[0] < self.high and (self.below is None or row[1] < self.below)


@dataclass(frozen=True)
class Step:
    """One operation of a program."""

    kind: Literal["append", "upsert", "update", "rekey", "delete", "overwrite", "count", "rows"]
    table: str
    rows: tuple[Values, ...] = ()
    where: Condition | None = None


@dataclass
class Effect:
    """What a step did to rows: new values by number, None where a row was deleted."""

    step: Step
    written: dict[Any, Values | None] = field(default_factory=dict)
    replaced: frozenset[int] = frozenset()
    """Of an upsert: the positions of rows that replaced others."""

    @property
    def found(self) -> bool:
        """Whether it changed rows that it found by a condition."""
        return self.step.kind in ("update", "rekey", "delete")


class Duplicate(Exception):
    """A key would be there twice."""


class View:
    """What one transaction of the model sees, and what it has done."""

    def __init__(self, tables: dict[str, State]) -> None:
        self.tables = {name: dict(rows) for name, rows in tables.items()}
        self.effects: list[Effect] = []
        self.reads: list[tuple[str, Condition | None]] = []

    def run(self, step: Step) -> object:
        """Do a step; what it gives to whoever asked."""
        rows = self.tables[step.table]
        number = len(self.effects)
        effect = Effect(step)
        if step.kind in ("count", "rows", "update", "rekey", "delete"):
            self.reads.append((step.table, step.where))
        chosen = {
            one: row for one, row in rows.items() if step.where is None or step.where.holds(row)
        }
        if step.kind == "count":
            return len(chosen)
        if step.kind == "rows":
            return sorted(chosen.values())
        if step.kind == "append":
            refuse_duplicates(step, rows, [row[0] for row in step.rows])
            effect.written = {(number, place): row for place, row in enumerate(step.rows)}
        elif step.kind == "upsert":
            effect = upserted(step, rows, number)
        elif step.kind == "overwrite":
            effect.written = dict.fromkeys(rows)
            effect.written |= {(number, place): row for place, row in enumerate(step.rows)}
        elif step.kind == "delete":
            effect.written = dict.fromkeys(chosen)
        else:
            by = (0, 1) if step.kind == "update" else (1, 0)
            effect.written = {one: (r[0] + by[0], r[1] + by[1]) for one, r in chosen.items()}
        put(rows, effect)
        if step.kind == "rekey":
            refuse_duplicates(step, rows, [])
        self.effects.append(effect)
        return len(chosen) if effect.found else None


def refuse_duplicates(step: Step, rows: State, more: list[int]) -> None:
    keys = [row[0] for row in rows.values()] + more
    if step.table == "keyed" and len(set(keys)) < len(keys):
        raise Duplicate


def upserted(step: Step, rows: State, number: int) -> Effect:
    by_key = {row[0]: one for one, row in rows.items()}
    effect = Effect(step)
    replaced = set()
    for place, row in enumerate(step.rows):
        if row[0] in by_key:
            replaced.add(place)
        effect.written[by_key.get(row[0], (number, place))] = row
    effect.replaced = frozenset(replaced)
    return effect


def put(rows: State, effect: Effect) -> None:
    for one, row in effect.written.items():
        if row is None:
            del rows[one]
        else:
            rows[one] = row


@dataclass(frozen=True)
class Committed:
    """What one commit did to one table."""

    before: State
    after: State
    touched: frozenset[Any]
    changed: bool

    def meets(self, where: Condition | None) -> bool:
        """Whether it removed or added a row for which a condition is true."""
        if where is None:
            return self.changed
        new = {one for one in self.after if one not in self.before}
        rows = [self.before[one] for one in self.touched]
        rows += [self.after[one] for one in self.touched | new if one in self.after]
        return any(where.holds(row) for row in rows)


class Model:
    """All tables, and what every commit did to them."""

    def __init__(self) -> None:
        self.tables: dict[str, State] = {name: {} for name in TABLES}
        self.commits: list[dict[str, Committed]] = []
        self._numbers = 0

    def begin(self) -> View:
        return View(self.tables)

    def judge(self, view: View, since: int, *, serializable: bool) -> Outcome:
        """What is to become of a transaction that began after so many commits."""
        others = self.commits[since:]
        for effect in view.effects:
            later = [commit[effect.step.table] for commit in others]
            touched = {one for commit in later for one in commit.touched}
            if effect.found and not touched.isdisjoint(effect.written):
                return "conflict"
            if effect.step.kind == "overwrite" and any(commit.changed for commit in later):
                return "conflict"
        reads = view.reads if serializable else []
        if any(commit[table].meets(where) for commit in others for table, where in reads):
            return "conflict"
        return self._commit(view)

    def _commit(self, view: View) -> Outcome:
        """Put what was done on top of the newest tables, if that is possible."""
        after = {name: dict(rows) for name, rows in self.tables.items()}
        touched: dict[str, set[Any]] = {name: set() for name in TABLES}
        named: dict[Any, Any] = {}
        split: set[str] = set()
        for number, effect in enumerate(view.effects):
            step, rows = effect.step, after[effect.step.table]
            own = any(isinstance(one, tuple) for one in effect.written)
            if effect.found and own and step.table in split:
                return "conflict"
            try:
                done = self._again(effect, number, rows, named)
            except Duplicate:
                return "duplicate"
            if done.replaced != effect.replaced:
                split.add(step.table)
            touched[step.table] |= {one for one in done.written if one in self.tables[step.table]}
            put(rows, done)
            try:
                refuse_duplicates(step, rows, [])
            except Duplicate:
                return "duplicate"
        self.commits.append(
            {
                name: Committed(
                    self.tables[name],
                    after[name],
                    frozenset(touched[name]),
                    any(e.step.table == name and e.written for e in view.effects),
                )
                for name in TABLES
            }
        )
        self.tables = after
        return "committed"

    def _again(self, effect: Effect, number: int, rows: State, named: dict[Any, Any]) -> Effect:
        """An effect with the numbers that its rows have now."""
        step = effect.step
        done = Effect(step)
        if step.kind == "upsert":
            done = upserted(step, rows, number)
        elif step.kind == "overwrite":
            done.written = dict.fromkeys(rows)
            done.written |= {(number, place): row for place, row in enumerate(step.rows)}
        else:
            done.written = {named.get(one, one): row for one, row in effect.written.items()}
        if step.kind in ("append", "upsert", "overwrite"):
            for one in [one for one in done.written if isinstance(one, tuple)]:
                self._numbers += 1
                named[one] = self._numbers
                done.written[self._numbers] = done.written.pop(one)
        return done


def run_on_lake(tx: Transaction, step: Step) -> object:
    """The same step in a transaction of a lake."""
    where = "true" if step.where is None else step.where.sql
    table = step.table
    acts: dict[str, Callable[[], object]] = {
        "append": lambda: tx.append(table, numbers(*step.rows)),
        "upsert": lambda: tx.upsert(table, numbers(*step.rows)),
        "overwrite": lambda: tx.overwrite(table, numbers(*step.rows)),
        "update": lambda: tx.update(table, {"v": "v + 1"}, where=step.where and where),
        "rekey": lambda: tx.update(table, {"id": "id + 1"}, where=step.where and where),
        "delete": lambda: tx.delete(table, where=where),
        "count": lambda: tx.table(table).count(step.where and where),
        "rows": lambda: sorted(pairs(tx.table(table).to_arrow(filter=step.where and where))),
    }
    return acts[step.kind]()


def pairs(rows: pa.Table) -> list[Values]:
    return list(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
