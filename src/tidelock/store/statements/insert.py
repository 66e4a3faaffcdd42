"""Running INSERT.

Rows of constants are staged here; all others are computed and written by the executors. What the
rows are is settled before anything is taken out, so that REPLACE WHERE and OVERWRITE may read the
table that they change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidelock.errors import WrongType
from tidelock.model.names import HIDDEN, fold, quote
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.statements.definition import Delete, Insert
from tidelock.model.sql.store_assignment import same_fields, stored
from tidelock.model.time.zones import UTC
from tidelock.model.types import type_name
from tidelock.store.rows.defaults import Defaults
from tidelock.store.rows.inputs import Input, read_input
from tidelock.store.spark import stage as stage_frames
from tidelock.store.spark.assignment import arrow_types, check_storable, is_ansi
from tidelock.store.staging import writes
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.statements.defaults import is_default, value_of
from tidelock.store.statements.desk import Desk
from tidelock.store.statements.mutations import delete_rows
from tidelock.store.statements.refusals import (
    column_named,
    refused,
    required_unlisted,
    wrong_count,
)
from tidelock.store.statements.reports import StatementReport
from tidelock.store.statements.values import constant_rows

if TYPE_CHECKING:
    from tidelock.store.spark.types import DataFrame


def run_insert(desk: Desk, insert: Insert) -> StatementReport:
    staged = desk.stage(insert.table)
    if not insert.overwrite and insert.replace_where is None:
        inserted = _settle_rows(desk, insert, staged)()
        return StatementReport(insert.kind, staged.name, inserted=inserted)
    with desk.tables.all_or_none():
        if insert.overwrite:
            staged = desk.tables.replacing_lost(staged)
        put = _settle_rows(desk, insert, staged)
        if insert.replace_where is None:
            deleted = desk.view(staged).count()
        else:
            gone = Delete(insert.table, insert.table, insert.replace_where)
            deleted = delete_rows(desk, gone, staged)
        inserted = put()
    return StatementReport(insert.kind, staged.name, inserted=inserted, deleted=deleted)


def _settle_rows(desk: Desk, insert: Insert, staged: StagedTable) -> Callable[[], int]:
    """What stages the rows, which are known from here on; it returns how many there are."""
    schema, name = staged.schema, staged.name
    columns = _listed(insert, schema, name)
    if insert.values is not None and columns is not None:
        for row in insert.values:
            if len(row) != len(columns):
                raise wrong_count(name, [one.name for one in columns], len(row))
        _refuse_required(schema, columns, name)
        zone = desk.engine.zone if schema.temporal else UTC
        defaults = staged.defaults
        rows = constant_rows(insert.values, columns, name, zone, desk.values, defaults)
        if rows is not None:
            given = read_input(rows, schema, name, zone, defaults)
            return lambda: _stage_rows(staged, given, overwrite=insert.overwrite)
    desk.announce()
    frame = desk.query(_query(desk, insert, columns, staged.defaults), refused(insert))
    frame = _assigned(frame, insert, columns, schema, name)
    if insert.overwrite:
        return lambda: stage_frames.overwrite_frame(desk.view(staged), staged, frame)
    return lambda: stage_frames.append_frame(desk.view(staged), staged, frame)


def _listed(insert: Insert, schema: TableSchema, table: str) -> tuple[Column, ...] | None:
    """The columns that the values are for, in their order; None if the query names them."""
    if insert.by_name:
        return None
    if insert.columns is None:
        return schema.columns
    return tuple(column_named(name, schema, table) for name in insert.columns)


def _refuse_required(schema: TableSchema, given: Sequence[Column], table: str) -> None:
    """What is not listed gets its default, which a column that is NOT NULL must have."""
    for column in schema.columns:
        if column not in given and not column.nullable and column.default is None:
            raise required_unlisted(table, column)


def _stage_rows(staged: StagedTable, given: Input, *, overwrite: bool) -> int:
    rows = given.table
    assert rows is not None
    if overwrite:
        writes.overwrite(staged, given)
    elif rows.num_rows:
        writes.append_table(staged, rows)
    return int(rows.num_rows)


def _query(
    desk: Desk, insert: Insert, columns: tuple[Column, ...] | None, defaults: Defaults
) -> str:
    """The query, with what DEFAULT stands for."""
    cells = insert.values
    if cells is None or columns is None or not any(is_default(one) for row in cells for one in row):
        return insert.query

    def default(column: Column) -> str:
        # In VALUES an engine evaluates nothing that differs from row to row.
        fresh = column.name in defaults and defaults.values[column.name] is None
        return f"'{defaults.one(column.name)}'" if fresh else desk.default(column)

    rows = (
        ", ".join(
            value_of(cell, column, default) for cell, column in zip(row, columns, strict=True)
        )
        for row in cells
    )
    return "VALUES " + ", ".join(f"({row})" for row in rows)


def _assigned(
    frame: DataFrame,
    insert: Insert,
    columns: tuple[Column, ...] | None,
    schema: TableSchema,
    table: str,
) -> DataFrame:
    """The rows of a query as rows of the table."""
    if columns is None:
        columns = _by_name(frame.columns, schema, table)
    if len(frame.columns) != len(columns):
        raise wrong_count(table, [one.name for one in columns], len(frame.columns))
    _refuse_required(schema, columns, table)
    ansi = is_ansi(frame.sparkSession)
    chosen: dict[str, str] = {}
    names = [f"{HIDDEN}{number}" for number in range(len(columns))]
    given = zip(columns, names, frame.columns, arrow_types(frame), strict=True)
    for column, name, told, type_ in given:
        check_storable(type_, column, table, told, ansi=ansi)
        if insert.by_name and not same_fields(type_, column.type):
            raise _other_fields(table, column, type_name(type_))
        chosen[column.name] = stored(name, type_, column.type, ansi=ansi)
    return frame.toDF(*names).selectExpr(
        *[
            # A column that is left out gets its default from all that writes rows.
            f"{chosen[one.name]} AS {quote(one.name)}"
            for one in schema.columns
            if one.name in chosen
        ]
    )


def _by_name(given: Sequence[str], schema: TableSchema, table: str) -> tuple[Column, ...]:
    found = tuple(column_named(name, schema, table) for name in given)
    seen: set[str] = set()
    for name in given:
        if fold(name) in seen:
            raise WrongType(
                f"Table {table!r}: the query gives two columns named {name!r}. Rename one.",
                table=table,
                column=name,
            )
        seen.add(fold(name))
    return found


def _other_fields(table: str, column: Column, actual: str) -> WrongType:
    return WrongType(
        f"Table {table!r}: column {column.name!r} is {type_name(column.type)}, and the query gives "
        f"{actual}, whose fields have other names or another order. Put them in the same order.",
        table=table,
        column=column.name,
        expected=type_name(column.type),
        actual=actual,
    )
