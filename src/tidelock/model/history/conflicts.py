"""Conflicts: where two branches changed the same thing, each in its own way.

A conflict is a value. It names what was changed by a table and, for a row, by its key or sequence,
and shows how it was at the merge base, how it is at the source and how at the target; None says
that it is not there.

    of rows         divergent insert, divergent update, delete against update
    of rules        orphaned reference, uniqueness, cardinality, value constraint
    of definitions  schema, stream table, dropped table, created table, name, rule against data
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tidelock.model.plain_values import plain_row

ConflictKind = Literal[
    "divergent insert",
    "divergent update",
    "delete against update",
    "orphaned reference",
    "uniqueness",
    "cardinality",
    "value constraint",
    "schema",
    "stream table",
    "dropped table",
    "created table",
    "name",
    "rule against data",
]
Values: TypeAlias = Mapping[str, Any]
SEQUENCE = "_sequence"
"""What stands for the key of a row of a table without one."""
TOLD_MAX = 5
VALUE_LENGTH_MAX = 60


@dataclass(frozen=True, slots=True)
class Conflict:
    """One thing that was changed on both sides and cannot be both."""

    table: str
    kind: ConflictKind
    key: Values | None = None
    base: Values | None = None
    source: Values | None = None
    target: Values | None = None
    columns: tuple[str, ...] = ()
    """Those that differ."""
    why: str = ""
    """What cannot be decided, as a sentence without its end."""

    def told(self) -> str:
        """The conflict in one line."""
        where = self.table if self.key is None else f"{self.table} {_pairs(self.key)}"
        return f"{where}: {self.kind}: {self.why or self._sides()}"

    def _sides(self) -> str:
        columns = self.columns or tuple(self.source or self.target or ())
        told = []
        for name, row in (("base", self.base), ("source", self.source), ("target", self.target)):
            if row is not None:
                told.append(f"{name} {_pairs({one: row.get(one) for one in columns})}")
            elif name != "base":
                told.append(f"{name} deleted" if self.base is not None else f"{name} none")
        return ", ".join(told)

    def to_dict(self) -> dict[str, Any]:
        """The conflict as plain values that JSON can hold."""
        return {
            "table": self.table,
            "kind": self.kind,
            "key": plain_row(self.key),
            "base": plain_row(self.base),
            "source": plain_row(self.source),
            "target": plain_row(self.target),
            "columns": list(self.columns),
            "why": self.why or self._sides(),
        }


@dataclass
class Conflicts:
    """Conflicts as they are found: all are counted, and so many are kept that memory is bounded."""

    kept_max: int = 10_000
    found: list[Conflict] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, conflict: Conflict) -> None:
        self.count(conflict.table, conflict.kind, 1)
        if self.room:
            self.found.append(conflict)

    def extend(self, conflicts: Iterable[Conflict]) -> None:
        for one in conflicts:
            self.add(one)

    def count(self, table: str, kind: str, number: int) -> None:
        self.counts[table, kind] += number

    @property
    def room(self) -> int:
        """How many more are kept."""
        return max(0, self.kept_max - len(self.found))

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def tell_conflicts(conflicts: Sequence[Conflict], counts: Mapping[tuple[str, str], int]) -> str:
    """Conflicts as sentences: how many of each kind, and the first ones."""
    summary = ", ".join(
        f"{kind} in {table!r} ({number:,})" for (table, kind), number in sorted(counts.items())
    )
    first = "; ".join(one.told() for one in conflicts[:TOLD_MAX])
    more = sum(counts.values()) - min(len(conflicts), TOLD_MAX)
    rest = f"; and {more:,} more" if more > 0 else ""
    return f"{summary}. {first}{rest}"


def _pairs(values: Values) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    text = (
        repr(value) if isinstance(value, str | bytes) else "NULL" if value is None else str(value)
    )
    return text if len(text) <= VALUE_LENGTH_MAX else text[: VALUE_LENGTH_MAX - 1] + "…"
