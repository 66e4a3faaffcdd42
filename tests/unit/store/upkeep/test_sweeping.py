"""What garbage collection removes beside the files of tables, and what it must not."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.lakes import NUMBERS_DDL, age, check_log, collect_all, numbers, settle_chores

import tidelock
from tidelock import Lake, errors
from tidelock.store.log import checkpoint_writer, operation_index
from tidelock.store.log.checkpoints import LAG, SPANS
from tidelock.store.objects import layout
from tidelock.store.objects.protocol import Objects
from tidelock.store.upkeep.garbage import sweep
from tidelock.testing.faulty_store import FaultyStore


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is replaced is removed as soon as that was seen once more."""
    monkeypatch.setattr(checkpoint_writer, "REMOVE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(sweep, "REMOVE_AFTER_SECONDS", 0.0)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, actor="ada") as lake:
        lake.create_table("t", NUMBERS_DDL)
        yield lake


def note(lake: Lake, number: int, operation_id: str | None = None, branch: str = "main") -> int:
    """A commit that changes nothing but the log."""
    with lake.transaction(branch=branch, operation_id=operation_id, properties={"n": number}) as tx:
        pass
    assert tx.commit is not None
    return tx.commit.version


def objects(lake: Lake, folder: str = "_tidelock") -> list[str]:
    root = Path(lake.uri, folder)
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def test_three_thousand_commits_are_few_objects_once_they_were_collected(lake: Lake) -> None:
    total = 3000
    for number in range(total - 1):
        note(lake, number, f"job {number}" if number % 2 else None)
    settle_chores(lake)
    collect_all(lake)
    collect_all(lake)
    kinds = Counter(name.split("/")[0] for name in objects(lake))
    assert kinds["log"] <= LAG + 2 * SPANS[0]
    assert kinds["past"] <= 2 * SPANS[0] + total // SPANS[1]
    assert kinds["published"] == 1
    # Those of operations that are in no index yet.
    assert kinds["operations"] <= (SPANS[1] + LAG + SPANS[0]) / 2
    assert sum(kinds.values()) < 800
    assert len(check_log(lake)) == total


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> int:
    """Large checkpoints of 64 versions, so that little history is enough for an index."""
    monkeypatch.setattr("tidelock.store.log.checkpoints.SPANS", (8, 64))
    monkeypatch.setattr("tidelock.store.log.log.SPANS", (8, 64))
    monkeypatch.setattr("tidelock.store.log.checkpoint_writer.SPANS", (8, 64))
    monkeypatch.setattr("tidelock.store.parts.SPANS", (8, 64))
    for module in ("operation_index", "operation_ids", "checkpoint_writer"):
        monkeypatch.setattr(f"tidelock.store.log.{module}.STEP", 64)
    monkeypatch.setattr(operation_index, "BUCKET_MAX", 40)
    return 64


def claims(lake: Lake, branch_id: str = "main") -> int:
    return len(objects(lake, f"{layout.OPERATIONS}/{branch_id}"))


def test_an_operation_that_was_published_long_ago_is_still_published_once(
    lake: Lake, steps: int
) -> None:
    versions = {f"job {n}": note(lake, n, f"job {n}") for n in range(300)}
    lake.create_branch("dev")
    collect_all(lake)
    collect_all(lake)
    assert claims(lake) <= steps + LAG + 8
    assert len(objects(lake, f"{layout.PUBLISHED}/main")) == 8
    with tidelock.open(lake.uri) as other:
        for branch in ("main", "dev"):
            for name, version in versions.items():
                found = other.find_operation(name, branch=branch)
                assert found is not None
                assert found.version == version
            for number in (0, 63, 64, 150, 299):
                assert note(other, number, f"job {number}", branch) == versions[f"job {number}"]
        assert other.find_operation("never") is None
        assert note(other, 1, "new on dev", "dev") == 302
        assert other.find_operation("new on dev") is None
    check_log(lake)


def test_a_fork_does_not_have_what_its_origin_published_later(lake: Lake, steps: int) -> None:
    for number in range(20):
        note(lake, number, f"job {number}")
    lake.create_branch("early", at=10)
    for number in range(20, 300):
        note(lake, number, f"job {number}")
    collect_all(lake)
    collect_all(lake)
    assert lake.find_operation("job 5", branch="early") is not None
    for number in (15, 100, 299):
        assert lake.find_operation(f"job {number}", branch="early") is None
    assert note(lake, 15, "job 15", "early") == 11


@pytest.mark.parametrize("damage", ["gone", "broken"])
def test_an_index_that_is_damaged_is_made_up_for_by_the_log(
    lake: Lake, steps: int, damage: str
) -> None:
    for number in range(150):
        note(lake, number, f"job {number}")
    collect_all(lake)
    collect_all(lake)
    for path in Path(lake.uri, layout.PUBLISHED, "main").glob("*"):
        path.unlink() if damage == "gone" else path.write_bytes(b"{")
    with tidelock.open(lake.uri) as other:
        assert note(other, 3, "job 3") == 5
        assert other.find_operation("never") is None
        for number in range(150, 300):
            note(other, number, f"job {number}")
        settle_chores(other)
        collect_all(other)
        assert note(other, 3, "job 3") == 5
    assert objects(lake, f"{layout.PUBLISHED}/main")


def test_to_look_for_an_unknown_operation_costs_the_same_at_any_depth(
    lake: Lake, steps: int
) -> None:
    costs = set()
    for rounds in range(4):
        for number in range(130):
            note(lake, number, f"job {rounds} {number}")
        settle_chores(lake)
        collect_all(lake)
        stores: list[FaultyStore] = []

        def wrap(inner: Objects, stores: list[FaultyStore] = stores) -> Objects:
            stores.append(FaultyStore(inner, 1))
            return stores[0]

        with tidelock.open(lake.uri, objects=wrap) as other:
            other.snapshot()
            stores[0].forget()
            assert other.find_operation("never") is None
            costs.add(stores[0].count())
    assert max(costs) <= 5, costs


def test_a_claim_that_led_to_nothing_goes_when_its_writer_is_gone(lake: Lake) -> None:
    tx = lake.transaction(operation_id="given up")
    tx.rollback()
    live = lake.transaction(operation_id="still at it")
    live.append("t", numbers((1, 1)))
    collect_all(lake)
    assert claims(lake) == 2, "nothing is older than the writer that is still there"
    live.publish()
    settle_chores(lake)
    collect_all(lake)
    names = objects(lake, f"{layout.OPERATIONS}/main")
    assert names == [layout.encode("still at it") + ".json"]
    assert note(lake, 1, "still at it") == 2
    assert note(lake, 2, "given up") == 3


def test_a_claim_that_was_published_and_not_settled_is_kept(lake: Lake) -> None:
    version = note(lake, 1, "job")
    settle_chores(lake)
    key = layout.operation("main", "job")
    lake._store.objects.put(key, b'{"operation_id":"job","since":0,"version":null,"format":1}')
    for number in range(5):
        note(lake, number)
    collect_all(lake)
    assert claims(lake) == 1
    assert note(lake, 2, "job") == version


def of_branch(lake: Lake, branch_id: str) -> list[str]:
    return [name for name in objects(lake) if branch_id in name]


def test_a_deleted_branch_goes_with_its_log(lake: Lake) -> None:
    ref = lake.create_branch("dev")
    for number in range(50):
        note(lake, number, f"job {number}", "dev")
    settle_chores(lake)
    commit = lake.log("dev")[0].id
    lake.delete_branch("dev")
    assert lake.find_commit(commit).branch == "dev"
    collect_all(lake)
    collect_all(lake)
    assert of_branch(lake, ref.id) == []
    assert not Path(lake.uri, layout.BRANCHES, "dev", "00000001.json").exists()
    with pytest.raises(errors.CommitNotFound):
        lake.find_commit(commit)
    again = lake.create_branch("dev")
    assert again.id != ref.id
    assert note(lake, 1, "job 1", "dev") == again.fork_version + 1


@pytest.mark.parametrize("what", ["tag", "fork", "hold", "reader", "other reader"])
def test_a_deleted_branch_stays_while_something_has_it_in_its_history(
    lake: Lake, what: str
) -> None:
    lake.create_branch("dev")
    for number in range(3):
        with lake.transaction(branch="dev") as tx:
            tx.append("t", numbers((number, number)))
    other = tidelock.open(lake.uri)
    kept = None
    match what:
        case "tag":
            lake.tag("kept", branch="dev")
        case "fork":
            lake.create_branch("fork", branch="dev")
        case "hold":
            lake.hold("kept", branch="dev")
        case "reader":
            kept = lake.snapshot("dev")
        case "other reader":
            kept = other.snapshot("dev", version=4)
            other._store.keeper.renew_all()
    lake.delete_branch("dev")
    for _ in range(3):
        collect_all(lake)
    match what:
        case "tag":
            assert lake.snapshot(tag="kept").table("t").count() == 3
        case "fork":
            assert [one.version for one in lake.log("fork")] == [4, 3, 2, 1]
            assert lake.snapshot("fork").table("t").count() == 3
        case "hold":
            lake.release("kept")
        case _:
            assert kept is not None
            assert kept.table("t").count() == 3
    other.close()


def test_a_writer_of_a_branch_that_was_swept_is_told_so(lake: Lake, tmp_path: Path) -> None:
    lake.create_branch("dev")
    fresh = lake.create_branch("fresh")
    with tidelock.open(lake.uri) as other:
        note(other, 1, branch="dev")
        for name in ("dev", "fresh"):
            late = other.transaction(branch=name)
            late.append("t", numbers((1, 1)))
            lake.delete_branch(name)
            settle_chores(lake)
            late.rollback()
        time.sleep(0.05)
        collect_all(lake)
        collect_all(lake)
        with pytest.raises(errors.BranchNotFound):
            note(other, 2, branch="dev")
        with pytest.raises(errors.BranchDeleted):
            other._store.log.head(fresh)
    assert [ref.name for ref in lake.branches()] == ["main"]


def test_what_is_left_of_a_branch_whose_sweep_was_cut_short_goes_the_next_time(
    lake: Lake,
) -> None:
    ref = lake.create_branch("dev")
    for number in range(40):
        note(lake, number, f"job {number}", "dev")
    settle_chores(lake)
    lake.delete_branch("dev")
    lake._store.objects.delete(layout.branch("dev", 1))
    collect_all(lake)
    assert of_branch(lake, ref.id) == []


def test_a_branch_whose_name_somebody_removed_is_not_taken_for_a_deleted_one(lake: Lake) -> None:
    ref = lake.create_branch("dev")
    note(lake, 1, branch="dev")
    key = layout.branch("dev", 1)
    kept = lake._store.objects.get(key)
    lake._store.objects.delete(key)
    Path(lake.uri, layout.LOG, "somebody's copy").mkdir()
    Path(lake.uri, layout.LOG, "somebody's copy", "00000000000000000001.json").touch()
    with tidelock.open(lake.uri) as other:
        collect_all(other)
        other._store.objects.put(key, kept)
    assert of_branch(lake, ref.id)
    assert [one.version for one in lake.log("dev")] == [2, 1]
    assert Path(lake.uri, layout.LOG, "somebody's copy", "00000000000000000001.json").exists()


def test_the_announcement_of_a_collector_that_died_goes(lake: Lake) -> None:
    key = f"{layout.COLLECTIONS}/dead.json"
    lake._store.objects.put(key, b'{"lease_seconds": 60.0, "format": 1}')
    collect_all(lake)
    assert objects(lake, layout.COLLECTIONS) == ["dead.json"]
    age(lake.uri, 2 * 3600)
    lake._store.keeper.renew_all()
    collect_all(lake)
    assert objects(lake, layout.COLLECTIONS) == []


def test_old_attempts_go_but_the_last_of_each_table(lake: Lake) -> None:
    folder = Path(lake.uri, layout.attempts("main", "view-1"))
    folder.mkdir(parents=True)
    for number in range(150):
        path = folder / f"{number:04d}.json"
        path.write_bytes(b"{}")
        os.utime(path, (1e9, 1e9))
    collect_all(lake)
    assert len(objects(lake, layout.ATTEMPTS)) == sweep.ATTEMPTS_KEPT


def test_a_dry_run_tells_and_removes_nothing(lake: Lake) -> None:
    lake.transaction(operation_id="given up").rollback()
    lake.create_branch("dev")
    lake.delete_branch("dev")
    collect_all(lake, dry_run=True)
    before = objects(lake)
    report = collect_all(lake, dry_run=True)
    assert report.objects >= 3
    assert objects(lake) == before
    assert collect_all(lake).objects == report.objects
