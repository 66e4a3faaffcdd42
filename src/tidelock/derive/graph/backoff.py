"""What follows from a failed refresh: try again later, or suspend.

Owns: which errors may go away by themselves. How long to wait for that: `model/time/retries.py`.

Invariant, for the n-th failure in a row, n >= 1: a permanent error suspends at once, a transient
one when n = FAILURES_MAX, and what only the engine or this version of Tidelock is to blame for
never does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from tidelock.errors import (
    Action,
    EngineError,
    EngineMismatch,
    EngineUnavailable,
    JavaMissing,
    NewerFormat,
    RuleBroken,
    TidelockError,
)
from tidelock.model.time.retries import wait_seconds

FAILURES_MAX = 10
# They say something about the place that was named, which stays as it is.
_LASTING_OS_ERRORS = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Exactly one of `retry_at` and `suspended` is set."""

    failures: int
    """How many refreshes have now failed in a row."""
    retry_at: datetime | None
    suspended: str | None
    """Why it is suspended."""


def judge(error: BaseException, failures_before: int, now: datetime, chance: Random) -> Verdict:
    """What to do after a failure that follows `failures_before` others in a row."""
    failures = failures_before + 1
    told = _told(error)
    if not is_transient(error):
        return Verdict(failures, None, told)
    if failures >= FAILURES_MAX and not spares_table(error):
        return Verdict(
            failures, None, f"{failures} refreshes failed in a row, the last with {told}"
        )
    return Verdict(failures, now + timedelta(seconds=wait_seconds(failures, chance)), None)


def is_engine_away(error: BaseException) -> bool:
    """Whether there was no engine to ask, so that nothing is known about the query."""
    return isinstance(error, EngineUnavailable | JavaMissing)


def spares_table(error: BaseException) -> bool:
    """Whether the table is fine, and would be refreshed by an engine that is there, and the right
    one, or by a later version of Tidelock."""
    return is_engine_away(error) or isinstance(error, EngineMismatch | NewerFormat)


def is_transient(error: BaseException) -> bool:
    """Whether the same refresh may succeed later with nobody doing anything about it."""
    if spares_table(error):
        return True
    if isinstance(error, EngineError):
        # A task that was lost, or a store that did not answer, fails the query that it was for.
        if error.evidence.get("passing"):
            return True
        return error.__cause__ is not None and is_transient(error.__cause__)
    if isinstance(error, RuleBroken):
        # Its rows follow from its inputs, which may be others next time.
        return True
    if isinstance(error, TidelockError):
        return error.action is not Action.NEVER_RETRY
    if isinstance(error, OSError):
        return not isinstance(error, _LASTING_OS_ERRORS)
    # What is no Exception interrupts a refresh from outside, such as Ctrl-C.
    return isinstance(error, MemoryError) or not isinstance(error, Exception)


def _told(error: BaseException) -> str:
    if isinstance(error, TidelockError):
        return f"{error.condition}: {error.told('shell')}"
    return f"{type(error).__name__}: {error}"
