"""The error for rows that break a rule: which rule, how many rows, and the first of them.

Table 'orders': rule 'orders_customer_id_fkey' is broken by 3 rows: customer_id = 7 is not in
customers (id), customer_id = 9 is not in customers (id). Nothing was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tidelock.errors import Advice, InvalidExpression, RuleBroken
from tidelock.model.names import is_hidden
from tidelock.model.schema.rules import Rule
from tidelock.store.rows.refusals import OFFENDERS_MAX, tell_literal, tell_value
from tidelock.store.rules.prospect import Prospect
from tidelock.store.tables.fragments import Addresses

ROWS_MAX = 10
"""So many rows are handed over with the error; its text names OFFENDERS_MAX."""


def rule_broken(
    prospect: Prospect,
    table_id: str,
    rule: Rule,
    count: int,
    rows: Sequence[dict[str, Any]],
    told: Sequence[str],
    more: int,
    advice: Advice | None = None,
) -> RuleBroken:
    """`told` says what is wrong, once for each of the first values or rows; `more` how many there
    are that are not told."""
    table = prospect.name(table_id)
    rest = f" and {more:,} more" if more > 0 else ""
    by = "" if not count else " by 1 row" if count == 1 else f" by {count:,} rows"
    reason = f"{', '.join(told)}{rest}"
    return RuleBroken(
        f"Table {table!r}: rule {rule.name!r} is broken{by}: {reason}. Nothing was written.",
        advice,
        table=table,
        rule=rule.name,
        kind=rule.kind,
        count=count,
        reason=reason,
        rows=list(rows)[:ROWS_MAX],
    )


def rows_at(prospect: Prospect, table_id: str, addresses: Addresses) -> list[dict[str, Any]]:
    """The first of some rows, as mappings of columns to values."""
    first = np.sort(addresses)[:ROWS_MAX]
    names = [name for name in prospect.schema(table_id).names if not is_hidden(name)]
    return rows_of(prospect.rows_at(table_id, first, names))


def rows_of(rows: pa.Table) -> list[dict[str, Any]]:
    names = rows.column_names
    return [
        {name: tell_value(rows.column(name)[row]) for name in names}
        for row in range(min(ROWS_MAX, rows.num_rows))
    ]


def tell_values(columns: Sequence[str], values: pa.Table) -> list[str]:
    """The first of some values of columns: `a = 1`, or `(a, b) = (1, 'x')`."""
    shown = values.slice(0, OFFENDERS_MAX)
    name = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
    found = []
    for row in range(shown.num_rows):
        told = [tell(tell_value(column[row])) for column in shown.columns]
        found.append(f"{name} = {told[0] if len(told) == 1 else '(' + ', '.join(told) + ')'}")
    return found


def tell_row(row: dict[str, Any], columns: Sequence[str]) -> str:
    """Some columns of a row."""
    return ", ".join(f"{name} = {tell(row[name])}" for name in columns)


def tell(value: object) -> str:
    try:
        return tell_literal(value)
    except InvalidExpression:
        # Lists, structs and numbers that SQL has no literal for.
        return str(value)
