"""Choosing how a stream table is refreshed: by delta or in full.

Owns: the choice, from what commits say of the inputs and from what earlier refreshes took. No row
is read for it, and nothing is written, so that a plan can be explained on a lake that is read only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tidelock.derive.algebra.operators import scans
from tidelock.derive.plan.view import ViewPlan
from tidelock.derive.refresh.costs import Way, estimate
from tidelock.derive.refresh.delta.input_changes import Changes, find_changes
from tidelock.derive.stream import Stream
from tidelock.errors import SnapshotExpired
from tidelock.model.history.commit import BranchRef, Tables
from tidelock.store.store import Store

InputChanges: TypeAlias = dict[str, Changes | None] | str
"""The changes of each input since the frontier, by its name, or why they cannot be told."""


def find_all_changes(
    store: Store, branch: BranchRef, tables: Tables, stream: Stream
) -> InputChanges:
    """What happened to the inputs of a stream table up to a snapshot."""
    changes: dict[str, Changes | None] = {}
    for one in stream.reads:
        name, then = one.name, one.then
        if then is None:
            return f"{name!r} was replaced by another table"
        try:
            store.files.open(then.table_id, then.pin)
            changes[name] = find_changes(store.log, branch, then, tables[name])
        except SnapshotExpired:
            return f"what {name!r} was at the frontier is no longer kept"
    return changes


def choose(
    stream: Stream,
    plan: ViewPlan,
    tables: Tables,
    changes: InputChanges,
    staged: Mapping[str, int] | None = None,
    *,
    full: bool = False,
) -> Way:
    """How a refresh is done. `staged` are the changes of inputs that the same refresh makes."""
    if not stream.state.populated:
        return Way(True, "first refresh")
    if full:
        return Way(True, "asked for")
    if not plan.view.tells_time and _nothing_changed(changes, staged or {}):
        return Way(False, "no row of its inputs changed", idle=True)
    if not plan.incremental:
        return Way(True, why_not_incremental(plan))
    if isinstance(changes, str):
        return Way(True, changes)
    count = sum(one.rows for one in changes.values() if one is not None)
    count += sum(rows for name, rows in (staged or {}).items() if name in changes)
    return estimate(
        stream.definition.refresh_mode,
        changes=count,
        rows=sum(tables[name].rows for name in changes) + stream.table.rows,
        segments=len(plan.kept),
        reads=sum(len(scans(kept.segment.body)) ** 2 for kept in plan.kept),
        spent=stream.state.spent,
    )


def _nothing_changed(changes: InputChanges, staged: Mapping[str, int]) -> bool:
    """Whether the inputs have the rows that they had, and at most other names and columns."""
    if isinstance(changes, str) or any(staged.get(name) for name in changes):
        return False
    return all(one is None or (one.steps is not None and not one.rows) for one in changes.values())


def why_not_incremental(plan: ViewPlan) -> str:
    if plan.definition.refresh_mode == "full":
        return "refresh_mode is full"
    return "; ".join(obstacle.reason for obstacle in plan.view.obstacles)
