"""The scheduler: one loop that refreshes what is due, until it is stopped.

Owns: when the loop looks. What is due, and what becomes of it, is decided elsewhere, from durable
state alone; so a scheduler that was killed is resumed by starting another, which neither loses nor
repeats work. Runs that were missed count as one.
Invariant: one scheduler per lake and branch works at a time; a second one waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tidelock.derive.attempts import Attempt
from tidelock.derive.groups import Unit
from tidelock.errors import StoreError
from tidelock.run.stream_tables import StreamTables
from tidelock.store.posts import Holder, Post
from tidelock.store.store import Store

LOOK_SECONDS = 0.5
"""How long a change of a source may go unnoticed."""
LEASE_SECONDS = 15.0


@dataclass(frozen=True)
class Watcher:
    """What the loop tells whoever watches it."""

    begun: Callable[[Unit], None] = lambda unit: None
    attempted: Callable[[Attempt], None] = lambda attempt: None
    waiting: Callable[[Holder], None] = lambda holder: None
    started: Callable[[], None] = lambda: None


class Scheduler:
    def __init__(
        self,
        store: Store,
        streams: StreamTables,
        branch: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._store = store
        self._streams = streams
        self._branch = branch
        self._look_seconds = look_seconds
        self._post = Post(store.objects, f"scheduler of {branch}", lease_seconds)
        self._renew_seconds = lease_seconds / 3

    def run(self, stop: threading.Event, watcher: Watcher | None = None) -> None:
        """Refresh what is due until `stop` is set. What has begun is finished first."""
        told = watcher or Watcher()
        while not stop.is_set():
            if not self._take(stop, told):
                return
            try:
                told.started()
                self._work(stop, told)
            finally:
                self._post.release()

    def _take(self, stop: threading.Event, told: Watcher) -> bool:
        """Wait for the post; False when stopped first."""
        said: Holder | None = None
        while not stop.is_set():
            holder = self._post.take()
            if holder is None:
                return True
            if holder != said:
                told.waiting(holder)
                said = holder
            stop.wait(self._look_seconds)
        return False

    def _work(self, stop: threading.Event, told: Watcher) -> None:
        """Look and refresh until stopped, or until another has taken over."""

        def tell(attempt: Attempt) -> None:
            if attempt.action not in ("none", "skipped"):
                told.attempted(attempt)

        ended, lost = threading.Event(), threading.Event()
        keeper = threading.Thread(target=self._renew, args=(ended, lost), daemon=True)
        keeper.start()
        try:
            while not stop.is_set() and not lost.is_set():
                self._streams.refresh(
                    None, self._branch, parallel=True, progress=tell, begun=told.begun, stop=stop
                )
                stop.wait(self._look_seconds)
        finally:
            ended.set()
            keeper.join()

    def _renew(self, ended: threading.Event, lost: threading.Event) -> None:
        while not ended.wait(self._renew_seconds):
            try:
                held = self._post.renew()
            except StoreError:
                # A lease that cannot be renewed runs out: stop before another takes over.
                held = False
            if not held:
                lost.set()
                return
