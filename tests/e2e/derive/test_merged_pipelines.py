"""A branch of a whole pipeline: definitions and results that are merged, adopted or refreshed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.merged import conflicts, on

import tidelock
from tidelock import Lake
from tidelock.errors import MergeConflict

QUERIES = {
    "sums": "SELECT g, sum(v) AS total FROM a GROUP BY g",
    "large": "SELECT g, total FROM sums WHERE total > 7",
    "named": "SELECT a.id, b.name FROM a JOIN b ON a.g = b.g",
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        with lake.transaction() as tx:
            tx.create_table("a", "id INT NOT NULL, g INT, v INT", key="id")
            tx.create_table("b", "g INT NOT NULL, name STRING", key="g")
            tx.create_table("other", "id INT")
            tx.append("a", [{"id": n, "g": n % 2, "v": n} for n in range(6)])
            tx.append("b", [{"g": n, "name": f"n{n}"} for n in range(2)])
        for name, query in QUERIES.items():
            lake.create_stream_table(name, query)
        lake.refresh()
        lake.create_branch("dev")
        yield lake


def rows(lake: Lake, name: str, branch: str = "main") -> list[tuple[Any, ...]]:
    found = lake.table(name, branch=branch).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=str)


def agrees(lake: Lake, branch: str = "main") -> bool:
    """Whether every stream table shows what its query gives now."""
    for one in lake.stream_tables(branch=branch):
        wanted = lake.sql(one.query, branch=branch).toArrow().to_pylist()
        if sorted((tuple(row.values()) for row in wanted), key=str) != rows(lake, one.name, branch):
            return False
    return True


def actions(merge: Any) -> dict[str, str]:
    return {one.table: one.action for one in merge.tables}


def add(name: str, *values: dict[str, Any]) -> Any:
    return lambda tx: tx.append(name, list(values))


def test_results_are_adopted_where_their_inputs_are_those_that_they_were_computed_from(
    lake: Lake,
) -> None:
    on(lake, "dev", add("a", {"id": 10, "g": 1, "v": 9}))
    lake.refresh(branch="dev")
    on(lake, "main", add("other", {"id": 1}))
    before = lake.table("sums", branch="dev").dataset.version
    done = lake.merge("dev")
    assert done.outcome == "merged"
    assert actions(done) == dict.fromkeys(["a", "sums", "large", "named"], "adopted")
    assert lake.table("sums").dataset.version == before
    assert agrees(lake)
    assert all(one.action == "none" for one in lake.refresh())
    assert lake.verify().ok


def test_results_that_follow_from_merged_inputs_are_stale_until_the_next_refresh(
    lake: Lake,
) -> None:
    on(lake, "dev", add("a", {"id": 10, "g": 1, "v": 9}))
    lake.refresh(branch="dev")
    on(lake, "main", add("a", {"id": 11, "g": 0, "v": 4}))
    done = lake.merge("dev")
    assert actions(done) == {"a": "merged", "sums": "stale", "large": "stale", "named": "stale"}
    assert not agrees(lake)
    assert {one.action for one in lake.refresh()} <= {"incremental", "full"}
    assert agrees(lake)


@pytest.mark.parametrize("refreshed", [True, False])
@pytest.mark.parametrize("mode", ["auto", "full", "incremental"])
def test_with_refresh_no_reader_sees_merged_tables_under_old_results(
    lake: Lake, refreshed: bool, mode: Any
) -> None:
    for name in QUERIES:
        lake.alter_stream_table(name, refresh_mode=mode)
    lake.delete_branch("dev")
    lake.create_branch("dev")
    on(lake, "dev", add("a", {"id": 10, "g": 1, "v": 9}), add("b", {"g": 7, "name": "x"}))
    if refreshed:
        lake.refresh(branch="dev")
    on(lake, "main", add("a", {"id": 11, "g": 7, "v": 40}))
    version = lake.snapshot().version
    done = lake.merge("dev", refresh=True)
    assert done.version == version + 1
    assert lake.snapshot().version == version + 1
    assert actions(done)["sums"] == actions(done)["named"] == "refreshed"
    assert agrees(lake)
    streams = {one.name: one.stream for one in lake.tables() if one.stream}
    assert {one.as_of for one in streams.values()} == {version + 1}
    assert all(one.action == "none" for one in lake.refresh())
    on(lake, "main", add("a", {"id": 12, "g": 0, "v": 1}))
    lake.refresh()
    assert agrees(lake)
    assert lake.verify().ok
    if mode == "incremental":
        assert "incremental" in {one.action for one in lake.history("sums")}


def test_with_refresh_adopted_tables_are_refreshed_too_where_the_branch_was_not(
    lake: Lake,
) -> None:
    on(lake, "dev", add("a", {"id": 10, "g": 1, "v": 9}))
    done = lake.merge("dev", refresh=True)
    assert done.outcome == "fast-forward"
    assert actions(done)["a"] == "adopted"
    assert actions(done)["sums"] == "refreshed"
    assert agrees(lake)


def test_a_definition_that_the_branch_changed_comes_with_its_result_or_is_computed(
    lake: Lake,
) -> None:
    query = "SELECT g, max(CAST(v AS BIGINT)) AS total FROM a GROUP BY g"
    lake.create_or_replace_stream_table("sums", query, branch="dev")
    lake.create_stream_table("top", "SELECT max(total) AS m FROM sums", branch="dev")
    lake.drop_stream_table("named", branch="dev")
    lake.refresh(branch="dev")
    on(lake, "main", add("a", {"id": 11, "g": 0, "v": 40}))
    done = lake.merge("dev", dry_run=True)
    assert actions(done) == {
        "sums": "created",
        "top": "created",
        "large": "stale",
        "named": "dropped",
    }
    done = lake.merge("dev", refresh=True)
    assert agrees(lake)
    assert {one.name for one in lake.stream_tables()} == {"sums", "large", "top"}
    assert rows(lake, "top") == [(40,)]
    assert lake.verify().ok


def test_a_definition_that_the_branch_changed_is_computed_by_the_next_refresh(lake: Lake) -> None:
    lake.create_or_replace_stream_table(
        "sums", "SELECT g, max(CAST(v AS BIGINT)) AS total FROM a GROUP BY g", branch="dev"
    )
    lake.create_stream_table("top", "SELECT max(v) AS m FROM a", branch="dev")
    lake.refresh(branch="dev")
    on(lake, "main", add("a", {"id": 11, "g": 0, "v": 40}))
    lake.merge("dev")
    lake.refresh()
    assert agrees(lake)
    assert rows(lake, "top") == [(40,)]


def test_two_definitions_of_one_stream_table_are_a_conflict_and_can_be_resolved(
    lake: Lake,
) -> None:
    here, there = (
        "SELECT g, max(CAST(v AS BIGINT)) AS total FROM a GROUP BY g",
        "SELECT g, min(CAST(v AS BIGINT)) AS total FROM a GROUP BY g",
    )
    lake.create_or_replace_stream_table("sums", here, branch="dev")
    lake.create_or_replace_stream_table("sums", there)
    (found,) = conflicts(lake)
    assert (found.table, found.kind) == ("sums", "stream table")
    assert found.source is not None
    assert found.source["query"] == here
    done = lake.merge("dev", on_conflict={"sums": "source"}, refresh=True)
    assert done.table("sums").resolved == 1
    assert lake.log(limit=1)[0].properties["merge"]["resolved"]["sums"]["by"] == "source"
    assert agrees(lake)
    assert next(one for one in lake.stream_tables() if one.name == "sums").query == here


def test_the_same_definition_on_both_sides_is_no_conflict(lake: Lake) -> None:
    query = "SELECT g, max(CAST(v AS BIGINT)) AS total FROM a GROUP BY g"
    for branch in ("dev", "main"):
        lake.create_or_replace_stream_table("sums", query, branch=branch)
        lake.create_stream_table("twice", "SELECT id, v * 2 AS w FROM a", branch=branch)
        lake.refresh(branch=branch)
    lake.merge("dev")
    lake.refresh()
    assert agrees(lake)


def test_a_column_that_one_side_drops_and_a_view_of_the_other_reads_is_a_conflict(
    lake: Lake,
) -> None:
    on(lake, "main", lambda tx: tx.alter_table("other", "ADD COLUMN spare INT"))
    lake.delete_branch("dev")
    lake.create_branch("dev")
    on(lake, "dev", lambda tx: tx.alter_table("other", "DROP COLUMN spare"))
    lake.create_stream_table("spares", "SELECT spare FROM other")
    (found,) = conflicts(lake)
    assert (found.table, found.kind, found.columns) == ("other", "schema", ("spare",))
    assert "'spares'" in found.why


def test_definitions_that_make_a_circle_together_are_a_conflict(lake: Lake) -> None:
    lake.create_stream_table("x", "SELECT g, total FROM sums")
    lake.create_stream_table("y", "SELECT g, total FROM sums")
    lake.create_branch("side")
    lake.create_or_replace_stream_table("x", "SELECT g, total FROM y", branch="side")
    lake.create_or_replace_stream_table("y", "SELECT g, total FROM x")
    found = conflicts(lake, "side")
    assert {one.kind for one in found} == {"stream table"}


def test_columns_that_get_other_ids_are_still_those_that_a_view_reads(lake: Lake) -> None:
    """Each branch gives out column ids of its own."""
    on(lake, "dev", lambda tx: tx.alter_table("a", "ADD COLUMN mine INT"))
    on(lake, "dev", lambda tx: tx.update("a", {"mine": "id * 10"}, "true"))
    lake.create_stream_table("of_mine", "SELECT id, mine FROM a", branch="dev")
    lake.refresh(branch="dev")
    on(lake, "main", lambda tx: tx.alter_table("a", "ADD COLUMN theirs INT"))
    on(lake, "main", lambda tx: tx.update("a", {"theirs": "id * 100"}, "true"))
    lake.create_stream_table("of_theirs", "SELECT id, theirs FROM a")
    lake.refresh()
    lake.merge("dev", refresh=True)
    assert rows(lake, "of_mine") == sorted(((n, n * 10) for n in range(6)), key=str)
    assert rows(lake, "of_theirs") == sorted(((n, n * 100) for n in range(6)), key=str)
    on(lake, "dev", lambda tx: tx.update("a", {"mine": "7"}, "id = 1"))
    lake.merge("dev", refresh=True)
    assert (1, 7) in rows(lake, "of_mine")
    assert agrees(lake)
    lake.merge("main", into="dev", refresh=True)
    assert agrees(lake, "dev")
    assert rows(lake, "of_theirs", "dev") == rows(lake, "of_theirs")


def test_an_assertion_about_a_result_holds_at_a_merge_that_refreshes(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.alter_table("sums", "ADD CONSTRAINT small CHECK (total < 100)")
    on(lake, "dev", add("a", {"id": 10, "g": 1, "v": 60}))
    on(lake, "main", add("a", {"id": 11, "g": 1, "v": 60}))
    version = lake.snapshot().version
    with pytest.raises(MergeConflict) as refused:
        lake.merge("dev", refresh=True)
    (found,) = refused.value.conflicts
    assert (found.table, found.kind) == ("sums", "rule against data")
    assert lake.snapshot().version == version


@pytest.fixture
def asserted(lake: Lake) -> Lake:
    """The branch turned a rule on, and main has rows whose result breaks it."""
    rule = "ADD CONSTRAINT small CHECK (total < 100)"
    on(lake, "dev", lambda tx: tx.alter_table("sums", rule))
    on(lake, "main", add("a", {"id": 11, "g": 1, "v": 160}))
    return lake


def test_an_assertion_of_the_branch_against_results_of_the_target_is_a_conflict(
    asserted: Lake,
) -> None:
    asserted.refresh()
    (found,) = conflicts(asserted)
    assert (found.table, found.kind) == ("sums", "rule against data")
    with pytest.raises(MergeConflict, match="small"):
        asserted.merge("dev", refresh=True)


def test_an_assertion_of_the_branch_is_held_against_results_to_come(asserted: Lake) -> None:
    with pytest.raises(MergeConflict, match="small"):
        asserted.merge("dev", refresh=True)
    asserted.merge("dev")
    assert "failed" in {one.action for one in asserted.refresh()}


def test_an_assertion_that_the_branch_made_comes_along(lake: Lake) -> None:
    with lake.transaction(branch="dev") as tx:
        tx.alter_table("sums", "ADD CONSTRAINT small CHECK (total < 1000)")
        tx.append("a", [{"id": 12, "g": 0, "v": 1}])
    on(lake, "main", add("a", {"id": 11, "g": 1, "v": 60}))
    lake.merge("dev", refresh=True)
    assert "small" in {one.name for one in lake.rules("sums")}
    assert agrees(lake)


def test_what_is_suspended_stays_as_it_is_and_the_merge_says_so(lake: Lake) -> None:
    lake.suspend("sums")
    on(lake, "dev", add("a", {"id": 10, "g": 1, "v": 60}))
    before = rows(lake, "sums")
    done = lake.merge("dev", refresh=True)
    assert "suspended" in done.table("sums").why
    assert rows(lake, "sums") == before
    lake.resume("sums")
    lake.refresh()
    assert agrees(lake)


def test_a_table_may_take_the_place_of_a_stream_table_and_the_other_way_round(lake: Lake) -> None:
    lake.drop_stream_table("named", branch="dev")
    lake.execute("CREATE TABLE named (i INT); INSERT INTO named VALUES (1)", branch="dev")
    lake.execute("DROP TABLE other", branch="dev")
    lake.create_stream_table("other", "SELECT count(*) AS n FROM a", branch="dev")
    on(lake, "main", lambda tx: tx.create_table("elsewhere", "id INT"))
    merge = lake.merge("dev", refresh=True)
    told = sorted(
        (one.table, one.action) for one in merge.tables if one.table in ("named", "other")
    )
    assert told == [(name, what) for name in ("named", "other") for what in ("created", "dropped")]
    assert rows(lake, "named") == [(1,)]
    assert rows(lake, "other") == [(6,)]
    assert {one.name for one in lake.stream_tables()} == {"sums", "large", "other"}


@pytest.mark.parametrize("stream_on", ["main", "dev"])
def test_a_table_and_a_stream_table_of_one_name_are_a_conflict_that_no_side_settles(
    lake: Lake, stream_on: str
) -> None:
    table_on = "dev" if stream_on == "main" else "main"
    lake.create_stream_table("n", "SELECT count(*) AS n FROM a", branch=stream_on)
    lake.create_table("n", "id INT", branch=table_on)
    for side in ("fail", "source", "target"):
        (found,) = conflicts(lake, on_conflict=side)
        assert found.table == "n"
        assert "rename or drop one of them" in found.why
