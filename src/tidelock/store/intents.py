"""Intents and leases: durable notes that somebody is at work.

Owns: one object per intent (a transaction whose staging may take long) and one per lease (a process
that has the lake open for writing). Both live for `lease_seconds` after they were last written, and
are renewed by one thread per handle.
Invariants: an intent exists before the first file of its transaction, and belongs to one attempt at
it; a lease exists before the first transaction of its handle; now - renewed <= `lease_seconds` at
all times since a transaction began, or the writer gives up by itself with LeaseLost. A lease that
ran out once has run out for whoever relied on it then, however soon it is renewed: others may have
acted meanwhile.
Others tell whether something ran out by the store's clock, which is also the one that dates
objects. They may be wrong, for that clock may take a step, and objects may appear long after their
writer looked whether it still may write them. So a lease or an intent says who may live, and never
who may publish: that is for the log to say (fences.py).
After a crash: what is left expires. Healing settles intents (recovery.py), garbage collection
removes leases (garbage.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tidelock.errors import (
    CorruptObject,
    IntentUnreadable,
    LeaseLost,
    NewerFormat,
    ObjectMissing,
    StoreError,
)
from tidelock.model.commit import Kind, TableChange
from tidelock.store import layout
from tidelock.store.entries import entries
from tidelock.store.faults import hit
from tidelock.store.objects import ObjectInfo, Objects
from tidelock.store.records import decode, encode

logger = logging.getLogger("tidelock")

LEASE_SECONDS = 60.0
CLOCK = "_tidelock/clock.json"


@dataclass(frozen=True, slots=True)
class Intent:
    """What a writer is about to do, and, once `sealed`, everything needed to publish it."""

    operation_id: str
    branch: str
    branch_id: str
    base_version: int
    actor: str
    kind: Kind
    message: str
    owner: str
    created: datetime
    lease_seconds: float
    lease: str = ""
    """The key of the lease that its writer relies on."""
    properties: dict[str, Any] = field(default_factory=dict)
    sealed: tuple[TableChange, ...] | None = None
    format: int = 1


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
    """Branch ids and versions of snapshots that are in use."""
    format: int = 1


@dataclass(frozen=True, slots=True)
class UnreadableIntent:
    """An intent that nobody can settle before an operator has looked at it."""

    file: str
    cause: str


def list_intents(objects: Objects) -> tuple[list[Intent], list[UnreadableIntent]]:
    """Every intent, those that cannot be read by their file names."""
    readable: list[Intent] = []
    unreadable: list[UnreadableIntent] = []
    for info in entries(objects, layout.INTENTS):
        try:
            intent = read_intent(objects, info)
        except IntentUnreadable as error:
            unreadable.append(UnreadableIntent(info.key.rsplit("/", 1)[1], str(error.cause)))
            continue
        if intent is not None:
            readable.append(intent)
    return readable, unreadable


def owner_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def expired(info: ObjectInfo, lease_seconds: float, now: datetime) -> bool:
    return info.modified + timedelta(seconds=lease_seconds) < now


def read_intent(objects: Objects, info: ObjectInfo) -> Intent | None:
    """The intent in an object; None when it is gone; IntentUnreadable names the file."""
    try:
        return decode(objects.get(info.key), Intent, info.key)
    except ObjectMissing:
        return None
    except (CorruptObject, NewerFormat) as error:
        raise IntentUnreadable(
            f"The intent {info.key!r} cannot be settled: {error.message} Writing is refused until "
            "it is; reading with read_only=True works. After looking into it, remove it with "
            f"`tidelock repair --discard-intent {info.key.rsplit('/', 1)[1]}`.",
            key=info.key,
            cause=error.condition,
        ) from error


def boot_seconds() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


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
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, held: Held) -> None:
        """Write the object and keep it alive until it is released."""
        held.write(self._objects)
        with self._lock:
            self._held.add(held)
            if self._thread is None or not self._thread.is_alive():
                self._wake = threading.Event()
                self._thread = threading.Thread(
                    target=_renew, args=(weakref.ref(self), self._wake), daemon=True
                )
                self._thread.start()

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
            self._wake.set()
            self._thread = None
            held, self._held = list(self._held), set()
        for one in held:
            # What cannot be removed expires.
            with contextlib.suppress(StoreError):
                one.remove(self._objects)


def _renew(keeper_ref: weakref.ref[Keeper], wake: threading.Event) -> None:
    """Beat until the keeper is stopped or gone: the thread does not keep a handle alive."""
    while True:
        keeper = keeper_ref()
        if keeper is None:
            return
        beat_seconds = keeper.lease_seconds / 3
        del keeper
        if wake.wait(beat_seconds):
            return
        keeper = keeper_ref()
        if keeper is None:
            return
        try:
            keeper.beat()
        except Exception:
            # Whatever it was, the next beat must come: a dead thread would end every lease.
            logger.exception("leases could not be renewed")
        del keeper


class HeldIntent:
    """An intent that its writer holds."""

    def __init__(self, keeper: Keeper, objects: Objects, intent: Intent) -> None:
        self._keeper = keeper
        self._objects = objects
        self._intent = intent
        key = layout.intent(intent.operation_id, secrets.token_hex(4))
        self._held = Held(key, keeper.lease_seconds, lambda: self._intent, final=True)
        hit("intent.before_put")
        keeper.hold(self._held)
        hit("intent.after_put")

    @property
    def sealed(self) -> bool:
        """Whether healing may publish it; also when sealing failed, as it may have been applied."""
        return self._intent.sealed is not None

    @property
    def key(self) -> str:
        return self._held.key

    def check(self) -> None:
        self._held.check(lapses=0)

    def seal(self, changes: tuple[TableChange, ...]) -> None:
        """Say that everything is staged, so that the commit can be published for its actor."""
        self.check()
        self._intent = replace(self._intent, sealed=changes)
        hit("intent.before_seal")
        self._held.write(self._objects)
        hit("intent.after_seal")

    def abandon(self) -> None:
        """Stop renewing: the lease runs out, and healing settles what is there."""
        self._keeper.drop(self._held)

    def remove(self) -> None:
        hit("intent.before_remove")
        self._keeper.release(self._held)
        hit("intent.after_remove")


def new_lease_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def store_now(objects: Objects) -> datetime:
    """The store's clock: a machine whose own is wrong must not take the living for dead."""
    objects.put(CLOCK, b"{}")
    info = objects.info(CLOCK)
    return info.modified if info is not None else datetime.now(UTC)
