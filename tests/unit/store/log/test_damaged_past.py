"""Damage in the past of a branch: checkpoints, and what follows from them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.support.lakes import NUMBERS_DDL, check_log, copy_lake, numbers, rows_of

import tidelock
from tidelock import Lake, errors
from tidelock.store.log.log import REMOVE_AFTER_SECONDS

COMMITS = 70


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with two branches whose older records were folded and removed."""
    uri = tmp_path_factory.mktemp("template") / "lake"
    with tidelock.open(uri, create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        lake.create_branch("dev")
        for branch in ("main", "dev"):
            for value in range(COMMITS):
                write(lake, value, branch)
        refs = lake._store.branches.refs()
        lake._store.chores.finish()
        for pause in (1.1 * REMOVE_AFTER_SECONDS, 0):
            for ref in refs:
                lake._store.log_folder.fold(ref)
            time.sleep(pause)
    assert not (uri / "_tidelock" / "log" / "main" / f"{3:020d}.json").exists()
    return uri


def write(lake: Lake, value: int, branch: str = "main") -> None:
    lake.run(lambda tx: tx.overwrite("t", numbers((value, value))), branch=branch)


def oldest_checkpoint(uri: Path, branch: str) -> Path:
    (folder,) = (uri / "_tidelock" / "past").glob(f"{branch}*")
    return min(folder.iterdir())


def test_a_checkpoint_that_alone_has_its_commits_is_named_and_not_given_up(
    template: Path, tmp_path: Path
) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    path = oldest_checkpoint(uri, "main")
    key = str(path.relative_to(uri))
    path.write_bytes(b"")
    with tidelock.open(uri) as lake:
        write(lake, 100)
        assert rows_of(lake.table("t")) == {(100, 100): 1}
        with pytest.raises(errors.CorruptObject, match=path.name):
            lake.snapshot(version=3)
        report = lake.repair()
        assert [one.key for one in report.damaged] == [key]
        with pytest.raises(errors.InvalidOption, match="not given up"):
            lake.repair(discard_object=key)
        assert lake.snapshot(version=COMMITS).version == COMMITS


def test_a_checkpoint_whose_records_are_there_is_written_again(tmp_path: Path) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        for value in range(COMMITS):
            write(lake, value)
        lake._store.chores.finish()
    uri = tmp_path / "lake"
    path = uri / "_tidelock" / "past" / "main" / f"{32:020d}-32.json"
    path.write_bytes(b"cut off")
    with tidelock.open(uri) as lake:
        assert [one.key for one in lake.repair().mended] == [str(path.relative_to(uri))]
        assert len(check_log(lake)) == COMMITS + 1
        assert lake.verify().ok


def test_a_branch_is_made_anew_from_its_checkpoints(template: Path, tmp_path: Path) -> None:
    uri = Path(copy_lake(template, tmp_path / "lake"))
    with tidelock.open(uri) as lake:
        before = lake.log("dev", limit=None)
    path = uri / "_tidelock" / "branches" / "dev" / "00000001.json"
    path.write_bytes(b"")
    with tidelock.open(uri) as lake:
        assert [one.key for one in lake.repair().mended] == [str(path.relative_to(uri))]
        assert lake.log("dev", limit=None) == before
        write(lake, 100, "dev")
