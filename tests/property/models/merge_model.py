"""Branches and merges as plain dictionaries: what a merge is to give, computed without any of
Tidelock's code.

A commit knows all its ancestors, so that bases are found by sets. Rows are known by a key that
never changes, columns by a number that never changes; what they are called is a label. The base of
a row, if there are several bases, is what merging those gives. A rule is on one column, and is
there or not; what is to hold of all rows is looked up in all rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

UNKNOWN = "unknown"
Row = dict[int, Any]
Rule = tuple[str, int]
"""`unique`, `check` (below CHECKED) or `reference` (to the keys of PARENT), and a column."""
CHECKED = 3
PARENT = "keyed"
KINDS = {
    "unique": "uniqueness",
    "check": "value constraint",
    "reference": "orphaned reference",
}
OF_RULES = {*KINDS.values(), "rule against data"}
Found = set[tuple[str, str, Any]]
"""Conflicts: table, kind, and the key of the row; None for the schema."""


@dataclass(frozen=True)
class Table:
    columns: dict[int, str] = field(default_factory=dict)
    """Labels by column."""
    rows: dict[int, Row] = field(default_factory=dict)
    rules: frozenset[Rule] = frozenset()

    def shown(self) -> list[tuple[Any, ...]]:
        """The rows with their keys, columns in the order of their labels."""
        order = sorted(self.columns, key=lambda one: self.columns[one])
        return [(key, *(row.get(one) for one in order)) for key, row in sorted(self.rows.items())]

    def labels(self) -> list[str]:
        return sorted(self.columns.values())


State = dict[str, Table]


def broken(state: State) -> Iterator[tuple[str, Rule, int]]:
    """The tables, rules and rows where one does not hold."""
    for name, table in state.items():
        for rule in table.rules:
            kind, column = rule
            values = {key: row.get(column) for key, row in table.rows.items()}
            counts = Counter(values.values())
            for key, value in values.items():
                if value is None:
                    continue
                if kind == "unique":
                    wrong = counts[value] > 1
                elif kind == "check":
                    wrong = value >= CHECKED
                else:
                    wrong = value not in state[PARENT].rows
                if wrong:
                    yield name, rule, key


@dataclass(frozen=True)
class Node:
    """A commit."""

    number: int
    state: State
    ancestors: frozenset[int]


@dataclass
class Conflicting(Exception):
    found: Found


class Graph:
    """All commits."""

    def __init__(self) -> None:
        self._numbers = count()
        self.nodes: dict[int, Node] = {}

    def add(self, state: State, *parents: Node) -> Node:
        number = next(self._numbers)
        ancestors = frozenset({number}).union(*(one.ancestors for one in parents))
        self.nodes[number] = Node(number, state, ancestors)
        return self.nodes[number]

    def bases(self, one: Node, other: Node) -> list[Node]:
        shared = one.ancestors & other.ancestors
        older = {
            earlier
            for number in shared
            for earlier in self.nodes[number].ancestors
            if earlier != number
        }
        return [self.nodes[number] for number in sorted(shared - older)]

    def merged(
        self, source: Node, target: Node, choice: str = "fail", by_row: bool = False
    ) -> State:
        """What merging gives; Conflicting tells what is in the way."""
        found: Found = set()
        bases = self.bases(source, target)
        state = {
            name: self._table(name, bases, source, target, choice, by_row, found)
            for name in target.state
        }
        if not found:
            for name, rule, key in broken(state):
                known = rule in source.state[name].rules and rule in target.state[name].rules
                found.add((name, KINDS[rule[0]] if known else "rule against data", key))
        if found:
            raise Conflicting(found)
        return state

    def _table(
        self,
        name: str,
        bases: list[Node],
        source: Node,
        target: Node,
        choice: str,
        by_row: bool,
        found: Found,
    ) -> Table:
        here, there = source.state[name], target.state[name]
        columns = self._columns(name, bases, here, there, choice, found)
        rows: dict[int, Row] = {}
        every = set(here.rows) | set(there.rows)
        for base in bases:
            every |= set(base.state[name].rows)
        for key in every:
            base_row = self._base(name, bases, key, columns)
            row, kind = merge_row(
                base_row,
                _kept(here, key, columns, base_row),
                _kept(there, key, columns, base_row),
                choice,
                by_row,
            )
            if kind is not None:
                found.add((name, kind, key))
            elif row is not None:
                rows[key] = row
        return Table(columns, rows, self._rules(name, bases, here, there, columns, choice, found))

    def _rules(
        self,
        name: str,
        bases: list[Node],
        here: Table,
        there: Table,
        columns: Iterable[int],
        choice: str,
        found: Found,
    ) -> frozenset[Rule]:
        rules = set()
        for rule in here.rules | there.rules:
            known = [rule in base.state[name].rules for base in bases]
            mine, other = rule in here.rules, rule in there.rules
            if rule[1] not in columns:
                # A rule that one side brings, on a column that the other dropped.
                side = "source" if mine else "target"
                if not any(known) and choice in ("fail", side):
                    found.add((name, "schema", None))
                continue
            kept, clash = taken(known, mine, other, choice)
            if clash and choice == "fail":
                found.add((name, "schema", None))
            if kept:
                rules.add(rule)
        return frozenset(rules)

    def _base(self, name: str, bases: list[Node], key: int, columns: Iterable[int]) -> Any:
        """A row at the base: what merging the bases gives, or UNKNOWN."""
        first = shown(bases[0].state[name].rows.get(key), columns)
        others = []
        for other in bases[1:]:
            earlier = self._base(name, self.bases(bases[0], other), key, columns)
            mine = shown(other.state[name].rows.get(key), columns)
            row, kind = merge_row(earlier, mine, first, "fail", False)
            told = UNKNOWN if kind is not None else row
            if told != first:
                others.append(told)
        if not others:
            return first
        return others[0] if all(one == others[0] for one in others) else UNKNOWN

    def _columns(
        self,
        name: str,
        bases: list[Node],
        here: Table,
        there: Table,
        choice: str,
        found: Found,
    ) -> dict[int, str]:
        columns: dict[int, str] = {}
        for one in {**there.columns, **here.columns}:
            known = [
                base.state[name].columns[one] for base in bases if one in base.state[name].columns
            ]
            mine, other = here.columns.get(one), there.columns.get(one)
            settled = choice != "fail"
            if mine is not None and other is not None:
                label, clash = taken(known, mine, other, choice)
            elif not known:
                label, clash = mine or other, False
            else:
                label, clash = self._dropped(name, bases, here, there, one, known, choice)
                # What the target dropped cannot be brought back.
                settled = settled and not (other is None and choice == "source")
            if clash and not settled:
                found.add((name, "schema", None))
            if label is not None:
                columns[one] = label
        return columns

    def _dropped(
        self,
        name: str,
        bases: list[Node],
        here: Table,
        there: Table,
        column: int,
        known: list[str],
        choice: str,
    ) -> tuple[str | None, bool]:
        """A column that one side dropped; whether the other did something to it."""
        side, left = ("source", there) if column not in here.columns else ("target", here)
        label = left.columns[column]
        before = bases[0].state[name].rows
        touched = label not in known or any(
            key in left.rows and left.rows[key].get(column) != row.get(column)
            for key, row in before.items()
        )
        if not touched:
            return None, False
        return (None if choice in (side, "fail") else label), True


def _kept(table: Table, key: int, columns: Iterable[int], base: Any) -> Row | None:
    """A row of a side; a column that it dropped, and that stays, has the value of the base."""
    row = shown(table.rows.get(key), columns)
    if row is not None and isinstance(base, dict):
        row = {one: row[one] if one in table.columns else base[one] for one in row}
    return row


def shown(row: Row | None, columns: Iterable[int]) -> Row | None:
    return None if row is None else {one: row.get(one) for one in columns}


def taken(known: list[Any], mine: Any, other: Any, choice: str) -> tuple[Any, bool]:
    """The value that follows, and whether both sides changed it otherwise."""
    if mine == other:
        return mine, False
    if (mine in known) != (other in known):
        return (other if mine in known else mine), False
    return (mine if choice == "source" else other), True


def merge_row(
    base: Any, mine: Row | None, other: Row | None, choice: str, by_row: bool
) -> tuple[Row | None, str | None]:
    """One row: what follows, and the kind of a conflict if there is one that nobody resolves."""
    resolved = mine if choice == "source" else other
    if mine == other:
        return mine, None
    if base == UNKNOWN:
        kind = "delete against update" if mine is None or other is None else "divergent update"
        return resolved, kind if choice == "fail" else None
    if mine == base or other == base:
        return (other if mine == base else mine), None
    if mine is None or other is None:
        return resolved, "delete against update" if choice == "fail" else None
    if base is None:
        return resolved, "divergent insert" if choice == "fail" else None
    if by_row:
        return resolved, "divergent update" if choice == "fail" else None
    row: Row = {}
    clash = False
    for one in mine:
        row[one], differs = taken([base.get(one)], mine[one], other[one], choice)
        clash = clash or differs
    return row, "divergent update" if clash and choice == "fail" else None
