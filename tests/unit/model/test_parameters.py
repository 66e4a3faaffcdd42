"""Parameters of SQL: found in a text, given values, and never made a part of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidelock.errors import InvalidExpression, InvalidOption
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.expressions import parse_assignment, parse_filter
from tidelock.model.sql.parameters import bind

SCHEMA = TableSchema(
    (
        Column("id", pa.int64()),
        Column("s", pa.string()),
        Column("f", pa.float64()),
        Column("d", pa.date32()),
        Column("t", pa.timestamp("us", "UTC")),
        Column("m", pa.decimal128(10, 2)),
        Column("b", pa.binary()),
    )
)
HOSTILE = [
    "'",
    "''; DROP TABLE t; --",
    '"',
    "`",
    "\\",
    "\\'",
    "${spark.app.name}",
    "{t0}",
    ":p0",
    "?",
    "/*",
    "\n",
    "\0",
    "é\u2028",
]


def test_parameters_by_name_stay_where_they_are() -> None:
    bound = bind("a = :x AND b = :y_2 OR c = :x", {"x": 1, "y_2": "two"})
    assert bound.text == "a = :x AND b = :y_2 OR c = :x"
    assert bound.values == {"x": 1, "y_2": "two"}
    assert bound.within("b = :y_2") == {"y_2": "two"}


def test_parameters_by_position_get_names_so_that_parts_can_move() -> None:
    bound = bind("a = ? -- ?\nAND b = '?' AND c = ?", [1, None])
    first, second = bound.values
    assert bound.text == f"a = :{first} -- ?\nAND b = '?' AND c = :{second}"
    assert list(bound.values.values()) == [1, None]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT payload:id, payload:a.b FROM t",
        "SELECT CAST(a AS STRUCT<x:INT, date:DATE, `y`:INT>)",
        "SELECT x::INT",
        "SELECT ':x', \":x\", `:x` -- :x\n/* :x */",
    ],
)
def test_other_colons_are_none(text: str) -> None:
    assert bind(text, None).values == {}


@pytest.mark.parametrize(
    ("text", "params", "told"),
    [
        ("a = :x", None, "params={'x': ...}"),
        ("a = :x", {"y": 1}, ":x has no value"),
        ("a = :amount", {"amount": 1, "amont": 2}, "Did you mean 'amount'?"),
        ("a = 1", {"x": 1}, "no parameter :x"),
        ("a = :x", [1], "are a mapping"),
        ("a = ?", {"x": 1}, "are a list"),
        ("a = ?", "x", "are a list"),
        ("a = ?", [1, 2], "1 parameters (?), and 2 values"),
        ("a = :x", {"x": [1]}, "given as a relation"),
        ("a = :x", {"x": object()}, ":x cannot be"),
        ("a = :x", {"x": Decimal("NaN")}, "up to 38 digits"),
        ("a = :x", {"x": 10**40}, "up to 38 digits"),
        ("a = :x", {"x": "\ud800"}, "half a character"),
    ],
)
def test_values_that_do_not_fit_the_text_are_refused(text: str, params: Any, told: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        bind(text, params)
    assert told in str(caught.value)


def test_both_kinds_in_one_text_are_refused() -> None:
    with pytest.raises(InvalidExpression, match="Line 2"):
        bind("a = :x\nAND b = ?", {"x": 1})


def test_the_advice_for_a_missing_value_is_in_the_words_of_the_door() -> None:
    with pytest.raises(InvalidOption) as caught:
        bind("a = :x", None)
    assert "--param x=VALUE" in caught.value.told("shell")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), 3),
        (np.float64(1.5), 1.5),
        (2**70, Decimal(2**70)),
        (Decimal("1E+3"), Decimal("1000")),
        (
            dt.datetime(2024, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))),
            dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
        ),
    ],
)
def test_values_are_made_plain(value: Any, expected: Any) -> None:
    (found,) = bind("a = :x", {"x": value}).values.values()
    assert (type(found), found) == (type(expected), expected)


def test_a_local_time_is_cast_by_the_text_which_does_not_hold_it() -> None:
    bound = bind("a < :x", {"x": dt.datetime(2024, 1, 2, 3, 4, 5)})
    assert bound.text == "a < CAST(:x AS TIMESTAMP_NTZ)"
    assert bound.values == {"x": "2024-01-02 03:04:05"}


@pytest.mark.parametrize(
    ("sql", "value", "lance"),
    [
        ("id = :x", 5, "`id` = 5"),
        ("id = :x", -5, "`id` = -5"),
        ("id IN (:x, 2)", None, "`id` IN (2)"),
        ("id = :x", None, "false"),
        ("f > :x", 1.5, "(`f` > 1.5 OR isnan(`f`))"),
        ("f > :x", float("nan"), None),
        ("m = :x", Decimal("-1.10"), "`m` = cast('-1.10' as decimal(10,2))"),
        ("b = :x", b"\0'", "`b` = X'0027'"),
        ("d >= :x", dt.date(2024, 1, 2), "`d` >= date '2024-01-02'"),
        ("s LIKE :x", "a%", "`s` LIKE 'a%'"),
        ("s LIKE :x", "a\\%", None),
    ],
)
def test_lance_is_given_the_value_as_a_literal_of_its_own(
    sql: str, value: Any, lance: str | None
) -> None:
    assert parse_filter(sql, SCHEMA, parameters={"x": value}).lance == lance


@pytest.mark.parametrize("value", HOSTILE, ids=ascii)
def test_hostile_text_is_one_literal(value: str) -> None:
    found = parse_filter("s = :x", SCHEMA, parameters={"x": value})
    assert found.lance == "`s` = '" + value.replace("'", "''") + "'"
    assert found.sql == "s = :x"
    rows = pa.table({"s": ["old"]})
    assigned = parse_assignment("s", ":x", SCHEMA, parameters={"x": value})
    assert assigned.evaluate(rows).to_pylist() == [value]
