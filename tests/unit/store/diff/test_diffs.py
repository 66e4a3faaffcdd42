"""What differs between two states, at the cost of what does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lance import LanceFragment
from lance.dataset import LanceScanner
from tests.support.lakes import NUMBERS_DDL, collect_all, numbers, settle_chores

import tidelock
from tidelock import Lake, errors
from tidelock.store.kinship import kinship


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, actor="ada") as lake:
        yield lake


@pytest.fixture
def shop(lake: Lake) -> Lake:
    """1: the tables. 2: three rows in each. A branch dev from there."""
    with lake.transaction() as tx:
        tx.create_table("keyed", NUMBERS_DDL, key="id")
        tx.create_table("plain", NUMBERS_DDL)
    with lake.transaction() as tx:
        for name in ("keyed", "plain"):
            tx.append(name, numbers((1, 1), (2, 2), (3, 3)))
    lake.create_branch("dev")
    return lake


def counts(lake: Lake, before: Any, after: Any, table: str) -> tuple[int, int, int]:
    diff = lake.diff(before, after, table=table)
    for one in diff.tables:
        return one.inserted, one.updated, one.deleted
    return 0, 0, 0


def test_states_are_compared_and_not_what_was_done(shop: Lake) -> None:
    with shop.transaction(branch="dev") as tx:
        tx.update("keyed", {"v": "v + 1"}, where="id = 1")
    with shop.transaction(branch="dev") as tx:
        tx.update("keyed", {"v": "v - 1"}, where="id = 1")
        tx.append("keyed", numbers((4, 4)))
    with shop.transaction(branch="dev") as tx:
        tx.delete("keyed", where="id = 4")
    diff = shop.diff("main", "dev")
    assert not diff
    assert diff.same == ("keyed", "plain")
    assert diff.table("keyed").rows().read_all().num_rows == 0
    assert "no difference" in repr(diff)


def test_the_same_change_on_both_sides_is_no_difference(shop: Lake) -> None:
    for branch in ("main", "dev"):
        with shop.transaction(branch=branch) as tx:
            tx.upsert("keyed", numbers((1, 9), (7, 7)))
    assert counts(shop, "main", "dev", "keyed") == (0, 0, 0)


def test_rows_without_a_key_are_the_same_by_their_sequence_until_branches_part(shop: Lake) -> None:
    for branch in ("main", "dev"):
        with shop.transaction(branch=branch) as tx:
            tx.update("plain", {"v": "10"}, where="id = 2")
            tx.append("plain", numbers((8, 8)))
    # An insert on each side is two rows; the update is the same on both.
    assert counts(shop, "main", "dev", "plain") == (1, 0, 1)
    found = shop.diff("main", "dev").table("plain")
    assert [row.key for row in found.examples] == [{"_sequence": 3}, {"_sequence": 3}]
    shop.create_branch("later", branch="dev")
    with shop.transaction(branch="later") as tx:
        tx.update("plain", {"v": "11"}, where="id = 8")
    assert counts(shop, "dev", "later", "plain") == (0, 1, 0)


def test_both_ways_tell_the_same(shop: Lake) -> None:
    with shop.transaction(branch="dev") as tx:
        tx.upsert("keyed", numbers((1, 9), (7, 7)))
        tx.delete("keyed", where="id = 3")
    forth, back = shop.diff("main", "dev"), shop.diff("dev", "main")
    one, other = forth.table("keyed"), back.table("keyed")
    assert (one.inserted, one.updated, one.deleted) == (1, 1, 1)
    assert (other.deleted, other.updated, other.inserted) == (1, 1, 1)
    assert one.by_column == other.by_column == {"v": 1}
    updated = one.examples[0]
    assert (updated.key, updated.columns) == ({"id": 1}, ("v",))
    assert (updated.before, updated.after) == ({"id": 1, "v": 1}, {"id": 1, "v": 9})


def test_points_are_versions_branches_tags_ids_and_times(shop: Lake) -> None:
    shop.tag("q1", version=1)
    with shop.transaction() as tx:
        tx.append("keyed", numbers((4, 4)))
    commit = shop.find_commit(2)
    for before in (2, "dev", commit.id, commit.time):
        assert counts(shop, before, None, "keyed") == (1, 0, 0)
    assert counts(shop, "q1", "main", "keyed") == (4, 0, 0)
    assert [one.what for one in shop.diff(0, 1).tables] == ["created", "created"]
    assert [one.what for one in shop.diff(1, 0).tables] == ["dropped", "dropped"]
    with pytest.raises(errors.CommitNotFound, match="no branch, tag or commit 'devv'"):
        shop.diff("devv", "main")
    with pytest.raises(errors.VersionNotFound):
        shop.diff(1, 99)
    with pytest.raises(errors.TableNotFound):
        shop.diff(1, 2, table="nothing")
    with pytest.raises(errors.InvalidOption):
        shop.diff(1, 2, examples=-1)


def test_a_name_that_a_branch_and_a_tag_have_is_refused(shop: Lake) -> None:
    shop.tag("dev", version=1)
    with pytest.raises(errors.InvalidOption, match="is a branch and a tag"):
        shop.diff("dev", "main")


def test_columns_rules_and_comments_are_told(shop: Lake) -> None:
    shop.alter_table(
        "keyed",
        "RENAME COLUMN v TO amount",
        "ADD COLUMN note STRING COMMENT 'what they said'",
        "ADD CONSTRAINT few CHECK (amount < 100)",
        branch="dev",
    )
    shop.execute("COMMENT ON TABLE keyed IS 'numbers'", branch="dev")
    found = shop.diff("main", "dev").table("keyed")
    assert {(one.name, one.what) for one in found.columns} == {
        ("amount", ("renamed",)),
        ("note", ("added",)),
    }
    assert [(one.name, one.before, one.after) for one in found.rules] == [
        ("few", None, "CHECK (amount < 100)")
    ]
    assert found.comment is not None
    assert found.comment.after == "numbers"
    assert not found.rows_differ
    text = found.to_text()
    for told in ("column amount: renamed v → amount", "rule few: added, CHECK (amount < 100)"):
        assert told in text


def test_a_rule_is_the_same_when_its_column_is_renamed(shop: Lake) -> None:
    shop.alter_table("keyed", "ADD CONSTRAINT few CHECK (v < 100)")
    shop.create_branch("later")
    shop.alter_table("keyed", "RENAME COLUMN v TO amount", branch="later")
    assert shop.diff("main", "later").table("keyed").rules == ()
    shop.alter_table("keyed", "DROP CONSTRAINT few", branch="later")
    shop.alter_table("keyed", "ADD CONSTRAINT few CHECK (amount < 99)", branch="later")
    (rule,) = shop.diff("main", "later").table("keyed").rules
    assert (rule.before, rule.after) == ("CHECK (v < 100)", "CHECK (amount < 99)")


def test_columns_that_two_branches_added_are_not_mistaken_for_each_other(shop: Lake) -> None:
    """Both get the same id on their branch."""
    shop.alter_table("keyed", "ADD COLUMN note STRING", branch="dev")
    shop.alter_table("keyed", "ADD COLUMN size INT")
    found = shop.diff("main", "dev").table("keyed")
    assert {(one.name, one.what) for one in found.columns} == {
        ("note", ("added",)),
        ("size", ("dropped",)),
    }


def test_a_dropped_column_makes_no_row_differ_and_reads_none(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.alter_table("keyed", "DROP COLUMN v", branch="dev")
    reads = _reads(monkeypatch)
    found = shop.diff("main", "dev").table("keyed")
    assert (found.rows_differ, [one.what for one in found.columns]) == (0, [("dropped",)])
    assert reads == []
    # The other way it comes back with its values.
    assert shop.diff("dev", "main").table("keyed").by_column == {"v": 3}


def test_maintenance_is_no_difference_and_is_not_read(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4, 9):
        with shop.transaction(branch="dev") as tx:
            tx.append("keyed", numbers((number, number)))
    settle_chores(shop)
    before = shop.snapshot("dev").version
    assert shop.optimize(branch="dev")
    reads = _reads(monkeypatch)
    assert not shop.diff(before, "dev", branch="dev")
    assert reads == []


def test_what_both_states_share_is_not_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_table("t", NUMBERS_DDL, key="id")
    with lake.transaction() as tx:
        tx.append("t", numbers(*((n, n) for n in range(10_000))))
    lake.create_branch("dev")
    with lake.transaction(branch="dev") as tx:
        tx.upsert("t", numbers((5, 0), (20_000, 0)))
        tx.delete("t", where="id = 7")
    reads = _reads(monkeypatch)
    assert counts(lake, "main", "dev", "t") == (1, 1, 1)
    assert 0 < sum(reads) <= 40


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows Lance gives, each time that it is asked."""
    found: list[int] = []

    def noting(kind: type, name: str) -> None:
        inner = getattr(kind, name)

        def noted(self: Any, *arguments: Any, **options: Any) -> Any:
            given = inner(self, *arguments, **options)
            if hasattr(given, "num_rows"):
                found.append(given.num_rows)
                return given
            batches = list(given)
            found.extend(batch.num_rows for batch in batches)
            return iter(batches)

        monkeypatch.setattr(kind, name, noted)

    noting(LanceScanner, "to_batches")
    noting(LanceFragment, "take")
    return found


