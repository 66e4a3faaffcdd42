"""A merge that is killed, or fails, at any step: before or after, never between.

It adopts a table, merges the rows and the columns of another, takes over a new one, drops one, and
renumbers rows of one without a key.
"""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faulted import check_every_call
from tests.support.lakes import age, check_log, collect_all, copy_lake, run
from tests.support.merged import on, rows

import tidelock
from tidelock import Lake, errors
from tidelock.store.objects.failpoints import armed, recorded

ACTOR = "merger"
Contents = dict[str, list[dict[str, Any]]]


def make(uri: str) -> None:
    with tidelock.open(uri, create=True, actor="maker") as lake:
        with lake.transaction() as tx:
            tx.create_table("keyed", "id INT, a INT, b INT", key="id")
            tx.create_table("plain", "a INT")
            tx.create_table("calm", "id INT", key="id")
            tx.create_table("old", "id INT")
            tx.append("keyed", [{"id": n, "a": n, "b": n} for n in range(4)])
            tx.append("plain", [{"a": n} for n in range(4)])
        lake.create_branch("dev")
        on(
            lake,
            "dev",
            lambda tx: tx.update("keyed", {"a": "10"}, "id = 1"),
            lambda tx: tx.alter_table("keyed", "ADD COLUMN c INT DEFAULT 3"),
            lambda tx: tx.append("plain", [{"a": 100}, {"a": 101}]),
            lambda tx: tx.append("calm", [{"id": 1}]),
            lambda tx: tx.create_table("fresh", "id INT"),
            lambda tx: tx.append("fresh", [{"id": 5}]),
            lambda tx: tx.drop_table("old"),
        )
        on(
            lake,
            "main",
            lambda tx: tx.update("keyed", {"b": "20"}, "id = 1"),
            lambda tx: tx.delete("keyed", "id = 2"),
            lambda tx: tx.append("plain", [{"a": 200}]),
        )


def merge_with(lake: Lake) -> None:
    lake.merge("dev", actor=ACTOR)


def merge(uri: str) -> None:
    with tidelock.open(uri, actor=ACTOR) as lake:
        merge_with(lake)


def contents(lake: Lake, **at: Any) -> Contents:
    snapshot = lake.snapshot(**at)
    return {
        one.name: sorted(snapshot.table(one.name).to_arrow().to_pylist(), key=str)
        for one in snapshot.tables()
    }


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("template") / "lake")
    make(uri)
    return uri


@pytest.fixture
def copies(template: str, tmp_path: Path) -> Iterator[str]:
    return (copy_lake(template, tmp_path / str(number)) for number in itertools.count())


@pytest.fixture(scope="module")
def both(template: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Contents, Contents]:
    """What every table holds before the merge and after it."""
    uri = copy_lake(template, tmp_path_factory.mktemp("undisturbed") / "lake")
    with tidelock.open(uri) as lake:
        before = contents(lake)
        merge_with(lake)
        after = contents(lake)
    assert set(after) == {"keyed", "plain", "calm", "fresh"}
    assert {"id": 1, "a": 10, "b": 20, "c": 3} in after["keyed"]
    assert sorted(row["a"] for row in after["plain"]) == [0, 1, 2, 3, 100, 101, 200]
    return before, after


def is_merged(lake: Lake) -> bool:
    return any("merge" in commit.properties for commit in check_log(lake))


def test_a_merge_killed_at_any_step_leaves_before_or_after(
    copies: Iterator[str], both: tuple[Contents, Contents]
) -> None:
    before, after = both
    with recorded() as names:
        merge(next(copies))
    # The first and the last time that each step is reached; a fault is injected at all, below.
    steps = sorted({(name, hit) for name, most in Counter(names).items() for hit in (1, most)})
    assert len(steps) > 10
    for name, hit in steps:
        uri = next(copies)
        code = run(merge, uri, failpoints=f"{name}=kill@{hit}")
        assert code == -signal.SIGKILL, f"{name} was not reached (exit code {code})"
        with tidelock.open(uri, read_only=True) as reader:
            assert contents(reader) == (after if is_merged(reader) else before), name
        age(uri)
        with tidelock.open(uri, actor="the next") as lake:
            # A merge that was staged as a whole was published for its writer.
            merged = is_merged(lake)
            assert contents(lake) == (after if merged else before), name
            assert lake.merge("dev").outcome == ("up to date" if merged else "merged")
            assert contents(lake) == after, name
            assert lake.merge("dev").outcome == "up to date", name
            assert sum("merge" in one.properties for one in check_log(lake)) == 1, name
            collect_all(lake)
            assert contents(lake) == after, name
            assert lake.verify().ok, name


def test_a_merge_that_was_staged_as_a_whole_is_rolled_forward_with_both_parents(
    copies: Iterator[str], both: tuple[Contents, Contents]
) -> None:
    uri = next(copies)
    code = run(merge, uri, failpoints="publish.before_put=kill")
    assert code == -signal.SIGKILL
    age(uri)
    with tidelock.open(uri, actor="the next") as lake:
        assert [one.outcome for one in lake.recoveries()] == ["rolled_forward"]
        commit = check_log(lake)[-1]
        assert (commit.actor, len(commit.parents)) == (ACTOR, 2)
        assert contents(lake) == both[1]
        assert lake.merge("dev").outcome == "up to date"
        on(lake, "dev", lambda tx: tx.update("plain", {"a": "-1"}, "a = 100"))
        lake.merge("dev")
        assert [row["a"] for row in rows(lake, "plain")].count(-1) == 1
        assert len(rows(lake, "plain")) == 7


@pytest.mark.parametrize("when", ["before", "after", "timeout"])
def test_a_fault_at_any_object_operation_is_told_as_it_is(
    copies: Iterator[str], both: tuple[Contents, Contents], when: str
) -> None:
    check_every_call(copies, ACTOR, merge_with, contents, both, when)


def test_a_merge_that_fails_half_way_leaves_nothing_staged(
    copies: Iterator[str], both: tuple[Contents, Contents]
) -> None:
    with tidelock.open(next(copies)) as lake:
        with armed("table.before_commit", "error@2"), pytest.raises(errors.StoreUnavailable):
            merge_with(lake)
        assert contents(lake) == both[0]
        assert not list(lake.intents())
        merge_with(lake)
        assert contents(lake) == both[1]
