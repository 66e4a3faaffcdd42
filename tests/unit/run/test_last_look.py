"""When a sink is looked at again, from what the last look told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.sinks.receivers import define

from tidelock.deliver.last_look import LastLook
from tidelock.deliver.reports import DeliveryReport, PartitionReport
from tidelock.model.sinks import Trouble
from tidelock.model.time.schedules import parse_schedule

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
EARLIER, LATER = NOW - timedelta(minutes=10), NOW + timedelta(minutes=10)
CHANGED = 7


def followed(schedule: str | None = "upstream", **known: Any) -> LastLook:
    return LastLook(define("s", "jsonl", "out"), parse_schedule(schedule), **known)


@pytest.mark.parametrize(
    ("one", "due"),
    [
        (followed(), True),
        (followed(changed=CHANGED), False),
        (followed(changed=CHANGED - 1), True),
        (followed(changed=CHANGED, retry_at=EARLIER), True),
        (followed(changed=CHANGED, retry_at=LATER), False),
        (followed(changed=CHANGED - 1, retry_at=LATER), True),
        (followed("5m", last=EARLIER, changed=CHANGED - 1), True),
        (followed("5m", last=EARLIER, changed=CHANGED), False),
        (followed("15m", last=EARLIER, changed=CHANGED - 1), False),
        (followed("15m", last=EARLIER), False),
        (followed("15m", last=EARLIER, changed=CHANGED, retry_at=EARLIER), True),
        (followed("@daily", last=EARLIER - timedelta(days=1)), True),
        (followed(None), False),
        (followed(None, changed=CHANGED - 1, retry_at=EARLIER), False),
    ],
)
def test_a_sink_is_due_when_there_may_be_something_to_do(one: LastLook, due: bool) -> None:
    assert one.is_due(CHANGED, NOW) is due


@pytest.mark.parametrize(
    ("one", "moment"),
    [
        (followed(changed=CHANGED), None),
        (followed(changed=CHANGED, retry_at=LATER), LATER),
        (followed("15m", last=EARLIER, changed=CHANGED), None),
        (followed("15m", last=EARLIER, changed=CHANGED - 1), EARLIER + timedelta(minutes=15)),
        (followed(None, retry_at=LATER), None),
    ],
)
def test_without_a_commit_it_is_looked_at_when_its_time_comes(
    one: LastLook, moment: datetime | None
) -> None:
    assert one.next_moment(CHANGED) == moment


def report(action: Any, trouble: Trouble | None = None) -> DeliveryReport:
    parts = (PartitionReport("", 0, 0, 0, -1, -1, 0, trouble),) if trouble else ()
    return DeliveryReport("s", action, -1, -1, 3, parts, "because")


def test_what_became_of_a_look_decides_when_the_next_comes() -> None:
    before = followed(last=EARLIER)
    done = before.after(report("delivered"), CHANGED, NOW)
    assert (done.changed, done.last, done.retry_at, done.said) == (CHANGED, NOW, None, "")
    waiting = Trouble("busy", "DESTINATION_FAILED", 1, NOW, LATER)
    behind = before.after(report("failed", waiting), CHANGED, NOW)
    assert (behind.changed, behind.retry_at, behind.said) == (CHANGED, LATER, "because")
    assert before.after(report("waiting", waiting), CHANGED, NOW).last == EARLIER
    assert before.after(report("interrupted"), CHANGED, NOW).changed is None
    assert before.after_another(NOW).is_due(CHANGED, NOW + timedelta(seconds=2))


def test_a_sink_that_cannot_go_on_is_looked_at_less_and_less_often() -> None:
    one, waits = followed(), []
    for _ in range(10):
        one = one.after(report("failed"), CHANGED, NOW)
        assert one.retry_at is not None
        waits.append((one.retry_at - NOW).total_seconds())
    assert 0.5 <= waits[0] <= 1
    assert 30 <= waits[-1] <= 60
    assert replace(one, failures=0).after(report("idle"), CHANGED, NOW).failures == 0
