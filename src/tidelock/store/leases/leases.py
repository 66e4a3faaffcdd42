"""Leases: durable notes that a process is at work, renewed for as long as it is.

Owns: one object per lease (a process that has the lake open for writing), and the thread that
renews leases and intents. Both live for `lease_seconds` after they were last written.
Invariants: a lease exists before the first transaction of its handle; now - renewed <=
`lease_seconds` at all times since a transaction began, or the writer gives up by itself with
LeaseLost. A lease that ran out once has run out for those who relied on it then, however soon it is
renewed: others may have acted meanwhile.
Others tell whether something ran out by the store's clock, which is also the one that dates
objects. They may be wrong, for that clock may take a step, and objects may appear long after their
writer looked whether it still may write them. So a lease or an intent says who may live, and never
who may publish: that is for the log to say (log/fences.py).
After a crash: what is left expires, and garbage collection removes it (upkeep/garbage/garbage.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from tidelock.errors import (
    LeaseLost,
    StoreError,
)
from tidelock.store.leases.beat import Beat
from tidelock.store.leases.uses import Use
from tidelock.store.objects.boot_time import boot_seconds
from tidelock.store.objects.protocol import ObjectInfo, Objects
from tidelock.store.objects.records import encode

logger = logging.getLogger("tidelock")

LEASE_SECONDS = 60.0
CLOCK = "_tidelock/clock.json"


@dataclass(frozen=True, slots=True)
class Lease:
    """A process that writes, and since how long its oldest open transaction or snapshot exists."""

    id: str
    owner: str
    lease_seconds: float
    active_seconds: float
    since: datetime | None = None
    """The earliest date that a file of that transaction can have, as the clocks went meanwhile."""
    versions: tuple[tuple[str, int], ...] = ()
    """Branch ids and versions of snapshots that are in use, unless there are too many to list."""
    uses: tuple[Use, ...] = ()
    """What else is in use, in short."""
    pins: tuple[tuple[str, int], ...] = ()
    """Tables and pins that are in use, of which there may be no version."""
    format: int = 1


def owner_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def expired(info: ObjectInfo, lease_seconds: float, now: datetime) -> bool:
    return info.modified + timedelta(seconds=lease_seconds) < now


@dataclass(frozen=True, slots=True)
class Footing:
    """The lease that work was begun under."""

    lease: str = ""
    lapses: int = 0


class Held:
    """One object that is kept alive by renewal: an intent or a lease.

    `lapses` counts how often it ran out. An intent that ran out is `final`: it is never written
    again, because healing may have settled it. A lease goes on under another name, because garbage
    collection may be about to remove the old one.
    """

    def __init__(
        self,
        key: str,
        lease_seconds: float,
        content: Callable[[], object],
        *,
        final: bool = False,
        wrote: Callable[[str], None] = lambda key: None,
    ) -> None:
        """`wrote` is told the key whenever the object was written."""
        self.key = key
        self.lease_seconds = lease_seconds
        self.lapses = 0
        self._stem = key.removesuffix(".json")
        self._content = content
        self._final = final
        self._wrote = wrote
        self._renewed = boot_seconds()
        self._lock = threading.Lock()
        self._removed = False

    @property
    def footing(self) -> Footing:
        """What work relies on that is begun now."""
        with self._lock:
            return Footing(self.key, self.lapses)

    @property
    def until(self) -> float:
        """When it runs out unless it is renewed, in seconds since the machine booted."""
        return self._renewed + self.lease_seconds

    def write(self, objects: Objects) -> None:
        with self._lock:
            if self._removed or not self._goes_on():
                return
            began = boot_seconds()
            objects.put(self.key, encode(self._content()))
            self._renewed = began
            self._wrote(self.key)

    def give_up(self, objects: Objects) -> None:
        """Go on under another name, because others gave this one up; what relied on it is lost."""
        with self._lock:
            if not self._removed:
                self._renewed = -self.lease_seconds
        self.write(objects)

    def ensure(self, objects: Objects) -> None:
        """Write it now if it ran out, as after a long sleep, so that new work can rely on it."""
        if self._ran_out():
            self.write(objects)

    def check(self, lapses: int | None = None) -> None:
        """LeaseLost when this ran out, now or since `lapses` was read: others may have acted."""
        if self._ran_out() or lapses not in (None, self.lapses):
            raise LeaseLost(
                f"This writer was suspended or cut off from the store for more than "
                f"{self.lease_seconds:g} seconds, so that others may have discarded its staged "
                "work. Nothing was written. Run the transaction again.",
                key=self.key,
                lease_seconds=self.lease_seconds,
            )

    def remove(self, objects: Objects) -> None:
        with self._lock:
            self._removed = True
            objects.delete(self.key)

    def _ran_out(self) -> bool:
        return boot_seconds() > self.until

    def _goes_on(self) -> bool:
        """Whether it may be written; what ran out is noted before it looks alive again."""
        if self._ran_out() and not (self._final and self.lapses):
            self.lapses += 1
            if not self._final:
                self.key = f"{self._stem}-{self.lapses}.json"
        return not (self._final and self.lapses)


class Keeper:
    """Renews what one handle holds, in one thread that lives as long as there is something."""

    def __init__(
        self,
        objects: Objects,
        lease_seconds: float,
        after_beat: Callable[[], None] = lambda: None,
    ) -> None:
        """`after_beat` is called by that thread each time that it has renewed everything."""
        self._objects = objects
        self.lease_seconds = lease_seconds
        self._after_beat = after_beat
        self._held: set[Held] = set()
        self._lock = threading.Lock()
        self._beat: Beat | None = None

    def hold(self, held: Held) -> None:
        """Write the object and keep it alive until it is released."""
        held.write(self._objects)
        with self._lock:
            self._held.add(held)
            if self._beat is None or not self._beat.goes_on:
                self._beat = Beat("leases", self.lease_seconds, partial(_beat, weakref.ref(self)))

    def release(self, held: Held) -> None:
        """Stop renewing and remove the object."""
        with self._lock:
            self._held.discard(held)
        held.remove(self._objects)

    def drop(self, held: Held) -> None:
        """Stop renewing, and leave the object to run out."""
        with self._lock:
            self._held.discard(held)

    def renew_all(self) -> None:
        with self._lock:
            held = list(self._held)
        for one in held:
            try:
                one.write(self._objects)
            except StoreError as error:
                # Renewed again at the next beat; check() stops the writer when that is too late.
                logger.warning("a lease could not be renewed: %s", error)

    def beat(self) -> None:
        self.renew_all()
        self._after_beat()

    def stop(self) -> None:
        with self._lock:
            if self._beat is not None:
                self._beat.stop()
            self._beat = None
            held, self._held = list(self._held), set()
        for one in held:
            # What cannot be removed expires.
            with contextlib.suppress(StoreError):
                one.remove(self._objects)


def _beat(keeper_ref: weakref.ref[Keeper]) -> bool:
    """Renew what a keeper holds, unless it is gone: the thread does not keep a handle alive."""
    keeper = keeper_ref()
    if keeper is not None:
        keeper.beat()
    return keeper is not None


def new_lease_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def store_now(objects: Objects) -> datetime:
    """The store's clock: a machine whose own is wrong must not take the living for dead."""
    objects.put(CLOCK, b"{}")
    info = objects.info(CLOCK)
    return info.modified if info is not None else datetime.now(UTC)
