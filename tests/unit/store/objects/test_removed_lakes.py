"""A lake that is removed, replaced or put back while a handle has it open."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import check_log, collect_all, contents, copy_lake, numbers

import tidelock
from tidelock import Lake, errors


def make(uri: Path, commits: int = 3) -> Lake:
    lake = tidelock.open(uri, create=True)
    lake.create_table("events", "id BIGINT, v BIGINT")
    for number in range(commits):
        write(lake, number)
    return lake


def write(lake: Lake, number: int) -> None:
    lake.run(lambda tx: tx.append("events", numbers((number, number))))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with make(tmp_path / "lake") as lake:
        yield lake


def objects_of(uri: str) -> set[Path]:
    """The objects of a lake, but for locks, which are advice."""
    found = Path(uri, "_tidelock").rglob("*")
    return {path for path in found if path.is_file() and path.suffix != ".lock"}


WRITES: dict[str, Callable[[Lake], Any]] = {
    "append": lambda lake: write(lake, 9),
    "create": lambda lake: lake.create_table("more", "id BIGINT"),
    "branch": lambda lake: lake.create_branch("dev"),
    "tag": lambda lake: lake.tag("t"),
    "hold": lambda lake: lake.hold("h"),
    "optimize": lambda lake: lake.optimize(),
    "gc": lambda lake: lake.collect_garbage(),
}


@pytest.mark.parametrize("act", WRITES)
def test_nothing_is_acknowledged_in_a_lake_that_was_removed(lake: Lake, act: str) -> None:
    shutil.rmtree(lake.uri)
    with pytest.raises(errors.LakeRemoved, match="removed, or its disk"):
        WRITES[act](lake)
    assert not Path(lake.uri).exists()


def test_nothing_is_written_to_where_a_disk_was_mounted(lake: Lake) -> None:
    shutil.rmtree(lake.uri)
    Path(lake.uri).mkdir()
    with pytest.raises(errors.LakeRemoved):
        write(lake, 9)
    assert not list(Path(lake.uri).iterdir())


def test_a_transaction_that_had_begun_is_not_acknowledged_either(lake: Lake) -> None:
    with pytest.raises(errors.TidelockError), lake.transaction() as tx:  # noqa: PT012
        tx.append("events", numbers((9, 9)))
        shutil.rmtree(lake.uri)
    assert tx.commit is None
    assert not Path(lake.uri, "_tidelock", "log").exists()


@pytest.mark.parametrize("commits", [0, 3, 4], ids=["empty", "as long", "longer"])
@pytest.mark.parametrize("act", [*WRITES, "sink", "deliver"])
def test_nothing_is_written_into_another_lake_in_its_place(
    lake: Lake, act: str, commits: int, tmp_path: Path
) -> None:
    to = str(tmp_path / "out")
    acts = {
        "sink": lambda lake: lake.create_sink("new", table="events", kind="jsonl", to=to + "/new"),
        "deliver": lambda lake: lake.deliver("archive"),
    }
    lake.create_sink("archive", table="events", kind="jsonl", to=to + "/old")
    shutil.rmtree(lake.uri)
    with make(Path(lake.uri), commits) as other:
        other.create_sink("archive", table="events", kind="jsonl", to=to + "/other")
        before, there = check_log(other), objects_of(lake.uri)
        with pytest.raises(errors.LakeRemoved):
            {**WRITES, **acts}[act](lake)
        assert check_log(other) == before
        assert objects_of(lake.uri) == there
        assert not Path(to).exists()
        write(other, 7)
        assert len(check_log(other)) == len(before) + 1


def test_nothing_is_written_on_top_of_a_backup_that_was_put_back(
    lake: Lake, tmp_path: Path
) -> None:
    backup = copy_lake(lake.uri, tmp_path / "backup")
    write(lake, 8)
    shutil.rmtree(lake.uri)
    copy_lake(backup, lake.uri)
    with pytest.raises(errors.LakeRemoved, match="open it again"):
        write(lake, 9)
    with tidelock.open(lake.uri) as again:
        write(again, 7)
        check_log(again)
        assert contents(again)["events"].total() == 4


def test_records_that_were_taken_away_are_missed(lake: Lake) -> None:
    newest = max(Path(lake.uri, "_tidelock", "log", "main").iterdir())
    newest.unlink()
    with pytest.raises(errors.LakeRemoved):
        write(lake, 9)


def test_no_row_is_garbage_where_the_log_was_removed(tmp_path: Path) -> None:
    make(tmp_path / "lake").close()
    files = set((tmp_path / "lake" / "tables").rglob("*"))
    backup = copy_lake(tmp_path / "lake" / "_tidelock" / "log", tmp_path / "backup")
    shutil.rmtree(tmp_path / "lake" / "_tidelock" / "log")
    with tidelock.open(tmp_path / "lake") as lake:
        assert not lake.tables()
        assert not collect_all(lake).files
        assert set((tmp_path / "lake" / "tables").rglob("*")) == files
    copy_lake(backup, tmp_path / "lake" / "_tidelock" / "log")
    with tidelock.open(tmp_path / "lake") as lake:
        assert contents(lake)["events"].total() == 3


def test_a_log_that_was_removed_but_for_its_checkpoints_is_not_begun_anew(tmp_path: Path) -> None:
    with make(tmp_path / "lake", 80) as lake:
        lake.create_branch("dev")
        lake.tag("q1")
        lake._store.log_folder.fold_whole(lake._store.branches.refs())
    assert list((tmp_path / "lake" / "_tidelock" / "past" / "main").iterdir())
    shutil.rmtree(tmp_path / "lake" / "_tidelock" / "log")
    with tidelock.open(tmp_path / "lake", heal=False) as lake:
        for act in (*WRITES.values(), lambda lake: lake.table("events")):
            with pytest.raises(errors.CorruptObject, match="log of branch 'main' is gone"):
                act(lake)
        assert [one.key for one in lake.verify().damaged] == ["_tidelock/log/main"]


def test_a_record_that_is_gone_from_the_middle_is_named(lake: Lake) -> None:
    uri = lake.uri
    lake.close()
    Path(uri, "_tidelock", "log", "main", f"{2:020}.json").unlink()
    with tidelock.open(uri) as again:
        write(again, 9)
        for ask in (
            lambda: again.log(limit=None),
            lambda: again.snapshot(version=2),
            lambda: again.changes("events", since=1).read_all(),
        ):
            with pytest.raises(errors.CorruptObject, match=r"Version 2 .* is missing from the log"):
                ask()
        (found,) = again.verify().damaged
        assert again.repair().damaged == (found,)
        assert found.what == "missing"
        assert found.key == f"_tidelock/log/main/{2:020}.json"


def test_a_declaration_that_the_newest_state_needs_is_missed(lake: Lake) -> None:
    lake.alter_table("events", "ADD COLUMN w BIGINT")
    uri = lake.uri
    lake.close()
    (gone,) = Path(uri, "_tidelock", "schemas").iterdir()
    gone.unlink()
    with tidelock.open(uri) as again:
        (found,) = again.verify().damaged
        assert (found.key, found.what) == (f"_tidelock/schemas/{gone.name}", "missing")
        assert "Restore it" in found.advice
