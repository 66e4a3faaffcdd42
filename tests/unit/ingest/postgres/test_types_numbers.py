"""Numbers of PostgreSQL are held to the last digit, and given back as they were printed."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ingest.postgres.pg_types import (
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    NUMERIC,
    OID,
    converted,
    is_lost,
    numeric,
    values_of,
)

from tidelock.errors import WrongType
from tidelock.ingest.postgres.types import PgType

DIGITS = st.text("0123456789", min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("type_", "least", "most"),
    [(INT2, -(2**15), 2**15 - 1), (INT4, -(2**31), 2**31 - 1), (INT8, -(2**63), 2**63 - 1)],
)
def test_integers_reach_their_limits(type_: PgType, least: int, most: int) -> None:
    assert values_of(type_, str(least), None, "0", str(most)) == [least, None, 0, most]


def test_an_oid_is_not_negative_and_has_32_bits() -> None:
    assert values_of(OID, "4294967295") == [2**32 - 1]


@pytest.mark.parametrize("text", ["", " 1", "0x10", "1.0", "+", "NaN", "one", "1_000", "\u0661"])
def test_what_is_no_integer_is_refused_with_column_and_value(text: str) -> None:
    with pytest.raises(WrongType) as refused:
        converted(INT4, "1", text)
    assert (refused.value.column, refused.value.values) == ("c", [text])


@pytest.mark.parametrize("text", ["2147483648", "-2147483649", "9" * 30])
def test_an_integer_that_a_narrower_type_does_not_hold_keeps_its_text(text: str) -> None:
    assert is_lost(INT8, text, "INT")


def test_a_limit_is_held_beside_what_is_beyond_it() -> None:
    texts = ["2147483647", "2147483648", "-2147483648", None]
    assert converted(INT8, *texts, override="INT") == (
        [2**31 - 1, None, -(2**31), None],
        [False, True, False, False],
    )


def test_floats_are_exact_with_their_signs_and_endless_ones() -> None:
    texts = ["0", "-0", "0.1", "1e+300", "5e-324", "1.7976931348623157e+308", None, "1e-05"]
    values = values_of(FLOAT8, *texts, "100000000000000", "1e+15", "0.0001", "Infinity")
    assert values[2:6] == [0.1, 1e300, 5e-324, 1.7976931348623157e308]
    assert math.copysign(1, values[1]) == -1
    assert values_of(FLOAT8, "-Infinity", "Infinity") == [-math.inf, math.inf]
    assert math.isnan(values_of(FLOAT8, "NaN")[0])


def test_large_whole_floats_are_printed_in_digits_alone() -> None:
    texts = ["1719828000123", "-10000000000", "999999999999999", "12345678901.5", None, "0.001"]
    assert values_of(FLOAT8, *texts)[:2] == [1719828000123.0, -1e10]


def test_small_floats_are_printed_with_fewer_digits() -> None:
    texts = ["0.1", "-0", "100000", "1e+06", "1.234567e+06", "3.4028235e+38", "1e-45", "1e-05"]
    assert values_of(FLOAT4, *texts, None, "8.388608e+06", "1.6777216e+07")[2:4] == [1e5, 1e6]


def test_a_float_of_which_postgresql_prints_more_digits_than_are_needed_keeps_its_text() -> None:
    values, kept = converted(FLOAT8, "1", "9.999999999999999e+22")
    assert (values, kept) == ([1.0, 1e23], [False, True])


@pytest.mark.parametrize("text", ["", "nan", "inf", "1e999", "9" * 400, "0x1p3", "1,5", " 1", "1 "])
def test_what_is_no_float_is_refused(text: str) -> None:
    with pytest.raises(WrongType):
        converted(FLOAT8, "1", text)


def test_of_several_texts_the_one_that_is_no_float_is_named() -> None:
    with pytest.raises(WrongType) as refused:
        converted(FLOAT8, "NaN", "-Infinity", "1e-300", "1e+1000", "Infinity")
    assert refused.value.values == ["1e+1000"]


@given(st.lists(st.floats(width=32) | st.none()))
def test_any_small_float_is_given_back(numbers: list[float | None]) -> None:
    # As Python spells them, of which some are kept and none is lost.
    texts = [None if one is None else spelt(one) for one in numbers]
    values, _ = converted(FLOAT4, *texts)
    assert [repr(one) for one in values] == [repr(one) for one in numbers]


@given(st.lists(st.floats() | st.none()))
def test_any_float_is_given_back_and_held(numbers: list[float | None]) -> None:
    values, _ = converted(FLOAT8, *[None if one is None else spelt(one) for one in numbers])
    assert [repr(one) for one in values] == [repr(one) for one in numbers]


def spelt(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return repr(number)


def test_a_declared_numeric_has_as_many_digits_as_it_says() -> None:
    texts = ["1.50", "-0.50", "99999999.99", None, "0.00", "-99999999.99"]
    assert values_of(numeric(10, 2), *texts)[:2] == [Decimal("1.50"), Decimal("-0.50")]
    assert values_of(numeric(38, 0), "9" * 38, "-" + "9" * 38) == [10**38 - 1, 1 - 10**38]
    assert values_of(numeric(38, 38), "0." + "9" * 38, "-0." + "0" * 37 + "1")[1] < 0
    assert values_of(numeric(2, 2), "0.99", "0.00", "-0.01")[0] == Decimal("0.99")
    assert values_of(numeric(20, 10), "0.0000000001", "0.0000000000", "1.0000000000")[1] == 0


@pytest.mark.parametrize("type_", [numeric(10, 2), numeric(50, 10), NUMERIC])
@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_numerics_that_are_no_numbers_keep_their_text(type_: PgType, text: str) -> None:
    assert is_lost(type_, text)


def test_numerics_that_no_decimal_is_like_have_18_digits_after_the_point() -> None:
    assert values_of(numeric(50, 10), "1.5000000000", "0.0000000000")[0] == Decimal("1.5")
    assert values_of(numeric(3, 5), "0.00999", "-0.00100")[1] == Decimal("-0.001")
    assert values_of(numeric(3, -2), "12300", "0", "-100") == [12300, 0, -100]
    assert is_lost(numeric(50, 2), "1" * 21 + ".00")
    assert is_lost(numeric(60, 30), "0." + "0" * 29 + "1")
    assert converted(numeric(60, 30), "1.5" + "0" * 29) == ([Decimal("1.5")], [False])


def test_a_numeric_without_scale_keeps_its_text_only_where_it_ends_in_zeros() -> None:
    texts = ["1.5", "1.50", "100", "0", "0.0", None, "-0.000000000000000001", "12.000"]
    values, kept = converted(NUMERIC, *texts)
    assert values[:5] == [Decimal("1.5"), Decimal("1.5"), 100, 0, 0]
    assert kept == [False, True, False, False, True, False, False, True]


def test_a_numeric_is_never_rounded() -> None:
    assert is_lost(NUMERIC, "0.0000000000000000001")
    assert is_lost(NUMERIC, "1" * 21)
    assert is_lost(NUMERIC, "3." + "3" * 19)
    assert is_lost(numeric(10, 2), "1.505")
    assert is_lost(numeric(10, 2), "1" * 9 + ".00")
    assert is_lost(numeric(38, 2), "9" * 37 + ".00")


@given(st.lists(st.tuples(st.sampled_from(["", "-"]), DIGITS, st.none() | DIGITS)))
def test_any_numeric_is_held_exactly_or_its_text_is_kept(
    parts: list[tuple[str, str, str | None]],
) -> None:
    texts = [
        f"{sign}{whole.lstrip('0') or '0'}" + ("" if after is None else f".{after}")
        for sign, whole, after in parts
    ]
    for type_ in (NUMERIC, numeric(38, 18), numeric(50, 3)):
        values, kept = converted(type_, *texts)
        for text, value, is_kept in zip(texts, values, kept, strict=True):
            assert value is not None or is_kept
            assert value is None or value == Decimal(text)


@pytest.mark.parametrize("text", ["", ".", "1.", ".5", "1e5", "1,5", "-", "--1", "nan", "1 "])
def test_what_is_no_numeric_is_refused(text: str) -> None:
    with pytest.raises(WrongType):
        converted(numeric(10, 2), "1.00", text)
    with pytest.raises(WrongType):
        converted(NUMERIC, text)


def test_decimals_may_be_asked_for() -> None:
    assert values_of(NUMERIC, "1.5", "100", override="DECIMAL(20,4)") == [Decimal("1.5"), 100]
    assert values_of(numeric(10, 2), "1.50", override="DECIMAL(20,4)") == [Decimal("1.5")]
    assert values_of(numeric(10, 2), "1.50", override="DECIMAL(20,1)") == [Decimal("1.5")]
    assert values_of(numeric(10, 2), "1.00", override="DECIMAL(20,0)") == [1]
    assert values_of(INT8, str(-(2**63)), "0", override="DECIMAL(38,2)") == [-(2**63), 0]
    assert is_lost(numeric(10, 2), "1.25", "DECIMAL(20,1)")
