"""Merging schemas: which columns, key and rules follow from a base, a source and a target.

Columns are matched by identity, never by name: a rename on one side and a change of type on the
other are two changes of one column. Each side gives out ids of its own, so that the caller says
which columns of a base a side has (`Seen`); what a side has beyond those is new there.

Law: whatever one side alone changed is taken; what both changed alike is taken once; what both
changed otherwise is a conflict, unless one of two wider types holds the other. With several bases a
side has changed what none of them has.
The order of columns is the target's, unless the source alone has another than the base; it never
makes a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidelock.errors import InvalidSchema
from tidelock.model.history.conflicts import Conflict
from tidelock.model.history.merges import Side
from tidelock.model.names import fold
from tidelock.model.schema.column_merge import (
    ColumnSides,
    Decisions,
    MergedColumn,
    merged_column,
    told_column,
)
from tidelock.model.schema.rule_merge import merged_rules
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import NEW, Column, TableSchema, check_comparable


@dataclass(frozen=True)
class Seen:
    """A base's schema, and which id each of its columns has at the source and at the target; one
    that is left out is not there any more."""

    schema: TableSchema
    source: Mapping[int, int]
    target: Mapping[int, int]


@dataclass(frozen=True)
class SchemaMerge:
    """What follows from merging schemas."""

    columns: tuple[MergedColumn, ...]
    key: tuple[str, ...]
    rules: tuple[Rule, ...]
    comment: str | None
    dropped: tuple[tuple[str, Side], ...]
    """Columns that one side dropped, by what the other side calls them; that side."""
    conflicts: tuple[Conflict, ...]
    resolved: int = 0
    comparable: bool = True
    """Whether rows of both sides can be put side by side: not while types or keys are in doubt."""

    @property
    def schema(self) -> TableSchema:
        return TableSchema(
            tuple(one.column for one in self.columns), self.key, self.rules, self.comment
        )


def merge_schemas(
    table: str,
    bases: Sequence[Seen],
    source: TableSchema,
    target: TableSchema,
    prefer: Side | None = None,
    kept: frozenset[str] = frozenset(),
) -> SchemaMerge:
    """The schema that follows; `prefer` is the side that wins where both changed the same. `kept`
    are columns that stay though one side dropped them, by what the other side calls them."""
    decisions = Decisions(table, prefer, kept)
    groups = _groups(bases, source, target)
    groups = _unite_new(groups)
    found: list[tuple[ColumnSides, Column]] = []
    dropped: list[tuple[str, Side]] = []
    for group in groups:
        column = merged_column(group, decisions, dropped)
        if column is not None:
            found.append((group, column))
    found = _without_clashes(found, decisions)
    found = _in_order(found, bases, source, target)
    labels = {id(group): column.name for group, column in found}
    columns = tuple(
        MergedColumn(
            column,
            group.source.name if group.source else None,
            group.target.name if group.target else None,
            tuple(one.name if one else None for one in group.bases),
            group.source.id if group.source else None,
        )
        for group, column in found
    )
    key = _key(groups, bases, source, target, labels, decisions)
    _refuse_unfit_key(key, columns, decisions)
    required = set(key)
    columns = tuple(
        replace(one, column=replace(one.column, nullable=False))
        if one.column.name in required
        else one
        for one in columns
    )
    rules = merged_rules(columns, [one.schema for one in bases], source, target, decisions)
    comment = decisions.take(
        [one.schema.comment for one in bases], source.comment, target.comment, "the comment"
    )
    return SchemaMerge(
        columns,
        key,
        rules,
        comment,
        tuple(dropped),
        tuple(decisions.conflicts),
        decisions.resolved,
        decisions.comparable,
    )


def _groups(bases: Sequence[Seen], source: TableSchema, target: TableSchema) -> list[ColumnSides]:
    """Every column once, in the order in which a side first has it: target, source, bases."""
    by_source: dict[int, ColumnSides] = {}
    by_target: dict[int, ColumnSides] = {}
    groups: list[ColumnSides] = []
    for number, seen in enumerate(bases):
        for column in seen.schema.columns:
            here, there = seen.source.get(column.id), seen.target.get(column.id)
            group = by_source.get(-1 if here is None else here)
            group = group or by_target.get(-1 if there is None else there)
            if group is None:
                group = ColumnSides([None] * len(bases))
                groups.append(group)
            group.bases[number] = column
            if here is not None and source.with_id(here) is not None:
                group.source = source.with_id(here)
                by_source[here] = group
            if there is not None and target.with_id(there) is not None:
                group.target = target.with_id(there)
                by_target[there] = group
    for column in target.columns:
        if column.id not in by_target:
            groups.append(ColumnSides([None] * len(bases), target=column))
    for column in source.columns:
        if column.id not in by_source:
            groups.append(ColumnSides([None] * len(bases), source=column))
    return groups


def _unite_new(groups: list[ColumnSides]) -> list[ColumnSides]:
    """Columns of one name that both sides added: one, if they are alike."""
    added = {
        fold(group.source.name): group
        for group in groups
        if group.source is not None and group.target is None and not any(group.bases)
    }
    found = []
    united: set[int] = set()
    for group in groups:
        alone = group.target is not None and group.source is None and not any(group.bases)
        twin = added.get(fold(group.target.name)) if alone and group.target else None
        if twin is not None and _alike(twin.source, group.target):
            group.source = twin.source
            united.add(id(twin))
        found.append(group)
    return [group for group in found if id(group) not in united]


def _alike(one: Column | None, other: Column | None) -> bool:
    assert one is not None
    assert other is not None
    return replace(one, id=other.id, name=other.name) == other and (
        (one.default, one.comment) == (other.default, other.comment)
    )


def _without_clashes(
    kept: list[tuple[ColumnSides, Column]], decisions: Decisions
) -> list[tuple[ColumnSides, Column]]:
    """Two columns that would have one name: each from another side."""
    by_name: dict[str, tuple[ColumnSides, Column]] = {}
    for group, column in kept:
        earlier = by_name.get(fold(column.name))
        if earlier is None:
            by_name[fold(column.name)] = (group, column)
            continue
        here, there = (earlier, (group, column))
        mine, other = (there, here) if there[0].target is None else (here, there)
        decisions.refuse(
            f"two columns would be called {column.name!r}, one from each side",
            (column.name,),
            None,
            told_column(mine[1]),
            told_column(other[1]),
        )
        by_name[fold(column.name)] = mine if decisions.prefer == "source" else other
    chosen = {id(group) for group, _ in by_name.values()}
    return [one for one in kept if id(one[0]) in chosen]


def _in_order(
    kept: list[tuple[ColumnSides, Column]],
    bases: Sequence[Seen],
    source: TableSchema,
    target: TableSchema,
) -> list[tuple[ColumnSides, Column]]:
    by_source = {one[0].source.id: one for one in kept if one[0].source is not None}
    by_target = {one[0].target.id: one for one in kept if one[0].target is not None}
    here = [by_source[one.id] for one in source.columns if one.id in by_source]
    there = [by_target[one.id] for one in target.columns if one.id in by_target]
    first, second = there, here
    if len(bases) == 1:
        places = {id(c): n for n, c in enumerate(bases[0].schema.columns)}

        def is_moved(order: list[tuple[ColumnSides, Column]]) -> bool:
            known = [places[id(g.bases[0])] for g, _ in order if g.bases[0] is not None]
            return known != sorted(known)

        if is_moved(here) and not is_moved(there):
            first, second = here, there
    found = list(first)
    present = {id(one[0]) for one in found}
    for number, one in enumerate(second):
        if id(one[0]) in present:
            continue
        at = len(found)
        if number:
            before = [n for n, other in enumerate(found) if other[0] is second[number - 1][0]]
            at = before[0] + 1 if before else at
        found.insert(at, one)
        present.add(id(one[0]))
    return found


def _key(
    groups: list[ColumnSides],
    bases: Sequence[Seen],
    source: TableSchema,
    target: TableSchema,
    labels: Mapping[int, str],
    decisions: Decisions,
) -> tuple[str, ...]:
    numbers = {id(group): number for number, group in enumerate(groups)}

    def by_group(
        schema: TableSchema, of: Callable[[ColumnSides], Column | None]
    ) -> tuple[int, ...]:
        owners = {found.id: numbers[id(g)] for g in groups if (found := of(g)) is not None}
        return tuple(owners[schema.column(name).id] for name in schema.key)

    known = [
        by_group(seen.schema, lambda g, n=n: g.bases[n])  # type: ignore[misc]
        for n, seen in enumerate(bases)
    ]
    mine, other = (
        by_group(source, lambda g: g.source),
        by_group(target, lambda g: g.target),
    )

    def told(key: tuple[int, ...]) -> str:
        return f"({', '.join(groups[one].name for one in key)})"

    before = len(decisions.conflicts)
    chosen = decisions.take(known, mine, other, "the key", tell=told)
    missing = [groups[one].name for one in chosen if id(groups[one]) not in labels]
    if missing:
        decisions.refuse(
            f"the key needs {', '.join(map(repr, missing))}, which the other side dropped",
            tuple(missing),
        )
    decisions.comparable &= len(decisions.conflicts) == before
    return tuple(labels[id(groups[one])] for one in chosen if id(groups[one]) in labels)


def _refuse_unfit_key(
    key: tuple[str, ...], columns: Sequence[MergedColumn], decisions: Decisions
) -> None:
    """A key of one side, on a column to which the other gave a type that no key can have."""
    for one in columns:
        if one.column.name in key:
            try:
                check_comparable(one.column, "the key")
            except InvalidSchema as error:
                decisions.refuse(error.message, (one.column.name,), resolvable=False)
                decisions.comparable = False


def with_ids(merged: SchemaMerge, first_id: int, size_of: Callable[[Any], int]) -> SchemaMerge:
    """The same with ids for the columns that come from the source, from a first one on."""
    columns = []
    for one in merged.columns:
        if one.column.id == NEW:
            one = replace(one, column=replace(one.column, id=first_id))
            first_id += size_of(one.column.type)
        columns.append(one)
    ids = [one.column.id for one in columns]
    rules = tuple(
        replace(rule, columns=tuple(ids[place] for place in rule.columns)) for rule in merged.rules
    )
    return replace(merged, columns=tuple(columns), rules=rules)
