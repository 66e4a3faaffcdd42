"""Altering a table within a transaction: the schema that follows, and what its rows get.

Owns: the order of both. A column that comes with a value for the rows that are there is added
without one, and then set, like any column by an update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tidelock.errors import InvalidSchema, RequiredColumnNull
from tidelock.model.names import quote
from tidelock.model.schema.alterations import AddColumn, Alteration, ChangeType, SetDefault
from tidelock.model.schema.altered import Resolve, altered
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.store.schema.change import SchemaChange, following
from tidelock.store.schema.pins import next_column_id
from tidelock.store.staging import updates
from tidelock.store.staging.fill import fill_column
from tidelock.store.staging.resolve import resolve_rule
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.staged_tables import StagedTables
from tidelock.store.table import Table

View: TypeAlias = Callable[[StagedTable], Table]
"""A staged table as its transaction sees it."""


def alter(tables: StagedTables, staged: StagedTable, one: Alteration, view: View) -> None:
    """Stage one alteration of a table."""
    resolve = partial(resolve_rule, tables, staged)
    if isinstance(one, AddColumn):
        _add_column(tables, staged, one, resolve, view)
        return
    after = altered(staged.schema, one, staged.name, resolve, 0)
    if isinstance(one, SetDefault | ChangeType):
        # What an engine has to compute is computed now, so that it is known to fit.
        tables.defaults_of(after, staged.name)
    _stage(tables, staged, after)


def _add_column(
    tables: StagedTables, staged: StagedTable, one: AddColumn, resolve: Resolve, view: View
) -> None:
    new_id = next_column_id(staged.schema)
    after = altered(staged.schema, one, staged.name, resolve, new_id)
    defaults = tables.defaults_of(after, staged.name)
    column = after.column(one.column.name)
    valued = one.backfill is not None or column.default is not None
    filled = (valued or not column.nullable) and staged.current().count_rows()
    if filled and not valued:
        raise InvalidSchema(
            f"Column {column.name!r} cannot be added to table {staged.name!r} as NOT NULL: the "
            "rows that are there have no value for it. Give it a DEFAULT, or say BACKFILL AS (…).",
            table=staged.name,
            column=column.name,
        )
    if not filled or tables.rehearsed:
        _stage(tables, staged, after)
        return
    # The rows that are there have no value yet.
    relaxed = replace(one, column=replace(one.column, nullable=True))
    _stage(tables, staged, altered(staged.schema, relaxed, staged.name, resolve, new_id))
    if one.backfill is not None:
        updates.update(view(staged), staged, {column.name: one.backfill}, None)
    else:
        fill_column(view(staged), staged, column, defaults)
    if not column.nullable:
        _refuse_nulls(view(staged), column)
        _stage(tables, staged, after)


def _refuse_nulls(table: Table, column: Column) -> None:
    found = table.count(f"{quote(column.name)} IS NULL")
    if found:
        raise RequiredColumnNull(
            f"Table {table.name!r}: the backfill of the required column {column.name!r} is NULL in "
            f"{found:,} rows. Nothing was written.",
            table=table.name,
            column=column.name,
            count=found,
        )


def _stage(tables: StagedTables, staged: StagedTable, after: TableSchema) -> None:
    change = SchemaChange(staged.schema, following(staged.schema, after))
    if tables.rehearsed:
        staged.rehearse(change)
    else:
        staged.add(change)
