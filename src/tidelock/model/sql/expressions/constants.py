"""Python values as constants of Spark SQL: as text, and as trees.

Law: the constant has the value, and the type that Spark gives it when it is bound as a parameter.
A value that a user bound never becomes text: its tree is made from the value itself.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import TypeAlias

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect

from tidelock.errors import InvalidExpression

PythonValue: TypeAlias = (
    bool | int | float | decimal.Decimal | str | bytes | dt.date | dt.datetime | None
)

_SPARK = Dialect.get_or_raise("spark")


def sql_literal(value: object) -> str:
    """A Python value as a Spark SQL literal, in UTC where it is an instant."""
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return f"{value!r}D"
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return f"{value:f}BD"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        instant = value.astimezone(dt.UTC).replace(tzinfo=None)
        return f"TIMESTAMP '{instant.isoformat(sep=' ')}Z'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    raise InvalidExpression(
        f"{value!r} ({type(value).__name__}) has no form in Spark SQL. Write it as text.",
        expression=str(value),
    )


def literal_tree(value: PythonValue) -> exp.Expr | None:
    """The constant as a tree; None for a number that SQL has no literal for, such as NaN."""
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    # Numbers and times are written by Python: nothing of a user's text is in them.
    text = sql_literal(value)
    return _SPARK.parser().parse_into(exp.Condition, _SPARK.tokenize(text), text)[0]
