"""The scheduler: one loop that refreshes what is due, one that delivers, until they are stopped.

Owns: when the loop looks. What is due, and what becomes of it, is decided elsewhere, from durable
state alone; so a scheduler that was killed is resumed by starting another, which neither loses nor
repeats work. Runs that were missed count as one.
Invariant: one scheduler per lake and branch works at a time; a second one waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tidelock.deliver.reports import DeliveryReport
from tidelock.derive.attempts import Attempt
from tidelock.derive.groups import Unit
from tidelock.run.deliveries import Deliveries
from tidelock.run.sinks import Sinks
from tidelock.run.stream_refreshes import StreamRefreshes
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
    delivered: Callable[[DeliveryReport], None] = lambda report: None


class Scheduler:
    def __init__(
        self,
        store: Store,
        refreshes: StreamRefreshes,
        sinks: Sinks,
        branch: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._store = store
        self._refreshes = refreshes
        self._branch = branch
        self._look_seconds = look_seconds
        self._post = Post(store.objects, f"scheduler of {branch}", lease_seconds)
        self._deliveries = Deliveries(sinks, branch, look_seconds)

    def run(self, stop: threading.Event, watcher: Watcher | None = None) -> None:
        """Refresh what is due until `stop` is set. What has begun is finished first."""
        told = watcher or Watcher()
        while not stop.is_set():
            if not self._take(stop, told):
                return
            with self._post.renewed() as lost:
                told.started()
                self._work(stop, lost, told)

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

    def _work(self, stop: threading.Event, lost: threading.Event, told: Watcher) -> None:
        """Look, refresh and deliver until stopped, or until another has taken over."""

        def tell(attempt: Attempt) -> None:
            if attempt.action not in ("none", "skipped"):
                told.attempted(attempt)

        ended = threading.Event()
        delivering = threading.Thread(
            target=self._deliveries.run, args=(ended, told.delivered), name="tidelock-deliveries"
        )
        delivering.start()
        try:
            while not stop.is_set() and not lost.is_set():
                self._refreshes.refresh(
                    None, self._branch, parallel=True, progress=tell, begun=told.begun, stop=stop
                )
                stop.wait(self._look_seconds)
        finally:
            ended.set()
            delivering.join()
