"""Leaf filters: which rows of a table surely do not pass the conditions above its scan.

A body keeps a row only if all its conditions are true. The parts of them that compare one column
with a constant are understood here, so that rows which cannot pass are left out before their join
values are followed. What is not understood is left to the engine.

Law: a body over the rows that may pass gives the same rows as over all of them.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from tidelock.model.sql.predicates import conjuncts

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_COMPARED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("equal", "equal"),
    exp.LT: ("less", "greater"),
    exp.LTE: ("less_equal", "greater_equal"),
    exp.GT: ("greater", "less"),
    exp.GTE: ("greater_equal", "less_equal"),
}
"""Arrow's name of a comparison, and of the same with its sides exchanged."""


@dataclass(frozen=True)
class Test:
    """A comparison of one column with constants; with several, one of them must be equal."""

    column: str
    compare: str
    constants: tuple[object, ...]


@lru_cache(maxsize=4096)
def find_tests(condition: str) -> tuple[Test, ...]:
    """The tests that a condition in Spark SQL contains, all of which must be true."""
    try:
        root = parse_one(condition, dialect="spark")
    except SqlglotError:
        return ()
    return tuple(test for part in conjuncts(root) for test in _tests(part))


def _tests(part: exp.Expr) -> Iterator[Test]:
    if type(part) in _COMPARED:
        compare, exchanged = _COMPARED[type(part)]
        for column, constant, name in (
            (part.this, part.expression, compare),
            (part.expression, part.this, exchanged),
        ):
            yield from _test(column, name, [constant])
    elif isinstance(part, exp.In) and part.expressions:
        yield from _test(part.this, "equal", part.expressions)
    elif isinstance(part, exp.Between):
        yield from _test(part.this, "greater_equal", [part.args["low"]])
        yield from _test(part.this, "less_equal", [part.args["high"]])


def _test(column: exp.Expr, compare: str, constants: Iterable[exp.Expr]) -> Iterator[Test]:
    values = [_constant(one.unnest()) for one in constants]
    if isinstance(column, exp.Column) and not column.table and None not in values:
        yield Test(column.name, compare, tuple(values))


def _constant(node: exp.Expr) -> object | None:
    """The value of a constant: text, a whole number, a decimal or a date; None for others."""
    if isinstance(node, exp.Neg):
        value = _constant(node.this)
        return -value if isinstance(value, int | Decimal) else None
    if isinstance(node, exp.Cast):
        text = node.this
        if node.to.this is exp.DType.DATE and isinstance(text, exp.Literal) and text.is_string:
            return _date(text.this)
        return None
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return str(node.this)
    text = str(node.this)
    if re.fullmatch(r"\d+", text):
        return int(text)
    return Decimal(text) if re.fullmatch(r"\d*\.\d+", text) else None


def _date(text: str) -> dt.date | None:
    try:
        return dt.date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def may_pass(rows: pa.Table, tests: Iterable[Test]) -> pa.Table:
    """The rows that pass all tests that can be made of them."""
    for test in tests:
        if not rows.num_rows:
            break
        passed = _passed(rows.column(test.column), test)
        if passed is not None:
            rows = rows.filter(passed)
    return rows


def _passed(column: pa.ChunkedArray, test: Test) -> pa.ChunkedArray | None:
    constants = [_fitting(value, column.type) for value in test.constants]
    if None in constants:
        return None
    if len(constants) > 1:
        values = pa.array(constants, column.type)
        return pc.is_in(column, value_set=values, skip_nulls=True)
    compare: Callable[..., Any] = getattr(pc, test.compare)
    return compare(column, pa.scalar(constants[0], column.type))


def _fitting(value: object, kind: pa.DataType) -> object | None:
    """The constant as a value of the column's type, if it has one that means exactly the same."""
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else None
    if pa.types.is_date32(kind):
        return _date(value) if isinstance(value, str) else value if type(value) is dt.date else None
    if pa.types.is_integer(kind):
        fits = isinstance(value, int) and abs(value) < 2 ** (kind.bit_width - 1)
        return value if fits else None
    if pa.types.is_decimal(kind) and isinstance(value, int | Decimal):
        try:
            pa.scalar(Decimal(value), kind)
        except pa.ArrowInvalid:
            return None
        return Decimal(value)
    return None
