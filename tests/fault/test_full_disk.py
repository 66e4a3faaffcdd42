"""A disk that is full: what is there can be read, and garbage collection makes room.

On a small file system of its own, for which the right to mount one is needed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import NUMBERS_DDL, age, collect_all, numbers, rows_of, run, streamed

import tidelock
from tidelock import Lake, errors

DISK_BYTES = 4 * 1024 * 1024
LEASE_SECONDS = 1.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    try:
        subprocess.run(mounting, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def lake(disk: Path) -> Iterator[Lake]:
    """A lake with garbage, on a disk without room for another byte."""
    with tidelock.open(disk / "lake", create=True, lease_seconds=LEASE_SECONDS) as lake:
        lake.create_table("t", NUMBERS_DDL)
        lake.create_table("keyed", NUMBERS_DDL, key=["id"])
        lake.run(lambda tx: tx.append("keyed", numbers((1, 1), (2, 2))))
        for value in range(3):
            lake.run(lambda tx, v=value: tx.overwrite("t", numbers((v, v))))
        yield lake


def fill(disk: Path) -> None:
    with (disk / "filler").open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


READS: dict[str, Callable[[Lake], Any]] = {
    "rows": lambda lake: rows_of(lake.table("t")),
    "older rows": lambda lake: rows_of(lake.snapshot(version=5).table("t")),
    "changes": lambda lake: lake.changes("t", since=1).read_all(),
    "log": lambda lake: lake.log(),
    "operation": lambda lake: lake.find_operation("nothing"),
    "branches": lambda lake: lake.branches(),
    "recoveries": lambda lake: lake.recoveries(),
    "verify": lambda lake: lake.verify().ok or pytest.fail("damaged"),
    "plan": lambda lake: lake.collect_garbage(older_than=0, dry_run=True),
    "close": lambda lake: lake.close(),
}


def test_everything_can_be_read(disk: Path, lake: Lake) -> None:
    fill(disk)
    with (
        tidelock.open(lake.uri) as another,
        tidelock.open(lake.uri, read_only=True) as reader,
    ):
        for handle in (reader, another, lake):
            for read in READS.values():
                read(handle)


WRITES: dict[str, Callable[[Lake], Any]] = {
    "append": lambda lake: lake.run(lambda tx: tx.append("t", numbers((9, 9)))),
    "stream": lambda lake: lake.run(lambda tx: tx.append("t", streamed(numbers((9, 9))))),
    "upsert": lambda lake: lake.run(lambda tx: tx.upsert("keyed", numbers((2, 9)))),
    "delete": lambda lake: lake.run(lambda tx: tx.delete("keyed", "id = 1")),
    "overwrite": lambda lake: lake.run(lambda tx: tx.overwrite("keyed", numbers((1, 1)))),
    "mirror": lambda lake: lake.mirror("keyed"),
    "create": lambda lake: lake.create_table("u", NUMBERS_DDL),
    "branch": lambda lake: lake.create_branch("dev"),
    "tag": lambda lake: lake.tag("q1"),
    "hold": lambda lake: lake.hold("h"),
}


@pytest.mark.parametrize("opened", [True, False], ids=["open before", "opened then"])
def test_what_cannot_be_written_says_so_and_is_not_there(
    disk: Path, lake: Lake, opened: bool
) -> None:
    before = lake.log()
    fill(disk)
    with tidelock.open(lake.uri) as another:
        for write in WRITES.values():
            with pytest.raises(errors.StoreFull, match="collect_garbage"):
                write(lake if opened else another)
    assert lake.log() == before
    (disk / "filler").unlink()
    for write in WRITES.values():
        write(lake)
    assert rows_of(lake.table("t")) == {(2, 2): 1, (9, 9): 2}


def test_garbage_collection_makes_room_and_can_do_so_again(disk: Path, lake: Lake) -> None:
    for round_number in range(2):
        lake.run(lambda tx, v=round_number: tx.overwrite("t", numbers((v, v))))
        time.sleep(2.5 * LEASE_SECONDS)  # what others may be staging is kept for that long
        fill(disk)
        with tidelock.open(lake.uri) as another:
            assert collect_all(another if round_number else lake).files
        lake.run(lambda tx: tx.append("t", numbers((7, 7))))
    assert rows_of(lake.table("t")) == {(1, 1): 1, (7, 7): 1}


def stage_and_die(uri: str) -> None:
    lake = tidelock.open(uri)
    tx = lake.transaction()
    tx.append("t", streamed(numbers((9, 9))))
    assert tx.table("t").count() == 2
    os._exit(0)


def test_what_a_writer_left_that_died_is_collected(disk: Path, lake: Lake) -> None:
    lake.run(lambda tx: tx.overwrite("t", numbers((2, 2))))
    assert run(stage_and_die, lake.uri) == 0
    age(lake.uri)
    # What is younger than a lease before the last renewal may be staged by the handle that is open.
    time.sleep(2.5 * LEASE_SECONDS)
    fill(disk)
    with tidelock.open(lake.uri) as another:
        assert rows_of(another.table("t")) == {(2, 2): 1}
        assert collect_all(another).files
        assert [one.outcome for one in another.recoveries()] == ["discarded"]
        another.run(lambda tx: tx.append("t", numbers((7, 7))))
        assert rows_of(another.table("t")) == {(2, 2): 1, (7, 7): 1}


def test_what_is_being_read_stays_protected(disk: Path, lake: Lake) -> None:
    older = lake.snapshot(version=4)
    fill(disk)
    time.sleep(2 * LEASE_SECONDS)
    with tidelock.open(lake.uri, lease_seconds=LEASE_SECONDS) as another:
        collect_all(another)
    assert rows_of(older.table("t")) == {(0, 0): 1}
