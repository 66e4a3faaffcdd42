"""A model of tables with rules: dictionaries, and every rule decided by looking at all rows."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Rows = dict[int, Row]
"""By an identity that a row keeps while it is changed."""


@dataclass(frozen=True)
class ModelRule:
    """A rule of a table. `says` is the condition of a check, or of which rows are to be unique."""

    name: str
    table: str
    kind: str
    columns: tuple[str, ...] = ()
    says: Callable[[Row], bool | None] | None = None
    condition: str | None = None
    parent: str = ""
    target: tuple[str, ...] = ()
    on_delete: str = "restrict"
    least: int = 0
    most: int | None = None


class Refused(Exception):
    """The model does not allow it."""


@dataclass
class Model:
    keys: dict[str, str | None]
    """The key of each table, or that it has none."""
    tables: dict[str, Rows] = field(default_factory=dict)
    rules: dict[str, ModelRule] = field(default_factory=dict)
    _ids: Any = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for table in self.keys:
            self.tables.setdefault(table, {})

    def begin(self) -> Model:
        return copy.copy(self)._copied()

    def _copied(self) -> Model:
        self.tables = copy.deepcopy(self.tables)
        self.rules = dict(self.rules)
        return self

    # Operations, as a transaction does them

    def append(self, table: str, rows: Iterable[Row]) -> None:
        for row in rows:
            key = self.keys[table]
            if key is not None and any(row[key] == one[key] for one in self.tables[table].values()):
                raise Refused("key")
            self.tables[table][next(self._ids)] = dict(row)

    def upsert(self, table: str, rows: Iterable[Row]) -> None:
        key = self.keys[table]
        for row in rows:
            there = [i for i, one in self.tables[table].items() if one[key] == row[key]]
            self.tables[table][there[0] if there else next(self._ids)] = dict(row)

    def overwrite(self, table: str, rows: Iterable[Row]) -> None:
        self.tables[table] = {next(self._ids): dict(row) for row in rows}

    def delete(self, table: str, where: Callable[[Row], Any]) -> None:
        self.tables[table] = {i: one for i, one in self.tables[table].items() if not where(one)}

    def update(self, table: str, column: str, value: Any, where: Callable[[Row], Any]) -> None:
        for one in self.tables[table].values():
            if where(one):
                one[column] = value
        key = self.keys[table]
        if key == column:
            counts = Counter(one[key] for one in self.tables[table].values())
            if max(counts.values(), default=0) > 1:
                raise Refused("key")

    # The end

    def finish(self, before: Model) -> None:
        """Let follow what follows, and refuse what breaks a rule."""
        leaving = {
            table: [row for i, row in rows.items() if i not in self.tables[table]]
            for table, rows in before.tables.items()
        }
        while any(leaving.values()):
            then, leaving = leaving, {table: [] for table in self.tables}
            emptied: list[tuple[Row, ModelRule]] = []
            for rule in self.rules.values():
                if rule.kind != "reference" or rule.on_delete == "restrict":
                    continue
                there = set(values(self.tables[rule.parent].values(), rule.target))
                gone = set(values(then[rule.parent], rule.target)) - there
                for i, row in list(self.tables[rule.table].items()):
                    if tuple(row[name] for name in rule.columns) not in gone:
                        continue
                    if rule.on_delete == "cascade":
                        leaving[rule.table].append(self.tables[rule.table].pop(i))
                    else:
                        emptied.append((row, rule))
            for row, rule in emptied:
                row.update(dict.fromkeys(rule.columns))
        for rule in self.rules.values():
            if self._is_broken(rule):
                raise Refused(rule.name)

    def _is_broken(self, rule: ModelRule) -> bool:
        rows = list(self.tables[rule.table].values())
        if rule.kind == "check":
            assert rule.says is not None
            return any(rule.says(row) is False for row in rows)
        if rule.kind == "unique":
            held = [row for row in rows if rule.says is None or rule.says(row)]
            return max(Counter(values(held, rule.columns)).values(), default=1) > 1
        if rule.kind == "reference":
            there = set(values(self.tables[rule.parent].values(), rule.target))
            return not set(values(rows, rule.columns)) <= there
        counts = Counter(values(rows, rule.columns))
        for other in self.rules.values():
            alike = (other.table, other.columns) == (rule.table, rule.columns)
            if other.kind == "reference" and alike:
                for value in values(self.tables[other.parent].values(), other.target):
                    counts.setdefault(value, 0)
        most = len(rows) if rule.most is None else rule.most
        return any(not rule.least <= count <= most for count in counts.values())


def values(rows: Iterable[Row], columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    every = [tuple(row[name] for name in columns) for row in rows]
    return [value for value in every if None not in value]
