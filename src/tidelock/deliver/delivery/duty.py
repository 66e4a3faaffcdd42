"""Duty: one process at a time sends to a sink.

Owns: the post of each sink. A process that delivers, replays, repairs or sends again holds it
meanwhile, and asks before each act at the destination whether it still does: it may have been
frozen for longer than its lease, and another has gone on since.

By the clock the answer costs nothing. On local files a look at the store costs next to nothing
too, and is always made: a step of the clock may have ended the lease for others. On S3 it is made
before what cannot be undone.
After a crash: see store/leases/single_holder.py; the next process on the same machine need not
wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from tidelock.errors import SinkBusy, StoreError
from tidelock.model.sinks import SinkDefinition
from tidelock.model.time.durations import show_moment
from tidelock.store.leases.single_holder import Post
from tidelock.store.objects.protocol import ObjectInfo
from tidelock.store.store import Store

LEASE_SECONDS = 15.0
LOOK_SECONDS = 0.1
"""How often a process that waits for a post looks."""


class Duty:
    """The post of one sink, for as long as this process has it. Owns: the answer whether it has."""

    def __init__(self, post: Post, definition: SinkDefinition, *, always_looks: bool) -> None:
        self._post = post
        self._definition = definition
        self._always_looks = always_looks

    def check(self, *, surely: bool = False) -> None:
        """SinkBusy when the post is no longer ours: nothing more may be done at the destination."""
        try:
            if self._post.is_held(surely=surely or self._always_looks):
                return
        except StoreError:
            # By the clock it is ours; what cannot be undone is not done on that alone.
            if surely:
                raise
            return
        holder = self._post.last_holder()
        owner = "another process" if holder is None else holder.owner
        raise SinkBusy(
            f"This process was frozen, or cut off from the store, for longer than its lease on "
            f"sink {self._definition.name!r}, and {owner} may have taken over. It has stopped "
            "where it was; what it had begun is finished by the next delivery.",
            sink=self._definition.name,
            owner=owner,
        )

    def abandon(self) -> None:
        """Leave the post to run out: something that was begun at the destination has not ended."""
        self._post.abandon()


def post_of(store: Store, definition: SinkDefinition) -> Post:
    lease = min(LEASE_SECONDS, store.lease_seconds)
    return Post(store.objects, f"sink {definition.id}", lease)


@contextmanager
def on_duty(
    store: Store,
    definition: SinkDefinition,
    listed: list[ObjectInfo] | None = None,
    *,
    patience_seconds: float = 0.0,
) -> Iterator[Duty]:
    """Hold the post of a sink, or SinkBusy if another has it and keeps it for so long.

    `listed` is what there is of the post, if that was asked just now.
    """
    post = post_of(store, definition)
    ends = time.monotonic() + patience_seconds
    holder = post.take(listed)
    while holder is not None and time.monotonic() < ends:
        time.sleep(LOOK_SECONDS)
        holder = post.take()
    if holder is not None:
        raise SinkBusy(
            f"Sink {definition.name!r} is in use by {holder.owner} (host:process)"
            f"{_moment(', since ', holder.since)}: one process at a time delivers or replays. Try "
            "again when it has ended. If it is gone, its lease runs out"
            f"{_moment(' at ', holder.until)} and the sink is free.",
            sink=definition.name,
            owner=holder.owner,
            since=holder.since,
            until=holder.until,
        )
    with post.renewed():
        yield Duty(post, definition, always_looks=store.location.kind != "s3")


def _moment(before: str, moment: datetime | None) -> str:
    return "" if moment is None else before + show_moment(moment)
