"""How long a destination asks to be left alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidelock.deliver.destinations.http.retry_after import (
    INLINE_SECONDS_MAX,
    PAUSE_SECONDS_FIRST,
    inline_seconds,
    seconds_asked,
)
from tidelock.model.time.retries import ASKED_SECONDS_MAX

NOW = datetime(2026, 11, 8, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("1.5", 1.5),
        ("00012", 12.0),
        ("Sun, 08 Nov 2026 12:00:30 GMT", 30.0),
        ("Sunday, 08-Nov-26 12:00:30 GMT", 30.0),
        ("Sun Nov  8 12:00:30 2026", 30.0),
        ("Sun, 08 Nov 2026 12:00:30 -0000", 30.0),
        ("Sun, 08 Nov 2026 13:00:30 +0100", 30.0),
        ("Sun, 08 Nov 2026 11:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("999999999", ASKED_SECONDS_MAX),
        ("9" * 5000, ASKED_SECONDS_MAX),
        ("Fri, 31 Dec 9999 23:59:59 GMT", ASKED_SECONDS_MAX),
    ],
)
def test_seconds_and_moments_are_understood_and_bounded(value: str, seconds: float) -> None:
    assert seconds_asked(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        " ",
        "soon",
        "-5",
        "+5",
        "1e9",
        "inf",
        "nan",
        "٣",
        "7;8",
        "Sun, 99 Nov 2026",
        "0x10",
    ],
)
def test_what_means_nothing_asks_for_nothing(value: str | None) -> None:
    assert seconds_asked(value, NOW) is None


def test_a_moment_is_compared_with_the_clock_of_the_destination() -> None:
    moment = "Sun, 08 Nov 2026 15:00:05 GMT"
    assert seconds_asked(moment, NOW, "Sun, 08 Nov 2026 15:00:00 GMT") == 5.0
    assert seconds_asked(moment, NOW, "no date") == 3 * 3600 + 5


@pytest.mark.parametrize("asked", [None, 0.0, 0.01, 0.3, 1.0, 3.0, 9.9])
def test_waits_of_one_chunk_end_and_are_never_nothing(asked: float | None) -> None:
    waited, tries = 0.0, 0
    while (seconds := inline_seconds(asked, tries + 1, waited)) is not None:
        tries += 1
        assert seconds >= max(asked or 0.0, PAUSE_SECONDS_FIRST)
        waited += seconds
    assert 1 <= tries < 20
    assert waited <= INLINE_SECONDS_MAX


def test_a_wait_that_is_too_long_is_not_begun() -> None:
    assert inline_seconds(INLINE_SECONDS_MAX, 1, 0.0) == INLINE_SECONDS_MAX
    assert inline_seconds(INLINE_SECONDS_MAX + 0.1, 1, 0.0) is None
    assert inline_seconds(5.0, 2, 5.1) is None
