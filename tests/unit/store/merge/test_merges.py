"""Merges of branches as their users see them, with the cases that others got wrong."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import check_log, collect_all
from tests.support.merged import conflicts, on, part, rows
from tests.support.ruled import new_lake

import tidelock
from tidelock import Lake, errors


def graph(**options: Any) -> Lake:
    lake = new_lake(**options)
    with lake.transaction() as tx:
        tx.create_table("knows", "src BIGINT, dst BIGINT, since INT", key=["src", "dst"])
        tx.create_table("people", "id BIGINT, name STRING, age INT", key="id")
        tx.append("people", [{"id": n, "name": f"p{n}", "age": n} for n in range(1, 6)])
    return lake


def edge(src: int, dst: int, since: int = 2020) -> Any:
    return lambda tx: tx.append("knows", [{"src": src, "dst": dst, "since": since}])


def person(number: int, **values: object) -> Any:
    told = {name: repr(value) for name, value in values.items()}
    return lambda tx: tx.update("people", told, f"id = {number}")


def names(lake: Lake, branch: str = "main") -> dict[int, str]:
    return {row["id"]: row["name"] for row in rows(lake, "people", branch)}


# What peers got wrong


def test_the_same_edge_added_on_both_sides_stays_one() -> None:
    lake = graph()
    part(lake, edge(1, 2), edge(1, 2))
    merge = lake.merge("dev")
    assert merge.outcome == "merged"
    assert rows(lake, "knows") == [{"src": 1, "dst": 2, "since": 2020}]
    assert merge.commit is not None
    assert len(merge.commit.parents) == 2


def test_a_row_deleted_on_one_branch_and_merged_through_a_sibling_stays_deleted() -> None:
    lake = graph()
    for name in ("one", "two"):
        lake.create_branch(name)
    on(lake, "one", lambda tx: tx.delete("people", "id = 2"))
    on(lake, "two", person(3, name="x"))
    lake.merge("one", into="two")
    on(lake, "main", person(4, name="y"))
    lake.merge("two")
    lake.merge("one")
    assert names(lake) == {1: "p1", 3: "x", 4: "y", 5: "p5"}
    assert 2 not in names(lake, "two")


def test_a_child_of_a_branch_that_was_merged_and_deleted_stays_readable_and_mergeable() -> None:
    lake = graph()
    lake.create_branch("dev")
    on(lake, "dev", person(2, name="from dev"))
    lake.create_branch("child", branch="dev")
    on(lake, "child", person(3, name="from child"))
    merge = lake.merge("dev", delete_branch=True)
    assert merge.outcome == "fast-forward"
    assert merge.deleted_branch
    assert "dev" not in {one.name for one in lake.branches()}
    collect_all(lake)
    assert names(lake, "child")[2] == "from dev"
    assert lake.merge("child").outcome == "fast-forward"
    assert names(lake) == {1: "p1", 2: "from dev", 3: "from child", 4: "p4", 5: "p5"}
    assert lake.verify().ok


def test_a_source_whose_version_is_lower_than_that_of_the_target_hides_nothing() -> None:
    lake = graph()
    lake.create_branch("dev", at=1)
    on(lake, "main", *(person(1, age=n) for n in range(10)))
    on(lake, "dev", person(2, name="low"))
    assert lake.snapshot("dev").version < lake.snapshot().version
    lake.merge("dev")
    assert names(lake)[2] == "low"
    on(lake, "dev", person(3, name="low again"))
    lake.merge("dev")
    assert names(lake)[3] == "low again"


def test_two_merges_into_different_targets_at_once_land_each_on_its_own(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", "id INT, v INT", key="id")
        for name in ("a", "b", "into a", "into b"):
            lake.create_branch(name)
        on(lake, "a", lambda tx: tx.append("t", [{"id": 1, "v": 1}]))
        on(lake, "b", lambda tx: tx.append("t", [{"id": 1, "v": 2}]))
        on(lake, "into a", lambda tx: tx.append("t", [{"id": 9, "v": 9}]))
        threads = [
            threading.Thread(target=lake.merge, args=(name,), kwargs={"into": f"into {name}"})
            for name in ("a", "b")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert rows(lake, "t", "into a") == [{"id": 1, "v": 1}, {"id": 9, "v": 9}]
        assert rows(lake, "t", "into b") == [{"id": 1, "v": 2}]
        assert rows(lake, "t") == []


def test_a_merge_into_a_target_that_moves_under_it_takes_what_came_meanwhile() -> None:
    lake = graph()
    for number in range(8):
        lake.create_branch(f"dev{number}")
        on(lake, f"dev{number}", edge(100 + number, 1), person(number % 5 + 1, age=7))
    stop = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not stop.is_set():
            on(lake, "main", edge(len(written), 2))
            written.append(1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(8):
            lake.merge(f"dev{number}")
    finally:
        stop.set()
        thread.join()
    found = rows(lake, "knows")
    assert len(found) == len(written) + 8
    assert {row["src"] for row in found if row["dst"] == 1} == {100 + n for n in range(8)}
    assert [row["age"] for row in rows(lake, "people")] == [7] * 5
    check_log(lake)


def test_merges_of_several_branches_at_once_into_one_target_all_land() -> None:
    lake = graph()
    for number in range(6):
        lake.create_branch(f"dev{number}")
        on(lake, f"dev{number}", edge(number, 50))
    threads = [threading.Thread(target=lake.merge, args=(f"dev{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row["src"] for row in rows(lake, "knows")] == list(range(6))
    assert all(lake.merge(f"dev{n}").outcome == "up to date" for n in range(6))


# Outcomes


def test_a_fast_forward_reads_and_writes_no_row_and_is_a_commit_with_two_parents() -> None:
    lake = graph()
    part(lake, person(2, name="x"))
    source = lake.table("people", branch="dev").dataset.version
    merge = lake.merge("dev", message="hello", actor="ann")
    assert merge.outcome == "fast-forward"
    assert lake.table("people").dataset.version == source
    commit = lake.find_commit(lake.snapshot().version)
    assert (commit.message, commit.actor) == ("hello", "ann")
    assert len(commit.parents) == 2
    assert commit.properties["merge"]["source"] == "dev"
    assert [change.summary for change in commit.tables] == ["people ~1"]
    assert lake.merge("dev").outcome == "up to date"
    assert lake.merge("main", into="dev").outcome in ("fast-forward", "up to date")


def test_a_branch_without_changes_is_up_to_date_and_nothing_is_published() -> None:
    lake = graph()
    part(lake, None, person(1, name="x"))
    version = lake.snapshot().version
    assert lake.merge("dev").outcome == "up to date"
    assert lake.snapshot().version == version


def test_a_table_that_one_side_alone_changed_is_adopted_beside_others_that_are_merged() -> None:
    lake = graph()
    part(lake, edge(1, 2), person(1, name="x"))
    merge = lake.merge("dev")
    assert merge.outcome == "merged"
    assert {one.table: one.action for one in merge.tables} == {"knows": "adopted"}
    assert names(lake)[1] == "x"


def test_tables_are_created_renamed_and_dropped_by_a_merge() -> None:
    lake = graph()
    on(lake, "main", lambda tx: tx.create_table("old", "id INT"))
    part(
        lake,
        lambda tx: (
            tx.create_table("new", "id INT"),
            tx.append("new", [{"id": 1}]),
            tx.drop_table("old"),
            tx.rename_table("knows", "edges"),
        ),
        edge(3, 4),
    )
    merge = lake.merge("dev")
    assert {one.table: one.action for one in merge.tables} == {
        "new": "created",
        "old": "dropped",
        "edges": "renamed",
    }
    assert {one.name for one in lake.tables()} == {"people", "edges", "new"}
    assert rows(lake, "edges") == [{"src": 3, "dst": 4, "since": 2020}]
    assert rows(lake, "new") == [{"id": 1}]


def test_a_dropped_table_that_the_other_side_changed_is_a_conflict() -> None:
    lake = graph()
    part(lake, lambda tx: tx.drop_table("people"), person(1, name="x"))
    (found,) = conflicts(lake)
    assert (found.table, found.kind) == ("people", "dropped table")
    lake.merge("dev", on_conflict={"people": "target"})
    assert names(lake)[1] == "x"


def test_two_tables_of_one_name_are_a_conflict() -> None:
    lake = graph()
    part(lake, lambda tx: tx.create_table("n", "id INT"), lambda tx: tx.create_table("n", "id INT"))
    (found,) = conflicts(lake)
    assert (found.table, found.kind) == ("n", "created table")


@pytest.mark.parametrize("side", ["source", "target"])
def test_of_two_tables_of_one_name_the_chosen_one_is_there_with_its_rows(side: Any) -> None:
    lake = graph()

    def create(number: int) -> Any:
        def work(tx: Any) -> None:
            tx.create_table("n", "id INT", key="id")
            tx.append("n", [{"id": number}])

        return work

    part(lake, create(1), create(2))
    lake.merge("dev", on_conflict=side)
    assert rows(lake, "n") == [{"id": 1 if side == "source" else 2}]


@pytest.mark.parametrize("side", ["source", "target"])
def test_of_a_renamed_table_and_one_that_has_its_new_name_the_chosen_one_is_there(
    side: Any,
) -> None:
    lake = graph()
    part(
        lake,
        lambda tx: tx.rename_table("people", "persons"),
        lambda tx: tx.create_table("persons", "other INT"),
    )
    (found,) = conflicts(lake)
    assert (found.table, found.kind) == ("persons", "name")
    lake.merge("dev", on_conflict=side)
    assert len(rows(lake, "persons")) == (5 if side == "source" else 0)


@pytest.mark.parametrize(("left", "kept"), [("people", "knows"), ("knows", "people")])
def test_a_table_that_took_the_name_of_a_dropped_one_is_there_after_a_merge(
    left: str, kept: str
) -> None:
    lake = graph()
    on(lake, "main", edge(1, 2))

    def work(tx: Any) -> None:
        tx.drop_table(left)
        tx.rename_table(kept, left)

    wanted = rows(lake, kept)
    part(lake, work, lambda tx: tx.create_table("n", "id INT"))
    lake.merge("dev")
    assert {one.name for one in lake.tables()} == {left, "n"}
    assert rows(lake, left) == wanted


# Conflicts and how they are resolved


def test_different_columns_of_one_row_merge_unless_rows_are_asked_for() -> None:
    lake = graph()
    part(lake, person(1, name="x"), person(1, age=50))
    (found,) = conflicts(lake, granularity="row")
    assert found.kind == "divergent update"
    assert set(found.columns) == {"name", "age"}
    lake.merge("dev")
    assert rows(lake, "people")[0] == {"id": 1, "name": "x", "age": 50}


def test_a_conflict_names_the_row_with_what_it_was_and_what_it_is_on_each_side() -> None:
    lake = graph()
    part(lake, person(1, age=10), person(1, age=20))
    (found,) = conflicts(lake)
    assert found.key == {"id": 1}
    assert (found.base, found.source, found.target) == (
        {"id": 1, "name": "p1", "age": 1},
        {"id": 1, "name": "p1", "age": 10},
        {"id": 1, "name": "p1", "age": 20},
    )
    assert found.columns == ("age",)
    assert found.told() == "people id=1: divergent update: base age=1, source age=10, target age=20"


@pytest.mark.parametrize(
    ("choice", "age"),
    [
        ("source", 10),
        ("target", 20),
        ({"people": "source"}, 10),
        ({"*": "target"}, 20),
        ({"people": {"age": "source.age + target.age - base.age"}}, 29),
        ({"people": {"age": "greatest(source.age, target.age)"}}, 20),
    ],
)
def test_conflicts_are_resolved_by_a_side_or_an_expression_and_the_commit_says_so(
    choice: Any, age: int
) -> None:
    with graph(engine="sail") as lake:
        part(lake, person(1, age=10), person(1, age=20))
        merge = lake.merge("dev", on_conflict=choice)
        assert rows(lake, "people")[0]["age"] == age
        assert merge.table("people").resolved == 1
        told = lake.find_commit(lake.snapshot().version).properties["merge"]["resolved"]["people"]
        assert told["rows"] == 1
        assert told["by"] == (
            choice.get("people", "target") if isinstance(choice, dict) else choice
        )


def test_an_expression_that_names_no_side_is_refused_before_anything_is_done() -> None:
    lake = graph()
    part(lake, person(1, age=10), person(1, age=20))
    with pytest.raises(errors.ColumnNotFound, match="Say whose column"):
        lake.merge("dev", on_conflict={"people": {"age": "age + 1"}})
    with pytest.raises(errors.InvalidOption, match="on_conflict"):
        lake.merge("dev", on_conflict="mine")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOption, match="granularity"):
        lake.merge("dev", granularity="table")  # type: ignore[arg-type]


def test_columns_are_merged_by_their_ids_and_two_names_for_one_are_a_conflict() -> None:
    lake = graph()
    part(
        lake,
        lambda tx: tx.alter_table("people", "RENAME COLUMN age TO years"),
        person(1, age=33),
    )
    lake.merge("dev")
    assert rows(lake, "people")[0] == {"id": 1, "name": "p1", "years": 33}
    on(lake, "dev", lambda tx: tx.alter_table("people", "RENAME COLUMN years TO x"))
    on(lake, "main", lambda tx: tx.alter_table("people", "RENAME COLUMN years TO y"))
    (found,) = conflicts(lake)
    assert (found.kind, found.table) == ("schema", "people")


def test_rows_of_the_other_side_get_the_default_of_a_column_that_came() -> None:
    lake = graph()
    part(
        lake,
        lambda tx: tx.alter_table("people", "ADD COLUMN tier STRING DEFAULT 'basic'"),
        lambda tx: tx.append("people", [{"id": 9, "name": "p9"}]),
    )
    lake.merge("dev")
    assert {row["tier"] for row in rows(lake, "people")} == {"basic"}


def test_a_column_that_was_dropped_does_not_come_back_under_the_id_of_another() -> None:
    lake = graph()
    lake.create_branch("dev")
    on(
        lake,
        "dev",
        lambda tx: tx.alter_table("people", "DROP COLUMN age"),
        lambda tx: tx.alter_table("people", "ADD COLUMN here INT"),
        lambda tx: tx.update("people", {"here": "1"}, "true"),
    )
    on(
        lake,
        "main",
        lambda tx: tx.alter_table("people", "ADD COLUMN there INT"),
        lambda tx: tx.update("people", {"there": "2"}, "true"),
    )
    lake.merge("dev")
    first = {"id": 1, "name": "p1", "there": 2, "here": 1}
    assert rows(lake, "people")[0] == first
    lake.merge("main", into="dev")
    assert rows(lake, "people", "dev")[0] == first


def test_a_reference_to_a_column_of_another_id_means_the_same_column_after_the_merge() -> None:
    from tests.support.ruled import reference, refused, unique

    lake = graph()
    lake.create_branch("dev")
    on(
        lake,
        "dev",
        lambda tx: tx.alter_table("people", "ADD COLUMN code BIGINT"),
        lambda tx: tx.update("people", {"code": "id * 10"}, "true"),
        lambda tx: tx.alter_table("people", unique("code", name="coded")),
        lambda tx: tx.create_table("uses", "id BIGINT, code BIGINT", key="id"),
        lambda tx: tx.alter_table("uses", reference("code", "people", "code", name="of")),
        lambda tx: tx.append("uses", [{"id": 1, "code": 20}]),
    )
    on(lake, "main", lambda tx: tx.alter_table("people", "ADD COLUMN other BIGINT"))
    lake.merge("dev")
    assert "people (code)" in next(one.text for one in lake.rules("uses") if one.name == "of")
    with refused(lake, match="code = 7 is not in people") as tx:
        tx.append("uses", [{"id": 2, "code": 7}])
    on(lake, "dev", lambda tx: tx.append("uses", [{"id": 3, "code": 30}]))
    on(lake, "main", lambda tx: tx.append("uses", [{"id": 4, "code": 40}]))
    lake.merge("dev")
    assert [row["id"] for row in rows(lake, "uses")] == [1, 3, 4]


# What is around a merge


def test_a_preview_publishes_nothing_and_says_what_the_merge_does() -> None:
    lake = graph()
    part(lake, edge(1, 2), edge(3, 4))
    version = lake.snapshot().version
    preview = lake.merge("dev", dry_run=True)
    assert preview.dry_run
    assert preview.version is None
    assert lake.snapshot().version == version
    assert "would be merged" in preview.to_text()
    assert preview.to_dict()["tables"][0]["inserted"] == 1
    assert lake.merge("dev").table("knows").inserted == 1


def test_a_branch_is_not_deleted_when_something_came_after_what_was_merged() -> None:
    lake = graph()
    part(lake, edge(1, 2))
    merged = lake.snapshot("dev").version
    on(lake, "dev", edge(5, 6))
    with pytest.raises(errors.CommitConflict, match="merge it again"):
        lake._store.close_branch("dev", merged)
    assert "dev" in {one.name for one in lake.branches()}


def test_what_cannot_be_merged_is_refused_by_name() -> None:
    lake = graph()
    with pytest.raises(errors.BranchNotFound):
        lake.merge("nowhere")
    with pytest.raises(errors.InvalidOption, match="into itself"):
        lake.merge("main")
    with pytest.raises(errors.InvalidOption, match="Tidelock's own"):
        lake.transaction(properties={"merge": 1})


def test_an_operation_id_names_one_merge() -> None:
    lake = graph()
    part(lake, edge(1, 2), edge(3, 4))
    first = lake.merge("dev", operation_id="m1")
    again = lake.merge("dev", operation_id="m1")
    assert again.commit == first.commit
    assert again.outcome == "merged"
    on(lake, "dev", edge(5, 6))
    assert lake.merge("dev", operation_id="m1").commit == first.commit
    assert len(rows(lake, "knows")) == 2
    assert lake.find_operation("m1") == first.commit


def test_history_snapshots_and_garbage_collection_after_merges() -> None:
    lake = graph()
    part(lake, edge(1, 2), edge(3, 4))
    before = lake.snapshot()
    lake.merge("dev")
    on(lake, "dev", edge(5, 6))
    on(lake, "main", lambda tx: tx.delete("knows", "src = 1"))
    lake.optimize()
    lake.optimize(branch="dev")
    collect_all(lake)
    assert before.table("knows").to_arrow().to_pylist() == [{"src": 3, "dst": 4, "since": 2020}]
    merge = lake.merge("dev", delete_branch=True)
    assert merge.outcome == "merged"
    assert [row["src"] for row in rows(lake, "knows")] == [3, 5]
    collect_all(lake)
    assert [row["src"] for row in rows(lake, "knows")] == [3, 5]
    assert lake.verify().ok
    check_log(lake)


def test_an_adopted_pin_outlives_the_branch_that_made_it() -> None:
    lake = graph()
    part(lake, edge(1, 2))
    lake.merge("dev", delete_branch=True)
    collect_all(lake)
    assert rows(lake, "knows") == [{"src": 1, "dst": 2, "since": 2020}]
    on(lake, "main", edge(3, 4))
    assert len(rows(lake, "knows")) == 2
    assert lake.verify().ok


def test_a_writer_on_the_target_conflicts_by_row_with_what_a_merge_brought() -> None:
    lake = graph()
    part(lake, person(1, name="x"))
    lake.optimize(branch="dev")
    same, other = lake.transaction(), lake.transaction()
    same.update("people", {"age": "9"}, "id = 1")
    other.update("people", {"age": "9"}, "id = 2")
    lake.merge("dev")
    with pytest.raises(errors.CommitConflict):
        same.publish()
    other.publish()
    assert [row["age"] for row in rows(lake, "people")] == [1, 9, 3, 4, 5]
