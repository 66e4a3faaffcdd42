"""The post of a source: who reads it, and how another is made to step aside.

Invariant: one process at a time reads a source and knows it. One that lost its post is told so
before it publishes anything.
After a crash: the next one on the same machine takes over at once, one elsewhere when the lease
has run out (store/leases/single_holder.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelock.errors import SourceBusy
from tidelock.model.sources import SourceDefinition
from tidelock.store.leases.single_holder import Holder, Post
from tidelock.store.parts import Parts

LEASE_SECONDS = 15.0
LOOK_SECONDS = 0.2


def post_of(store: Parts, definition: SourceDefinition) -> Post:
    lease = min(LEASE_SECONDS, store.lease_seconds)
    return Post(store.objects, f"source {definition.id}", lease)


@contextmanager
def held(
    store: Parts, definition: SourceDefinition, wait_seconds: float = 0.0
) -> Iterator[Callable[[], None]]:
    """Hold the post of a source; what is given raises SourceBusy once it is lost."""
    post = post_of(store, definition)
    holder, ends = post.take(), time.monotonic() + wait_seconds
    while holder is not None:
        if time.monotonic() >= ends:
            raise _busy(definition, holder)
        time.sleep(LOOK_SECONDS)
        holder = post.take()

    def check() -> None:
        if not post.is_held():
            raise SourceBusy(
                f"This process was frozen for longer than its lease on source "
                f"{definition.name!r}, and another may have taken over.",
                source=definition.name,
            )

    with post.renewed():
        yield check


def _busy(definition: SourceDefinition, holder: Holder) -> SourceBusy:
    return SourceBusy(
        f"Source {definition.name!r} is being read by {holder.owner} (host:process).",
        source=definition.name,
        owner=holder.owner,
        since=holder.since,
        until=holder.until,
    )
