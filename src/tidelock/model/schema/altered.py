"""The schema that follows from an alteration.

Pure. Nothing here knows how rows are stored; `store/schema` makes the pins that agree with what is
decided here.

Invariants: a column keeps its id through every alteration but a drop; an id is given once; a type
changes only to one that holds every value of the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from tidelock.errors import InvalidSchema
from tidelock.model.names import fold, suggest
from tidelock.model.schema.alterations import (
    AddColumn,
    AddRule,
    Alteration,
    ChangeType,
    DropColumn,
    DropRule,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetDefault,
    SetKey,
    SetRequired,
)
from tidelock.model.schema.declared import DeclaredRule
from tidelock.model.schema.defaults import read_default
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import Column, TableSchema, check_rule, table_schema
from tidelock.model.schema.widening import is_widening
from tidelock.model.sql.trees import columns_of, expression, rename_column
from tidelock.model.types import type_name

Resolve: TypeAlias = Callable[[DeclaredRule, TableSchema], Rule]
"""Gives a declared rule the ids of what it names."""


def altered(
    schema: TableSchema, one: Alteration, table: str, resolve: Resolve, new_id: int
) -> TableSchema:
    """The schema after an alteration, or InvalidSchema; `new_id` is for a column that is added."""
    after = _altered(schema, one, table, resolve, new_id)
    for rule in after.rules:
        check_rule(rule, map(after.with_id, rule.columns))
    return after


def _altered(
    schema: TableSchema, one: Alteration, table: str, resolve: Resolve, new_id: int
) -> TableSchema:
    match one:
        case AddColumn():
            return _with_column(schema, one, table, new_id)
        case DropColumn():
            return _without_column(schema, one, table)
        case RenameColumn():
            return _renamed(schema, one.name, one.to, table)
        case MoveColumn():
            return _moved(schema, one)
        case ChangeType():
            return _retyped(schema, one, table)
        case SetRequired():
            return _required(schema, one, table)
        case SetDefault():
            column = replace(schema.column(one.name), default=one.default)
            return _put(schema, _check_default(column, table))
        case SetComment():
            if one.name is None:
                return replace(schema, comment=one.comment)
            return _put(schema, replace(schema.column(one.name), comment=one.comment))
        case SetKey():
            return table_schema(schema.columns, one.names, schema.rules, schema.comment)
        case AddRule():
            return _with_rule(schema, resolve(one.rule, schema), table)
        case DropRule():
            return _without_rule(schema, one.name, table)


def _check_default(column: Column, table: str) -> Column:
    """The column, unless its default cannot be one."""
    if column.default is not None:
        read_default(column, table)
    return column


def _put(schema: TableSchema, column: Column) -> TableSchema:
    columns = tuple(column if one.id == column.id else one for one in schema.columns)
    return replace(schema, columns=columns)


def _with_column(schema: TableSchema, one: AddColumn, table: str, new_id: int) -> TableSchema:
    column = _check_default(replace(one.column, id=new_id), table)
    there = schema.find(column.name)
    if there is not None:
        raise InvalidSchema(
            f"Table {table!r} has a column {there.name!r} already. Choose another name.",
            table=table,
            column=there.name,
        )
    columns = list(schema.columns)
    place = len(columns)
    if one.first:
        place = 0
    elif one.after is not None:
        place = columns.index(schema.column(one.after)) + 1
    columns.insert(place, column)
    return table_schema(columns, schema.key, schema.rules, schema.comment)


def _without_column(schema: TableSchema, one: DropColumn, table: str) -> TableSchema:
    column = schema.column(one.name)
    if column.name in schema.key:
        raise InvalidSchema(
            f"Column {column.name!r} is in the key of table {table!r}, so that it cannot be "
            "dropped. Drop or change the key first.",
            table=table,
            column=column.name,
        )
    users = [rule for rule in schema.rules if column.id in read_by(rule, schema)]
    if users and not one.cascade:
        names = [rule.name for rule in users]
        raise InvalidSchema(
            f"Column {column.name!r} of table {table!r} is read by the rule "
            f"{', '.join(map(repr, names))}, so that it cannot be dropped. Drop the rule first, or "
            "say CASCADE.",
            table=table,
            column=column.name,
            rules=names,
        )
    rules = tuple(rule for rule in schema.rules if rule not in users)
    columns = tuple(other for other in schema.columns if other.id != column.id)
    if not columns:
        raise InvalidSchema(
            f"Column {column.name!r} is the last of table {table!r}, and a table needs one. Drop "
            "the table instead.",
            table=table,
            column=column.name,
        )
    return replace(schema, columns=columns, rules=rules)


def read_by(rule: Rule, schema: TableSchema) -> frozenset[int]:
    """The columns that a rule is about, or that its condition reads."""
    if rule.condition is None:
        return frozenset(rule.columns)
    named = (schema.find(name) for name in columns_of(expression(rule.condition)))
    return frozenset(rule.columns) | {column.id for column in named if column is not None}


def _renamed(schema: TableSchema, name: str, to: str, table: str) -> TableSchema:
    column = schema.column(name)
    there = schema.find(to)
    if there is not None and there.id != column.id:
        raise InvalidSchema(
            f"Table {table!r} has a column {there.name!r} already. Choose another name.",
            table=table,
            column=there.name,
        )
    columns = [replace(one, name=to) if one.id == column.id else one for one in schema.columns]
    key = tuple(to if one == column.name else one for one in schema.key)
    rules = tuple(
        rule
        if rule.condition is None
        else replace(rule, condition=rename_column(rule.condition, column.name, to))
        for rule in schema.rules
    )
    return table_schema(columns, key, rules, schema.comment)


def _moved(schema: TableSchema, one: MoveColumn) -> TableSchema:
    column = schema.column(one.name)
    columns = [other for other in schema.columns if other.id != column.id]
    place = 0
    if one.after is not None:
        before = schema.column(one.after)
        if before.id == column.id:
            raise InvalidSchema(
                f"Column {column.name!r} cannot be moved behind itself.", column=column.name
            )
        place = columns.index(before) + 1
    columns.insert(place, column)
    return replace(schema, columns=tuple(columns))


def _retyped(schema: TableSchema, one: ChangeType, table: str) -> TableSchema:
    column = schema.column(one.name)
    if not is_widening(column.type, one.type):
        old, new = type_name(column.type), type_name(one.type)
        raise InvalidSchema(
            f"Column {column.name!r} of table {table!r} cannot be changed from {old} to {new}: not "
            "every value would be kept. Add a column of the new type with BACKFILL AS (…), and "
            "drop the old one.",
            table=table,
            column=column.name,
            expected=old,
            actual=new,
        )
    wider = _check_default(replace(column, type=one.type), table)
    columns = [wider if other.id == column.id else other for other in schema.columns]
    return table_schema(columns, schema.key, schema.rules, schema.comment)


def _required(schema: TableSchema, one: SetRequired, table: str) -> TableSchema:
    column = schema.column(one.name)
    if not one.required and column.name in schema.key:
        raise InvalidSchema(
            f"Column {column.name!r} is in the key of table {table!r}, so that it stays NOT NULL.",
            table=table,
            column=column.name,
        )
    return _put(schema, replace(column, nullable=not one.required))


def _with_rule(schema: TableSchema, rule: Rule, table: str) -> TableSchema:
    there = schema.rule(rule.name)
    if there is not None:
        raise InvalidSchema(
            f"Table {table!r} has a rule {there.name!r} already. Choose another name.",
            table=table,
            rule=there.name,
        )
    return replace(schema, rules=(*schema.rules, rule))


def _without_rule(schema: TableSchema, name: str, table: str) -> TableSchema:
    found = schema.rule(name)
    if found is None:
        known = suggest(name, [rule.name for rule in schema.rules])
        raise InvalidSchema(
            f"Table {table!r} has no rule {name!r}. {known}", table=table, rule=name
        )
    kept = tuple(rule for rule in schema.rules if fold(rule.name) != fold(name))
    return replace(schema, rules=kept)
