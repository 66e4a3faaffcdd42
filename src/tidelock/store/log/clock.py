"""The lake's clock: the store's own, as one handle knows it.

Owns: what a handle takes for the time, and how far its machine's clock is from the store's, which
dates every object. It is learnt from the dates of objects that the handle has just written.
Invariants: a commit is dated by no clock that is further than TOLERANCE_SECONDS from the store's;
time(n) >= time(n - 1) on a branch, from whichever machine they came.

A clock may have been wrong for a while all the same: the store's own. Then there are commits that
were published at a time that is still to come. Nobody believes them: see `published`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from tidelock.errors import StoreError
from tidelock.model.history.commit import BranchRef
from tidelock.store.log.log import Head, Log
from tidelock.store.objects import layout
from tidelock.store.objects.protocol import Objects

TOLERANCE_SECONDS = 60.0
"""Machines whose clocks agree this well go by their own, which is finer than the store's."""
TOLERANCE = timedelta(seconds=TOLERANCE_SECONDS)


def own_time() -> datetime:
    return datetime.now(UTC)


class LakeClock:
    """`own` is the clock of this machine."""

    def __init__(self, objects: Objects, own: Callable[[], datetime] | None = None) -> None:
        self._objects = objects
        self._own = own or own_time
        self._asking = threading.Lock()
        self._seen: tuple[str, float] | None = None
        """An object that was just written and not asked for its date yet, and when that was."""
        self._ahead: timedelta | None = None
        """How far this machine's clock is ahead of the store's."""

    def wrote(self, key: str) -> None:
        """Note that an object was written right now: its date is the store's time."""
        self._seen = (key, time.monotonic())

    def compare(self) -> None:
        """Ask for the date of what was written last. One request, if any."""
        with self._asking:
            seen, self._seen = self._seen, None
            if seen is None:
                return
            key, written = seen
            with suppress(StoreError):
                info = self._objects.info(key)
                if info is not None:
                    since = timedelta(seconds=time.monotonic() - written)
                    self._ahead = self._own() - since - info.modified

    def now(self) -> datetime:
        """The time: this machine's where the store's is about the same or is not known."""
        own, ahead = self._own(), self._ahead
        return own if ahead is None or abs(ahead) <= TOLERANCE else own - ahead

    def stamp(self) -> datetime:
        """What the store would date an object that is written now, as far as is known."""
        return self._own() - (self._ahead or timedelta())

    def moment(self, before: datetime) -> datetime:
        """The time for a commit on top of one of another time.

        A machine that agrees with the commit before agrees with the store, for all that matters;
        else the store is asked, once.
        """
        if self._ahead is None and abs(self._own() - before) > TOLERANCE:
            self.compare()
        return max(self.now(), before)


def published(
    objects: Objects, log: Log, branch: BranchRef, newest: int, now: datetime
) -> dict[int, datetime]:
    """When versions up to `newest` were published that say of themselves that it is still to come.

    None, in a lake whose clock was never wrong. Such a commit was published no later than its
    record was written, and no later than anything that came after it: a writer whose clock is
    ahead is told by the date of its record, and a store that was ahead by the dates of later ones.
    """
    found: dict[int, datetime] = {}
    bound = now
    written: dict[str, dict[str, datetime]] = {}
    version = newest
    while version and log.commit_at(branch, version).time > now + TOLERANCE:
        home, first = branch.home_of(version), log.record_at(branch, version).first
        if home not in written:
            infos = objects.list(f"{layout.LOG}/{home}")
            written[home] = {info.key: info.modified for info in infos}
        bound = min(bound, written[home].get(layout.record(home, first), bound))
        found[version] = bound
        version -= 1
    return found


def version_at(objects: Objects, log: Log, head: Head, moment: datetime, now: datetime) -> int:
    """The last version up to a head that was published at or before a moment; 0 if none was."""
    # Newest first.
    for version, time_published in published(objects, log, head.branch, head.version, now).items():
        if time_published <= moment:
            return version
    return log.version_at(head.branch, moment)


def published_at(
    objects: Objects, log: Log, head: Head, version: int, now: datetime
) -> datetime | None:
    """When a version up to a head was published; None if every clock that dated it was ahead."""
    told = log.commit_at(head.branch, version).time
    if told <= now + TOLERANCE:
        return told
    found = published(objects, log, head.branch, head.version, now)[version]
    return found if found < now else None
