"""Groups: what lies between an input and where its paths meet again moves in one commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.streams import check, multiset

import tidelock
from tidelock.errors import InvalidOption, StreamTableWrite
from tidelock.run.lake import Lake
from tidelock.store.objects.failpoints import armed

MEMBERS = ("b", "c", "d")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("a", "id INT NOT NULL, x INT", key="id")
        add(lake, 1, 2, 3)
        lake.create_stream_table("b", "SELECT id, x * 2 AS y FROM a")
        lake.create_stream_table("c", "SELECT id, 100 / x AS z FROM a")
        lake.create_stream_table("d", "SELECT b.id, b.y, c.z FROM b JOIN c ON b.id = c.id")
        yield lake


def add(lake: Lake, *ids: int, x: int = 1) -> None:
    lake.run(lambda tx: tx.upsert("a", [{"id": one, "x": x} for one in ids]))


def actions(report: object) -> dict[str, str]:
    return {attempt.table: attempt.action for attempt in report}  # type: ignore[attr-defined]


def epochs(lake: Lake) -> set[int]:
    return {one.epoch for one in lake.stream_tables()}


def test_a_group_is_one_commit_of_one_frontier_and_one_epoch(lake: Lake) -> None:
    before = lake.snapshot().version
    report = lake.refresh()
    assert actions(report) == dict.fromkeys(MEMBERS, "full")
    assert len({attempt.commit for attempt in report}) == 1
    commit = lake.log(limit=1)[0]
    assert commit.version == before + 1
    assert {change.table for change in commit.tables} == set(MEMBERS)
    (group,) = lake.groups()
    assert group.members == MEMBERS
    assert group.convergence_points == ("d",)
    assert group.epoch == 1
    assert group.frontier == dict.fromkeys(MEMBERS, before)
    add(lake, 4)
    lake.refresh()
    assert epochs(lake) == {2}
    check(lake)


def test_nothing_is_published_when_no_source_changed(lake: Lake) -> None:
    lake.refresh()
    version = lake.snapshot().version
    assert actions(lake.refresh()) == dict.fromkeys(MEMBERS, "none")
    assert lake.snapshot().version == version
    assert epochs(lake) == {1}


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_a_member_that_fails_on_its_data_publishes_nothing_of_its_group(
    lake: Lake, mode: str
) -> None:
    lake.refresh()
    version = lake.snapshot().version
    rows = multiset(lake.table("b").to_arrow().to_pylist())
    add(lake, 9, x=0)
    report = lake.refresh(full=mode == "full")
    assert actions(report) == {"b": "skipped", "c": "failed", "d": "skipped"}
    assert multiset(lake.table("b").to_arrow().to_pylist()) == rows
    assert epochs(lake) == {1}
    failed = lake.history("c")[0]
    assert failed.action == "failed"
    assert "ZERO" in failed.reason.upper()
    (group,) = lake.groups()
    assert "'c' is suspended" in str(group.not_due_because)
    assert all(change.inserted == 0 for c in lake.log(limit=1) for change in c.tables)
    assert lake.snapshot().version <= version + 2
    lake.run(lambda tx: tx.delete("a", where="x = 0"))
    lake.resume("c")
    assert set(actions(lake.refresh()).values()) <= {"incremental", "full", "none"}
    assert epochs(lake) == {2}
    check(lake)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_suspended_member_holds_its_whole_group_back(lake: Lake, member: str) -> None:
    lake.refresh()
    lake.suspend(member, reason="maintenance of the source")
    add(lake, 5)
    for report in (lake.refresh(), lake.refresh(["b"]), lake.refresh(full=True)):
        assert set(actions(report).values()) == {"skipped"}
        assert "maintenance of the source" in report[0].reason
    assert epochs(lake) == {1}
    lake.resume(member)
    lake.refresh()
    assert epochs(lake) == {2}
    check(lake)


@pytest.mark.parametrize("failpoint", ["refresh.after_member@1", "refresh.after_member@2"])
def test_a_crash_between_members_publishes_nothing(lake: Lake, failpoint: str) -> None:
    name, _, number = failpoint.partition("@")
    lake.refresh()
    add(lake, 6)
    with armed(name, f"error@{number}"):
        report = lake.refresh()
    assert "failed" in actions(report).values()
    assert epochs(lake) == {1}
    for one in MEMBERS:
        lake.resume(one)
    lake.refresh()
    assert epochs(lake) == {2}
    check(lake)


def test_a_commit_between_members_belongs_to_the_next_refresh(lake: Lake, tmp_path: Path) -> None:
    lake.refresh()
    add(lake, 7)
    gate = tmp_path / "gate"
    found: list[object] = []
    with armed("refresh.after_member", f"pause:{gate}@1"):
        worker = threading.Thread(target=lambda: found.append(lake.refresh()))
        worker.start()
        add(lake, 8)
        gate.touch()
        worker.join()
    shown = lake.snapshot()
    ids = {row["id"] for row in shown.table("a").to_arrow().to_pylist()}
    assert 8 in ids
    for one in MEMBERS:
        there = {row["id"] for row in shown.table(one).to_arrow().to_pylist()}
        assert there == ids - {8}, one
    lake.refresh()
    check(lake)


def test_without_consistency_members_are_published_on_their_own(lake: Lake) -> None:
    lake.alter_stream_table("d", consistency="none")
    report = lake.refresh()
    assert len({attempt.commit for attempt in report}) == 3
    (group,) = lake.groups()
    assert group.consistency == "none"
    assert len(set(group.frontier.values())) > 1


def test_the_whole_lake_can_be_one_commit(lake: Lake) -> None:
    lake.refresh()
    lake.create_stream_table("other", "SELECT COUNT(*) AS n FROM a")
    add(lake, 4)
    report = lake.refresh(consistency="lake")
    assert len({attempt.commit for attempt in report}) == 1
    assert len(report) == 4
    # Each group counts its own publications, also in a commit that it shares.
    assert {one.name: one.epoch for one in lake.stream_tables()} == {
        **dict.fromkeys(MEMBERS, 2),
        "other": 1,
    }
    check(lake)


def test_contradicting_and_unknown_options_are_refused(lake: Lake) -> None:
    with pytest.raises(InvalidOption, match="exclude each other"):
        lake.alter_stream_table("d", consistency="none", schedule_policy="slowest")
    for option in ("refresh_mode", "consistency", "schedule_policy", "schedule"):
        with pytest.raises(InvalidOption, match="sometimes"):
            lake.create_stream_table("e", "SELECT id FROM a", **{option: "sometimes"})  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="no effect"):
        lake.create_stream_table("e", "SELECT id FROM a", schedule_policy="slowest")


def test_a_stream_table_is_not_written_by_hand(lake: Lake) -> None:
    with pytest.raises(StreamTableWrite, match="stream table"):
        lake.run(lambda tx: tx.append("b", [{"id": 1, "y": 1}]))
    with pytest.raises(StreamTableWrite):
        lake.drop_table("b")


def test_a_branch_refreshes_its_own(lake: Lake) -> None:
    lake.refresh()
    lake.create_branch("dev")
    lake.run(lambda tx: tx.upsert("a", [{"id": 50, "x": 5}]), branch="dev")
    lake.refresh(branch="dev")
    check(lake, "dev")
    check(lake)
    assert 50 in {row["id"] for row in lake.table("d", branch="dev").to_arrow().to_pylist()}
    assert 50 not in {row["id"] for row in lake.table("d").to_arrow().to_pylist()}
