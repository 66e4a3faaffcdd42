"""What a process still reads is kept, whatever it is, and whoever collects garbage.

Here this process reads, and another one collects, again and again, with leases that are short.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.lakes import collect_all, numbers, rows_of, run

import tidelock
from tidelock import Lake, errors
from tidelock.store.leases import uses

LEASE_SECONDS = 1.0


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Versions 3 to 13 have 3 to 13 rows each, none of them of an earlier version."""
    with tidelock.open(tmp_path / "lake", create=True, lease_seconds=LEASE_SECONDS) as lake:
        lake.create_table("events", "id BIGINT NOT NULL, v BIGINT", key="id")
        lake.create_table("others", "id BIGINT")
        for version in range(3, 14):
            overwrite(lake, version)
        yield lake


def overwrite(lake: Lake, version: int) -> None:
    with lake.transaction() as tx:
        tx.overwrite("events", numbers(*[(version * 100 + n, version) for n in range(version)]))


def collect(uri: str) -> None:
    with tidelock.open(uri) as lake:
        report = collect_all(lake)
        assert not report.errors


def collect_elsewhere(lake: Lake) -> None:
    """Collect garbage in another process, once this one had to say what it still reads."""
    time.sleep(2.2 * LEASE_SECONDS)
    assert run(collect, lake.uri) == 0


def is_gone(lake: Lake, version: int) -> bool:
    """Asked by another handle: this one may have it open."""
    with tidelock.open(lake.uri, read_only=True) as other:
        try:
            other.snapshot(version=version).table("events")
        except errors.SnapshotExpired:
            return True
        return False


def read_changes(lake: Lake) -> Callable[[], int]:
    reader = lake.changes("events", since=3, until=5)
    return lambda: reader.read_all().num_rows


def read_rest_of_changes(lake: Lake) -> Callable[[], int]:
    reader = lake.changes("events", since=4, until=8)
    assert [reader.read_next_batch().num_rows for _ in range(4)] == [4, 5, 5, 6]
    return lambda: reader.read_all().num_rows


def read_batches(lake: Lake) -> Callable[[], int]:
    reader = lake.snapshot(version=9).table("events").to_batches()
    return lambda: reader.read_all().num_rows


def read_table(lake: Lake) -> Callable[[], int]:
    table = lake.snapshot(version=10).table("events")
    return lambda: int(table.to_arrow().num_rows)


def read_staged(lake: Lake) -> Callable[[], int]:
    """A state between two operations of a transaction, which no version has."""
    with lake.transaction() as tx:
        tx.append("events", numbers((1, 1), (2, 2)))
        table = tx.table("events")
        tx.overwrite("events", numbers((5, 5)))
    overwrite(lake, 13)
    return lambda: int(table.to_arrow().num_rows)


def read_as_of_a_transaction(lake: Lake) -> Callable[[], int]:
    with lake.transaction() as tx:
        tx.append("others", [{"id": 1}])
        table = tx.table("events")
    return lambda: int(table.to_arrow().num_rows)


def test_what_is_still_read_is_kept_until_nobody_holds_it(lake: Lake) -> None:
    readers = {
        read_changes: 3 + 4 + 4 + 5,
        read_rest_of_changes: 6 + 7 + 7 + 8,
        read_batches: 9,
        read_table: 10,
        read_staged: 15,
        read_as_of_a_transaction: 13,
    }
    held = {hold: hold(lake) for hold in readers}
    overwrite(lake, 12)
    gc.collect()
    for _ in range(2):
        collect_elsewhere(lake)
    assert is_gone(lake, 11)
    assert {hold: read() for hold, read in held.items()} == readers
    del held
    gc.collect()
    collect_elsewhere(lake)
    assert all(is_gone(lake, version) for version in range(3, 14))


def test_changes_that_are_given_up_are_no_longer_kept(lake: Lake) -> None:
    reader = lake.changes("events", since=2, until=8)
    reader.read_next_batch()
    reader.close()
    del reader
    gc.collect()
    collect_elsewhere(lake)
    assert is_gone(lake, 5)


def test_any_number_of_snapshots_is_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uses, "USES_LEASED_MAX", 3)
    held = [lake.snapshot(version=version).table("events") for version in (3, 4, 6, 8, 9)]
    overwrite(lake, 15)
    collect_elsewhere(lake)
    assert [table.to_arrow().num_rows for table in held] == [3, 4, 6, 8, 9]
    del held[1:]
    gc.collect()
    collect_elsewhere(lake)
    assert rows_of(held[0]).total() == 3
    assert all(is_gone(lake, version) for version in (4, 6, 8))


def test_what_a_dry_run_says_leaves_out_what_is_read_here(lake: Lake) -> None:
    reader: Any = lake.changes("events", since=2, until=8)
    kept = collect_all(lake, dry_run=True).files
    assert isinstance(reader, pa.RecordBatchReader)
    del reader
    gc.collect()
    assert collect_all(lake, dry_run=True).files > kept
