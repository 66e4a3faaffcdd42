"""Fences: commits that take the right to publish from writers that were given up.

A writer is given up when its lease or its intent seems to have run out. It may live all the same:
it was suspended, or the clock by which it was judged took a step. A process that gives writers up
says so in the log before acting on it, by a commit that changes no row and names them:

    {"fence": {"names": ["_tidelock/leases/…", "_tidelock/intents/…"], "before": 17}}

`before` is the version of the fence before this one on the branch, 0 if there is none; every record
carries the version of the newest.

Law: work that relies on a name and was begun at version b is published on top of version h only if
no fence in (b, h] names it. Writers hold themselves to it (publication.py), and so do healers,
which publish for others (leases/recovery.py).

So once a fence is in the log, a writer that it names has published before it, or never will: its
put is create-only, so that it comes before the fence or loses to it. What is decided after the
fence is decided for good, whichever clock was wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidelock.errors import LeaseLost
from tidelock.store.log.log import FENCE, Head, Log


def fenced_since(log: Log, head: Head, version: int) -> set[str]:
    """Whom the fences after a version name, up to a head."""
    names: set[str] = set()
    fence = head.fence
    while fence > version:
        told: Mapping[str, Any] = log.commit_at(head.branch, fence).properties[FENCE]
        names.update(told["names"])
        fence = int(told["before"])
    return names


def refuse_fenced(log: Log, head: Head, base: Head, names: Iterable[str]) -> None:
    """LeaseLost when a fence between a base and a head names one of these."""
    if head.fence != base.fence and not fenced_since(log, head, base.version).isdisjoint(names):
        raise LeaseLost(
            "This writer was given up by others, who found its lease run out: it was suspended or "
            "cut off, or a clock took a step. What it had staged is discarded. Nothing was "
            "written. Run the transaction again.",
            names=sorted(names),
        )
