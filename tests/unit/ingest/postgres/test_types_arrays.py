"""Arrays are read as PostgreSQL writes them, and what a list cannot say keeps its text."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ingest.postgres.pg_types import (
    BOOL,
    BOX,
    BYTEA,
    DATE,
    FLOAT8,
    INT2,
    INT4,
    NUMERIC,
    TEXT,
    TIMESTAMPTZ,
    array,
    converted,
    domain,
    is_lost,
    numeric,
    values_of,
)

from tidelock.errors import WrongType
from tidelock.ingest.postgres.types import PgType

HOSTILE = '{a,"b,c","q\\"x","",NULL,"NULL","nUll"," ","\\\\","{}","a b","\n",é}'


def test_texts_are_told_apart_from_null_and_from_each_other() -> None:
    assert values_of(array(TEXT), HOSTILE, None, "{}", '{""}', "{x}") == [
        ["a", "b,c", 'q"x', "", None, "NULL", "nUll", " ", "\\", "{}", "a b", "\n", "é"],
        None,
        [],
        [""],
        ["x"],
    ]


def test_numbers_need_no_quotes() -> None:
    assert values_of(array(INT4), "{1,NULL,-3}", "{}", None, "{2147483647}", "{NULL}") == [
        [1, None, -3],
        [],
        None,
        [2**31 - 1],
        [None],
    ]
    assert values_of(array(INT4)) == []
    assert values_of(array(INT4), None) == [None]


def test_elements_are_of_every_type() -> None:
    assert values_of(array(BOOL), "{t,f,NULL}") == [[True, False, None]]
    assert values_of(array(BYTEA), '{"\\\\x00ff",NULL,"\\\\x"}') == [[b"\0\xff", None, b""]]
    assert values_of(array(DATE), "{2024-02-29}", "{}") == [[dt.date(2024, 2, 29)], []]
    assert values_of(array(FLOAT8), "{-0,1e+300}", "{0.1}")[1] == [0.1]
    assert values_of(array(numeric(10, 2)), "{1.50,NULL}") == [[Decimal("1.50"), None]]
    moments = '{"2024-07-01 10:00:00+00","2024-07-01 10:00:00.5+00"}'
    assert values_of(array(TIMESTAMPTZ), moments)[0][1].microsecond == 500_000


def test_elements_of_a_type_with_another_delimiter_may_hold_commas() -> None:
    assert values_of(array(BOX), "{(1,1),(0,0);(2,2),(1,1)}") == [["(1,1),(0,0)", "(2,2),(1,1)"]]


def test_arrays_of_a_domain_over_an_array_are_arrays_of_arrays() -> None:
    type_ = array(domain(array(INT4)))
    assert values_of(type_, '{"{1,2}","{}",NULL}', None) == [[[1, 2], [], None], None]
    assert is_lost(type_, '{"{{1},{2}}"}')


@pytest.mark.parametrize(
    "text",
    [
        "{{1,2},{3,4}}",
        "{{{1}}}",
        "[0:1]={1,2}",
        "[-5:-4]={1,2}",
        "[2:2][3:4]={{1,2}}",
        "{{1},{NULL}}",
    ],
)
def test_dimensions_and_bounds_keep_their_text(text: str) -> None:
    assert is_lost(array(INT4), text)


def test_several_dimensions_of_quoted_elements_keep_their_text() -> None:
    assert is_lost(array(TEXT), '{{"a,b","}"},{"\\"","{"}}')


def test_one_array_that_is_not_held_does_not_touch_those_around_it() -> None:
    texts = ["{1}", "{{1},{2}}", None, "{2,NULL}", "[0:0]={1}", "{}"]
    values, kept = converted(array(INT4), *texts)
    assert values == [[1], None, None, [2, None], None, []]
    assert kept == [False, True, False, False, True, False]


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (DATE, "{2024-01-01,infinity}"),
        (NUMERIC, "{1,NaN}"),
        (numeric(10, 2), "{NaN}"),
        (TIMESTAMPTZ, '{"0044-03-15 10:00:00+00 BC"}'),
    ],
)
def test_an_element_that_does_not_fit_keeps_the_whole_text(element: PgType, text: str) -> None:
    assert is_lost(array(element), text)


def test_an_element_that_is_printed_otherwise_keeps_the_text_beside_the_value() -> None:
    values, kept = converted(array(NUMERIC), "{1.5,NULL}", "{1.50,2}", "{}")
    assert values == [[Decimal("1.5"), None], [Decimal("1.5"), 2], []]
    assert kept == [False, True, False]


@pytest.mark.parametrize(
    "text",
    [
        *["", "{", "}", "1,2", "{1", "{1}}", "{1,}", "{,1}", '{"1}', "{1}2", "[0:1]", "[0:1]="],
        *["{1\\}", "{{1},2", '{"1"2}', "[a:b]={1}", "{" * 10_000, "{{{{{{{1}}}}}}}", "{x}", "{ 1}"],
    ],
)
def test_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(WrongType) as refused:
        converted(array(INT2), "{1}", text)
    assert refused.value.column == "c"


@given(st.lists(st.none() | st.lists(st.none() | st.text('a,"\\{} \nNUL;é', max_size=5))))
def test_any_texts_are_given_back(values: list[list[str | None] | None]) -> None:
    assert values_of(array(TEXT), *map(spelt, values)) == values


def spelt(items: list[str | None] | None) -> str | None:
    """An array as PostgreSQL's array_out prints it."""
    return None if items is None else "{" + ",".join(map(item, items)) + "}"


def item(text: str | None) -> str:
    if text is None:
        return "NULL"
    if text and text.upper() != "NULL" and not set(text) & set('"\\{}, \t\n\r\v\f'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
