"""A leader and its followers: what several threads wait for, one of them does for all.

Owns: the line of those that wait for one thing, and who of them leads. The leader takes the first
of the line, itself among them, does the work for all that it took, and calls them. A thread that
joins meanwhile waits for the next leader.

Invariants:
    one at a time leads, and it is the first of the line until it takes;
    who joined is settled, or leads, or there is a leader before it: nobody waits in vain;
    who has left is neither taken nor made the leader.

Each sleeps on a lock of its own until it is settled or is to lead: passed from one to the next, a
lock for all would wake them one after the other.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar


def taken_lock() -> Any:
    """A lock to sleep on until another thread releases it."""
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False, kw_only=True)
class Waiter:
    """What a thread waits with: its part of the work, and whether that is done."""

    called: Any = field(default_factory=taken_lock, repr=False)
    """Released to wake its thread: it is settled, or is to lead."""
    left: bool = field(default=False, repr=False)
    """Whether its thread waits with it no longer."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether its part is done, well or not."""

    def call(self) -> None:
        if self.called.locked():
            self.called.release()


W = TypeVar("W", bound=Waiter)


class Followers(Generic[W]):
    """Those that wait for one thing, of which one at a time leads."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._waiting: list[W] = []
        self._leader: W | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, waiter: W) -> None:
        """Wait until it is settled or leads, which it does at once when nobody else does."""
        with self._changed:
            self._waiting.append(waiter)
            self._changed.notify_all()
            if self._leader is None:
                self._leader = waiter
                return
        while not (waiter.settled or self._leader is waiter):
            waiter.called.acquire()

    def gather(self, complete: Callable[[], bool], seconds: float) -> None:
        """For the leader: wait a while for those that are known to come."""
        with self._changed:
            self._changed.wait_for(complete, seconds)

    def look_again(self) -> None:
        """Let a leader that gathers see whether all are there."""
        with self._changed:
            self._changed.notify_all()

    def take(self, count_max: int) -> list[W]:
        """For the leader: the first of the line, which no longer wait in it."""
        with self._changed:
            taken, self._waiting = self._waiting[:count_max], self._waiting[count_max:]
            return taken

    def put_back(self, taken: Iterable[W]) -> None:
        """Those that were taken, are not settled and still wait are the first of the line again."""
        with self._changed:
            self._waiting[:0] = [one for one in taken if not one.settled and not one.left]

    def leave(self, waiter: W) -> None:
        """No longer wait, and no longer lead: the next one that waits does."""
        with self._changed:
            waiter.left = True
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            if self._leader is waiter:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.call()
