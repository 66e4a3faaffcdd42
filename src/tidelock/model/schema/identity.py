"""From a schema to a later one of the same table, as far as the ids of columns tell.

Owns: which columns went, and which have other names. What is left differs by name alone, as plans
compare schemas.
Law: of the schema that is left and the later one, columns of one name have one id, and no id of the
first is missing in the second.
"""

from __future__ import annotations

from dataclasses import replace

from tidelock.errors import BrokenInvariant
from tidelock.model.names import fold
from tidelock.model.schema.alterations import Alteration, DropColumn, DropRule, RenameColumn, SetKey
from tidelock.model.schema.altered import altered, read_by
from tidelock.model.schema.declared import DeclaredRule
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import TableSchema


def by_identity(before: TableSchema, after: TableSchema) -> tuple[TableSchema, list[Alteration]]:
    """The schema that is left when columns went and were renamed, and the steps that did it."""
    left, steps = _without_gone(before, after)
    names = {column.id: column.name for column in after.columns}
    while True:
        waiting = [column for column in left.columns if names[column.id] != column.name]
        if not waiting:
            return left, steps
        taken = {fold(column.name): column.id for column in left.columns}
        free = [c for c in waiting if taken.get(fold(names[c.id]), c.id) == c.id]
        # Names that go round in a circle become free by a name in between.
        column = free[0] if free else waiting[0]
        to = names[column.id] if free else _unused(left, after, column.name)
        rename = RenameColumn(column.name, to)
        left = altered(left, rename, "", _no_rule, 0)
        steps.append(rename)


def _without_gone(before: TableSchema, after: TableSchema) -> tuple[TableSchema, list[Alteration]]:
    there = {column.id for column in after.columns}
    gone = {column.id: column.name for column in before.columns if column.id not in there}
    if not gone:
        return before, []
    rules = [rule for rule in before.rules if read_by(rule, before) & gone.keys()]
    steps: list[Alteration] = [DropRule(rule.name) for rule in rules]
    key = before.key
    if set(before.key) & set(gone.values()):
        steps.append(SetKey(()))
        key = ()
    steps += map(DropColumn, gone.values())
    columns = tuple(column for column in before.columns if column.id in there)
    kept = tuple(rule for rule in before.rules if rule not in rules)
    return replace(before, columns=columns, key=key, rules=kept), steps


def _unused(left: TableSchema, after: TableSchema, name: str) -> str:
    taken = {fold(column.name) for column in (*left.columns, *after.columns)}
    while fold(name) in taken:
        name += "_"
    return name


def _no_rule(rule: DeclaredRule, schema: TableSchema) -> Rule:
    raise BrokenInvariant("Renames add no rule.")
