"""What an error means for the source that could not be read: its state, and when it is tried again.

| state | what happened | tried again |
|---|---|---|
| `unreachable` | it does not answer | after a while, longer each time |
| `stopped` | it cannot go on as it is: gone, denied, or asked for what cannot be | each minute, and at once when it is resumed or defined anew |
| `failing` | anything else, in the lake or in the source | after a while, longer each time |
| `waiting` | another process reads it | soon, for as long as that one does |
"""  # noqa: E501

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidelock.errors import Action, SourceBusy, SourceUnavailable, TidelockError
from tidelock.model.time.retries import wait_seconds

UNREACHABLE, STOPPED, FAILING, WAITING = "unreachable", "stopped", "failing", "waiting"
TROUBLES = frozenset({UNREACHABLE, STOPPED, FAILING})
STOPPED_SECONDS = 60.0
WAITING_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a source is not read, in words that are kept."""

    state: str
    reason: str
    retry_at: datetime | None = None
    condition: str = ""


def trouble_of(error: Exception, failures: int = 0, now: datetime | None = None) -> Trouble:
    """What an error means; with `now`, also when it is tried again, after `failures` in a row."""
    state = _state_of(error)
    condition = ""
    if isinstance(error, TidelockError):
        reason, condition = error.told("shell"), error.condition
    else:
        reason = f"{type(error).__name__}: {error}"
    if now is None:
        return Trouble(state, reason, None, condition)
    seconds = {STOPPED: STOPPED_SECONDS, WAITING: WAITING_SECONDS}.get(state)
    if seconds is None:
        seconds = wait_seconds(max(1, failures), random.Random())
    return Trouble(state, reason, now + timedelta(seconds=seconds), condition)


def _state_of(error: Exception) -> str:
    if isinstance(error, SourceBusy):
        return WAITING
    if isinstance(error, SourceUnavailable):
        return UNREACHABLE
    if isinstance(error, TidelockError) and error.action is Action.NEVER_RETRY:
        return STOPPED
    return FAILING
