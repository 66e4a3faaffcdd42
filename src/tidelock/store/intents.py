"""Intents and leases: durable notes that somebody is at work.

Owns: one object per intent (a transaction whose staging may take long) and one per lease (a process
that has the lake open for writing). Both live for `lease_seconds` after they were last written, and
are renewed by one thread per handle.
Invariants: an intent exists before the first file of its transaction; a lease exists before the
first transaction of its handle; `renewed_ago()` <= `lease_seconds`, or the writer gives up by
itself with LeaseLost.
After a crash: what is left expires. Healing settles intents (recovery.py), garbage collection
removes leases (garbage.py).
"""

from __future__ import annotations

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
from tidelock.store.faults import hit
from tidelock.store.objects import ObjectInfo, Objects
from tidelock.store.records import decode, encode

LEASE_SECONDS = 60.0


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
    versions: tuple[tuple[str, int], ...] = ()
    """Branch ids and versions of snapshots that are in use."""
    format: int = 1


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


def _boot_seconds() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Held:
    """One object that is kept alive by renewal: an intent or a lease."""

    def __init__(self, key: str, lease_seconds: float, content: Callable[[], object]) -> None:
        self.key = key
        self.lease_seconds = lease_seconds
        self._content = content
        self._renewed = _boot_seconds()
        self._lock = threading.Lock()
        self._removed = False

    def write(self, objects: Objects) -> None:
        with self._lock:
            if self._removed:
                return
            began = _boot_seconds()
            objects.put(self.key, encode(self._content()))
            self._renewed = began

    def check(self) -> None:
        """LeaseLost when this was not renewed in time: others may have given us up."""
        if _boot_seconds() - self._renewed > self.lease_seconds:
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


class Keeper:
    """Renews what one handle holds, in one thread that lives as long as there is something."""

    def __init__(self, objects: Objects, lease_seconds: float) -> None:
        self._objects = objects
        self.lease_seconds = lease_seconds
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

    def renew_all(self) -> None:
        with self._lock:
            held = list(self._held)
        for one in held:
            try:
                one.write(self._objects)
            except StoreError:
                # Renewed again at the next beat; check() stops the writer when that is too late.
                continue

    def stop(self) -> None:
        with self._lock:
            self._wake.set()
            held, self._held = list(self._held), set()
        for one in held:
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
        keeper.renew_all()


class HeldIntent:
    """An intent that its writer holds."""

    def __init__(self, keeper: Keeper, objects: Objects, intent: Intent) -> None:
        self._keeper = keeper
        self._objects = objects
        self._intent = intent
        key = layout.intent(intent.operation_id)
        self._held = Held(key, keeper.lease_seconds, lambda: self._intent)
        hit("intent.before_put")
        keeper.hold(self._held)
        hit("intent.after_put")

    def check(self) -> None:
        self._held.check()

    def seal(self, changes: tuple[TableChange, ...]) -> None:
        """Say that everything is staged, so that the commit can be published for its actor."""
        self._intent = replace(self._intent, sealed=changes)
        hit("intent.before_seal")
        self._held.write(self._objects)
        hit("intent.after_seal")

    def remove(self) -> None:
        hit("intent.before_remove")
        self._keeper.release(self._held)
        hit("intent.after_remove")


def new_lease_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def now() -> datetime:
    return datetime.now(UTC)
