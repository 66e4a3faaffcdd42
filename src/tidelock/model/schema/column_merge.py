"""Merging one column: its name, type and other attributes, or that it is dropped.

Owns: the decisions of a merge of schemas (schema_merge.py), each by the same law, and what is told
of those that nobody can take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tidelock.model.history.conflicts import Conflict
from tidelock.model.history.merges import Side
from tidelock.model.schema.schema import NEW, Column
from tidelock.model.schema.widening import is_widening
from tidelock.model.types import spell_type, type_name

T = TypeVar("T")


@dataclass
class ColumnSides:
    """One column, as each side has it."""

    bases: list[Column | None]
    source: Column | None = None
    target: Column | None = None

    @property
    def name(self) -> str:
        found = next(one for one in (self.target, self.source, *self.bases) if one is not None)
        return found.name


@dataclass(frozen=True)
class MergedColumn:
    """A column that follows, and what it is called on each side; None where it is not there."""

    column: Column
    """With the target's id; NEW if it comes from the source."""
    source: str | None
    target: str | None
    bases: tuple[str | None, ...]
    source_id: int | None = None


@dataclass
class Decisions:
    """Takes what follows, and notes what cannot be decided."""

    table: str
    prefer: Side | None
    kept: frozenset[str] = frozenset()
    """Columns that stay though one side dropped them, by what the other side calls them."""
    conflicts: list[Conflict] = field(default_factory=list)
    resolved: int = 0
    comparable: bool = True

    def take(
        self,
        bases: Sequence[T],
        source: T,
        target: T,
        what: str,
        columns: tuple[str, ...] = (),
        tell: Callable[[Any], object] = str,
    ) -> T:
        if source == target:
            return source
        new_here, new_there = source not in bases, target not in bases
        if new_here != new_there:
            return source if new_here else target
        why = f"{what}: {tell(source)} at the source, {tell(target)} at the target"
        told = {what: tell(source)}, {what: tell(target)}
        base = {what: tell(bases[0])} if len(bases) == 1 else None
        self.refuse(why, columns, base, *told)
        return source if self.prefer == "source" else target

    def refuse(
        self,
        why: str,
        columns: tuple[str, ...],
        base: Mapping[str, object] | None = None,
        source: Mapping[str, object] | None = None,
        target: Mapping[str, object] | None = None,
        *,
        resolvable: bool = True,
    ) -> None:
        if self.prefer is not None and resolvable:
            self.resolved += 1
            return
        self.conflicts.append(
            Conflict(self.table, "schema", None, base, source, target, columns, why)
        )


def merged_column(
    group: ColumnSides, decisions: Decisions, dropped: list[tuple[str, Side]]
) -> Column | None:
    """The column that follows from one group; None if it is dropped."""
    source, target = group.source, group.target
    if not any(group.bases):
        if source is not None and target is not None:
            return target
        return target if source is None else replace(source, id=NEW)
    if source is None and target is None:
        return None
    if source is None or target is None:
        return _dropped_on_one_side(group, decisions, dropped)
    bases = [one for one in group.bases if one is not None]
    name = (group.name,)
    attributes: dict[str, Any] = {
        "name": decisions.take(
            [one.name for one in bases], source.name, target.name, "the name of a column", name
        ),
        "type": _type(bases, source, target, decisions),
    }
    for attribute, what in (
        ("nullable", f"whether {group.name!r} may be NULL"),
        ("default", f"the default of {group.name!r}"),
        ("comment", f"the comment of {group.name!r}"),
    ):
        known = [getattr(one, attribute) for one in bases]
        mine, other = getattr(source, attribute), getattr(target, attribute)
        attributes[attribute] = decisions.take(known, mine, other, what, name)
    return replace(target, **attributes)


def _type(bases: list[Column], source: Column, target: Column, decisions: Decisions) -> Any:
    known = [one.type for one in bases]
    if source.type not in known and target.type not in known:
        if is_widening(source.type, target.type):
            return target.type
        if is_widening(target.type, source.type):
            return source.type
    what = f"the type of {target.name!r}"
    before = len(decisions.conflicts)
    chosen = decisions.take(known, source.type, target.type, what, (target.name,), type_name)
    decisions.comparable &= len(decisions.conflicts) == before
    return chosen


def _dropped_on_one_side(
    group: ColumnSides, decisions: Decisions, dropped: list[tuple[str, Side]]
) -> Column | None:
    left = group.source or group.target
    assert left is not None
    side: Side = "source" if group.source is None else "target"
    other = "target" if side == "source" else "source"
    bases = [one for one in group.bases if one is not None]
    if any(_same_column(one, left) for one in bases):
        if left.name in decisions.kept and side == "source":
            return left
        dropped.append((left.name, side))
        return None
    old, new = told_column(bases[0]), told_column(left)
    decisions.refuse(
        f"column {left.name!r} was dropped at the {side} and altered at the {other}",
        (left.name,),
        old,
        None if side == "source" else new,
        None if side == "target" else new,
        # Its values are not at the target any more.
        resolvable=not (side == "target" and decisions.prefer == "source"),
    )
    if decisions.prefer == side:
        dropped.append((left.name, side))
        return None
    return left if side == "source" else replace(left, id=NEW)


def _same_column(one: Column, other: Column) -> bool:
    return replace(one, id=other.id) == other and one.default == other.default


def told_column(column: Column) -> dict[str, object]:
    return {
        "name": column.name,
        "type": spell_type(column.type),
        "nullable": column.nullable,
        "default": column.default,
    }
