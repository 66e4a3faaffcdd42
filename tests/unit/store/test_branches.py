"""Branches and tags: names for places in the commit graph, and who may still write to them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.lakes import (
    NUMBERS_DDL,
    check_log,
    collect_all,
    contents,
    numbers,
    rows_of,
    settle_chores,
)

import tidelock
from tidelock import Lake, errors


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, actor="ada") as lake:
        lake.create_table("t", NUMBERS_DDL)
        yield lake


def add(lake: Lake, number: int, branch: str = "main") -> tidelock.Commit:
    with lake.transaction(branch=branch) as tx:
        tx.append("t", numbers((number, number)))
    assert tx.commit is not None
    return tx.commit


def ids(lake: Lake, **selector: object) -> set[int]:
    return {row[0] for row in contents(lake, **selector)["t"]}


def test_a_branch_shares_history_and_goes_its_own_way(lake: Lake) -> None:
    add(lake, 1)
    fork = add(lake, 2)
    branch = lake.create_branch("dev")
    assert (branch.name, branch.fork_version, branch.actor) == ("dev", fork.version, "ada")
    on_branch = add(lake, 3, "dev")
    on_main = add(lake, 4)
    assert on_branch.version == on_main.version == fork.version + 1
    assert on_branch.parents == on_main.parents == (fork.id,)
    assert on_branch.id != on_main.id
    assert ids(lake) == {1, 2, 4}
    assert ids(lake, branch="dev") == {1, 2, 3}
    assert ids(lake, branch="dev", version=2) == {1}
    assert [commit.id for commit in check_log(lake, "dev")[:3]] == [
        commit.id for commit in check_log(lake)[:3]
    ]


def test_a_branch_begins_at_any_version_commit_tag_or_time(lake: Lake) -> None:
    commits = []
    for number in range(4):
        commits.append(add(lake, number))
        time.sleep(0.002)
    lake.tag("q1", version=3)
    middle = commits[1].time + (commits[2].time - commits[1].time) / 2
    expected = {2: {0}, commits[2].id: {0, 1, 2}, "q1": {0, 1}, middle: {0, 1}}
    for number, (at, found) in enumerate(expected.items()):
        lake.create_branch(f"b{number}", at=at)
        assert ids(lake, branch=f"b{number}") == found
        check_log(lake, f"b{number}")
        add(lake, 99, f"b{number}")
    lake.create_branch("empty", at=0)
    assert contents(lake, branch="empty") == {}
    with lake.transaction(branch="empty") as tx:
        tx.create_table("t", "name STRING")
    assert check_log(lake, "empty")[0].parents == ()
    for at in (17, "nothing", "main-99"):
        with pytest.raises(errors.InputError):
            lake.create_branch("never", at=at)  # type: ignore[arg-type]
    assert "never" not in [branch.name for branch in lake.branches()]


def test_old_versions_are_read_through_a_deep_lineage(lake: Lake) -> None:
    heads = {"main": add(lake, 0)}
    parent = "main"
    for depth in range(1, 6):
        lake.create_branch(f"b{depth}", branch=parent)
        parent = f"b{depth}"
        for _ in range(depth):
            heads[parent] = add(lake, depth * 10 + _, parent)
    settle_chores(lake)
    commits = check_log(lake, "b5")
    assert sum(commit.kind != "maintenance" for commit in commits) == 2 + 1 + 2 + 3 + 4 + 5
    for commit in commits[1:]:
        expected = {row[0] for row in contents(lake, commit=commit.id)["t"]}
        assert ids(lake, branch="b5", version=commit.version) == expected
    # A branch from the middle of the lineage of a branch.
    lake.create_branch("side", at=heads["b2"].version - 1, branch="b5")
    assert ids(lake, branch="side") == {0, 10, 20}
    add(lake, 77, "side")
    assert ids(lake, branch="side") == {0, 10, 20, 77}
    check_log(lake, "side")
    for name in ("b1", "b2", "b3", "b4"):
        lake.delete_branch(name)
    assert check_log(lake, "b5") == commits
    collect_all(lake, versions=10)
    for commit in commits[-10:]:
        contents(lake, branch="b5", version=commit.version)
    assert ids(lake, branch="side") == {0, 10, 20, 77}
    with tidelock.open(lake.uri, read_only=True) as other:
        assert check_log(other, "b5") == commits


def test_a_writer_of_a_deleted_branch_is_told_and_never_lands_on_its_successor(lake: Lake) -> None:
    lake.create_branch("dev")
    old = lake.branches()[1]
    tx = lake.transaction(branch="dev")
    tx.append("t", numbers((1, 1)))
    with tidelock.open(lake.uri) as other:
        other.delete_branch("dev")
        assert [branch.name for branch in other.branches()] == ["main"]
        with pytest.raises(errors.BranchNotFound):
            other.snapshot("dev")
        other.create_branch("dev")
    with pytest.raises(errors.BranchDeleted) as caught:
        tx.publish()
    assert caught.value.branch_id == old.id
    new = lake.branches()[1]
    assert (new.name, new.incarnation) == ("dev", 2)
    assert new.id != old.id
    assert ids(lake, branch="dev") == set()
    add(lake, 2, "dev")
    assert ids(lake, branch="dev") == {2}


def test_a_function_is_not_run_again_on_a_branch_that_was_deleted(lake: Lake) -> None:
    lake.create_branch("dev")
    calls = []

    def write(tx: tidelock.Transaction) -> None:
        calls.append(1)
        tx.append("t", numbers((1, 1)))
        lake.delete_branch("dev")

    with pytest.raises(errors.BranchDeleted):
        lake.run(write, branch="dev")
    assert calls == [1]


def test_deleting_a_branch_closes_it_once(lake: Lake) -> None:
    lake.create_branch("dev")
    other = tidelock.open(lake.uri)
    other.snapshot("dev")
    lake.delete_branch("dev")
    for handle in (lake, other):
        with pytest.raises(errors.BranchNotFound):
            handle.delete_branch("dev")
        with pytest.raises(errors.BranchNotFound):
            handle.transaction(branch="dev")
    other.close()
    with pytest.raises(errors.InvalidOption):
        lake.delete_branch("main")
    with pytest.raises(errors.BranchExists):
        lake.create_branch("main")


def test_of_many_that_create_one_branch_one_wins(lake: Lake) -> None:
    def create(_: int) -> str:
        with tidelock.open(lake.uri) as handle:
            try:
                return handle.create_branch("dev").id
            except errors.BranchExists:
                return "exists"

    for _ in range(3):
        with ThreadPoolExecutor(6) as pool:
            outcomes = Counter(pool.map(create, range(6)))
        assert outcomes.pop("exists") == 5
        (winner,) = outcomes
        assert lake.snapshot("dev").branch_id == winner
        lake.delete_branch("dev")


@pytest.mark.parametrize("name", ["feature/x y", "größe", "a.b", "日本", "x" * 64, "A", "a"])
def test_a_branch_may_have_any_sensible_name(lake: Lake, name: str) -> None:
    lake.create_branch(name)
    add(lake, 1, name)
    assert ids(lake, branch=name) == {1}
    assert name in [branch.name for branch in lake.branches()]
    with tidelock.open(lake.uri, read_only=True) as other:
        assert ids(other, branch=name) == {1}
    lake.delete_branch(name)
    assert [branch.name for branch in lake.branches()] == ["main"]


def test_a_tag_names_a_commit_for_good(lake: Lake) -> None:
    first = add(lake, 1)
    tag = lake.tag("q1")
    assert tag.commit == first.id
    assert lake.tag("q1", version=first.version).version == tag.version
    add(lake, 2)
    with pytest.raises(errors.TagExists) as caught:
        lake.tag("q1")
    assert (caught.value.expected, caught.value.actual) == (3, 2)
    assert ids(lake, tag="q1") == {1}
    assert [one.name for one in lake.tags()] == ["q1"]
    lake.delete_tag("q1")
    with pytest.raises(errors.TagNotFound):
        lake.snapshot(tag="q1")
    lake.tag("q1")
    assert ids(lake, tag="q1") == {1, 2}


def test_a_tag_outlives_its_branch_and_begins_another(lake: Lake) -> None:
    lake.create_branch("dev")
    add(lake, 1, "dev")
    lake.tag("kept", branch="dev")
    add(lake, 2, "dev")
    lake.delete_branch("dev")
    collect_all(lake)
    assert ids(lake, tag="kept") == {1}
    lake.create_branch("again", at="kept")
    assert ids(lake, branch="again") == {1}
    add(lake, 3, "again")
    assert ids(lake, branch="again") == {1, 3}
    check_log(lake, "again")


def test_a_branch_from_a_tag_leaves_the_names_of_others_alone(lake: Lake) -> None:
    lake.tag("q1")
    with tidelock.open(lake.uri) as other:
        other.create_branch("dev", at="q1")
        assert add(other, 1).branch == "main"
        assert other.snapshot().branch == "main"


def test_snapshots_by_time_show_what_was_published_until_then(lake: Lake) -> None:
    commits = []
    for number in range(5):
        commits.append(add(lake, number))
        time.sleep(0.002)
    lake.create_branch("dev", at=3)
    later = add(lake, 50, "dev")
    for commit in commits:
        assert lake.snapshot(at=commit.time).version == commit.version
    assert lake.snapshot("dev", at=commits[0].time).version == 2
    assert lake.snapshot("dev", at=commits[4].time).version == 3
    assert lake.snapshot("dev", at=later.time.isoformat()).version == 4
    assert rows_of(lake.snapshot(at=commits[1].time).table("t")).total() == 2


def test_a_time_before_the_first_commit_is_told_when_that_was(lake: Lake) -> None:
    first = f"{lake.find_commit(1).time:%Y-%m-%d %H:%M:%S}Z"
    with pytest.raises(
        errors.VersionNotFound, match=f"first commit of branch 'main' is of {first}"
    ):
        lake.snapshot(at="1999-01-01")
    with pytest.raises(errors.VersionNotFound, match=first):
        lake.create_branch("old", at="1999-01-01")


def test_a_time_on_a_lake_without_commits_says_that_there_are_none(tmp_path: Path) -> None:
    with (
        tidelock.open(tmp_path / "empty", create=True) as empty,
        pytest.raises(errors.VersionNotFound, match="'main' has no commit yet"),
    ):
        empty.snapshot(at="1999-01-01")


def test_a_tag_or_commit_of_another_branch_is_refused_beside_a_branch(lake: Lake) -> None:
    shared = add(lake, 1)
    lake.create_branch("dev")
    later = add(lake, 2)
    own = add(lake, 3, "dev")
    lake.tag("shared", version=shared.version)
    lake.tag("later", version=later.version)
    lake.tag("own", commit=own.id)
    assert lake.snapshot("dev", tag="shared").version == shared.version
    assert lake.snapshot("dev", commit=own.id).version == own.version
    # Without a branch the tag says which it is.
    assert ids(lake, tag="own") == {1, 3}
    for branch, named in (("dev", {"tag": "later"}), ("dev", {"commit": later.id})):
        with pytest.raises(errors.InvalidOption, match=r"branch 'main'.*not in the history.*'dev'"):
            lake.snapshot(branch, **named)
    with pytest.raises(errors.InvalidOption, match=r"The tag 'own' .*not in the history.*'main'"):
        lake.snapshot("main", tag="own")


def test_a_snapshot_is_named_in_one_way(lake: Lake) -> None:
    with pytest.raises(errors.InvalidOption):
        lake.snapshot(version=1, tag="x")
    for version in (-1, 99):
        with pytest.raises(errors.VersionNotFound):
            lake.snapshot(version=version)
    for commit in ("main-99", "main-0", "nobody-1", "main", ""):
        with pytest.raises(errors.CommitNotFound):
            lake.snapshot(commit=commit)
    lake.create_branch("dev")
    ref = lake.branches()[1]
    with pytest.raises(errors.CommitNotFound):
        lake.snapshot(commit=f"{ref.id}-1")
    own = add(lake, 1, "dev")
    assert lake.snapshot(commit=own.id).version == own.version
    assert lake.snapshot("dev").commit == own.id


def test_a_tag_that_reads_as_a_version_is_refused(lake: Lake) -> None:
    with pytest.raises(errors.InvalidName, match="read as a version"):
        lake.tag("12")
