"""When a sink is looked at again: decided from what the last look told, without reading anything.

| a sink whose | is looked at when |
|---|---|
| schedule is `upstream` | its table has changed since the last look |
| schedule names moments | one has come, if its table has changed since |
| last look failed, or left a partition behind | it is time to try again |
| definition, state or suspension was changed by another | that is noticed |

A sink without a schedule is looked at only when somebody asks.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidelock.deliver.reports import DeliveryReport
from tidelock.model.sinks import SinkDefinition
from tidelock.model.time.retries import wait_seconds
from tidelock.model.time.schedules import Schedule
from tidelock.store.log.clock import TOLERANCE

GONE = -1
"""In the place of a version, for a table that is not there."""
BUSY_SECONDS = 1.0
"""How long another has, who is delivering, until it is looked at again."""


@dataclass(frozen=True, slots=True)
class LastLook:
    """One sink, as the last look left it."""

    definition: SinkDefinition
    schedule: Schedule
    traces: frozenset[str] = frozenset()
    """The objects that tell of it, by which a change by others is noticed."""
    changed: int | None = None
    """The version at which its table had last changed then; None when that is to be found out."""
    last: datetime | None = None
    """When a delivery was last begun."""
    retry_at: datetime | None = None
    failures: int = 0
    slow: bool = False
    """Whether its last look took long."""
    said: str = ""
    """The failure that was told last, so that it is told once."""

    def is_due(self, changed: int, now: datetime) -> bool:
        """Whether to look now; `changed` is when its table changed last."""
        if self.schedule.is_manual:
            return False
        if self.retry_at is not None and self.retry_at <= now:
            return True
        if self.changed == changed:
            return False
        if self.schedule.is_upstream or self.last is None:
            return True
        if self.last > now + TOLERANCE:
            # A clock was ahead then: nobody knows when it was.
            return True
        return self.schedule.latest_due(self.last, now) is not None

    def next_moment(self, changed: int) -> datetime | None:
        """When it may be due though nobody commits; None if never."""
        if self.schedule.is_manual:
            return None
        moments = [self.retry_at]
        if self.changed != changed and self.last is not None:
            moments.append(self.schedule.next_after(self.last))
        return min(filter(None, moments), default=None)

    def after(self, report: DeliveryReport, changed: int, began: datetime) -> LastLook:
        """As a look left it that told what became of it."""
        troubles = [
            partition.trouble.retry_at for partition in report.partitions if partition.trouble
        ]
        failures, retry_at = 0, min(troubles, default=None)
        if report.action == "failed" and not troubles:
            failures = self.failures + 1
            retry_at = began + timedelta(seconds=wait_seconds(failures, random.Random()))
        last = self.last if report.action == "waiting" else began
        # One that was cut short has looked at nothing to its end.
        seen = None if report.action == "interrupted" else changed
        said = report.reason if report.action == "failed" else ""
        return replace(
            self, changed=seen, last=last, retry_at=retry_at, failures=failures, said=said
        )

    def after_another(self, now: datetime) -> LastLook:
        """As a look left it that found another at work."""
        return replace(self, retry_at=now + timedelta(seconds=BUSY_SECONDS))
