"""Faults on purpose: a store that fails by a seed, and points at which a process dies on request.

Owns: `FaultyStore`, an object store around another one, and failpoints, the named steps of the
store's own code.
Invariants: with no fault planned and a rate of 0, a FaultyStore is the store inside it. With
faults, it fails but never lies: an answer is the inner store's answer; an injected error is
StoreUnavailable, which promises nothing about the effect. When nothing is armed, `hit` costs one
look at a global.

Failpoints are armed by `armed` within a process, or for a whole process, at its start, by

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
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from tidelock.errors import InvalidOption, StoreError, StoreUnavailable
from tidelock.store.objects import ObjectInfo, Objects

Answer = TypeVar("Answer")
Operation = Literal["get", "info", "put_new", "put", "delete", "list", "list_folders"]
Fault = Literal["before", "after", "timeout", "slow"]

# --------------------------------------------------------------------------------------------------
# A store that fails
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One call that was made, and the fault it met."""

    operation: Operation
    key: str
    fault: Fault | None


@dataclass
class _Plan:
    operation: Operation | None
    key_contains: str
    when: Fault
    skip: int
    times: int


class FaultyStore:
    """An object store that fails as asked.

    Faults: `before` raises without effect; `after` has its effect and raises, as when the answer
    is lost; `timeout` raises after `slow_seconds`, with or without effect; `slow` answers after
    `slow_seconds`. At `rate`, each call to `operations` on keys with `key_contains` meets one of
    `faults`, drawn in the order of the calls: one thread and one seed give the same run again.
    """

    def __init__(
        self,
        inner: Objects,
        seed: int,
        *,
        rate: float = 0.0,
        faults: Sequence[Fault] = ("before", "after", "timeout", "slow"),
        operations: Sequence[Operation] | None = None,
        key_contains: str = "",
        latency_seconds: float = 0.0,
        slow_seconds: float = 0.05,
    ) -> None:
        self.inner = inner
        self.seed = seed
        self.rate = rate
        self.faults = tuple(faults)
        self.operations = operations
        self.key_contains = key_contains
        self.latency_seconds = latency_seconds
        self.slow_seconds = slow_seconds
        self.calls: list[Call] = []
        self._plans: list[_Plan] = []
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FaultyStore({self.inner!r}, seed={self.seed}, rate={self.rate})"

    def fail_next(
        self,
        operation: Operation | None = None,
        *,
        key_contains: str = "",
        when: Fault = "before",
        times: int = 1,
        skip: int = 0,
    ) -> None:
        """Plans a fault for the next calls that match, after letting `skip` of them pass."""
        with self._lock:
            self._plans.append(_Plan(operation, key_contains, when, skip, times))

    def count(self, operation: Operation | None = None, key_contains: str = "") -> int:
        """How many matching calls were made since the start or the last `forget`."""
        with self._lock:
            return sum(
                operation in (None, call.operation) and key_contains in call.key
                for call in self.calls
            )

    def forget(self) -> None:
        """Forgets the calls made and the faults planned."""
        with self._lock:
            self.calls.clear()
            self._plans.clear()

    def get(self, key: str) -> bytes:
        return self._call("get", key, lambda: self.inner.get(key))

    def info(self, key: str) -> ObjectInfo | None:
        return self._call("info", key, lambda: self.inner.info(key))

    def put_new(self, key: str, data: bytes) -> None:
        return self._call("put_new", key, lambda: self.inner.put_new(key, data))

    def put(self, key: str, data: bytes) -> None:
        return self._call("put", key, lambda: self.inner.put(key, data))

    def delete(self, key: str) -> None:
        return self._call("delete", key, lambda: self.inner.delete(key))

    def list_folders(self, folder: str) -> list[str]:
        return self._call("list_folders", folder, lambda: self.inner.list_folders(folder))

    def list(self, folder: str) -> list[ObjectInfo]:
        return self._call("list", folder, lambda: self.inner.list(folder))

    def _call(self, operation: Operation, key: str, act: Callable[[], Answer]) -> Answer:
        with self._lock:
            # As many draws for every call, so that a plan does not change what the seed does later.
            draw, which, coin = (self._random.random() for _ in range(3))
            fault = self._choose(operation, key, draw, which)
            self.calls.append(Call(operation, key, fault))
        delay_seconds = self.latency_seconds
        if fault in ("timeout", "slow"):
            delay_seconds += self.slow_seconds
        if delay_seconds:
            time.sleep(delay_seconds)
        if fault in (None, "slow"):
            return act()
        if fault == "after" or (fault == "timeout" and coin < 0.5):
            # Whatever the answer was, it is lost with the connection.
            with contextlib.suppress(StoreError):
                act()
        raise StoreUnavailable(
            f"The store failed at {operation} of {key!r}: a fault on purpose ({fault}, seed "
            f"{self.seed}). Look up whether it was applied, or try again.",
            operation=operation,
            key=key,
            uri=repr(self.inner),
            cause=f"fault {fault!r}",
            seed=self.seed,
        )

    def _choose(self, operation: Operation, key: str, draw: float, which: float) -> Fault | None:
        for plan in self._plans:
            if plan.operation in (None, operation) and plan.key_contains in key and plan.times:
                if plan.skip:
                    plan.skip -= 1
                    continue
                plan.times -= 1
                return plan.when
        if self.operations is not None and operation not in self.operations:
            return None
        if draw < self.rate and self.key_contains in key:
            return self.faults[int(which * len(self.faults))]
        return None


# --------------------------------------------------------------------------------------------------
# Failpoints
# --------------------------------------------------------------------------------------------------


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
