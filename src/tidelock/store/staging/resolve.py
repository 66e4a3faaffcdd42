"""Rules by names, given the ids of what they name.

Owns: which columns and which table a declared rule means, what it is called if nobody said so, and
whether it can be a rule of that table.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelock.errors import InvalidSchema
from tidelock.model.names import check_name
from tidelock.model.schema.conditions import row_condition
from tidelock.model.schema.declared import DeclaredRule
from tidelock.model.schema.rules import Rule, RuleKind
from tidelock.model.schema.schema import TableSchema, check_comparable
from tidelock.model.types import type_name
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.staged_tables import StagedTables

NAME_MAX = 60
_SUFFIX = {"unique": "key", "check": "check", "reference": "fkey", "cardinality": "cardinality"}


def resolve_rule(
    tables: StagedTables, staged: StagedTable, declared: DeclaredRule, schema: TableSchema
) -> Rule:
    """The rule that is meant, or InvalidSchema."""
    table = staged.name
    columns, condition = declared.columns, declared.condition
    if condition is not None:
        condition, read = row_condition(condition, schema, table)
        columns = read if declared.kind == "check" else columns
    ids = tuple(schema.column(one).id for one in columns)
    name = _name(declared, table, schema.labels(ids), schema)
    _refuse_unfit(declared.kind, condition, table, name, schema, ids)
    if declared.kind == "reference":
        return _reference(tables, staged, declared, schema, name, ids)
    if declared.least < 0 or (declared.most is not None and declared.most < declared.least):
        raise InvalidSchema(
            f"Rule {name!r} of table {table!r}: no number of rows is from {declared.least} to "
            f"{declared.most}.",
            table=table,
            rule=name,
        )
    return Rule(declared.kind, name, ids, condition, least=declared.least, most=declared.most)


def _refuse_unfit(
    kind: RuleKind,
    condition: str | None,
    table: str,
    name: str,
    schema: TableSchema,
    ids: tuple[int, ...],
) -> None:
    """InvalidSchema if what is declared cannot be a rule of its kind."""
    if kind == "check":
        why = "it has no condition" if condition is None else None
    else:
        why = None if ids else "it names no column"
        why = why or ("it names a column twice" if len(set(ids)) < len(ids) else None)
        for column in map(schema.with_id, ids):
            assert column is not None
            check_comparable(column, f"rule {name!r}")
    if why is not None:
        raise InvalidSchema(
            f"The rule {name!r} of table {table!r} cannot be: {why}.", table=table, rule=name
        )


def _name(declared: DeclaredRule, table: str, columns: Sequence[str], schema: TableSchema) -> str:
    if declared.name is not None:
        return check_name(declared.name, "rule")
    plain = "_".join([table, *columns[:3], _SUFFIX[declared.kind]])[-NAME_MAX:]
    name, number = plain, 1
    while schema.rule(name) is not None:
        number += 1
        name = f"{plain}{number}"
    return name


def _reference(
    tables: StagedTables,
    staged: StagedTable,
    declared: DeclaredRule,
    schema: TableSchema,
    name: str,
    ids: tuple[int, ...],
) -> Rule:
    assert declared.table is not None
    parent = tables.stage(declared.table)
    kept = next((one.name for one in (staged, parent) if one.state.stream is not None), None)
    if declared.on_delete != "restrict" and kept is not None:
        raise _unfit(
            staged,
            name,
            f"ON DELETE {declared.on_delete.upper()} would change rows as those of {kept!r} do, "
            "which follow from a query. Leave it out, which is RESTRICT",
        )
    there = schema if parent is staged else parent.schema
    target = there.key_ids
    if declared.target:
        target = tuple(there.column(one).id for one in declared.target)
    unique = [rule.columns for rule in there.rules if rule.kind == "unique" and not rule.condition]
    if not target or set(target) not in (set(there.key_ids), *map(set, unique)):
        raise _unfit(
            staged,
            name,
            f"it needs the key of {parent.name!r}, or columns that are unique there. Give it a "
            "key, or a UNIQUE",
        )
    if len(target) != len(ids):
        raise _unfit(staged, name, f"it names {len(ids)} columns for {len(target)} there")
    for mine, other in zip(ids, target, strict=True):
        column, wanted = schema.with_id(mine), there.with_id(other)
        assert column is not None
        assert wanted is not None
        if column.type != wanted.type:
            raise _unfit(
                staged,
                name,
                f"column {column.name!r} is {type_name(column.type)}, and {wanted.name!r} of "
                f"{parent.name!r} is {type_name(wanted.type)}. Give them the same type",
            )
        if declared.on_delete == "set null" and not column.nullable:
            raise _unfit(staged, name, f"ON DELETE SET NULL needs {column.name!r} to be nullable")
    return Rule("reference", name, ids, None, parent.state.id, target, declared.on_delete)


def _unfit(staged: StagedTable, name: str, why: str) -> InvalidSchema:
    return InvalidSchema(
        f"The reference {name!r} of table {staged.name!r} cannot be: {why}.",
        table=staged.name,
        rule=name,
    )
