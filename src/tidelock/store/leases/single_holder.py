"""Posts: duties that one process at a time has, such as refreshing what is due.

Owns: a sequence of numbered objects for each post. The highest number holds the post for as long as
its lease is renewed; a process that finds that lease expired, or its holder dead, takes the post by
creating the next number, which exactly one does.

    _tidelock/posts/<name>/<number>.json

Invariant: of two processes at most one holds a post and knows it. A lease that ran out once has run
out for good, however soon it is looked at again: another may be taking the post. A holder
asks `is_held` before each act that another's must not meet.
After a crash: the next one on the same machine takes over at once, for it sees that the holder is
dead; one on another machine does when the lease has run out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Event

from tidelock.errors import CorruptObject, ObjectExists, ObjectMissing, StoreError
from tidelock.store.leases.beat import Beat
from tidelock.store.leases.leases import expired, owner_name, store_now
from tidelock.store.leases.processes import UNKNOWN, has_died, own_process
from tidelock.store.objects import layout
from tidelock.store.objects.boot_time import boot_seconds
from tidelock.store.objects.entries import numbered
from tidelock.store.objects.parallel import side_by_side
from tidelock.store.objects.protocol import ObjectInfo, Objects
from tidelock.store.objects.records import decode, encode

FORGOTTEN_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Holder:
    owner: str
    lease_seconds: float
    released: bool = False
    process: str = UNKNOWN
    """Which process it is, as processes.py names them."""
    since: datetime | None = None
    until: datetime | None = None
    """When its lease runs out unless it is renewed: told when it is asked for, and not written."""
    format: int = 1


class Post:
    """One post, as seen by one process."""

    def __init__(self, objects: Objects, name: str, lease_seconds: float) -> None:
        self._objects = objects
        self._folder = f"{layout.POSTS}/{layout.encode(name)}"
        self._lease_seconds = lease_seconds
        self._held: str | None = None
        self._since: datetime | None = None
        self._renewed = 0.0
        """When it was last renewed, in seconds since the machine booted: suspended or asleep, time
        goes on."""
        self._older: list[str] = []

    def look(self) -> list[ObjectInfo]:
        """What there is of the post, for a process that takes it right now."""
        return numbered(self._objects, self._folder)

    def take(self, listed: list[ObjectInfo] | None = None) -> Holder | None:
        """Take the post; None when it is ours, else its holder."""
        listed = self.look() if listed is None else listed
        newest = max(listed, key=lambda info: info.key, default=None)
        number = 1
        if newest is not None:
            holder = self._holding(newest)
            if holder is not None:
                return holder
            number = int(newest.key.rsplit("/", 1)[1].removesuffix(".json")) + 1
        key = f"{self._folder}/{number:020d}.json"
        try:
            self._since, began = datetime.now(UTC), boot_seconds()
            self._objects.put_new(key, encode(self._own()))
        except ObjectExists:
            return self.take()
        self._held, self._renewed = key, began
        self._older = [info.key for info in listed]
        return None

    def is_held(self, *, surely: bool = False) -> bool:
        """Whether the post is still ours: by the clock, and `surely` by a look at the store."""
        held = self._held
        if held is None or boot_seconds() > self._renewed + self._lease_seconds:
            return False
        if not surely:
            return True
        newest = self._newest()
        return newest is not None and newest.key == held

    def holder(self) -> Holder | None:
        """The holder of the post now; takes nothing."""
        newest = self._newest()
        return None if newest is None else self._holding(newest)

    def last_holder(self) -> Holder | None:
        """The holder of the post now, or the last one; None when nobody ever had."""
        newest = self._newest()
        return None if newest is None else self._holder(newest)

    def renew(self) -> bool:
        """Say that we are still there; False when another has taken over, or may be about to."""
        # Before the look: it may be suspended between that and the put.
        held, began = self._held, boot_seconds()
        if held is None or not self.is_held(surely=True):
            self._held = None
            return False
        self._objects.put(held, encode(self._own()))
        self._renewed = began
        return self.is_held()

    def release(self) -> None:
        if self._held is not None:
            released = encode(replace(self._own(), released=True))
            acts: list[Callable[[], None]] = [partial(self._objects.put, self._held, released)]
            if len(self._older) >= FORGOTTEN_AT_ONCE:
                # Some at a time: each would cost a request.
                acts.append(self._forget)
            side_by_side(lambda act: act(), acts)
            self._held = None

    def abandon(self) -> None:
        """Do not release it: what was begun under it may not have ended. Its lease runs out."""
        self._held = None

    @contextmanager
    def renewed(self) -> Iterator[Event]:
        """Keep a post that was taken, and release it at the end; the event tells that it is lost.

        A lease that cannot be renewed runs out: its holder stops before another takes over.
        """
        lost = Event()

        def renew() -> bool:
            try:
                held = self.renew()
            except StoreError:
                # The store may answer at the next beat, if that is soon enough.
                held = self.is_held()
            if not held:
                lost.set()
            return held

        beat = Beat("post", self._lease_seconds, renew)
        try:
            yield lost
        finally:
            beat.stop(wait=True)
            with suppress(StoreError):
                self.release()

    def _own(self) -> Holder:
        return Holder(owner_name(), self._lease_seconds, process=own_process(), since=self._since)

    def _newest(self) -> ObjectInfo | None:
        return max(numbered(self._objects, self._folder), key=lambda info: info.key, default=None)

    def _holding(self, info: ObjectInfo) -> Holder | None:
        """The holder that an object names, unless the post is free."""
        holder = self._holder(info)
        if holder is None or self._is_free(info, holder):
            return None
        return replace(holder, until=info.modified + timedelta(seconds=holder.lease_seconds))

    def _holder(self, info: ObjectInfo) -> Holder | None:
        try:
            return decode(self._objects.get(info.key), Holder, info.key)
        except ObjectMissing:
            return None
        except CorruptObject:
            # Another holder has the time that we would have.
            return Holder("somebody", self._lease_seconds)

    def _is_free(self, info: ObjectInfo, holder: Holder) -> bool:
        if holder.released or has_died(holder.process):
            return True
        return expired(info, holder.lease_seconds, store_now(self._objects))

    def _forget(self) -> None:
        """Remove what earlier holders left."""
        with suppress(StoreError):
            self._objects.delete_many(self._older)
