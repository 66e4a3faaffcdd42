"""Posts: duties that one process at a time has, such as refreshing what is due.

Owns: a sequence of numbered objects for each post. The highest number holds the post for as long as
its lease is renewed; whoever finds that lease expired, or its holder dead, takes the post by
creating the next number, which exactly one does.

    _tidelock/posts/<name>/<number>.json

Invariant: of two processes at most one holds a post and knows it; a holder that was suspended finds
out at its next renewal, before it acts again.
After a crash: the next one on the same machine takes over at once, for it sees that the holder is
dead; one on another machine does when the lease has run out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Event, Thread

from tidelock.errors import CorruptObject, ObjectExists, ObjectMissing, StoreError
from tidelock.store import layout
from tidelock.store.entries import numbered
from tidelock.store.intents import expired, owner_name, store_now
from tidelock.store.objects import ObjectInfo, Objects
from tidelock.store.processes import UNKNOWN, has_died, own_process
from tidelock.store.records import decode, encode


@dataclass(frozen=True, slots=True)
class Holder:
    owner: str
    lease_seconds: float
    released: bool = False
    process: str = UNKNOWN
    """Which process it is, as processes.py names them."""
    since: datetime | None = None
    until: datetime | None = None
    """When its lease runs out unless it is renewed: told to whoever asks, and not written."""
    format: int = 1


class Post:
    """One post, as seen by one process."""

    def __init__(self, objects: Objects, name: str, lease_seconds: float) -> None:
        self._objects = objects
        self._folder = f"{layout.POSTS}/{layout.encode(name)}"
        self._lease_seconds = lease_seconds
        self._held: str | None = None
        self._since: datetime | None = None

    def take(self) -> Holder | None:
        """Take the post; None when it is ours, else whoever holds it."""
        newest = self._newest()
        number = 1
        if newest is not None:
            holder = self._holder(newest)
            if holder is not None and not self._is_free(newest, holder):
                end = newest.modified + timedelta(seconds=holder.lease_seconds)
                return replace(holder, until=end)
            number = int(newest.key.rsplit("/", 1)[1].removesuffix(".json")) + 1
        key = f"{self._folder}/{number:020d}.json"
        try:
            self._since = datetime.now(UTC)
            self._objects.put_new(key, encode(self._own()))
        except ObjectExists:
            return self.take()
        self._held = key
        self._forget_before(key)
        return None

    def renew(self) -> bool:
        """Say that we are still there; False when another has taken over."""
        newest = self._newest()
        if self._held is None or newest is None or newest.key != self._held:
            self._held = None
            return False
        self._objects.put(self._held, encode(self._own()))
        return True

    def release(self) -> None:
        if self._held is not None:
            self._objects.put(self._held, encode(replace(self._own(), released=True)))
            self._held = None

    @contextmanager
    def renewed(self) -> Iterator[Event]:
        """Keep a post that was taken, and release it at the end; the event tells that it is lost.

        A lease that cannot be renewed runs out: whoever holds it stops before another takes over.
        """
        ended, lost = Event(), Event()

        def renew() -> None:
            while not ended.wait(self._lease_seconds / 3):
                try:
                    held = self.renew()
                except StoreError:
                    held = False
                if not held:
                    lost.set()
                    return

        keeper = Thread(target=renew, name="tidelock-post", daemon=True)
        keeper.start()
        try:
            yield lost
        finally:
            ended.set()
            keeper.join()
            with suppress(StoreError):
                self.release()

    def _own(self) -> Holder:
        return Holder(owner_name(), self._lease_seconds, process=own_process(), since=self._since)

    def _newest(self) -> ObjectInfo | None:
        return max(numbered(self._objects, self._folder), key=lambda info: info.key, default=None)

    def _holder(self, info: ObjectInfo) -> Holder | None:
        try:
            return decode(self._objects.get(info.key), Holder, info.key)
        except ObjectMissing:
            return None
        except CorruptObject:
            # Whoever it was has the time that we would have.
            return Holder("somebody", self._lease_seconds)

    def _is_free(self, info: ObjectInfo, holder: Holder) -> bool:
        if holder.released or has_died(holder.process):
            return True
        return expired(info, holder.lease_seconds, store_now(self._objects))

    def _forget_before(self, key: str) -> None:
        for info in numbered(self._objects, self._folder):
            if info.key < key:
                with suppress(StoreError):
                    self._objects.delete(info.key)
