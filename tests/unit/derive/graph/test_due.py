"""When a unit is due, and the reason that a user is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidelock.derive.graph.due import MemberState, decide
from tidelock.model.streams import SchedulePolicy
from tidelock.model.time.schedules import parse_schedule

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
EARLIER = NOW - timedelta(minutes=10)


def member(name: str, schedule: str | None = "upstream", **state: Any) -> MemberState:
    known: dict[str, Any] = {"refreshed_at": EARLIER, "changed": False, **state}
    return MemberState(name, parse_schedule(schedule), **known)


@pytest.mark.parametrize(
    ("state", "due", "reason"),
    [
        (member("t", "5m"), True, "'t' was due at 2026-03-02 12:00:00Z by its schedule '5m'"),
        (member("t", "10m"), True, "'t' was due at"),
        (member("t", "11m"), False, "'t' is next due at 2026-03-02 12:01:00Z"),
        (member("t", "55 * * * *"), True, "'t' was due at 2026-03-02 11:55:00Z"),
        (member("t", "@hourly"), True, "'t' was due at 2026-03-02 12:00:00Z"),
        (member("t", "@daily"), False, "'t' is next due at 2026-03-03 00:00:00Z"),
        (member("t"), False, "no input of 't' changed"),
        (member("t", changed=True), True, "an input of 't' changed"),
        (member("t", None, changed=True), False, "'t' is refreshed only when asked"),
        (member("t", refreshed_at=None), True, "'t' was never refreshed"),
        (member("t", "1d", refreshed_at=None), True, "'t' was never refreshed"),
        (member("t", None, refreshed_at=None), False, "'t' is refreshed only when asked"),
    ],
)
def test_a_table_on_its_own_is_due_by_its_schedule(
    state: MemberState, due: bool, reason: str
) -> None:
    decided = decide([state], NOW)
    assert decided.due is due
    assert decided.reason.startswith(reason)


@pytest.mark.parametrize(
    ("policy", "first", "second", "due"),
    [
        ("fastest", "5m", "1h", True),
        ("fastest", "1h", "2h", False),
        ("slowest", "5m", "1h", False),
        ("slowest", "5m", "10m", True),
        ("fastest", "5m", None, True),
        ("slowest", "5m", None, False),
    ],
)
def test_the_policy_decides_between_members(
    policy: SchedulePolicy, first: str, second: str | None, due: bool
) -> None:
    assert decide([member("a", first), member("b", second)], NOW, policy).due is due


def test_the_reason_names_the_member_that_holds_the_group_back() -> None:
    decided = decide([member("a", "5m"), member("b", "1h")], NOW, "slowest")
    assert decided.reason.startswith("'b' is next due at")


@pytest.mark.parametrize("policy", ["fastest", "slowest"])
def test_a_member_that_follows_only_members_goes_along_with_them(policy: SchedulePolicy) -> None:
    follower = member("top", changed=None)
    assert decide([member("side", changed=True), follower], NOW, policy).due
    assert not decide([member("side"), follower], NOW, policy).due


@pytest.mark.parametrize("policy", ["fastest", "slowest"])
def test_a_suspended_member_holds_its_whole_group(policy: SchedulePolicy) -> None:
    broken = member("b", changed=True, suspended="division by zero")
    decided = decide([member("a", changed=True), broken], NOW, policy)
    assert not decided.due
    assert decided.reason == "'b' is suspended: division by zero; it goes on once it is resumed"


def test_a_member_that_backs_off_holds_its_group_until_the_time_has_come() -> None:
    until = NOW + timedelta(seconds=8)
    group = [member("a", changed=True), member("b", backing_off_until=until)]
    decided = decide(group, NOW)
    assert not decided.due
    assert decided.reason == "'b' is backing off until 2026-03-02 12:00:08Z"
    assert decide(group, until).due


def test_nobody_backs_off_until_a_time_that_a_clock_wrote_which_was_ahead() -> None:
    until = NOW + timedelta(days=365)
    assert decide([member("a", changed=True, backing_off_until=until)], NOW).due
