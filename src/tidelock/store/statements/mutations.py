"""Running UPDATE, DELETE and TRUNCATE.

A condition or a value that needs no engine is evaluated here, as `tx.update` and `tx.delete` do;
one that reads other tables, or that only Spark can evaluate, by a query that gives the rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.model.names import quote
from tidelock.model.sql.expressions import Assignment
from tidelock.model.sql.statements.definition import Delete, Truncate, Update
from tidelock.model.sql.text import reads_query
from tidelock.store.operations.operations import Overwrite
from tidelock.store.queries import Numbered
from tidelock.store.spark.scan import ROW_ADDRESS, ROW_ID
from tidelock.store.spark.stage import numbers_of, rewrite_rows
from tidelock.store.staging import updates
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.statements.defaults import value_of
from tidelock.store.statements.desk import TARGET, Desk
from tidelock.store.statements.refusals import column_named, refused
from tidelock.store.statements.reports import StatementReport
from tidelock.store.table import Table


def run_update(desk: Desk, update: Update) -> StatementReport:
    staged = desk.stage(update.table)
    view = desk.view(staged)
    values: dict[str, str] = {}
    for one in update.assignments:
        column = column_named(one.column, view.schema, view.name)
        values[column.name] = value_of(one.value, column, desk.default)
    updated = _update_here(desk, update, staged, view, values)
    if updated is None:
        desk.announce()
        text, told = _update_query(update, view, values), refused(update, view.schema.names)
        frame = desk.query(text, told, target=Numbered(view))
        mutation = rewrite_rows(view, frame, values)
        updated = updates.stage_update(view, staged, mutation, values)
    return StatementReport(update.kind, staged.name, updated=updated)


def _update_here(
    desk: Desk, update: Update, staged: StagedTable, view: Table, values: Mapping[str, str]
) -> int | None:
    """The number of rows updated; None if the engine has to evaluate something."""
    texts = [*values.values(), update.where or ""]
    if update.definitions or any(reads_query(text) for text in texts):
        return None
    condition = None
    if update.where is not None:
        condition = desk.condition(update.where, view, update.alias)
    parsed: list[Assignment] = [
        desk.assignment(column, value, view, update.alias) for column, value in values.items()
    ]
    if any(one.native is None for one in parsed) or (condition and condition.lance is None):
        return None
    return updates.update_here(view, staged, parsed, condition)


def _update_query(update: Update, view: Table, values: Mapping[str, str]) -> str:
    # Inside of IF nothing can stand that gives several rows, or one for many.
    columns = [
        f"IF(true, ({values[name]}), NULL) AS {quote(name)}"
        if name in values
        else f"{quote(update.alias)}.{quote(name)}"
        for name in view.schema.names
    ]
    return _rows_query(update, [*columns, ROW_ID, ROW_ADDRESS])


def run_delete(desk: Desk, delete: Delete) -> StatementReport:
    staged = desk.stage(delete.table)
    deleted = delete_rows(desk, delete, staged)
    return StatementReport(delete.kind, staged.name, deleted=deleted)


def delete_rows(desk: Desk, delete: Delete, staged: StagedTable) -> int:
    """Stage the removal of the rows for which a condition is true; returns how many."""
    if delete.where is None:
        return _empty(desk, staged)
    view = desk.view(staged)
    if not delete.definitions and not reads_query(delete.where):
        condition = desk.condition(delete.where, view, delete.alias)
        if condition.lance is not None:
            return updates.delete_here(view, staged, condition)
    desk.announce()
    text, told = _rows_query(delete, [ROW_ID, ROW_ADDRESS]), refused(delete, view.schema.names)
    frame = desk.query(text, told, target=Numbered(view))
    return updates.stage_delete(view, staged, *numbers_of(view, frame))


def _rows_query(statement: Update | Delete, selected: list[str]) -> str:
    where = "" if statement.where is None else f"\nWHERE {statement.where}"
    return (
        f"{statement.definitions}\nSELECT {', '.join(selected)}\n"
        f"FROM {quote(TARGET)} AS {quote(statement.alias)}{where}"
    ).lstrip()


def run_truncate(desk: Desk, truncate: Truncate) -> StatementReport:
    staged = desk.tables.replacing_lost(desk.stage(truncate.table))
    return StatementReport(truncate.kind, staged.name, deleted=_empty(desk, staged))


def _empty(desk: Desk, staged: StagedTable) -> int:
    """Stage the removal of all rows; returns how many."""
    rows = desk.view(staged).count()
    if rows:
        staged.add(Overwrite([]))
    return rows
