"""The options of a stream table, as files give them.

Owns: which options there are and which values each takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidelock.errors import InvalidOption
from tidelock.model.names import suggest
from tidelock.model.streams import (
    Consistency,
    Definition,
    RefreshMode,
    SchedulePolicy,
    check_choice,
)
from tidelock.model.time.schedules import parse_schedule

MANUAL = "manual"
"""The schedule, as text, of a table that is refreshed only when it is asked for."""
CHOICES = {
    "refresh_mode": RefreshMode,
    "consistency": Consistency,
    "schedule_policy": SchedulePolicy,
}
OPTIONS = ("schedule", *CHOICES)
PREFIX = "tidelock."


def option_name(text: str) -> str:
    """The option that a table property sets: `tidelock.schedule` or `schedule`."""
    name = text.lower().removeprefix(PREFIX)
    if name not in OPTIONS:
        raise InvalidOption(f"There is no option {text!r}. {suggest(name, OPTIONS)}", option=text)
    return name


def option_changes(old: Definition, new: Definition) -> Iterator[str]:
    """The options in which two definitions differ, in words."""
    for option in OPTIONS:
        before, after = getattr(old, option), getattr(new, option)
        if before != after:
            yield f"{option} {before or MANUAL} → {after or MANUAL}"


def check_option(name: str, value: Any) -> str | None:
    """The value as a definition keeps it, or InvalidOption."""
    if name in CHOICES:
        check_choice(name, value, CHOICES[name])
        return str(value)
    if value is None or value == MANUAL:
        return None
    if not isinstance(value, str):
        raise InvalidOption(
            f"schedule={value!r} is not text. Use text such as '1m' or '*/5 * * * *', 'upstream', "
            "or 'manual'.",
            schedule=str(value),
        )
    parse_schedule(value)
    return value.strip()
