"""Schedules: what can be written, and the moments that it names."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tidelock.errors import InvalidOption
from tidelock.model.time.schedules import parse_schedule

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def moments(text: str, start: str, count: int, zone: str = "UTC") -> list[str]:
    """The next moments, as UTC."""
    schedule, moment = parse_schedule(text, zone), utc(start)
    found = []
    for _ in range(count):
        following = schedule.next_after(moment)
        assert following is not None
        moment = following
        found.append(f"{moment:%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1m", 60), ("1h30m", 5400), ("1h 30m", 5400), ("1D", 86400)],
)
def test_a_duration_counts_from_the_last_refresh(text: str, seconds: int) -> None:
    assert parse_schedule(text).next_after(NOON) == NOON + timedelta(seconds=seconds)


def test_missed_durations_make_one_refresh() -> None:
    schedule = parse_schedule("10m")
    assert schedule.latest_due(NOON, NOON + timedelta(minutes=9)) is None
    assert schedule.latest_due(NOON, NOON + timedelta(minutes=10)) == NOON + timedelta(minutes=10)
    assert schedule.latest_due(NOON, NOON + timedelta(minutes=47)) == NOON + timedelta(minutes=40)
    assert schedule.latest_due(NOON, NOON - timedelta(days=1)) is None


@pytest.mark.parametrize(
    ("text", "following"),
    [
        ("*/5 * * * *", "2026-03-02 12:05"),
        ("  0   13 * * * ", "2026-03-02 13:00"),
        ("0 6 * * tue-FRI", "2026-03-03 06:00"),
        ("15,45 8-10/2 1 feb,apr *", "2026-04-01 08:15"),
        ("0 0 * * 7", "2026-03-08 00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("@hourly", "2026-03-02 13:00"),
        ("@daily", "2026-03-03 00:00"),
        ("@weekly", "2026-03-08 00:00"),
        ("@Monthly", "2026-04-01 00:00"),
        ("@yearly", "2027-01-01 00:00"),
    ],
)
def test_a_cron_expression_names_the_next_moment(text: str, following: str) -> None:
    assert parse_schedule(text).next_after(NOON) == utc(following)


def test_a_cron_expression_is_read_in_its_time_zone() -> None:
    assert moments("0 6 * * *", "2026-07-01 00:00", 2, "Europe/Berlin") == ["01 04:00", "02 04:00"]
    assert moments("0 6 * * *", "2026-01-01 00:00", 1, "Asia/Kolkata") == ["01 00:30"]


def test_a_local_time_that_the_clock_skips_is_due_right_after_the_gap() -> None:
    # On 29 March 2026 at 01:00 UTC, 02:00 becomes 03:00 in Berlin.
    expected = ["28 01:30", "29 01:00", "30 00:30"]
    assert moments("30 2 * * *", "2026-03-27 12:00", 3, "Europe/Berlin") == expected
    assert moments("*/20 2 * * *", "2026-03-28 12:00", 2, "Europe/Berlin") == [
        "29 01:00",
        "30 00:00",
    ]
    assert moments("0 2,3 * * *", "2026-03-28 12:00", 2, "Europe/Berlin") == [
        "29 01:00",
        "30 00:00",
    ]


def test_a_local_time_that_occurs_twice_is_due_once() -> None:
    # On 25 October 2026 at 01:00 UTC, 03:00 becomes 02:00 in Berlin.
    expected = ["25 00:30", "26 01:30"]
    assert moments("30 2 * * *", "2026-10-24 12:00", 2, "Europe/Berlin") == expected
    assert moments("30 2 * * *", "2026-10-25 01:10", 1, "Europe/Berlin") == ["26 01:30"]


@pytest.mark.parametrize("text", ["30 * * * *", "30 0-23 * * *", "30 */1 * * *"])
@pytest.mark.parametrize("start", ["2026-03-28 23:00", "2026-10-24 23:00"])
def test_what_runs_every_hour_keeps_its_pace_through_a_clock_change(text: str, start: str) -> None:
    hours = [found[3:] for found in moments(text, start, 5, "Europe/Berlin")]
    assert hours == ["23:30", "00:30", "01:30", "02:30", "03:30"]


def test_missed_moments_of_a_cron_expression_make_one_refresh() -> None:
    schedule = parse_schedule("*/5 * * * *")
    assert schedule.latest_due(NOON, NOON + timedelta(minutes=4)) is None
    assert schedule.latest_due(NOON, NOON + timedelta(minutes=5)) == NOON + timedelta(minutes=5)
    later = NOON + timedelta(days=400, minutes=3, seconds=20)
    assert schedule.latest_due(NOON, later) == NOON + timedelta(days=400)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo"])
def test_the_latest_moment_is_the_last_of_those_that_follow_each_other(zone: str) -> None:
    chance = random.Random(zone)
    for text in ("*/7 * * * *", "*/20 0-3 * * *", "30 2 * * *", "0 0 * * 5,0", "17 */2 * * *"):
        schedule = parse_schedule(text, zone)
        for month in (3, 4, 10, 11):
            since = datetime(2026, month, 1, tzinfo=UTC) + timedelta(hours=chance.uniform(0, 700))
            now = since + timedelta(hours=chance.uniform(0, 72))
            last, moment = None, since
            while (following := schedule.next_after(moment)) is not None and following <= now:
                assert following > moment
                last = moment = following
            assert schedule.latest_due(since, now) == last, (text, since, now)


@pytest.mark.parametrize("text", [None, "upstream", " Upstream "])
def test_upstream_and_manual_schedules_name_no_moments(text: str | None) -> None:
    schedule = parse_schedule(text)
    assert schedule.next_after(NOON) is None
    assert schedule.latest_due(NOON, NOON + timedelta(days=1)) is None
    assert schedule.is_manual == (text is None)
    assert schedule.is_upstream == (text is not None)


def test_a_moment_without_a_zone_is_taken_as_utc() -> None:
    assert parse_schedule("1m").next_after(datetime(2026, 3, 2, 12, 0)) == NOON + timedelta(
        minutes=1
    )
    local = datetime(2026, 3, 2, 13, 0, tzinfo=BERLIN)
    assert parse_schedule("@hourly").next_after(local) == NOON + timedelta(hours=1)


def test_the_end_of_time_has_nothing_after_it() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for text in ("1m", "@hourly", "30 2 * * *"):
        assert parse_schedule(text, "Europe/Berlin").next_after(last) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "neither a duration nor a cron"),
        ("soon", "neither a duration nor a cron"),
        ("-5m", "neither a duration nor a cron"),
        ("0s", "longer than nothing"),
        ("99999999999w", "too long"),
        ("1 2 3 4", "has 5 fields, and this has 4"),
        ("* * * * * *", "has 5 fields, and this has 6"),
        ("61 * * * *", "its minute field"),
        ("0 25 * * *", "its hour field"),
        ("0 0 0 * *", "its day-of-month field"),
        ("0 0 30 2 *", "its day-of-month field"),
        ("0 0 * FOO *", "its month field"),
        ("0 0 * * 9", "its day-of-week field"),
        ("*/0 * * * *", "its minute field"),
        ("* * */20 * 1L", "no day matches"),
        ("@reboot", "the short forms are @hourly"),
        (5, "not text"),
        ("30", "it has no unit, which is s, m, h, d or w"),
        ("1.5", "it has no unit"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_reason_and_examples(
    text: str, reason: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_schedule(text)
    assert reason in str(caught.value)
    assert "'*/5 * * * *'" in str(caught.value)
    # Sinks have schedules too.
    assert "refresh" not in str(caught.value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "America"])
def test_an_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidOption, match="is not a time zone"):
        parse_schedule("@daily", zone)
