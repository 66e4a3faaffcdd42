"""The post of a branch's scheduler: who reads sources, refreshes and delivers what is due on it."""

from __future__ import annotations

from tidelock.store.leases.single_holder import Post
from tidelock.store.parts import Parts

LEASE_SECONDS = 15.0


def post_of(store: Parts, branch: str, lease_seconds: float = LEASE_SECONDS) -> Post:
    """The post that a branch's scheduler holds."""
    return Post(store.objects, f"scheduler of {branch}", lease_seconds)
