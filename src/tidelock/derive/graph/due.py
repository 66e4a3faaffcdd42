"""Whether a unit of refresh is due, and why.

Owns: the decision. What the members' state is, and what follows from the answer, is for others.

    member's schedule       it is due when
    duration, cron          a moment of it has passed since its last refresh
    upstream                an input outside the unit has changed since its frontier
    None                    never; it is refreshed when asked, or with its group

    policy                  the unit is due when
    fastest                 one member is
    slowest                 all are

A member that was never refreshed is due at once, unless it is refreshed only when asked. A member
that follows nothing but other members has no say: it is due when they are.

Invariant: no unit is due while one of its members is suspended or backing off; for a group is
published whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidelock.model.streams import SchedulePolicy
from tidelock.model.time.durations import show_moment
from tidelock.model.time.retries import WAIT_SECONDS_MAX
from tidelock.model.time.schedules import Schedule


@dataclass(frozen=True, slots=True)
class MemberState:
    """What the decision needs to know of one member. Moments have a time zone."""

    name: str
    schedule: Schedule
    refreshed_at: datetime | None
    """When it was last refreshed; None before the first time."""
    changed: bool | None
    """Whether an input outside the unit changed since its frontier; None if it has none there."""
    suspended: str | None = None
    """Why it is not to be refreshed; None if it is."""
    backing_off_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """The decision and the reason for it, as a sentence for the user."""

    due: bool
    reason: str
    held: bool = False
    """Whether it is kept from what may be due: a member is suspended, or backing off."""


def decide(
    members: Sequence[MemberState], now: datetime, policy: SchedulePolicy = "fastest"
) -> Due:
    """Whether a group, or a table on its own, is to be refreshed now."""
    for member in members:
        obstacle = _obstacle(member, now)
        if obstacle:
            return Due(False, obstacle, held=True)
    votes = [vote for member in members if (vote := _vote(member, now)) is not None]
    against = [vote for vote in votes if not vote.due]
    in_favour = [vote for vote in votes if vote.due]
    if not votes:
        return Due(False, "no member follows anything outside the group")
    if policy == "slowest":
        return against[0] if against else in_favour[0]
    return in_favour[0] if in_favour else against[0]


def next_moment(members: Sequence[MemberState], now: datetime) -> datetime | None:
    """When the decision may be another though no input has changed; None if never."""
    moments = []
    for member in members:
        if member.suspended is not None or member.schedule.is_manual:
            continue
        moments.append(member.backing_off_until)
        moments.append(member.schedule.next_after(member.refreshed_at or now))
        moments.append(member.schedule.next_after(now))
    return min((one for one in moments if one is not None and one > now), default=None)


def _obstacle(member: MemberState, now: datetime) -> str | None:
    if member.suspended is not None:
        return f"{member.name!r} is {suspension(member.suspended)}"
    # Nobody backs off for longer: such a time was written while a clock was ahead.
    longest = timedelta(seconds=2 * WAIT_SECONDS_MAX)
    until = member.backing_off_until
    if until is not None and now < until < now + longest:
        return f"{member.name!r} is backing off until {show_moment(until)}"
    return None


def _vote(member: MemberState, now: datetime) -> Due | None:
    """The decision of one member; None if it goes along with the others."""
    name, schedule = member.name, member.schedule
    if schedule.is_manual:
        return Due(False, f"{name!r} is refreshed only when asked")
    if member.refreshed_at is None:
        return Due(True, f"{name!r} was never refreshed")
    if schedule.is_upstream:
        if member.changed is None:
            return None
        if member.changed:
            return Due(True, f"an input of {name!r} changed")
        return Due(False, f"no input of {name!r} changed")
    moment = schedule.latest_due(member.refreshed_at, now)
    if moment is not None:
        return Due(
            True, f"{name!r} was due at {show_moment(moment)} by its schedule {schedule.text!r}"
        )
    following = schedule.next_after(member.refreshed_at)
    if following is None:
        return Due(False, f"the schedule {schedule.text!r} of {name!r} names no further moment")
    return Due(
        False, f"{name!r} is next due at {show_moment(following)} by its schedule {schedule.text!r}"
    )


def suspension(reason: str) -> str:
    """That a table is suspended, why, and what to do about it."""
    return f"suspended: {reason.rstrip('. ')}; it goes on once it is resumed"
