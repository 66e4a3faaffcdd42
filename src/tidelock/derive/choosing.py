"""Choosing how a stream table is refreshed: by delta or in full.

Owns: the choice, from what commits say of the sources and from what earlier refreshes took. No row
is read for it, and nothing is written, so that a plan can be explained on a lake that is read only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tidelock.derive.catalog import Stream
from tidelock.derive.costs import Way, estimate
from tidelock.derive.sources import Changes, find_changes
from tidelock.derive.sql.operators import scans
from tidelock.derive.views import Prepared
from tidelock.errors import SnapshotExpired
from tidelock.model.commit import BranchRef, Tables
from tidelock.store.store import Store

Found: TypeAlias = dict[str, Changes | None] | str
"""The changes of each source since the frontier, or why they cannot be told."""


def find_all_changes(store: Store, branch: BranchRef, tables: Tables, stream: Stream) -> Found:
    """What happened to the sources of a stream table up to a snapshot."""
    found: dict[str, Changes | None] = {}
    seen = {source.table: source for source in stream.state.frontier}
    for name in stream.stored.sources:
        state, then = tables[name], seen.get(name)
        if then is None or then.table_id != state.id:
            return f"{name!r} was replaced by another table"
        try:
            store.files.open(then.table_id, then.pin)
            found[name] = find_changes(store.log, branch, then, state)
        except SnapshotExpired:
            return f"what {name!r} was at the frontier is no longer kept"
    return found


def choose(
    stream: Stream,
    prepared: Prepared,
    tables: Tables,
    changes: Found,
    staged: Mapping[str, int] | None = None,
    *,
    full: bool = False,
) -> Way:
    """How a refresh is done. `staged` are the changes of sources that the same refresh makes."""
    if not stream.state.populated:
        return Way(True, "first refresh")
    if full:
        return Way(True, "a full refresh was asked for")
    if not prepared.incremental:
        return Way(True, why_not_incremental(prepared))
    if isinstance(changes, str):
        return Way(True, changes)
    count = sum(one.rows for one in changes.values() if one is not None)
    count += sum(rows for name, rows in (staged or {}).items() if name in changes)
    return estimate(
        stream.definition.refresh_mode,
        changes=count,
        rows=sum(tables[name].rows for name in changes) + stream.table.rows,
        stages=len(prepared.kept),
        reads=sum(len(scans(kept.stage.body)) ** 2 for kept in prepared.kept),
        spent=stream.state.spent,
    )


def why_not_incremental(prepared: Prepared) -> str:
    if prepared.definition.refresh_mode == "full":
        return "refresh_mode is full"
    return "; ".join(obstacle.reason for obstacle in prepared.view.obstacles)
