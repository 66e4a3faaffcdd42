"""The choice between a delta and a full refresh: what decides before any cost is estimated."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.unit.derive.sql.outlines import tree

from tidelock.derive.algebra.core import lower
from tidelock.derive.catalog import Stored, Stream
from tidelock.derive.plan.column_types import Kept
from tidelock.derive.plan.segments import cut
from tidelock.derive.plan.state_columns import StateColumns
from tidelock.derive.plan.view import ViewPlan
from tidelock.derive.refresh.choice import InputChanges, choose
from tidelock.derive.refresh.costs import LOCAL_CHANGES_MAX, Way
from tidelock.derive.refresh.delta.input_changes import Changes
from tidelock.derive.sql.view import Obstacle, View
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.streams import Definition, InputVersion, RefreshMode, StreamState

QUERY = "SELECT id FROM orders WHERE id > 3"
ORDERS = TableState("orders", "o-1", 7, 1_000, 4)
THEN = InputVersion("orders", "o-1", 3, 6, 3)


def changed(rows: int) -> InputChanges:
    return {"orders": Changes(THEN, ORDERS, (), rows)}


def way(
    changes: InputChanges,
    *,
    mode: RefreshMode = "auto",
    refreshed: int = 5,
    full: bool = False,
    obstacle: str | None = None,
    staged: dict[str, int] | None = None,
) -> Way:
    definition = Definition(QUERY, refresh_mode=mode)
    state = StreamState(definition.id, (THEN,), refreshed=refreshed)
    stream = Stream(
        TableState("big", "b-1", 1, 10, 5, stream=state), Stored(definition, ("orders",))
    )
    empty = pa.schema([])
    obstacles = () if obstacle is None else (Obstacle(obstacle, QUERY, 1, 1),)
    kept = (
        ()
        if obstacles or mode == "full"
        else (Kept(cut(lower(tree(QUERY)))[0], StateColumns((), (), ""), {}, empty),)
    )
    plan = ViewPlan(definition, View(None, (), ("orders",), obstacles), kept, empty, {})
    return choose(stream, plan, Tables.of((ORDERS, stream.table)), changes, staged, full=full)


def test_the_first_refresh_is_full() -> None:
    found = way(changed(2), refreshed=0)
    assert (found.full, found.reason) == (True, "in full: first refresh")


def test_a_full_refresh_is_made_when_it_is_asked_for() -> None:
    assert way(changed(2), full=True).reason == "in full: asked for"


def test_what_cannot_be_kept_by_delta_says_why() -> None:
    found = way(changed(2), obstacle="the function answers differently each time")
    assert found.reason == "in full: the function answers differently each time"
    assert way(changed(2), mode="full").reason == "in full: refresh_mode is full"


def test_changes_that_cannot_be_told_make_it_full() -> None:
    found = way("'orders' was replaced by another table")
    assert found.reason == "in full: 'orders' was replaced by another table"


@pytest.mark.parametrize(("rows", "told"), [(1, "by delta: 1 change"), (2, "by delta: 2 changes")])
def test_a_small_change_is_followed_by_delta(rows: int, told: str) -> None:
    found = way(changed(rows))
    assert (found.full, found.reason) == (False, told)
    assert found.incremental_seconds is not None
    assert found.full_seconds is not None
    assert found.incremental_seconds < found.full_seconds


def test_changes_that_the_same_refresh_makes_count_too() -> None:
    assert way(changed(2), staged={"orders": 5, "other": 9}).reason == "by delta: 7 changes"


def test_a_delta_that_is_dearer_is_not_taken_unless_the_mode_asks_for_it() -> None:
    assert way(changed(100_000)).reason == "in full: 100,000 changes"
    assert way(changed(100_000), mode="incremental").reason == "by delta: 100,000 changes"


def test_more_changes_than_fit_here_are_never_brought_here_by_choice() -> None:
    many = way(changed(LOCAL_CHANGES_MAX + 1))
    assert (many.full, many.why) == (True, f"more than {LOCAL_CHANGES_MAX:,} changes")
