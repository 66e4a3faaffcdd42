"""Days and moments between year 1 and year 9999 are held, and all others keep their text."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ingest.postgres.pg_types import (
    DATE,
    TIMESTAMP,
    TIMESTAMPTZ,
    converted,
    is_lost,
    values_of,
)

from tidelock.errors import WrongType
from tidelock.ingest.postgres.types import PgType

FAR = [
    "infinity",
    "-infinity",
    "0044-03-15{} BC",
    "0001-12-31{} BC",
    "10000-01-01{}",
    "294276-12-31{}",
]
TYPES = [(DATE, ""), (TIMESTAMP, " 10:00:00.5"), (TIMESTAMPTZ, " 10:00:00.5+00")]


def test_days_reach_from_year_1_to_year_9999() -> None:
    texts = ["0001-01-01", "1582-10-10", "1969-12-31", None, "2024-02-29", "9999-12-31"]
    assert values_of(DATE, *texts)[:2] == [dt.date(1, 1, 1), dt.date(1582, 10, 10)]


def test_moments_are_held_to_the_microsecond() -> None:
    texts = [
        "0001-01-01 00:00:00",
        "2024-07-01 10:00:00.12",
        "2024-07-01 10:00:00.000001",
        None,
        "1969-12-31 23:59:59.999999",
        "9999-12-31 23:59:59.999999",
        "2024-07-01 10:00:10",
    ]
    values = values_of(TIMESTAMP, *texts)
    assert values[1] == dt.datetime(2024, 7, 1, 10, 0, 0, 120000)
    in_utc = values_of(TIMESTAMPTZ, *[one and f"{one}+00" for one in texts])
    assert [one and one.replace(tzinfo=None) for one in in_utc] == values


@pytest.mark.parametrize("texts", [[".1", ".12"], ["", ""], ["", ".5"], [".123456", ".654321"]])
@pytest.mark.parametrize(("type_", "zone"), [(TIMESTAMP, ""), (TIMESTAMPTZ, "+00")])
def test_a_second_has_as_many_digits_as_it_needs(
    texts: list[str], type_: PgType, zone: str
) -> None:
    values_of(type_, *[f"2024-07-01 10:00:00{fraction}{zone}" for fraction in texts])


@pytest.mark.parametrize("far", FAR)
@pytest.mark.parametrize(("type_", "time"), TYPES)
def test_what_is_beyond_the_calendar_keeps_its_text(far: str, type_: PgType, time: str) -> None:
    assert is_lost(type_, far.format(time))


@pytest.mark.parametrize(("type_", "time"), TYPES)
def test_one_that_is_far_does_not_touch_those_around_it(type_: PgType, time: str) -> None:
    values, kept = converted(type_, f"2024-07-01{time}", "infinity", None, f"2024-07-02{time}")
    assert [one is None for one in values] == [False, True, True, False]
    assert kept == [False, True, False, False]


@pytest.mark.parametrize(("type_", "time"), TYPES)
@pytest.mark.parametrize(
    "text",
    [
        *["", "2024-02-30{}", "0000-01-01{}", "01/07/2024{}", "2024-7-1{}", "2024-07-01{} ", "1"],
        *["2024-07-01T10:00:00", "2024-07-01 10:00:00+02", "2024-07-01 10:00", "infinity BC"],
    ],
)
def test_what_postgresql_never_prints_is_refused(type_: PgType, time: str, text: str) -> None:
    with pytest.raises(WrongType) as refused:
        converted(type_, f"2024-07-01{time}", "infinity", text.format(time))
    assert (refused.value.column, refused.value.values) == ("c", [text.format(time)])


@given(st.lists(st.datetimes() | st.none()))
def test_any_moment_is_given_back(moments: list[dt.datetime | None]) -> None:
    texts = [one and one.isoformat(" ") for one in moments]
    short = [one and (one.rstrip("0") if "." in one else one) for one in texts]
    assert values_of(TIMESTAMP, *short) == moments
    assert len(values_of(TIMESTAMPTZ, *[one and f"{one}+00" for one in short])) == len(moments)
