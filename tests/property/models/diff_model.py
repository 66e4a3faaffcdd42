"""A plain model of branches: every state of every branch as dictionaries, and what tells two apart.

Each row has a tag that nobody changes, by which it is known where its table has no key, and each
column a number that it keeps, whatever it is called. So nothing here knows of pins, fragments or
ids, and what differs is found by looking at everything.
"""

from __future__ import annotations

import itertools
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Row = dict[int, Any]
"""Values by the numbers of columns."""
_numbers = itertools.count(1)


def fresh() -> int:
    return next(_numbers)


@dataclass
class ModelTable:
    number: int
    keyed: bool
    columns: dict[int, str]
    """What each column is called, by its number, in their order."""
    rows: dict[int, Row] = field(default_factory=dict)
    """By their tags."""

    def number_of(self, name: str) -> int:
        return next(number for number, one in self.columns.items() if one == name)

    def named(self, row: Row) -> dict[str, Any]:
        return {name: row.get(number) for number, name in self.columns.items()}


State = dict[str, ModelTable]


@dataclass
class Told:
    """What tells two tables apart; rows as text, so that NaN is itself."""

    inserted: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    updated: Counter[tuple[str, str, tuple[str, ...]]] = field(default_factory=Counter)
    columns: set[tuple[str, str]] = field(default_factory=set)

    @property
    def by_column(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (_, _, columns), count in self.updated.items():
            for name in columns:
                found[name] += count
        return found


def copied(state: State) -> State:
    return deepcopy(state)


def pairs(before: State, after: State) -> list[tuple[str | None, str | None]]:
    """The tables that belong together, by what they are called before and after."""
    names = {one.number: name for name, one in before.items()}
    found: list[tuple[str | None, str | None]] = []
    kept = {one.number for one in after.values()}
    left = {name for name, one in before.items() if one.number not in kept}
    for name, table in after.items():
        known = names.get(table.number)
        if known is None and name in left:
            left.discard(name)
            known = name
        found.append((known, name))
    return [*found, *((name, None) for name in left)]


def tell_apart(before: ModelTable | None, after: ModelTable | None, base: frozenset[int]) -> Told:
    """`base` are the columns that the table had where both states parted."""
    told = Told()
    if before is None or after is None:
        table = after or before
        assert table is not None
        rows = Counter(str(table.named(row)) for row in table.rows.values())
        (told.inserted if before is None else told.deleted).update(rows)
        return told
    twin = _columns(before, after, base if before.number == after.number else frozenset())
    for number, name in after.columns.items():
        if number not in twin:
            told.columns.add(("added", name))
        elif before.columns[twin[number]] != name:
            told.columns.add(("renamed", name))
    kept = set(twin.values())
    told.columns |= {("dropped", n) for number, n in before.columns.items() if number not in kept}
    old, new = _known(before, after, twin)
    for known, row in new.items():
        was = old.pop(known, None)
        if was is None:
            told.inserted[str(after.named(row))] += 1
            continue
        differ = tuple(
            name
            for number, name in after.columns.items()
            if repr(was.get(twin.get(number, 0))) != repr(row.get(number))
        )
        if differ:
            told.updated[str(before.named(was)), str(after.named(row)), differ] += 1
    told.deleted.update(str(before.named(row)) for row in old.values())
    return told


def _columns(before: ModelTable, after: ModelTable, base: frozenset[int]) -> dict[int, int]:
    """For the columns after, which they are before: by number, or, if both came after the states
    parted, by name."""
    twin = {number: number for number in after.columns if number in before.columns}
    for number, name in after.columns.items():
        if number not in twin and number not in base:
            for other, called in before.columns.items():
                if other not in after.columns and other not in base and called == name:
                    twin[number] = other
    return twin


def _known(
    before: ModelTable, after: ModelTable, twin: dict[int, int]
) -> tuple[dict[Any, Row], dict[Any, Row]]:
    """The rows of both, by what they are known by."""
    if before.keyed and after.keyed:
        key = after.number_of("id")
        return (
            {row[twin[key]]: row for row in before.rows.values()},
            {row[key]: row for row in after.rows.values()},
        )
    if before.number == after.number:
        return dict(before.rows), dict(after.rows)
    found: list[dict[Any, Row]] = []
    for table, numbers in ((before, twin), (after, {one: one for one in after.columns})):
        seen: Counter[str] = Counter()
        rows: dict[Any, Row] = {}
        for row in table.rows.values():
            text = repr([row.get(numbers.get(number, 0)) for number in after.columns])
            rows[text, seen[text]] = row
            seen[text] += 1
        found.append(rows)
    return found[0], found[1]
