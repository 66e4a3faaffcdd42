"""A replay takes nothing from a destination that the lake cannot give back, unless told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.lakes import collect_all
from tests.support.sinks.destinations import check_inserts, files_at, rows_at

import tidelock
from tidelock.errors import InvalidOption
from tidelock.run.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("o", "id BIGINT, g STRING", key="id")
        rows = [{"id": n, "g": "ab"[n % 2]} for n in range(10)]
        lake.run(lambda tx: tx.append("o", rows))
        yield lake


@pytest.mark.parametrize("partition_by", [None, "g"])
def test_rows_that_were_pruned_since_stay_in_the_archive_unless_they_may_go(
    lake: Lake, tmp_path: Path, partition_by: str | None
) -> None:
    lake.create_sink(
        "s", table="o", kind="jsonl", to=str(tmp_path / "out"), partition_by=partition_by
    )
    lake.deliver("s")
    lake.prune("o", "id < 6")
    lake.run(lambda tx: tx.append("o", [{"id": n, "g": "a"} for n in range(20, 40)]))
    before = files_at(lake, "s")
    with pytest.raises(InvalidOption, match=r"^6 rows that sink 's' .* would lose them"):
        lake.replay("s")
    assert files_at(lake, "s") == before
    assert lake.deliver("s").rows == 20
    assert len(rows_at(lake, "s")) == 30
    lake.replay("s", lose_rows=True)
    # What is told is what was written, not what the files had before.
    assert lake.deliver("s").rows == 24
    check_inserts(lake, "s")
    lake.replay("s")


def test_a_row_that_moved_to_another_partition_is_not_lost_by_a_replay(
    lake: Lake, tmp_path: Path
) -> None:
    lake.create_sink("s", table="o", kind="jsonl", to=str(tmp_path / "out"), partition_by="g")
    lake.deliver("s")
    lake.run(lambda tx: tx.update("o", {"g": "'b'"}, where="id = 2"))
    with pytest.raises(InvalidOption, match=r"^1 row that"):
        lake.replay("s", partition="g=a")
    lake.replay("s")
    assert lake.deliver("s").rows == 10
    check_inserts(lake, "s")


def test_changes_that_are_no_longer_kept_are_not_promised_again(lake: Lake, tmp_path: Path) -> None:
    to = str(tmp_path / "out")
    lake.create_sink("s", table="o", kind="jsonl", to=to, feed="changes")
    for n in range(10, 13):
        lake.run(lambda tx, n=n: tx.append("o", [{"id": n, "g": "a"}]))
    lake.deliver("s")
    newest = lake.snapshot().version
    lake.replay("s", since=newest - 2)
    lake.deliver("s")
    assert len(rows_at(lake, "s")) == 13
    collect_all(lake)
    for since in (-1, newest - 2):
        with pytest.raises(InvalidOption, match=f"Replay since version {newest} or later"):
            lake.replay("s", since=since)
    lake.run(lambda tx: tx.append("o", [{"id": 20, "g": "a"}]))
    assert lake.deliver("s").rows == 1
    assert len(rows_at(lake, "s")) == 14
