"""Precedence: a transaction that others were faster than is given a moment to itself.

A slow transaction among many fast ones would lose each time, however often it is run again. Once it
has lost, the others of this process let it pass before they publish, for a few seconds at most, and
those of other processes on this machine for as long as they wait for a turn.

The order that this gives is advice: a process that does not wait for it loses nothing but fairness.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidelock.store.log.turns import Turns

SECONDS_MAX = 5.0
"""How long others let one pass, however long it takes."""


class Precedence:
    """Owns, for each branch, which thread of this process goes first, and until when."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._mutex = threading.Lock()
        self._held: dict[str, tuple[threading.RLock, float]] = {}
        """Per branch, what the others wait for and until when."""

    @contextmanager
    def taken(self, branch_id: str) -> Iterator[None]:
        """Go first on a branch, in this thread, once those that went first before have ended."""
        with self._mutex:
            lock, _ = self._held.setdefault(branch_id, (threading.RLock(), 0.0))
        if not lock.acquire(timeout=SECONDS_MAX):
            yield
            return
        try:
            self._held[branch_id] = (lock, time.monotonic() + SECONDS_MAX)
            with self._turns.taken(branch_id):
                yield
        finally:
            self._held[branch_id] = (lock, 0.0)
            lock.release()

    def give_way(self, branch_id: str) -> None:
        """Let the thread that goes first pass, unless that is this one."""
        held = self._held.get(branch_id)
        if held is None:
            return
        lock, until = held
        left = until - time.monotonic()
        if left > 0 and lock.acquire(timeout=left):
            lock.release()
