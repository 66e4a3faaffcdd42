"""Text becomes exactly the value that it says, or is refused with the reason."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelock.ingest.files.text import TextMisfit, array_from_text
from tidelock.model.types import TIMESTAMP, TIMESTAMP_NTZ
from tidelock.store.rows.json_values import python_values

DECIMAL = pa.decimal128(12, 2)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def read(text: str, type_: pa.DataType) -> Any:
    return array_from_text(pa.array([text]), type_)[0].as_py()


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("5", pa.int64(), 5),
        (" +5 ", pa.int64(), 5),
        ("-128", pa.int8(), -128),
        ("1e3", pa.float64(), 1000.0),
        ("-Infinity", pa.float64(), float("-inf")),
        ("1.5", DECIMAL, Decimal("1.50")),
        ("1.500", DECIMAL, Decimal("1.50")),
        ("1e2", DECIMAL, Decimal("100.00")),
        ("  7", DECIMAL, Decimal("7.00")),
        ("0.000", DECIMAL, Decimal("0.00")),
        ("TRUE", pa.bool_(), True),
        ("no", pa.bool_(), False),
        ("2026-03-01", pa.date32(), date(2026, 3, 1)),
        ("2026-03-01T12:00:00Z", TIMESTAMP, NOON),
        ("2026-03-01 14:00:00+02:00", TIMESTAMP, NOON),
        ("2026-03-01 12:00:00", TIMESTAMP, NOON),
        ("2026-03-01 12:00", TIMESTAMP, NOON),
        ("2026-03-01 12:00:00.5", TIMESTAMP, NOON.replace(microsecond=500_000)),
        ("2026-03-01 12:00:00.500000000Z", TIMESTAMP, NOON.replace(microsecond=500_000)),
        ("2026-03-01", TIMESTAMP_NTZ, datetime(2026, 3, 1)),
        ("aGk=", pa.binary(), b"hi"),
        (" a ", pa.string(), " a "),
    ],
)
def test_text_becomes_the_value_that_it_says(text: str, type_: pa.DataType, value: Any) -> None:
    assert read(text, type_) == value


@pytest.mark.parametrize(
    ("text", "type_", "reason"),
    [
        ("5.0", pa.int64(), "it is not a whole number"),
        ("0x10", pa.int64(), "it is not a whole number"),
        ("1_000", pa.int64(), "it is not a whole number"),
        ("", pa.int64(), "it is not a whole number"),
        ("128", pa.int8(), "it is out of range"),
        ("1e999", pa.float64(), "it is out of range"),
        ("x", pa.float64(), "it is not a number"),
        ("1.234", DECIMAL, "it has more than 2 digits after the point"),
        ("12345678901", DECIMAL, "it has more than 10 digits before the point"),
        ("NaN", DECIMAL, "it is not a number"),
        ("maybe", pa.bool_(), "it is neither true nor false"),
        ("01.03.2026", pa.date32(), "it is not a date such as 2026-03-01"),
        ("2026-02-30", pa.date32(), "day is out of range for month"),
        ("now", TIMESTAMP, "it is not a moment such as 2026-03-01 12:00:00"),
        ("2026-03-01 12:00:00.1234567", TIMESTAMP, "it is finer than microseconds"),
        ("2026-03-01 12:00:00Z", TIMESTAMP_NTZ, "it has a time zone"),
        ("%%", pa.binary(), "it is not base64"),
    ],
)
def test_text_that_says_no_such_value_is_refused(
    text: str, type_: pa.DataType, reason: str
) -> None:
    with pytest.raises(TextMisfit) as caught:
        read(text, type_)
    assert (caught.value.text, caught.value.reason) == (text, reason)


def test_the_first_text_that_does_not_fit_is_named_by_its_place() -> None:
    with pytest.raises(TextMisfit) as caught:
        array_from_text(pa.array(["1", None, "+2", "x", "y"]), pa.int64())
    assert (caught.value.position, caught.value.text) == (3, "x")


def test_moments_with_and_without_a_zone_may_be_mixed() -> None:
    texts = pa.array(["2026-03-01 12:00:00", None, "2026-03-01T14:00:00+02:00"])
    assert array_from_text(texts, TIMESTAMP).to_pylist() == [NOON, None, NOON]


VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    DECIMAL: st.decimals(-9_999_999_999, 9_999_999_999, places=2),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    TIMESTAMP_NTZ: st.datetimes(),
    pa.binary(): st.binary(),
    pa.string(): st.text(),
}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(list(VALUES)).flatmap(
        lambda type_: st.tuples(st.just(type_), st.lists(st.none() | VALUES[type_]))
    )
)
def test_what_is_written_as_text_is_read_as_the_same_value(
    case: tuple[pa.DataType, list[Any]],
) -> None:
    type_, values = case
    array = pa.array(values, type_)
    texts = [None if v is None else str(v) for v in python_values(array)]
    assert array_from_text(pa.array(texts, pa.string()), type_).equals(array)
