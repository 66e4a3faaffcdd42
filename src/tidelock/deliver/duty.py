"""Duty: one process at a time sends to a sink.

Owns: the post of each sink. Whoever delivers, replays or sends again holds it meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
            f"{holder.owner} is delivering to sink {definition.name!r} now. Try again when it has "
            "ended; a sink that is paused is left alone.",
            sink=definition.name,
            owner=holder.owner,
        )
    with post.renewed() as lost:
        yield lost