def test_another_table_of_the_name_is_compared_all_the_same(shop: Lake) -> None:
    for name, key in (("keyed", "id"), ("plain", None)):
        shop.drop_table(name, branch="dev")
        shop.create_table(name, NUMBERS_DDL, key=key, branch="dev")
        with shop.transaction(branch="dev") as tx:
            tx.append(name, numbers((1, 1), (2, 5), (4, 4)))
    diff = shop.diff("main", "dev")
    assert [one.what for one in diff.tables] == ["replaced", "replaced"]
    keyed, plain = diff.tables
    assert (keyed.inserted, keyed.updated, keyed.deleted) == (1, 1, 1)
    assert (plain.inserted, plain.updated, plain.deleted) == (2, 0, 2)


def test_a_diff_stays_readable_while_it_is_held(shop: Lake) -> None:
    with shop.transaction(branch="dev") as tx:
        tx.delete("keyed", where="id = 1")
    diff = shop.diff("main", "dev")
    shop.delete_branch("dev")
    time.sleep(0.01)
    collect_all(shop)
    rows = diff.table("keyed").rows().read_all().to_pylist()
    assert [(row["what"], row["before"], row["after"]) for row in rows] == [
        ("deleted", {"id": 1, "v": 1}, None)
    ]


def test_a_wider_column_is_compared_by_its_values(shop: Lake) -> None:
    shop.create_table("small", "id INT NOT NULL, n INT", key="id")
    with shop.transaction() as tx:
        tx.append("small", [{"id": 1, "n": 1}, {"id": 2, "n": 2}])
    shop.create_branch("wide")
    wider = ("ALTER COLUMN n TYPE DOUBLE", "ALTER COLUMN id TYPE BIGINT")
    shop.alter_table("small", *wider, branch="wide")
    with shop.transaction(branch="wide") as tx:
        tx.update("small", {"n": "n + 0.5"}, where="id = 2")
        tx.update("small", {"n": "n + 0"}, where="id = 1")
    for way in (("main", "wide"), ("wide", "main")):
        found = shop.diff(*way).table("small")
        assert (found.updated, found.by_column) == (1, {"n": 1})
        assert {one.what for one in found.columns} == {("retyped",)}


