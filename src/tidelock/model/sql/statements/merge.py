"""Reading MERGE.

    [WITH ...] MERGE INTO t [[AS] alias]
    USING { source | (query) } [[AS] alias [(columns)]] ON condition
    WHEN MATCHED [AND condition] THEN { UPDATE SET * | UPDATE SET column = value, ... | DELETE }
    WHEN NOT MATCHED [BY TARGET] [AND condition] THEN INSERT { * | (columns) VALUES (values) }
    WHEN NOT MATCHED BY SOURCE [AND condition] THEN { UPDATE SET column = value, ... | DELETE }

There may be several clauses of a kind: of each pair of rows, the first one counts whose condition
is true. Only the last of a kind may have none.
"""

from __future__ import annotations

from tidelock.model.names import fold, quote
from tidelock.model.sql.cursor import Cursor
from tidelock.model.sql.statements.changes import column_of, read_assignments, read_table
from tidelock.model.sql.statements.definition import Action, Assigned, Merge, Rows, When

_MAY_DO: dict[Rows, tuple[Action, ...]] = {
    "matched": ("update", "delete"),
    "not matched": ("insert",),
    "not matched by source": ("update", "delete"),
}


def read_merge(cursor: Cursor) -> Merge:
    cursor.need("MERGE")
    if cursor.sees("WITH"):
        cursor.refuse("WITH SCHEMA EVOLUTION is not supported: change the table's columns first.")
    cursor.need("INTO")
    table = read_table(cursor)
    alias = cursor.alias("USING") or table
    cursor.need("USING")
    if cursor.sees("("):
        cursor.need("(")
        source, source_name = cursor.until("a query", ")"), None
        cursor.need(")")
    else:
        source_name = read_table(cursor)
        source = f"SELECT * FROM {quote(source_name)}"
    source_alias = cursor.alias("ON") or source_name
    columns = cursor.listed("a column") if source_alias and cursor.sees("(") else None
    cursor.need("ON")
    on = cursor.until("a condition", "WHEN")
    clauses: list[When] = []
    while not cursor.ended:
        clauses.append(_read_clause(cursor, alias))
    if not clauses:
        cursor.fail("WHEN")
    _refuse_unreachable(cursor, clauses)
    return Merge(
        table,
        alias,
        source,
        source_name,
        source_alias,
        columns,
        on,
        tuple(clauses),
        cursor.definitions,
    )


def _read_clause(cursor: Cursor, alias: str) -> When:
    place = cursor.offset
    cursor.need("WHEN")
    rows = _read_rows(cursor)
    condition = cursor.until("a condition", "THEN") if cursor.take("AND") else None
    cursor.need("THEN")
    told = cursor.offset
    action, assignments = _read_action(cursor, alias)
    if action not in _MAY_DO[rows]:
        may = " or ".join(one.upper() for one in _MAY_DO[rows])
        cursor.refuse(f"WHEN {rows.upper()} may {may}, not {action.upper()}.", at=told)
    if assignments is None and rows == "not matched by source":
        cursor.refuse("rows that no source row matches have no values for *. Set columns.", at=told)
    return When(rows, action, condition, assignments, place)


def _read_rows(cursor: Cursor) -> Rows:
    if cursor.take("MATCHED"):
        return "matched"
    cursor.need("NOT", "MATCHED")
    if cursor.take("BY", "SOURCE"):
        return "not matched by source"
    cursor.take("BY", "TARGET")
    return "not matched"


def _read_action(cursor: Cursor, alias: str) -> tuple[Action, tuple[Assigned, ...] | None]:
    if cursor.take("DELETE"):
        return "delete", ()
    if cursor.take("UPDATE"):
        cursor.need("SET")
        if cursor.take("*"):
            return "update", None
        return "update", read_assignments(cursor, (alias,), "WHEN")
    if not cursor.take("INSERT"):
        cursor.fail("UPDATE SET, DELETE or INSERT")
    return "insert", None if cursor.take("*") else _read_inserted(cursor, alias)


def _read_inserted(cursor: Cursor, alias: str) -> tuple[Assigned, ...]:
    place = cursor.offset
    cursor.need("(")
    columns = [column_of(cursor, (alias,))]
    while cursor.take(","):
        columns.append(column_of(cursor, (alias,)))
    cursor.need(")")
    if len({fold(column) for column in columns}) < len(columns):
        cursor.refuse("a column is listed twice. List it once.", at=place)
    cursor.need("VALUES")
    cursor.need("(")
    values = [cursor.until("a value", ",", ")")]
    while cursor.take(","):
        values.append(cursor.until("a value", ",", ")"))
    cursor.need(")")
    if len(values) != len(columns):
        cursor.refuse(
            f"INSERT lists {len(columns)} columns and {len(values)} values. Give each column one.",
            at=place,
        )
    return tuple(Assigned(column, value) for column, value in zip(columns, values, strict=True))


def _refuse_unreachable(cursor: Cursor, clauses: list[When]) -> None:
    for rows in _MAY_DO:
        mine = [clause for clause in clauses if clause.rows == rows]
        for clause in mine[:-1]:
            if clause.condition is None:
                cursor.refuse(
                    f"this WHEN {rows.upper()} has no condition, so that those after it would "
                    "never be reached. Put it last.",
                    at=clause.at,
                )
