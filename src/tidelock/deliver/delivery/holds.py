"""Holds of sinks: keeping what has still to be read.

Owns: the names of the holds of a sink. A plan's version is held until the plan is closed, and as
long as a partition has still to send some of it; a feed of changes holds every version that it has
still to read, for as long as was agreed.
"""

from __future__ import annotations

import time
from contextlib import suppress

from tidelock.errors import StoreError
from tidelock.model.history.commit import BranchRef
from tidelock.model.sinks import SinkDefinition, SinkState
from tidelock.store.leases.holds import hold_names, release_hold, take_hold
from tidelock.store.log.log import Head
from tidelock.store.store import Store
from tidelock.store.upkeep.garbage.announcements import check_readable, collection_runs


def hold_name(definition: SinkDefinition, what: int | str) -> str:
    return f"sink {definition.id} {what}"


def take_version(store: Store, definition: SinkDefinition, branch: BranchRef, version: int) -> None:
    """Keep the version that a plan is read from, unless a collection removes it right now."""
    take_hold(store.objects, hold_name(definition, version), branch, version, store.actor)


def check_version(store: Store, head: Head, version: int) -> None:
    """SnapshotExpired when a version that was taken just now is gone all the same."""
    collected = False
    # A collection may not have seen the hold: what it left is what counts.
    while collection_runs(store):
        collected = True
        time.sleep(0.05)
    if collected or version < head.version:
        check_readable(store, head.branch, version)


def hold_changes(store: Store, definition: SinkDefinition, branch: BranchRef, version: int) -> None:
    """Keep every version after one that a feed of changes has delivered."""
    take_hold(
        store.objects,
        hold_name(definition, "changes"),
        branch,
        version,
        store.actor,
        onward=True,
        allowed_seconds=definition.hold_seconds,
    )


def let_go(store: Store, definition: SinkDefinition, state: SinkState, opened: int = 0) -> None:
    """Release what no plan needs any more, also what a crash left held; `opened` is the version of
    the plan that is still open."""
    needed = {lag.version for lag in state.lagging.values() if lag.chunks} | {opened}
    kept = {hold_name(definition, version) for version in needed}
    kept.add(hold_name(definition, "changes"))
    with suppress(StoreError):
        for name in hold_names(store.objects):
            if name.startswith(hold_name(definition, "")) and name not in kept:
                release_hold(store.objects, name)
