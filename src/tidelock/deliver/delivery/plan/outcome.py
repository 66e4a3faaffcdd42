"""What follows from a plan that was sent, or was not, and how a delivery is told: without I/O."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tidelock.deliver.delivery.quarantine import QuarantinedChunk
from tidelock.deliver.destinations.partitions import WHOLE
from tidelock.deliver.reports import Action
from tidelock.errors import DestinationFailed
from tidelock.model.sinks import NOBODY, Chunk, DeliveryPlan, Lag, SinkState, Trouble
from tidelock.model.time.durations import show_moment
from tidelock.model.time.retries import ASKED_SECONDS_MAX, WAIT_SECONDS_MAX, wait_seconds
from tidelock.store.log.clock import TOLERANCE

LEFT_BY_MAX = 100
"""So many plans in a row may have ended with a destination's answer lost."""


@dataclass
class PartitionAccount:
    """What a delivery has sent of one partition so far."""

    after: int
    until: int
    rows: int = 0
    size_bytes: int = 0
    chunks: int = 0
    quarantined: int = 0
    refused: QuarantinedChunk | None = None
    """The last that was put aside."""
    trouble: Trouble | None = None


def without(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(other for other in numbers if other != number)


def after_plan(plan: DeliveryPlan, sent: dict[str, int], troubles: dict[str, Trouble]) -> SinkState:
    """The state once a plan is closed: partitions in trouble lag, with what they have to send."""
    lagging = dict(plan.next.lagging)
    for part in plan.parts:
        if part.path not in troubles:
            continue
        number = sent.get(part.path, 0)
        reached = part.chunks[number - 1].until if number else part.after
        left: tuple[Chunk, ...] = part.chunks[number:]
        before = plan.before.lagging.get(part.path, Lag(reached))
        lagging[part.path] = replace(
            before,
            watermark=reached,
            chunks=left,
            version=plan.version,
            of=plan.of,
            skipped=without(before.skipped, plan.of),
            trouble=troubles[part.path],
        )
    return replace(plan.next, lagging=lagging)


def maybe_left_by(plan: DeliveryPlan) -> tuple[str, ...]:
    """Which plans may have reached a destination last, while its answer to this one is unknown."""
    before = plan.before.left_by or (NOBODY,)
    return (*before[-LEFT_BY_MAX:], plan.identity)


def must_wait(trouble: Trouble, now: datetime) -> bool:
    """Whether it is too early to try again.

    No wait is longer than any that is ever asked for: such a time was written while a clock was
    ahead.
    """
    wait = trouble.retry_at - now
    longest = ASKED_SECONDS_MAX if trouble.asked else WAIT_SECONDS_MAX
    return timedelta(0) < wait <= timedelta(seconds=longest) + TOLERANCE


def trouble_of(error: DestinationFailed, earlier: Trouble | None, now: datetime) -> Trouble:
    failures = 1 + (earlier.failures if earlier else 0)
    asked = error.evidence.get("retry_after_seconds")
    wait = wait_seconds(failures, random.Random()) if asked is None else float(asked)
    return Trouble(
        reason=error.told("shell"),
        condition=error.condition,
        failures=failures,
        since=earlier.since if earlier else now,
        retry_at=now + timedelta(seconds=wait),
        asked=asked is not None,
    )


def action_of(
    accounts: Mapping[str, PartitionAccount], waits: Mapping[str, Trouble], moved: bool
) -> tuple[Action, str]:
    """What a delivery that ended did, in one word, and the reason for what it did not."""
    failures = [
        account.trouble
        for path, account in accounts.items()
        if account.trouble and path not in waits
    ]
    if failures:
        return "failed", failures[0].reason
    refused = refusal_of(accounts)
    if refused and not any(account.rows for account in accounts.values()):
        return "refused", refused
    moved = moved or any(account.chunks for account in accounts.values())
    moved = moved or bool(accounts.keys() - waits.keys())
    for path, trouble in waits.items():
        which = "it" if path == WHOLE else f"partition {path}"
        reason = f"{which} is tried again at {show_moment(trouble.retry_at)}: {trouble.reason}"
        return ("delivered" if moved else "waiting"), reason
    return ("delivered" if moved else "idle"), refused


def refusal_of(accounts: Mapping[str, PartitionAccount]) -> str:
    """How much was refused, and what the destination said; empty when nothing was."""
    number = sum(account.quarantined for account in accounts.values())
    refused = [account.refused for account in accounts.values() if account.refused is not None]
    if not refused:
        return ""
    status = "" if refused[0].status is None else f"{refused[0].status}"
    said = ": ".join(filter(None, (status, refused[0].answer)))
    chunks = "1 chunk was" if number == 1 else f"{number} chunks were"
    return f"{chunks} refused{f' ({said})' if said else ''} and put in quarantine"
