"""The scheduler: one loop that reads, refreshes and delivers what is due, until it is stopped.

Owns: when the loop looks. What is due, and what becomes of it, is decided elsewhere, from durable
state alone; so a scheduler that was killed is resumed by starting another, which neither loses nor
repeats work. Runs that were missed count as one.
A look asks for the head, once. If that has not moved, and no schedule and no retry is due, nothing
else is read; what others may have changed without a commit is listed every AGENDA_SECONDS.
Invariants: one scheduler per lake and branch works at a time, and a second one waits; sources are
read and deliveries go on while tables are refreshed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from tidelock.deliver.deliveries import Deliveries
from tidelock.deliver.reports import DeliveryReport
from tidelock.deliver.sinks import Sinks
from tidelock.derive.attempts.attempts import Attempt
from tidelock.derive.graph.groups import Unit
from tidelock.derive.refresh.refreshes import StreamRefreshes
from tidelock.ingest.reports import IngestReport
from tidelock.ingest.schedule.readings import Readings
from tidelock.ingest.sources import Sources
from tidelock.store.leases.scheduler_post import LEASE_SECONDS, post_of
from tidelock.store.leases.single_holder import Holder
from tidelock.store.log.log import Head
from tidelock.store.store import Store

LOOK_SECONDS = 0.5
"""How long a change of an input may go unnoticed."""
SHORT_LOOK_SECONDS = 0.05
"""The same, while work waits for other work to end."""
AGENDA_SECONDS = 5.0
"""How long it may go unnoticed that a user ended the backing off of a stream table."""


@dataclass(frozen=True)
class Watcher:
    """What the loop tells the process that watches it."""

    begun: Callable[[Unit], None] = lambda unit: None
    attempted: Callable[[Attempt], None] = lambda attempt: None
    waiting: Callable[[Holder], None] = lambda holder: None
    started: Callable[[], None] = lambda: None
    delivered: Callable[[DeliveryReport], None] = lambda report: None
    ingested: Callable[[IngestReport], None] = lambda report: None


class Scheduler:
    """Owns the loop of one process for one branch: it waits for the post, looks, reads, refreshes
    and delivers until it is stopped."""

    def __init__(
        self,
        store: Store,
        refreshes: StreamRefreshes,
        sinks: Sinks,
        branch: str,
        *,
        sources: Sources | None = None,
        lease_seconds: float = LEASE_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._store = store
        self._refreshes = refreshes
        self._sinks = sinks
        self._sources = sources
        self._branch = branch
        self._look_seconds = look_seconds
        self._post = post_of(store, branch, lease_seconds)

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
        said: tuple[str, datetime | None] | None = None
        while not stop.is_set():
            holder = self._post.take()
            if holder is None:
                return True
            # Its lease is renewed all the time; that is no news.
            if (holder.owner, holder.since) != said:
                told.waiting(holder)
                said = (holder.owner, holder.since)
            stop.wait(self._look_seconds)
        return False

    def _work(self, stop: threading.Event, lost: threading.Event, told: Watcher) -> None:
        """Look, refresh and deliver until stopped, or until another has taken over."""
        deliveries = Deliveries(self._sinks, self._branch, told.delivered)
        readings = None
        if self._sources is not None:
            readings = Readings(self._sources, self._branch, told.ingested)
        rounds = Rounds(self._refreshes, self._branch, stop, told)
        try:
            while not stop.is_set() and not lost.is_set():
                head = self._store.branches.head(self._branch)
                now = self._store.clock.now()
                if readings is not None:
                    readings.look(now)
                rounds.look(head, now)
                waiting = deliveries.look(head, now)
                stop.wait(SHORT_LOOK_SECONDS if waiting else self._look_seconds)
        finally:
            deliveries.stop()
            if readings is not None:
                readings.stop()
            rounds.end()
            deliveries.end()
            if readings is not None:
                readings.end()
        rounds.check()


class Rounds:
    """Refreshes of all that is due, one round after the other, each beside the loop."""

    def __init__(
        self, refreshes: StreamRefreshes, branch: str, stop: threading.Event, told: Watcher
    ) -> None:
        self._refreshes = refreshes
        self._branch = branch
        self._stop = stop
        self._told = told
        self._running: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tidelock-refreshes")
        self._round: Future[list[Attempt]] | None = None
        self._version = -1
        self._looked_at = 0.0
        self._next: datetime | None = None

    def look(self, head: Head, now: datetime) -> None:
        """Begin a round if something is due, and the last one has ended."""
        if self._round is not None and not self._round.done():
            return
        self.check()
        clock = time.monotonic()
        is_old = clock - self._looked_at > AGENDA_SECONDS
        if (
            head.version == self._version
            and not is_old
            and (self._next is None or now < self._next)
        ):
            return
        agenda = self._refreshes.agenda(head, now)
        self._version, self._looked_at, self._next = head.version, clock, agenda.next
        if agenda.names:
            # Whatever becomes of it, it is looked at again: failures leave no commit.
            self._version = -1
            self._round = self._pool.submit(self._refresh, agenda.names)

    def _refresh(self, names: frozenset[str]) -> list[Attempt]:
        return self._refreshes.refresh(
            None,
            self._branch,
            due=True,
            among=names,
            parallel=True,
            progress=self._tell,
            begun=self._begin,
            stop=self._stop,
        )

    def _begin(self, unit: Unit) -> None:
        self._running.update(unit.members)
        self._told.begun(unit)

    def _tell(self, attempt: Attempt) -> None:
        # A watcher that was told that a table is begun is told how that ended.
        if attempt.table in self._running or attempt.action not in ("none", "skipped"):
            self._running.discard(attempt.table)
            self._told.attempted(attempt)

    def check(self) -> None:
        """Raise what the last round could not go on for."""
        ended, self._round = self._round, None
        if ended is not None:
            ended.result()

    def end(self) -> None:
        """Let what has begun be finished."""
        self._pool.shutdown()
