"""When a source is read again: decided from how its last shift ended, without reading anything.

| a source | is read |
|---|---|
| whose schedule is `live` | all the time |
| whose schedule names moments | when one has come |
| that could not be read | when it is time to try again (ingest/troubles.py) |
| that is suspended, or has no schedule | not at all |

What others do about a source, resuming it say, makes it due at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from tidelock.ingest.troubles import WAITING, Trouble
from tidelock.model.sources import LIVE, SourceDefinition
from tidelock.model.time.schedules import Schedule, parse_schedule
from tidelock.store.log.clock import TOLERANCE


@dataclass(frozen=True, slots=True)
class LastShift:
    """One source, as its last shift left it."""

    definition: SourceDefinition
    schedule: Schedule | None
    """None when it is read all the time."""
    traces: frozenset[str] = frozenset()
    """The objects that tell of it, by which it is noticed what others do about it."""
    suspended: bool = False
    last: datetime | None = None
    """When a round was last begun."""
    trouble: Trouble | None = None
    failures: int = 0
    said: tuple[str, str] = ("", "")
    """The state and the reason that were told last, so that they are told once."""

    @classmethod
    def of(cls, definition: SourceDefinition, last: datetime | None) -> LastShift:
        live = definition.schedule == LIVE
        schedule = None if live else parse_schedule(definition.schedule)
        return cls(definition, schedule, last=last)

    @property
    def live(self) -> bool:
        return self.schedule is None

    def is_due(self, now: datetime) -> bool:
        moment = self.next_moment(now)
        return moment is not None and moment <= now

    def next_moment(self, now: datetime) -> datetime | None:
        """When it is to be read next, which may have passed; None if nobody knows."""
        if self.suspended or (self.schedule is not None and self.schedule.is_manual):
            return None
        if self.trouble is not None and self.trouble.retry_at is not None:
            return self.trouble.retry_at
        if self.schedule is None or self.last is None or self.last > now + TOLERANCE:
            # Where a clock was ahead then, nobody knows when it was.
            return now
        return self.schedule.next_after(self.last)

    def known(
        self, definition: SourceDefinition, traces: frozenset[str], *, suspended: bool
    ) -> LastShift:
        """As it is after somebody did something about it."""
        fresh = LastShift.of(definition, self.last)
        return replace(fresh, traces=traces, suspended=suspended, said=self.said)

    def failures_with(self, *, did_something: bool) -> int:
        """How many failures there are in a row, with one more."""
        return 1 if did_something else self.failures + 1

    def after(
        self, began: datetime, trouble: Trouble | None, *, did_something: bool = False
    ) -> LastShift:
        """As a shift left it."""
        if trouble is None:
            return replace(self, last=began, trouble=None, failures=0, said=("", ""))
        if trouble.state == WAITING:
            return replace(self, trouble=trouble)
        failures = self.failures_with(did_something=did_something)
        said = ("", "") if did_something else self.said
        return replace(self, last=began, trouble=trouble, failures=failures, said=said)
