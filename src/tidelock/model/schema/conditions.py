"""Conditions of rules: what must hold of every row, or which rows a rule is about.

Owns: which expressions may be one. A condition is asked of a row when it is written, and again when
the row is looked at for another reason, on whatever machine: so it reads the columns of one row and
nothing else.
"""

from __future__ import annotations

from tidelock.errors import InvalidSchema
from tidelock.model.names import fold
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.calls import calls_in, depends_on, moment_in
from tidelock.model.sql.expressions import parse_filter
from tidelock.model.sql.trees import without_table


def row_condition(sql: str, schema: TableSchema, table: str) -> tuple[str, tuple[str, ...]]:
    """The condition, with columns named without their table, and the columns that it reads."""
    columns = parse_filter(sql, schema, table_name=table).columns
    for called in calls_in(sql, schema.names):
        reason = depends_on(called)
        if reason is not None:
            raise _unsettled(sql, table, f"{called}()", reason, function=called)
    moment = moment_in(sql)
    if moment is not None:
        raise _unsettled(sql, table, moment, "the time")
    bare = without_table(sql, table)
    if bare != sql and any(fold(name) == fold(table) for name in schema.names):
        raise InvalidSchema(
            f"{sql!r} cannot be a rule of table {table!r}: a column has the name of the table, so "
            "that it is not clear which of them is meant. Name columns without the table.",
            table=table,
            condition=sql,
        )
    return bare, columns


def _unsettled(sql: str, table: str, part: str, reason: str, **evidence: object) -> InvalidSchema:
    return InvalidSchema(
        f"{sql!r} cannot be a rule of table {table!r}: the answer of {part} depends on {reason}, "
        "and a rule holds of a row for good. Compare columns of the row, with each other or with "
        "constants.",
        table=table,
        condition=sql,
        **evidence,
    )
