"""NOT NULL for rows that are there already: looked for before a pin says that there are none.

A pin whose column is NOT NULL and holds a NULL cannot be read, so that this is asked of the pin
before it.
"""

from __future__ import annotations

from typing import Any

from tidelock.errors import RequiredColumnNull
from tidelock.model.names import is_hidden
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.store.lookup.literals import quote_for_lance
from tidelock.store.operations.counts import Target
from tidelock.store.rows.refusals import OFFENDERS_MAX, tell_keys, tell_value
from tidelock.store.tables.fragments import Dataset

ROWS_MAX = 10


def refuse_nulls(target: Target, base: Dataset, before: TableSchema, after: TableSchema) -> None:
    """RequiredColumnNull if a column becomes NOT NULL that is NULL in a row."""
    for column in after.columns:
        old = before.with_id(column.id)
        if column.nullable or (old is not None and not old.nullable):
            continue
        if old is None:
            count = base.count_rows()
            if count:
                raise _without_value(target, column, count)
        else:
            where = f"{quote_for_lance(old.name)} IS NULL"
            count = base.count_rows(filter=where)
            if count:
                raise _null(target, base, before, column, where, count)


def _without_value(target: Target, column: Column, count: int) -> RequiredColumnNull:
    return RequiredColumnNull(
        f"Column {column.name!r} cannot come to table {target.name!r} as NOT NULL: its {count:,} "
        "rows would have no value in it. Give it a default, or a value for the rows that are "
        "there. Nothing was written.",
        table=target.name,
        column=column.name,
        expected="NOT NULL",
        actual="NULL",
        count=count,
        rows=[],
    )


def _null(
    target: Target,
    base: Dataset,
    schema: TableSchema,
    column: Column,
    where: str,
    count: int,
) -> RequiredColumnNull:
    names = [name for name in schema.names if not is_hidden(name)]
    found = base.scanner(columns=names, filter=where, limit=ROWS_MAX).to_table()
    rows = [
        {name: tell_value(found.column(name)[row]) for name in names}
        for row in range(found.num_rows)
    ]
    return RequiredColumnNull(
        f"Column {column.name!r} of table {target.name!r} cannot be NOT NULL: it is NULL in "
        f"{count:,} row{'s' if count > 1 else ''}{_where(schema, rows, count)}. Fill it first. "
        "Nothing was written.",
        table=target.name,
        column=column.name,
        expected="NOT NULL",
        actual="NULL",
        count=count,
        rows=rows,
    )


def _where(schema: TableSchema, rows: list[dict[str, Any]], count: int) -> str:
    if not schema.key:
        return ""
    keys = [[row[name] for name in schema.key] for row in rows[:OFFENDERS_MAX]]
    return f", with the {'keys' if count > 1 else 'key'} {tell_keys(keys, count)}"
