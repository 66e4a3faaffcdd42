"""Failpoints: named steps of Tidelock's own code, at which a process dies or fails on request.

Invariant: when nothing is armed, `hit` costs one look at a global.

They are armed by `armed` within a process, or for a whole process, at its start, by

    TIDELOCK_FAILPOINTS="publish.before_put=kill;stage.after_table=error@2;heal.begin=sleep:0.5"

| action | what a hit does |
|---|---|
| kill | SIGKILL to its own process |
| error | raises StoreUnavailable |
| sleep:seconds | waits |
| pause:path | creates path.reached, then waits until path exists |

and with @n after it, only the n-th hit does it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tidelock.errors import InvalidOption, StoreUnavailable


@dataclass
class Failpoint:
    """One armed failpoint, and how often it was hit."""

    name: str
    action: Literal["kill", "error", "sleep", "pause"]
    argument: str = ""
    only_hit: int | None = None
    hits: int = 0


_failpoints: dict[str, Failpoint] = {}
_recordings: list[list[str]] = []
_lock = threading.Lock()
_active = False


def hit(name: str) -> None:
    """Marks a step of the store; does nothing unless that step is armed."""
    if _active:
        _react(name)


@contextlib.contextmanager
def armed(name: str, action: str) -> Iterator[Failpoint]:
    """Arms one failpoint of this process, in all its threads, for the length of the block."""
    failpoint = _parse_action(name, action)
    with _lock:
        before = _failpoints.get(name)
        _failpoints[name] = failpoint
        _refresh()
    try:
        yield failpoint
    finally:
        with _lock:
            if before is None:
                _failpoints.pop(name, None)
            else:
                _failpoints[name] = before
            _refresh()


@contextlib.contextmanager
def recorded() -> Iterator[list[str]]:
    """Collects the names that are hit during the block, in order: the steps one could fail at."""
    names: list[str] = []
    with _lock:
        _recordings.append(names)
        _refresh()
    try:
        yield names
    finally:
        with _lock:
            _recordings[:] = [recording for recording in _recordings if recording is not names]
            _refresh()


def parse(text: str) -> list[Failpoint]:
    """The failpoints that a value of TIDELOCK_FAILPOINTS arms."""
    failpoints = []
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, action = item.partition("=")
        if not equals or not name.strip():
            raise _unreadable(item)
        failpoints.append(_parse_action(name.strip(), action.strip()))
    return failpoints


def _parse_action(name: str, text: str) -> Failpoint:
    rest, _, number = text.rpartition("@")
    only_hit = int(number) if rest and number.isdecimal() else None
    action, _, argument = (text if only_hit is None else rest).partition(":")
    if only_hit == 0 or bool(argument) != (action in ("sleep", "pause")):
        raise _unreadable(f"{name}={text}")
    if action == "sleep":
        try:
            float(argument)
        except ValueError:
            raise _unreadable(f"{name}={text}") from None
    match action:
        case "kill" | "error" | "sleep" | "pause":
            return Failpoint(name, action, argument, only_hit)
    raise _unreadable(f"{name}={text}")


def _unreadable(item: str) -> InvalidOption:
    return InvalidOption(
        f"The failpoint {item!r} cannot be understood. Write name=action, where the action is "
        "kill, error, sleep:<seconds> or pause:<path>, and @<n> after it for the n-th hit only.",
        option="TIDELOCK_FAILPOINTS",
        value=item,
    )


def _refresh() -> None:
    global _active
    _active = bool(_failpoints or _recordings)


def _react(name: str) -> None:
    with _lock:
        for recording in _recordings:
            recording.append(name)
        failpoint = _failpoints.get(name)
        if failpoint is None:
            return
        failpoint.hits += 1
        if failpoint.only_hit not in (None, failpoint.hits):
            return
    match failpoint.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "error":
            raise StoreUnavailable(
                f"The failpoint {name!r} is armed with an error (hit {failpoint.hits}).",
                operation=name,
                cause="failpoint",
            )
        case "sleep":
            time.sleep(float(failpoint.argument))
        case "pause":
            Path(failpoint.argument + ".reached").touch()
            while not os.path.exists(failpoint.argument):
                time.sleep(0.005)


_failpoints.update(
    (failpoint.name, failpoint) for failpoint in parse(os.environ.get("TIDELOCK_FAILPOINTS", ""))
)
_refresh()
