"""Reading INSERT, UPDATE, DELETE and TRUNCATE.

    [WITH ...] INSERT INTO [TABLE] t [(columns) | BY NAME] query
    [WITH ...] INSERT OVERWRITE [TABLE] t [(columns) | BY NAME] query
    [WITH ...] INSERT INTO [TABLE] t REPLACE WHERE condition query
    [WITH ...] UPDATE t [[AS] alias] SET column = value, ... [WHERE condition]
    [WITH ...] DELETE FROM t [[AS] alias] [WHERE condition]
    TRUNCATE TABLE t

A query is SELECT ..., VALUES ..., TABLE ... or FROM ..., as in Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelock.model.names import fold
from tidelock.model.sql.cursor import Cursor
from tidelock.model.sql.statements.definition import (
    Assigned,
    Cells,
    Delete,
    Insert,
    Truncate,
    Update,
)

_QUERY_BEGINS = ("SELECT", "VALUES", "TABLE", "FROM", "WITH")
_VALUES_ENDS = ("AS", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT")


def read_table(cursor: Cursor) -> str:
    """The name of a table. A lake has no databases: what stands before a name is part of it, and
    then there is no such table."""
    if cursor.sees("IDENTIFIER", "("):
        cursor.refuse("a table must be named in the text itself.")
    return ".".join(cursor.names("the name of a table"))


def read_insert(cursor: Cursor) -> Insert:
    cursor.need("INSERT")
    overwrite = cursor.take("OVERWRITE")
    if not overwrite:
        cursor.need("INTO")
    # `INSERT INTO TABLE t`, and not a table that is called so.
    if not cursor.sees("TABLE", "("):
        cursor.take("TABLE")
    table = read_table(cursor)
    if cursor.sees("PARTITION", "(") or cursor.sees("OPTIONS", "("):
        cursor.refuse("tables have no partitions and take no options. Remove this.")
    by_name = cursor.take("BY", "NAME")
    columns = None if by_name or not _lists_columns(cursor) else cursor.listed("a column")
    replace_where = None
    if cursor.take("REPLACE"):
        if overwrite or by_name or columns is not None:
            cursor.refuse("REPLACE WHERE stands behind INSERT INTO and the table alone.")
        cursor.need("WHERE")
        # Not at FROM, which a condition may hold (IS DISTINCT FROM).
        replace_where = cursor.until("a condition", "SELECT", "VALUES", "TABLE", "WITH")
    if columns is not None:
        _refuse_repeated(cursor, columns)
    values = _cells(cursor)
    query = cursor.until("a query: SELECT, VALUES or TABLE")
    if cursor.definitions:
        query, values = f"{cursor.definitions}\n{query}", None
    return Insert(table, query, columns, by_name, overwrite, replace_where, values)


def _lists_columns(cursor: Cursor) -> bool:
    """Whether a list of columns comes next, and not a query in parentheses."""
    return cursor.sees("(") and not any(
        cursor.sees(*["("] * depth, begin) for depth in (1, 2, 3) for begin in _QUERY_BEGINS
    )


def _cells(cursor: Cursor) -> Cells | None:
    """The cells of a query that is VALUES and nothing else."""
    ahead = cursor.copy()
    if not ahead.take("VALUES"):
        return None
    rows: list[tuple[str, ...]] = []
    while True:
        if not ahead.take("("):
            # `VALUES 1, 2` are two rows of one column.
            rows.append((ahead.until("a value", ",", *_VALUES_ENDS),))
        else:
            cells = [ahead.until("a value", ",", ")")]
            while ahead.take(","):
                cells.append(ahead.until("a value", ",", ")"))
            ahead.need(")")
            rows.append(tuple(cells))
        if not ahead.take(","):
            return tuple(rows) if ahead.ended else None


def read_update(cursor: Cursor) -> Update:
    cursor.need("UPDATE")
    table = read_table(cursor)
    alias = cursor.alias("SET") or table
    cursor.need("SET")
    assignments = read_assignments(cursor, (alias,), "WHERE")
    where = cursor.until("a condition") if cursor.take("WHERE") else None
    cursor.end("the end of the statement")
    return Update(table, alias, assignments, where, cursor.definitions)


def read_assignments(cursor: Cursor, known_as: Iterable[str], *ends: str) -> tuple[Assigned, ...]:
    """`a = value, t.b = value, ...`, for a table that goes by one of these names."""
    found: list[Assigned] = []
    while True:
        place = cursor.offset
        column = column_of(cursor, known_as)
        cursor.need("=")
        found.append(Assigned(column, cursor.until("a value", ",", *ends)))
        if fold(column) in {fold(one.column) for one in found[:-1]}:
            cursor.refuse(f"the column {column!r} is set twice. Set it once.", at=place)
        if not cursor.take(","):
            return tuple(found)


def column_of(cursor: Cursor, known_as: Iterable[str]) -> str:
    """The column that is set, which may be named behind its table."""
    place = cursor.offset
    parts = cursor.names("a column")
    if len(parts) > 1 and fold(parts[0]) in {fold(name) for name in known_as}:
        parts = parts[1:]
    if len(parts) > 1:
        cursor.refuse(
            f"a field of a column cannot be set by itself ({'.'.join(parts)}). Set the whole "
            f"column: {parts[0]} = named_struct(...).",
            at=place,
        )
    return parts[0]


def read_delete(cursor: Cursor) -> Delete:
    cursor.need("DELETE")
    cursor.need("FROM")
    table = read_table(cursor)
    alias = cursor.alias("WHERE") or table
    where = cursor.until("a condition") if cursor.take("WHERE") else None
    cursor.end("the end of the statement")
    return Delete(table, alias, where, cursor.definitions)


def read_truncate(cursor: Cursor) -> Truncate:
    cursor.need("TRUNCATE", "TABLE")
    table = read_table(cursor)
    cursor.end("the end of the statement")
    return Truncate(table)


def _refuse_repeated(cursor: Cursor, columns: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for column in columns:
        if fold(column) in seen:
            cursor.refuse(f"the column {column!r} is listed twice. List it once.")
        seen.add(fold(column))
