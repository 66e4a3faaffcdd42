"""Local times become instants as in Spark, whole arrays as single values do."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pytest
from tests.support.lakes import seed_of

from tidelock.errors import InvalidOption
from tidelock.model.time.zoned_arrays import instants_of, local_times_of
from tidelock.model.time.zones import instant_of, zone_of

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Pacific/Apia",
    "+05:30",
    "UTC-3",
]


def naive(*values: dt.datetime | None) -> pa.Array:
    return pa.array(values, pa.timestamp("us"))


def utc(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("local", "zone", "instant"),
    [
        ("2026-07-01T12:00", "UTC", "2026-07-01T12:00"),
        ("2026-07-01T12:00", "Europe/Berlin", "2026-07-01T10:00"),
        # Arrow's own conversion has no summer time in this year.
        ("2045-07-01T12:00", "Europe/Berlin", "2045-07-01T10:00"),
        # Skipped: moved forward by the hour that was skipped. Twice: the earlier one.
        ("2026-03-29T02:30", "Europe/Berlin", "2026-03-29T01:30"),
        ("2026-10-25T02:30", "Europe/Berlin", "2026-10-25T00:30"),
        ("2026-07-01T12:00", "+05:30", "2026-07-01T06:30"),
        ("2026-07-01T12:00", "GMT-3", "2026-07-01T15:00"),
    ],
)
def test_a_local_time_is_read_as_spark_reads_it(local: str, zone: str, instant: str) -> None:
    value = dt.datetime.fromisoformat(local)
    assert instant_of(value, zone) == utc(instant)
    assert instants_of(naive(value, None), zone).to_pylist() == [utc(instant), None]


@pytest.mark.parametrize("zone", ZONES)
def test_an_array_is_converted_as_its_values_are(zone: str) -> None:
    with seed_of() as seed:
        chance = random.Random(seed)
        minutes = [chance.randrange(300 * 365 * 24 * 60) for _ in range(2000)]
        values = [dt.datetime(1900, 1, 1) + dt.timedelta(minutes=one) for one in minutes]
        around = dt.timedelta(minutes=15)
        for change in (dt.datetime(2026, 3, 29), dt.datetime(2026, 10, 25)):
            values += [change + around * n for n in range(-100, 200)]
        assert instants_of(naive(*values), zone).to_pylist() == [
            instant_of(value, zone) for value in values
        ]
        moments = naive(*values).cast(pa.timestamp("us", "UTC"))
        assert local_times_of(moments, zone).to_pylist() == [
            value.replace(tzinfo=dt.UTC).astimezone(zone_of(zone)).replace(tzinfo=None)
            for value in values
        ]


def test_times_that_python_cannot_hold_are_converted_too() -> None:
    year_40000 = 1_200_000_000_000 * 1_000_000
    times = pa.array([year_40000, -year_40000, None], pa.int64()).cast(pa.timestamp("us"))
    back = local_times_of(instants_of(times, "America/New_York"), "America/New_York")
    assert back.equals(times)
    with pytest.raises(ValueError, match="out of range"):
        instants_of(pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("us")), "+02:00")


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(InvalidOption, match=r"'Mars/Olympus'.*timeZone"):
        zone_of("Mars/Olympus")
