"""Random transactions on tables with rules, against a model: the same are refused, and the same
rows are there afterwards, whatever was compacted, and whichever rules come and go."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.property.models.rule_model import Model, ModelRule, Refused, Row
from tests.support.lakes import fault_seconds, seed_of
from tests.support.ruled import FEW_AGAIN, new_lake, rows_in

from tidelock import Lake, Transaction
from tidelock.errors import DuplicateKey, RuleBroken
from tidelock.model.schema.alterations import AddRule, DropRule
from tidelock.model.schema.declared import DeclaredRule
from tidelock.store.log.line import Line
from tidelock.store.rules.limits import Limits

VALUES = 5
TRANSACTIONS_MIN = 60
COLUMNS = {"p": ("id", "code", "v"), "c": ("id", "p", "q", "v"), "e": ("a", "b", "v")}
KEYS = {"p": "id", "c": "id", "e": None}
RULES = [
    ModelRule("codes", "p", "unique", ("code",)),
    ModelRule("pairs", "p", "unique", ("code", "v")),
    ModelRule("some", "c", "unique", ("v",), lambda r: _less(r["q"], 3), "q < 3"),
    ModelRule("low", "p", "check", says=lambda r: _less(r["v"], 4), condition="v < 4"),
    ModelRule("tree", "c", "reference", ("q",), parent="c", target=("id",), on_delete="cascade"),
    ModelRule("held", "c", "reference", ("p",), parent="p", target=("id",)),
    ModelRule("gone", "c", "reference", ("p",), None, None, "p", ("id",), "cascade"),
    ModelRule("left", "e", "reference", ("a",), None, None, "p", ("id",), "set null"),
    ModelRule("edge", "e", "reference", ("b",), None, None, "c", ("id",), "cascade"),
    ModelRule("twice", "e", "reference", ("a", "v"), None, None, "p", ("code", "v"), "set null"),
    ModelRule("few", "e", "cardinality", ("b",), most=2),
    ModelRule("many", "c", "cardinality", ("p",), least=1, most=3),
    ModelRule("none", "e", "cardinality", ("v",), least=2),
]


def _less(value: int | None, bound: int) -> bool | None:
    return None if value is None else value < bound


def made() -> Lake:
    lake = new_lake()
    with lake.transaction() as tx:
        for table, columns in COLUMNS.items():
            tx.create_table(table, ", ".join(f"{one} BIGINT" for one in columns), key=KEYS[table])
    return lake


def random_row(chance: random.Random, table: str) -> Row:
    row = {name: chance.choice([None, *range(VALUES)]) for name in COLUMNS[table]}
    if KEYS[table]:
        row["id"] = chance.randrange(3 * VALUES)
    return row


def some_rows(chance: random.Random, table: str) -> list[Row]:
    rows = [random_row(chance, table) for _ in range(chance.randrange(1, 4))]
    key = KEYS[table]
    return list({row[key]: row for row in rows}.values()) if key else rows


Step = Callable[[Model], None]


@dataclass
class Work:
    """A transaction and what it does, so that the model can do it again on another base."""

    tx: Transaction
    steps: list[Step] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    """Tables in which it did more than bring rows."""

    def on(self, base: Model) -> Model:
        """What the model makes of it, or Refused."""
        staged = base.begin()
        for step in self.steps:
            step(staged)
        staged.finish(base)
        return staged


def do_something(chance: random.Random, model: Model, work: Work) -> None:
    """One operation on both."""
    table = chance.choice(list(COLUMNS))
    column = chance.choice(COLUMNS[table])
    wanted = chance.randrange(VALUES)
    kind = chance.choice(
        ["append"] * 4 + ["upsert"] * 3 + ["delete"] * 2 + ["update"] * 3 + ["overwrite", "rule"]
    )
    if kind == "rule":
        turn_rule(chance, model, work)
        return
    tx, rows = work.tx, some_rows(chance, table)

    def where(row: Row) -> bool:
        return bool(row[column] == wanted)

    def both(here: Callable[[], Any], there: Step) -> None:
        work.steps.append(there)
        if kind not in ("append", "upsert"):
            work.touched.add(table)
        _both(here, lambda: there(model))

    if kind == "upsert" and KEYS[table]:
        both(lambda: tx.upsert(table, rows), lambda on: on.upsert(table, rows))
    elif kind in ("append", "upsert"):
        both(lambda: tx.append(table, rows), lambda on: on.append(table, rows))
    elif kind == "delete":
        both(lambda: tx.delete(table, f"{column} = {wanted}"), lambda on: on.delete(table, where))
    elif kind == "overwrite":
        both(lambda: tx.overwrite(table, rows), lambda on: on.overwrite(table, rows))
    else:
        changed = chance.choice(COLUMNS[table])
        value = chance.choice([None, *range(VALUES)])
        if changed == KEYS[table]:
            value = chance.randrange(2 * VALUES)
        text = "NULL" if value is None else str(value)
        both(
            lambda: tx.update(table, {changed: text}, f"{column} = {wanted}"),
            lambda on: on.update(table, changed, value, where),
        )


def _both(here: Any, there: Any) -> None:
    """What the model refuses at once is refused at once."""
    try:
        there()
    except Refused:
        with pytest.raises(DuplicateKey):
            here()
        raise
    here()


def turn_rule(chance: random.Random, model: Model, work: Work) -> None:
    rule = chance.choice(RULES)
    if rule.name in model.rules and chance.random() < 0.6:
        return
    work.touched.add(rule.table)
    if rule.name in model.rules:
        needed = rule.columns if rule.kind == "unique" else ()
        users = [r for r in model.rules.values() if r.parent == rule.table and r.target == needed]
        if not users:
            work.tx.alter_table(rule.table, DropRule(rule.name))
            _step(model, work, lambda on: on.rules.pop(rule.name))
        return
    if rule.target not in ((), ("id",)):
        unique = {r.columns for r in model.rules.values() if r.table == rule.parent}
        if rule.target not in unique:
            return
    declared = DeclaredRule(
        rule.kind,  # type: ignore[arg-type]
        rule.name,
        rule.columns,
        rule.condition,
        rule.parent or None,
        rule.target,
        rule.on_delete,  # type: ignore[arg-type]
        rule.least,
        rule.most,
    )
    work.tx.alter_table(rule.table, AddRule(declared))
    _step(model, work, lambda on: on.rules.update({rule.name: rule}))


def _step(model: Model, work: Work, step: Callable[[Model], Any]) -> None:
    work.steps.append(step)
    step(model)


def contents(lake: Lake) -> dict[str, Counter[tuple[Any, ...]]]:
    return {
        table: Counter(tuple(row.values()) for row in rows_in(lake.table(table)))
        for table in COLUMNS
    }


@pytest.mark.parametrize("limits", [Limits(), FEW_AGAIN], ids=["few", "many"])
def test_random_transactions_are_refused_exactly_when_they_break_a_rule(limits: Limits) -> None:
    with seed_of() as seed:
        chance = random.Random(seed)
        lake, model = made(), Model(dict(KEYS))
        outcomes: Counter[str] = Counter()
        until = time.monotonic() + fault_seconds(5)
        count = 0
        while count < TRANSACTIONS_MIN or time.monotonic() < until:
            count += 1
            model = attempt(chance, lake, model, limits, outcomes)
            if chance.random() < 0.05:
                lake.optimize()
            expected = {
                table: Counter(tuple(row.values()) for row in rows.values())
                for table, rows in model.tables.items()
            }
            assert contents(lake) == expected
        assert outcomes["published"] > 10
        assert len(outcomes) > 5, outcomes


def attempt(
    chance: random.Random, lake: Lake, model: Model, limits: Limits, outcomes: Counter[str]
) -> Model:
    """One transaction, before which another may be published that it does not know of."""
    tx = lake.transaction()
    tx._rules.limits = limits
    work, seen = Work(tx), model.begin()
    try:
        for _ in range(chance.randrange(1, 5)):
            do_something(chance, seen, work)
    except Refused:
        tx.rollback()
        outcomes["at once"] += 1
        return model
    if chance.random() < 0.5:
        # As a large one does before its turn. What it would be refused for may go away.
        with contextlib.suppress(RuleBroken):
            tx.rebase(Line.up_to(lake._store.log, tx._head))
        model = bring_rows(chance, lake, model, work, outcomes)
    try:
        after = work.on(model)
    except Refused as refusal:
        outcomes[str(refusal)] += 1
        with pytest.raises((RuleBroken, DuplicateKey)):
            tx.publish()
        return model
    tx.publish()
    outcomes["published"] += 1
    return after


def bring_rows(
    chance: random.Random, lake: Lake, model: Model, work: Work, outcomes: Counter[str]
) -> Model:
    """Rows that another transaction brings, to a table in which the first changes none. What
    follows from them is no conflict either."""
    free = [table for table in COLUMNS if table not in work.touched]
    if not free:
        return model
    table = chance.choice(free)
    rows = some_rows(chance, table)
    other = Work(lake.transaction(), [lambda on: on.append(table, rows)])
    try:
        after = other.on(model)
        other.tx.append(table, rows)
    except Refused:
        other.tx.rollback()
        return model
    other.tx.publish()
    outcomes["raced"] += 1
    return after
