"""Costs: which way of refreshing is expected to be cheaper.

Owns: the estimate. It is in seconds, from rates that were measured once and, where a table has been
refreshed before, from what that took.

Invariant: a change of no row is never computed; the choice depends on its arguments alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tidelock.model.streams import RefreshMode, Spent

QUERY_SECONDS = 0.1
READ_SECONDS = 0.002
FULL_QUERY_SECONDS = 0.2
SECONDS_PER_CHANGE = 30e-6
SECONDS_PER_ROW = 0.3e-6
TRUST = 4.0
"""How far one measured time may move an estimate up, and that of a full refresh also down."""
FORGOTTEN = 0.02
"""How much of what a delta took is forgotten with each full refresh that was chosen instead, so
that it is tried again now and then."""
LOCAL_CHANGES_MAX = 1_000_000
"""More changed rows than this are not brought to the driver."""


@dataclass(frozen=True)
class Way:
    """How a refresh is done and why so; both costs, where there was a choice."""

    full: bool
    why: str
    """In few words: what changed, or what stands against a delta."""
    incremental_seconds: float | None = None
    full_seconds: float | None = None
    failed: bool = False
    """Whether it is full because it failed by delta."""
    idle: bool = False
    """Whether nothing is computed, for no row of the inputs changed: at most what they are called,
    and what else they have."""

    @property
    def action(self) -> Literal["none", "full", "incremental"]:
        """What a report calls it."""
        if self.idle:
            return "none"
        return "full" if self.full else "incremental"

    @property
    def reason(self) -> str:
        """How and why, for a line of a report."""
        if self.idle:
            return self.why
        return f"{'in full' if self.full else 'by delta'}: {self.why}"


def after_full(spent: Spent, seconds: float) -> Spent:
    """What is known after a full refresh."""
    kept = 1 - FORGOTTEN
    return replace(
        spent,
        full_seconds=round(seconds, 4),
        delta_seconds=round(spent.delta_seconds * kept, 4),
        delta_seconds_before=round(spent.delta_seconds_before * kept, 4),
    )


def after_delta(spent: Spent, seconds: float, changes: int) -> Spent:
    """What is known after a refresh by delta, or after one that failed and was made up for."""
    return replace(
        spent,
        delta_seconds=round(seconds, 4),
        delta_rows=changes,
        delta_seconds_before=spent.delta_seconds,
    )


def estimate(
    mode: RefreshMode, *, changes: int, rows: int, segments: int, reads: int = 0, spent: Spent
) -> Way:
    """Choose for a table that can be kept by delta.

    `changes` rows of its inputs changed out of `rows`; `reads` is how many tables all terms of all
    segments read; `spent` is what earlier refreshes took.
    """
    by_delta = QUERY_SECONDS * segments + READ_SECONDS * reads + SECONDS_PER_CHANGE * changes
    in_full = FULL_QUERY_SECONDS * segments + SECONDS_PER_ROW * rows
    if spent.full_seconds:
        # The first query of a process also pays for its start, so that a single figure is not
        # believed without bounds.
        in_full = min(max(spent.full_seconds, in_full / TRUST), in_full * TRUST)
    if spent.delta_seconds:
        more = SECONDS_PER_CHANGE * max(0, changes - spent.delta_rows)
        # What was slow twice is slow.
        twice = min(spent.delta_seconds, spent.delta_seconds_before)
        by_delta = twice if twice else min(spent.delta_seconds, by_delta * TRUST)
        by_delta += more
    full = mode == "auto" and (changes > LOCAL_CHANGES_MAX or by_delta > in_full)
    counted = f"{changes:,} change{'' if changes == 1 else 's'}"
    if full and changes > LOCAL_CHANGES_MAX:
        counted = f"more than {LOCAL_CHANGES_MAX:,} changes"
    return Way(full, counted, by_delta, in_full)
