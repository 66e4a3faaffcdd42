"""When a source is read again, and what an error means for it: decided without reading anything."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tidelock.errors import (
    RuleBroken,
    SourceBusy,
    SourceDenied,
    SourceMoved,
    SourceStopped,
    SourceUnavailable,
    StoreUnavailable,
)
from tidelock.ingest.schedule.last_shift import LastShift
from tidelock.ingest.status import as_held
from tidelock.ingest.troubles import trouble_of
from tidelock.model.sources import Reading, SourceDefinition
from tidelock.store.leases.single_holder import Holder

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOON = timedelta(minutes=10)


def known(schedule: str | None, last: datetime | None = None) -> LastShift:
    definition = SourceDefinition("s", "s-1", "k", "t", "main", "m", schedule, {}, "ann", NOW)
    return LastShift.of(definition, last)


@pytest.mark.parametrize(
    ("shift", "due"),
    [
        (known("live"), True),
        (known("live", NOW), True),
        (known(None), False),
        (known("5m"), True),
        (known("5m", NOW), False),
        (known("5m", NOW - SOON), True),
        (known("5m", NOW + timedelta(days=1)), True),
        (known("0 * * * *", NOW - SOON), True),
        (known("30 * * * *", NOW - SOON), False),
        (replace(known("live"), suspended=True), False),
        (replace(known("5m"), suspended=True), False),
    ],
)
def test_a_source_is_due_by_its_schedule_unless_it_rests(shift: LastShift, due: bool) -> None:
    assert shift.is_due(NOW) == due


@pytest.mark.parametrize(
    ("error", "state", "at_least", "at_most"),
    [
        (SourceUnavailable("away"), "unreachable", 0.5, 1),
        (SourceStopped("gone"), "stopped", 60, 60),
        (SourceDenied("locked"), "stopped", 60, 60),
        (RuleBroken("no"), "stopped", 60, 60),
        (StoreUnavailable("away"), "failing", 0.5, 1),
        (SourceMoved("moved"), "failing", 0.5, 1),
        (ZeroDivisionError("a bug"), "failing", 0.5, 1),
        (SourceBusy("read"), "waiting", 2, 2),
    ],
)
def test_an_error_says_in_which_state_a_source_is_and_when_it_is_tried_again(
    error: Exception, state: str, at_least: float, at_most: float
) -> None:
    trouble = trouble_of(error, 1, NOW)
    assert trouble.state == state
    assert trouble.retry_at is not None
    assert at_least <= (trouble.retry_at - NOW).total_seconds() <= at_most
    after = known("live").after(NOW, trouble)
    assert not after.is_due(NOW)
    assert after.is_due(trouble.retry_at)
    assert after.failures == (0 if state == "waiting" else 1)


def test_failures_in_a_row_wait_longer_until_something_was_done() -> None:
    away = trouble_of(SourceUnavailable("away"), 5, NOW)
    assert away.retry_at is not None
    assert away.retry_at >= NOW + timedelta(seconds=8)
    shift = replace(known("live"), failures=4).after(NOW, away)
    assert shift.failures == 5
    assert shift.after(NOW, away, did_something=True).failures == 1
    assert shift.after(NOW, None).failures == 0


def test_what_somebody_did_about_a_source_makes_it_due_at_once() -> None:
    stopped = known("live").after(NOW, trouble_of(SourceStopped("gone"), 1, NOW))
    assert not stopped.is_due(NOW)
    assert stopped.known(stopped.definition, frozenset({"a"}), suspended=False).is_due(NOW)


@pytest.mark.parametrize(
    ("note", "holder", "state"),
    [
        (None, None, "new"),
        (None, "me", "reading"),
        ("streaming", "me", "streaming"),
        ("streaming", None, "idle"),
        ("streaming", "another", "reading"),
        ("stopped", None, "stopped"),
        ("stopped", "me", "reading"),
        ("idle", "me", "reading"),
    ],
)
def test_a_note_is_believed_as_long_as_who_wrote_it_reads(
    note: str | None, holder: str | None, state: str
) -> None:
    told = None if note is None else Reading(note, rows_per_second=5.0, owner="me")
    found = as_held(told, None if holder is None else Holder(holder, 15.0))
    assert found.state == state
    assert holder is not None or not found.rows_per_second
