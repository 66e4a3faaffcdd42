"""Bodies as Spark SQL over relations with weights.

Every relation has a column for its weight; what a body gives has one too. The rows of a state weigh
1, those of a change 1 or -1.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelock.derive.algebra.operators import (
    Generate,
    Join,
    Leaf,
    Merge,
    Operator,
    OuterJoin,
    Select,
)
from tidelock.model.names import HIDDEN, quote

WEIGHT = f"{HIDDEN}w"
"""A name that no column of a table has."""


def body_sql(operator: Operator, relations: Mapping[int, str]) -> str:
    """The rows of a body (bodies.py) with their weights.

    `relations` gives for each leaf what stands in FROM.
    """
    if isinstance(operator, Leaf):
        columns = [f"{quote(column)} AS {quote(name)}" for name, column in operator.columns]
        return f"SELECT {_listed(columns)} FROM {relations[operator.number]}"
    if isinstance(operator, Select):
        inner = body_sql(operator.input, relations)
        columns = [f"{column.sql} AS {quote(column.name)}" for column in operator.columns]
        where = f" WHERE {operator.condition.sql}" if operator.condition else ""
        return f"SELECT {_listed(columns)} FROM ({inner}){where}"
    if isinstance(operator, Generate):
        inner = body_sql(operator.input, relations)
        made = ", ".join(quote(name) for name in operator.names)
        outer = "OUTER " if operator.outer else ""
        return (
            f"SELECT {_listed([quote(name) for name in operator.output])} FROM ({inner}) "
            f"LATERAL VIEW {outer}{operator.sql} AS {made}"
        )
    if isinstance(operator, Join | OuterJoin):
        return _join(operator, relations)
    if isinstance(operator, Merge):
        return _merge(operator, relations)
    raise TypeError(f"{type(operator).__name__} is no part of a body")


def _join(join: Join | OuterJoin, relations: Mapping[int, str]) -> str:
    left, right = body_sql(join.left, relations), body_sql(join.right, relations)
    tests = [
        f"l.{quote(a)} {'<=>' if position in join.null_safe else '='} r.{quote(b)}"
        for position, (a, b) in enumerate(join.keys)
    ]
    if join.condition is not None:
        tests.append(f"({join.condition.sql})")
    columns = [f"l.{quote(name)}" for name in join.left.output]
    if isinstance(join, OuterJoin) and join.kind == "anti":
        kind, weight = "LEFT ANTI JOIN", f"l.{WEIGHT}"
    else:
        columns += [f"r.{quote(name)}" for name in join.right.output]
        kind, weight = "JOIN", f"l.{WEIGHT} * r.{WEIGHT} AS {WEIGHT}"
        if isinstance(join, OuterJoin):
            # The right is a state, whose rows weigh 1; the left may be a change.
            kind, weight = "LEFT JOIN", f"l.{WEIGHT}"
        elif not tests:
            kind = "CROSS JOIN"
    on = f" ON {' AND '.join(tests) or 'TRUE'}" if tests or kind != "CROSS JOIN" else ""
    return f"SELECT {', '.join([*columns, weight])} FROM ({left}) l {kind} ({right}) r{on}"


def _merge(merge: Merge, relations: Mapping[int, str]) -> str:
    parts: list[str] = []
    for one in merge.inputs:
        columns = []
        for position, (name, renamed) in enumerate(zip(one.output, merge.names, strict=True)):
            # Alone, an input may have another type than among the others.
            sql = f"CAST({quote(name)} AS {merge.types[position]})" if merge.types else quote(name)
            columns.append(f"{sql} AS {quote(renamed)}")
        inner = body_sql(one, relations)
        parts.append(f"SELECT {_listed(columns)} FROM ({inner})")
    return " UNION ALL ".join(parts)


def _listed(columns: list[str]) -> str:
    return ", ".join([*columns, WEIGHT])
