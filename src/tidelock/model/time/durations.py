"""Durations and moments as users write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tidelock.errors import Advice, InvalidOption

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
LONGEST = timedelta(days=36_500)


def parse_duration(value: timedelta | float | str, what: str = "a duration") -> timedelta:
    """A timedelta, a number of seconds, or text such as `30s`, `1h30m`, `7d`."""
    try:
        found = _duration(value, what)
    except OverflowError:
        raise _too_long(value, what) from None
    except ValueError:
        raise _refusal(value, what) from None
    if found < timedelta(0):
        raise _refusal(value, what)
    if found > LONGEST:
        raise _too_long(value, what)
    return found


def _duration(value: timedelta | float | str, what: str) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool):
        raise _refusal(value, what)
    if isinstance(value, int | float):
        return timedelta(seconds=value)
    if isinstance(value, str):
        text = value.strip().lower().replace(" ", "")
        if not text or _PART.sub("", text) != "":
            # A number without a unit too: who writes 7 may well mean days.
            raise _refusal(value, what)
        parts = _PART.findall(text)
        return timedelta(seconds=sum(float(n) * _UNITS[unit] for n, unit in parts))
    raise _refusal(value, what)


def in_seconds(text: str) -> float | str:
    """The text of a setting that is known to be in seconds, as a number where it is one."""
    return float(text) if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text) else text


def _refusal(value: object, what: str) -> InvalidOption:
    return InvalidOption(
        f"{value!r} cannot be read as {what}. Write it with its unit, such as '30s', '1h30m' or "
        "'7d' (s, m, h, d, w).",
        Advice("Or use a timedelta, or a number of seconds.", ""),
        value=str(value),
    )


def _too_long(value: object, what: str) -> InvalidOption:
    return InvalidOption(
        f"{value!r} is too long for {what}: '{LONGEST.days}d' is the longest. Write '30s', '1h30m' "
        "or '7d', for example.",
        value=str(value),
    )


def parse_moment(value: datetime | str) -> datetime:
    """A moment in time; without a zone it is taken as UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidOption(
                f"{value!r} is not a moment. Use a datetime or ISO 8601 text such as "
                "'2026-03-01T12:00:00Z'.",
                value=value,
            ) from None
    if not isinstance(value, datetime):
        raise InvalidOption(
            f"{value!r} is not a moment. Use a datetime or ISO 8601 text.", value=str(value)
        )
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def show_moment(moment: datetime) -> str:
    """A moment as people read it: in UTC, to the second."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def show_size(size_bytes: int) -> str:
    """A number of bytes in units that people read: 1.4 MB, 932 bytes."""
    if size_bytes < 1000:
        return f"{size_bytes} byte{'' if size_bytes == 1 else 's'}"
    amount = float(size_bytes)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.5 or unit == "TB":
            return f"{amount:.1f} {unit}" if amount < 99.95 else f"{amount:.0f} {unit}"
    raise AssertionError("unreachable")
