"""Schedules: when a stream table is to be refreshed, or a sink delivered to.

Owns: the reading of a schedule and the moments that it names. What is done at them is for others,
and so no message here says it.

    30s, 1m, 1h30m          so long after the last time
    */5 * * * *, @daily     a cron expression of five fields, in a time zone
    upstream                whenever an input has changed; no moments of its own
    None                    only when asked

Invariants: next_after(t) > t; latest_due(since, now) is the last moment in (since, now], so that
any number of missed moments makes one.

Cron and clock changes: an expression whose hour field covers every hour means "so many times an
hour", and runs through a clock change at its pace. Any other names local times: one that the clock
skips is due at the first moment after the gap, one that occurs twice is due the first time only.
Where several fall into one gap, they are due once.
"""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

from tidelock.errors import Advice, InvalidOption
from tidelock.model.streams import UPSTREAM
from tidelock.model.time.durations import parse_duration

_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DURATION = re.compile(r"(\d+(\.\d+)?[smhdw]\s*)+", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(\.\d+)?")
_MINUTE = timedelta(minutes=1)
_EVERY_HOUR = set(range(24))
_EXAMPLES = (
    "Use a duration such as '30s' or '1h30m', a cron expression such as '*/5 * * * *' or "
    "'0 6 * * MON-FRI', or 'upstream' for every change."
)
_MANUAL = Advice("None is for only when asked.", "'manual' is for only when asked.")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule without moments of its own: `upstream`, or None."""

    text: str | None

    @property
    def is_manual(self) -> bool:
        return self.text is None

    @property
    def is_upstream(self) -> bool:
        return self.text == UPSTREAM

    def next_after(self, moment: datetime) -> datetime | None:
        """The first moment after this one, in UTC; None if there is none."""
        return None

    def latest_due(self, since: datetime, now: datetime) -> datetime | None:
        """The last moment after `since` and not after `now`, in UTC; None if there is none."""
        return None


@dataclass(frozen=True, slots=True)
class Every(Schedule):
    """A moment each time that the interval has passed."""

    interval: timedelta

    def next_after(self, moment: datetime) -> datetime | None:
        try:
            return _in_utc(moment) + self.interval
        except OverflowError:
            return None

    def latest_due(self, since: datetime, now: datetime) -> datetime | None:
        since = _in_utc(since)
        count = (_in_utc(now) - since) // self.interval
        return since + count * self.interval if count > 0 else None


@dataclass(frozen=True, slots=True)
class Cron(Schedule):
    """The moments of a cron expression in a time zone."""

    expression: str
    zone: str

    def next_after(self, moment: datetime) -> datetime | None:
        moment = _in_utc(moment)
        zone = zoneinfo.ZoneInfo(self.zone)
        try:
            local = moment.astimezone(zone)
            if self._is_paced:
                return next(CronSim(self.expression, local)).astimezone(UTC)
            for named in CronSim(self.expression, local.replace(tzinfo=None, fold=0)):
                found = _instant(named, zone)
                # The second time around, a local time before `moment` may look later than it.
                if found > moment:
                    return found
        except (StopIteration, OverflowError):
            pass
        return None

    def latest_due(self, since: datetime, now: datetime) -> datetime | None:
        now = _in_utc(now)
        latest = self.next_after(since)
        if latest is None or latest > now:
            return None
        # By halves, so that a year of missed minutes costs a few steps. Moments are a minute apart
        # or more, so that none is left between the two when less than that is.
        end = now
        while end - latest >= _MINUTE:
            middle = latest + (end - latest) / 2
            found = self.next_after(middle)
            if found is not None and found <= now:
                latest = found
            else:
                end = middle
        return latest

    @property
    def _is_paced(self) -> bool:
        return self.expression.split()[1] == "*"


def parse_schedule(text: str | None, zone: str = "UTC") -> Schedule:
    """The schedule that a user wrote; InvalidOption if it is none. `zone` is for cron alone."""
    if text is None:
        return Schedule(None)
    if not isinstance(text, str):
        raise _refusal(text, "it is not text")
    plain = " ".join(text.split())
    if plain.lower() == UPSTREAM:
        return Schedule(UPSTREAM)
    if _DURATION.fullmatch(plain):
        return _every(plain)
    if _NUMBER.fullmatch(plain):
        raise _refusal(text, "it has no unit, which is s, m, h, d or w")
    if plain.startswith("@"):
        if plain.lower() not in _NICKNAMES:
            raise _refusal(text, f"the short forms are {', '.join(_NICKNAMES)}")
        return _cron(plain, _NICKNAMES[plain.lower()], zone)
    count = len(plain.split())
    if count <= 1:
        raise _refusal(text, "it is neither a duration nor a cron expression")
    if count != 5:
        raise _refusal(text, f"a cron expression has 5 fields, and this has {count}")
    return _cron(plain, plain, zone)


def _every(text: str) -> Every:
    try:
        interval = parse_duration(text, "a schedule")
    except InvalidOption:
        raise _refusal(text, "it is too long") from None
    if not interval:
        raise _refusal(text, "it must be longer than nothing")
    return Every(text, interval)


def _cron(text: str, expression: str, zone: str) -> Cron:
    try:
        zoneinfo.ZoneInfo(zone)
    except (ValueError, OSError, TypeError, zoneinfo.ZoneInfoNotFoundError):
        raise InvalidOption(
            f"{zone!r} is not a time zone that is known here. Use a name such as 'UTC' or "
            "'Europe/Berlin'; if the name is right, install Python's tzdata package.",
            zone=zone,
        ) from None
    try:
        parsed = CronSim(expression, datetime(2000, 1, 1))
        never = next(parsed, None) is None
    except CronSimError as error:
        reason = str(error).removeprefix("Bad ")
        raise _refusal(text, f"its {reason} field cannot be read") from None
    if never:
        raise _refusal(text, "no day matches it")
    fields = expression.split()
    if parsed.hours == _EVERY_HOUR:
        fields[1] = "*"
    return Cron(text, " ".join(fields), zone)


def _instant(named: datetime, zone: zoneinfo.ZoneInfo) -> datetime:
    """A local time in UTC: the earlier of two, the end of the gap if there is none."""
    while True:
        found = named.replace(tzinfo=zone).astimezone(UTC)
        if found.astimezone(zone).replace(tzinfo=None, fold=0) == named:
            return found
        named += _MINUTE


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _refusal(value: object, reason: str) -> InvalidOption:
    return InvalidOption(
        f"{value!r} cannot be a schedule: {reason}. {_EXAMPLES}", _MANUAL, schedule=str(value)
    )
