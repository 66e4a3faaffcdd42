"""What follows from a plan that was sent, or was not: decisions without I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tidelock.errors import DestinationFailed
from tidelock.model.sinks import Chunk, Lag, Plan, SinkState, Trouble
from tidelock.model.waiting import wait_seconds


@dataclass(frozen=True, slots=True)
class Step:
    """What comes next of a partition that is behind."""

    chunks: tuple[Chunk, ...]
    until: int
    version: int
    of: int = 0


def without(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(one for one in numbers if one != number)


def after_plan(plan: Plan, sent: dict[str, int], troubles: dict[str, Trouble]) -> SinkState:
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


def trouble_of(error: DestinationFailed, earlier: Trouble | None) -> Trouble:
    failures = 1 + (earlier.failures if earlier else 0)
    now = datetime.now(UTC)
    asked = error.evidence.get("retry_after_seconds")
    wait = wait_seconds(failures, random.Random()) if asked is None else float(asked)
    return Trouble(
        reason=str(error),
        condition=error.condition,
        failures=failures,
        since=earlier.since if earlier else now,
        retry_at=now + timedelta(seconds=wait),
        asked=asked is not None,
    )
