"""Duty: one process at a time sends to a sink.

Owns: the post of each sink. Whoever delivers, replays or sends again holds it meanwhile.
After a crash: see posts.py; whoever comes next on the same machine need not wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from tidelock.errors import SinkBusy
from tidelock.model.sinks import SinkDefinition
from tidelock.store.posts import Post
from tidelock.store.store import Store

LEASE_SECONDS = 15.0


@contextmanager
def on_duty(store: Store, definition: SinkDefinition) -> Iterator[threading.Event]:
    """Hold the post of a sink, or SinkBusy; the event tells that another has taken over."""
    lease = min(LEASE_SECONDS, store.lease_seconds)
    post = Post(store.objects, f"sink {definition.id}", lease)
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
    with post.renewed() as lost:
        yield lost


def _moment(before: str, moment: datetime | None) -> str:
    return "" if moment is None else f"{before}{moment:%H:%M:%S} UTC"
