"""Lakes whose tables have rules, and a judge of snapshots that shares no code with the store."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import tidelock
from tidelock import Lake, Snapshot, Transaction
from tidelock.errors import RuleBroken
from tidelock.model.schema.alterations import AddRule
from tidelock.model.schema.declared import DeclaredRule
from tidelock.store.rules.limits import Limits

_numbers = itertools.count()
Row = dict[str, Any]
Conditions = Mapping[str, Callable[[Row], bool | None]]
"""For the names of rules, what their conditions say of a row."""
ON_SPARK = Limits(again_rows=0, driver_rows=0, alone_rows=0)
"""Every change is a large one."""
FEW_AGAIN = Limits(again_rows=0)
"""After a lost race, what the winners changed is looked at."""


def new_lake(**options: Any) -> Lake:
    uri = f"memory://ruled-{next(_numbers)}"
    return tidelock.open(uri, create=True, actor="test", **options)


@contextlib.contextmanager
def refused(
    lake: Lake,
    error: type[Exception] | tuple[type[Exception], ...] = RuleBroken,
    match: str | None = None,
) -> Iterator[Transaction]:
    """A transaction that is refused when it is published."""
    transaction = lake.transaction()
    yield transaction
    with pytest.raises(error, match=match):
        transaction.publish()


def unique(*columns: str, where: str | None = None, name: str | None = None) -> AddRule:
    return AddRule(DeclaredRule("unique", name, columns, where))


def check(condition: str, name: str | None = None) -> AddRule:
    return AddRule(DeclaredRule("check", name, condition=condition))


def reference(
    columns: str | tuple[str, ...],
    table: str,
    *target: str,
    on_delete: Any = "restrict",
    name: str | None = None,
) -> AddRule:
    names = (columns,) if isinstance(columns, str) else columns
    return AddRule(DeclaredRule("reference", name, names, None, table, target, on_delete))


def cardinality(
    *columns: str, least: int = 0, most: int | None = None, name: str | None = None
) -> AddRule:
    return AddRule(DeclaredRule("cardinality", name, columns, least=least, most=most))


def rows_in(table: Any) -> list[Row]:
    found: list[Row] = table.to_arrow().to_pylist()
    return found


def violations(snapshot: Snapshot, conditions: Conditions | None = None) -> list[str]:
    """The rules that do not hold in a snapshot, by looking at every row."""
    found = []
    contents = {s.id: rows_in(snapshot.table(s.name)) for s in snapshot.tables()}
    schemas = {s.id: snapshot.table(s.name).schema for s in snapshot.tables()}
    for table_id, rows in contents.items():
        schema = schemas[table_id]
        if schema.key and max(Counter(values(rows, schema.key)).values(), default=1) > 1:
            found.append("key")
        for rule in schema.rules:
            columns = schema.labels(rule.columns)
            if rule.kind == "check":
                says = (conditions or {})[rule.name]
                bad = any(says(row) is False for row in rows)
            elif rule.kind == "unique":
                held = rows
                if rule.condition is not None:
                    held = [row for row in rows if (conditions or {})[rule.name](row)]
                bad = max(Counter(values(held, columns)).values(), default=1) > 1
            elif rule.kind == "reference":
                target = schemas[rule.table].labels(rule.target)
                there = set(values(contents[rule.table], target))
                bad = not set(values(rows, columns)) <= there
            else:
                counts = Counter(values(rows, columns))
                for other in schema.rules:
                    if other.kind == "reference" and other.columns == rule.columns:
                        target = schemas[other.table].labels(other.target)
                        for value in values(contents[other.table], target):
                            counts.setdefault(value, 0)
                most = rule.most if rule.most is not None else len(rows)
                bad = any(not rule.least <= count <= most for count in counts.values())
            if bad:
                found.append(rule.name)
    return found


def values(rows: list[Row], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    every = [tuple(row[name] for name in columns) for row in rows]
    return [value for value in every if None not in value]