def test_rows_that_a_merge_brought_are_known_again_under_their_new_ids(shop: Lake) -> None:
    for branch, number in (("dev", 10), ("main", 20)):
        with shop.transaction(branch=branch) as tx:
            tx.append("plain", numbers((number, 0), (number + 1, 0)))
    shop.merge("dev")
    with shop.transaction() as tx:
        tx.update("plain", {"v": "7"}, where="id = 10")
        tx.delete("plain", where="id = 1")
    assert counts(shop, "dev", "main", "plain") == (2, 1, 1)
    assert counts(shop, "main", "dev", "plain") == (1, 1, 2)
    updated = next(
        one for one in shop.diff("dev", "main").table("plain").examples if one.what == "updated"
    )
    assert (updated.before, updated.after) == ({"id": 10, "v": 0}, {"id": 10, "v": 7})


def test_columns_that_a_merge_brought_are_known_again(shop: Lake) -> None:
    shop.alter_table("keyed", "ADD COLUMN size INT")
    shop.alter_table("keyed", "ADD COLUMN note STRING", branch="dev")
    shop.merge("dev")
    shop.alter_table("keyed", "RENAME COLUMN note TO remark")
    found = shop.diff("dev", "main").table("keyed")
    assert {(one.name, one.what) for one in found.columns} == {
        ("size", ("added",)),
        ("remark", ("renamed",)),
    }


def test_a_branch_that_was_merged_differs_in_nothing(shop: Lake) -> None:
    with shop.transaction(branch="dev") as tx:
        tx.upsert("keyed", numbers((1, 5)))
        tx.append("plain", numbers((9, 9)))
    assert shop.diff("main", "dev")
    shop.merge("dev")
    assert not shop.diff("main", "dev")
    assert not shop.diff("dev", "main")


def test_without_the_common_base_rows_are_compared_by_value(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it was collected: what differs is told, and not which row became which."""
    with shop.transaction(branch="dev") as tx:
        tx.update("plain", {"v": "7"}, where="id = 1")
    with shop.transaction() as tx:
        tx.append("plain", numbers((9, 9)))

    def collected(*_: object) -> None:
        raise errors.SnapshotExpired("it was collected")

    assert counts(shop, "main", "dev", "plain") == (0, 1, 1)
    monkeypatch.setattr(kinship, "find_bases", collected)
    assert counts(shop, "main", "dev", "plain") == (1, 0, 2)
    assert counts(shop, "main", "dev", "keyed") == (0, 0, 0)
