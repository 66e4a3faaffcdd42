"""Presence: whether the lake that a handle opened is still where it was.

A folder may be removed, replaced by another, put back from a copy, or unmounted while handles have
it open. What they know of it, the newest record above all, then belongs to something else: a commit
on top of it would be acknowledged and lost, or leave a hole in another lake's log.

Law: a commit is acknowledged only if the lake is the one that was opened, and the record that it
stands on is there.

On files this is looked at before every put, for it costs next to nothing. On S3 the record is asked
for while the put is under way, so that a commit takes no longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property

from tidelock.errors import LakeRemoved, StoreError
from tidelock.store.objects import layout
from tidelock.store.objects.kinds.location import Location
from tidelock.store.objects.parallel import submit
from tidelock.store.objects.protocol import Objects

Identity = tuple[int, int, int]


class Presence:
    """Owns what tells the lake that was opened from any other that may come to have its name."""

    def __init__(self, location: Location, objects: Objects) -> None:
        self._uri = location.uri
        self._kind = location.kind
        self._objects = objects
        self.begin()

    def begin(self) -> None:
        """Take the lake that is there now for the one that was opened."""
        self._opened = self._identity() if self._kind == "file" else None

    def check(self) -> None:
        """LakeRemoved unless the lake is there; where that is not known without asking, nothing."""
        if self._kind == "file":
            self._check_folder()

    def confirm(self) -> None:
        """LakeRemoved unless the lake is there, asked for where that has to be: after a name was
        written for something in it."""
        self.check()
        if self._kind == "s3" and self._objects.info(layout.LAKE) is None:
            raise self._lost(layout.LAKE)

    @contextmanager
    def on_top_of(self, record: str | None) -> Iterator[None]:
        """Around the put of a commit. `record` is the key of the one that it stands on."""
        if self._kind == "file":
            self._check_folder()
            if record is not None and not os.path.exists(f"{self._uri}/{record}"):
                raise self._lost(record)
        if self._kind != "s3":
            yield
            return
        key = record or layout.LAKE
        asked = submit(self._pool, self._objects.info, key)
        yield
        try:
            gone = asked.result() is None
        except StoreError:
            # An answer that does not come says nothing: the put was answered.
            return
        if gone:
            raise self._lost(key)

    def _check_folder(self) -> None:
        found = self._identity()
        if found is None:
            raise LakeRemoved(
                f"The lake at {self._uri!r} is not there any more: it was removed, or its disk is "
                "not mounted. Nothing was written. Bring it back, and open it again.",
                uri=self._uri,
            )
        if found != self._opened:
            raise LakeRemoved(
                f"The lake at {self._uri!r} was replaced by another, or put back from a copy, "
                "while this handle had it open. Nothing was written. Close the handle, and open "
                "it again.",
                uri=self._uri,
            )

    def _identity(self) -> Identity | None:
        """What tells this file from any other that may come to have its name."""
        try:
            status = os.stat(f"{self._uri}/{layout.LAKE}")
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns

    def _lost(self, key: str) -> LakeRemoved:
        return LakeRemoved(
            f"{key!r}, on which this would stand, is gone from {self._uri!r}: the lake was "
            "removed, or put back to an earlier state, while this handle had it open. Close the "
            "handle, and open it again.",
            uri=self._uri,
            key=key,
        )

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(2, thread_name_prefix="tidelock-presence")
