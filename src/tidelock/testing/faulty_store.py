"""A store that fails by a seed: what a real one does at its worst, on request.

Owns: `FaultyStore`, an object store around another one.
Invariants: with no fault planned and a rate of 0, it is the store inside it. With faults, it fails
but never lies: an answer is the inner store's answer; an injected error is StoreUnavailable, which
promises nothing about the effect. It passes the contract of objects itself.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from tidelock.errors import StoreError, StoreUnavailable
from tidelock.store.objects.protocol import ObjectInfo, Objects

Answer = TypeVar("Answer")
Operation = Literal["get", "info", "put_new", "put", "delete", "keys", "list", "list_folders"]
Fault = Literal["before", "after", "timeout", "slow"]


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

    def delete_many(self, keys: Sequence[str]) -> None:
        # One by one: whatever is left over when a request fails, something may be.
        for key in keys:
            self.delete(key)

    def keys(self, folder: str, after: str = "") -> list[str]:
        return self._call("keys", folder, lambda: self.inner.keys(folder, after))

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
