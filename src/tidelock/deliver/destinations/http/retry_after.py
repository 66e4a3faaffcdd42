"""Retry-After: how long a destination asks to be left alone, and whether that is waited out.

Pure. A wait that is asked for is at most ASKED_SECONDS_MAX, whatever was written: a mistake of the
destination must not stop a sink for years.

Law: the waits of one chunk together are at most INLINE_SECONDS_MAX, and each is longer than
PAUSE_SECONDS_FIRST, so that a destination which says `0` again and again is not run over.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tidelock.model.time.retries import ASKED_SECONDS_MAX

INLINE_SECONDS_MAX = 10.0
PAUSE_SECONDS_FIRST = 0.05
"""The shortest wait when the destination says how long it wants."""
UNASKED_SECONDS_FIRST = 0.5
"""The shortest wait when it does not say."""
PAUSE_SECONDS_MAX = 2.0
# Beyond this many digits, or doublings, the longest wait is reached.
_DIGITS_MAX = 12
_DOUBLINGS_MAX = 16
_SECONDS = re.compile(r"[0-9]+(\.[0-9]*)?")


def seconds_asked(value: str | None, now: datetime, date: str | None = None) -> float | None:
    """What a Retry-After header asks for; None when it is missing or means nothing.

    A moment is compared with the destination's own clock, if it sent a Date header.
    """
    text = (value or "").strip()
    if _SECONDS.fullmatch(text):
        whole = text.partition(".")[0]
        return (
            ASKED_SECONDS_MAX if len(whole) > _DIGITS_MAX else min(ASKED_SECONDS_MAX, float(text))
        )
    moment = _moment(text)
    if moment is None:
        return None
    sent = _moment((date or "").strip())
    return min(ASKED_SECONDS_MAX, max(0.0, (moment - (sent or now)).total_seconds()))


def _moment(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def inline_seconds(asked: float | None, tries: int, waited_seconds: float) -> float | None:
    """How long to wait right away, after so many tries; None when that would be too long."""
    first = UNASKED_SECONDS_FIRST if asked is None else PAUSE_SECONDS_FIRST
    pause = min(PAUSE_SECONDS_MAX, first * 2.0 ** min(tries - 1, _DOUBLINGS_MAX))
    seconds = max(asked or 0.0, pause)
    return seconds if waited_seconds + seconds <= INLINE_SECONDS_MAX else None
