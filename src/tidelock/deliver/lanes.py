"""Lanes: works that go on side by side, of which one that is slow keeps no other waiting.

Owns: how many begin. At most AT_ONCE begin within SLOW_SECONDS, so that a thousand do not begin
together; one that has run for longer gives way to the next. Those that are at work all the
while, as an export of files is, take memory: of them there are WORKING_MAX. Those that mostly wait
for somebody outside, as a request does, take a thread: of them there are WAITING_MAX.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

AT_ONCE = 8
SLOW_SECONDS = 1.0
WORKING_MAX = 12
WAITING_MAX = 256


@dataclass(frozen=True, slots=True)
class _Running:
    thread: threading.Thread
    began: float
    waits: bool


class Lanes:
    """Owns: the threads of the works that are running."""

    def __init__(self, at_once: int = AT_ONCE, slow_seconds: float = SLOW_SECONDS) -> None:
        self._at_once = at_once
        self._slow_seconds = slow_seconds
        self._running: dict[Hashable, _Running] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def has_room(self, *, waits: bool = False) -> bool:
        """Whether a work may begin now; `waits` for one that mostly waits."""
        since = time.monotonic() - self._slow_seconds
        with self._lock:
            running = list(self._running.values())
        alike = sum(work.waits == waits for work in running)
        quick = sum(work.began > since for work in running)
        return quick < self._at_once and alike < (WAITING_MAX if waits else WORKING_MAX)

    def runs(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._running

    def start(self, key: Hashable, work: Callable[[], None], *, waits: bool = False) -> None:
        """Begin a work, which raises nothing."""

        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    del self._running[key]
                self._ended.set()

        # A daemon: what hangs does not keep the process from ending.
        thread = threading.Thread(target=run, name=f"tidelock-{key}", daemon=True)
        with self._lock:
            self._running[key] = _Running(thread, time.monotonic(), waits)
        thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until a work ends, or so long."""
        if self._ended.wait(seconds):
            self._ended.clear()

    def is_idle(self) -> bool:
        with self._lock:
            return not self._running

    def join(self, seconds: float) -> bool:
        """Wait for what runs; whether all of it ended in time."""
        ends = time.monotonic() + seconds
        with self._lock:
            running = list(self._running.values())
        for work in running:
            work.thread.join(max(0.0, ends - time.monotonic()))
        return self.is_idle()
