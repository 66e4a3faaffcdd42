"""The lease of one handle: what it reads and what it is staging, told to all who collect garbage.

Owns: the handle's lease object, made before the handle's first transaction; the list of snapshots
and of pieces of work that are in use in this process, each for as long as it lives; and, for each
branch, how far fences were looked at.

Invariants: work that began under a lease which others gave up is refused (LeaseLost); new work
never relies on a lease that a fence names.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from tidelock.model.history.commit import Tables
from tidelock.store.leases.leases import Footing, Held, Keeper, Lease, new_lease_id, owner_name
from tidelock.store.leases.uses import Use, Uses, are_many, cover
from tidelock.store.log.clock import LakeClock
from tidelock.store.log.fences import fenced_since
from tidelock.store.log.log import Head, Log
from tidelock.store.objects import layout
from tidelock.store.objects.boot_time import boot_seconds
from tidelock.store.objects.protocol import Objects

FENCES_LOOKED_BACK = 1000
"""How many versions, where it is not known which fences there were."""


class Shown(Protocol):
    """A snapshot that somebody reads."""

    @property
    def branch_id(self) -> str: ...

    @property
    def version(self) -> int: ...

    def states(self) -> Tables: ...


@dataclass
class _Begun:
    """When something came into use."""

    booted: float
    """As boot_seconds counts, which no step of a clock changes."""
    since: datetime
    """The earliest date that the store can have given to what was written since."""


class HandleLease:
    """Owns the lease object of one handle, and the list of what is in use under it."""

    def __init__(
        self,
        objects: Objects,
        keeper: Keeper,
        clock: LakeClock,
        log: Log,
        uses: Uses,
        lease_seconds: float,
        refuse_unusable: Callable[[], None],
        far: bool,
    ) -> None:
        """`refuse_unusable` raises for a handle that is closed or whose lake is gone; `far`: the
        store's clock is not asked while others wait for the answer."""
        self._objects = objects
        self._keeper = keeper
        self._clock = clock
        self._log = log
        self._uses = uses
        self._lease_seconds = lease_seconds
        self._refuse_unusable = refuse_unusable
        self._far = far
        self._lease: Held | None = None
        self._lock = threading.Lock()
        self._fences: dict[str, int] = {}
        """For each branch, the newest fence that was looked at."""
        self._work: weakref.WeakKeyDictionary[object, _Begun] = weakref.WeakKeyDictionary()
        self._snapshots: weakref.WeakSet[Shown] = weakref.WeakSet()
        self._listing = threading.Lock()
        """Held while they are listed: an entry that comes in between breaks the listing."""

    @property
    def exists(self) -> bool:
        return self._lease is not None

    @property
    def key(self) -> str | None:
        """The key of the lease object; None before there is one."""
        return self._lease.key if self._lease is not None else None

    def ensure(self, head: Head | None = None) -> Held:
        """The lease of this handle, made now if there is none. `head` was read before."""
        self._refuse_unusable()
        if self._lease is not None:
            self._lease.ensure(self._objects)
            return self._lease
        with self._lock:
            if self._lease is None:
                lease_id = new_lease_id()
                held = Held(
                    f"{layout.LEASES}/{lease_id}.json",
                    self._lease_seconds,
                    lambda: self.content(lease_id),
                    wrote=self._clock.wrote,
                )
                self._keeper.hold(held)
                self._lease = held
                self._compare_clocks()
                if head is not None:
                    self.is_newer_than_fences(head)
            return self._lease

    def is_newer_than_fences(self, head: Head) -> None:
        """Note that no fence up to a head can name the lease: it was made after that was read."""
        self._fences[head.branch.id] = head.fence

    def forget(self) -> None:
        """The handle is closed."""
        self._lease = None

    def begin_work(self, work: object, head: Head) -> Footing:
        """Note that something is being staged from now on, on top of a head."""
        lease = self.ensure()
        with self._listing:
            self._work[work] = _Begun(boot_seconds(), self._clock.stamp())
        known = self._fences.get(head.branch.id)
        if known != head.fence:
            self._fences[head.branch.id] = head.fence
            oldest = max(0, head.version - FENCES_LOOKED_BACK) if known is None else known
            if lease.key in fenced_since(self._log, head, oldest):
                # Others gave it up, and have removed it: new work must not rely on it.
                lease.give_up(self._objects)
        return lease.footing

    def end_work(self, work: object) -> None:
        with self._listing:
            self._work.pop(work, None)

    def check(self, footing: Footing) -> None:
        """LeaseLost when the lease ran out since work began; LakeClosed when it was given up."""
        self._refuse_unusable()
        if self._lease is not None:
            self._lease.check(footing.lapses)

    def note_snapshot(self, snapshot: Shown) -> None:
        """Note that a snapshot is read for as long as it lives."""
        with self._listing:
            self._snapshots.add(snapshot)

    def snapshots(self) -> list[Shown]:
        with self._listing:
            return list(self._snapshots)

    def content(self, lease_id: str) -> Lease:
        """What the lease object says now."""
        now, stamp = boot_seconds(), self._clock.stamp()
        with self._listing:
            working = list(self._work.values())
        for began in working:
            # If the clock went back since it began, its files may be dated before it did.
            began.since = min(began.since, stamp - timedelta(seconds=now - began.booted))
        oldest = min((began.booted for began in working), default=now)
        since = min((began.since for began in working), default=None)
        shown = sorted({(snapshot.branch_id, snapshot.version) for snapshot in self.snapshots()})
        uses = self._uses.listed()
        if are_many(shown):
            # By a few spans of versions instead.
            uses += cover(Use(branch_id, version, version) for branch_id, version in shown)
            shown = []
        return Lease(
            lease_id,
            owner_name(),
            self._lease_seconds,
            now - oldest,
            since,
            tuple(shown),
            uses,
            self._uses.pins(),
        )

    def _compare_clocks(self) -> None:
        if not self._far:
            self._clock.compare()
            return
        # Not in the way of what follows: a reader that needs to know it waits for it.
        threading.Thread(target=self._clock.compare, name="tidelock-clock", daemon=True).start()
