"""The newest record is found by a hint, and whatever the hint says, it is the newest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.lakes import NUMBERS_DDL, numbers

import tidelock
from tidelock.store.log import log
from tidelock.store.objects import layout

COMMITS = 100


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lake whose older records were folded into checkpoints and removed."""
    for module in ("log.checkpoints", "log.log", "log.checkpoint_writer", "parts"):
        monkeypatch.setattr(f"tidelock.store.{module}.SPANS", (8, 64))
    for module in ("log.log", "log.checkpoint_writer"):
        monkeypatch.setattr(f"tidelock.store.{module}.REMOVE_AFTER_SECONDS", 0.0)
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        for number in range(COMMITS - 1):
            if number == 5:
                # As a writer would leave it that was suspended before its put.
                shutil.copy(record(tmp_path / "lake", 4), tmp_path / "late.json")
            lake.run(lambda tx, number=number: tx.append("t", numbers((number, number))))
        lake._store.chores.finish(30)
        lake._store.log_folder.fold_whole(lake._store.branches.refs())
    return tmp_path / "lake"


def record(path: Path, number: int) -> Path:
    return path / layout.record("main", number)


def hint(path: Path, content: str) -> None:
    (path / layout.TURNS / "main.lock").write_text(content)


def newest(path: Path) -> int:
    with tidelock.open(path, read_only=True) as lake:
        return lake.snapshot().version


def test_records_were_removed(path: Path) -> None:
    assert not record(path, 4).exists()
    assert log.SPANS == (8, 64)


def test_whatever_a_hint_says_the_newest_is_found(path: Path) -> None:
    there = sorted(int(one.stem) for one in record(path, 1).parent.glob("*.json"))
    last = newest(path)
    for told in ("", "x", "0", "1", "4", *map(str, there), str(last + 1), "9" * 19):
        hint(path, told.zfill(19) if told.isdigit() else told)
        assert newest(path) == last, told


def test_a_record_that_came_back_under_a_number_that_was_free_is_not_the_newest(
    path: Path, tmp_path: Path
) -> None:
    last = newest(path)
    shutil.copy(tmp_path / "late.json", record(path, 4))
    hint(path, f"{4:019d}")
    assert newest(path) == last
