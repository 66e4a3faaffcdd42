"""Who follows a table that a merge adopted is told what was changed, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.merged import on, rows

import tidelock
from tidelock import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "id INT, v INT", key="id")
    on(
        lake,
        "main",
        *(lambda tx, n=n: tx.append("t", [{"id": n, "v": n}]) for n in range(6)),
    )
    return lake


def told(lake: Lake, since: int, branch: str = "main") -> list[tuple[int, int, int]]:
    found = lake.changes("t", since=since, branch=branch).read_all().to_pylist()
    return sorted((row["id"], row["v"], row["_weight"]) for row in found)


@pytest.mark.parametrize("compacted", ["source", "target", "both", "neither"])
def test_maintenance_on_either_side_makes_no_row_of_an_adopted_table_a_change(
    lake: Lake, compacted: str
) -> None:
    lake.create_branch("dev")
    if compacted in ("source", "both"):
        lake.optimize("t", branch="dev")
    if compacted in ("target", "both"):
        lake.optimize("t")
    on(
        lake,
        "dev",
        lambda tx: tx.update("t", {"v": "30"}, "id = 3"),
        lambda tx: tx.append("t", [{"id": 9, "v": 9}]),
        lambda tx: tx.delete("t", "id = 1"),
    )
    version = lake.snapshot().version
    merge = lake.merge("dev")
    assert merge.table("t").action == "adopted"
    assert told(lake, version) == [(1, 1, -1), (3, 3, -1), (3, 30, 1), (9, 9, 1)]


@pytest.mark.parametrize("mode", ["inserts", "changes"])
def test_a_sink_is_sent_each_change_of_a_merge_once(lake: Lake, tmp_path: Path, mode: Any) -> None:
    folder = tmp_path / "out"
    lake.create_sink("s", table="t", kind="parquet", to=str(folder), feed=mode)
    lake.deliver()
    first = _sent(folder)
    lake.create_branch("dev")
    lake.optimize("t", branch="dev")
    on(
        lake,
        "dev",
        lambda tx: tx.update("t", {"v": "30"}, "id = 3"),
        lambda tx: tx.append("t", [{"id": 9, "v": 9}]),
    )
    lake.merge("dev")
    on(lake, "main", lambda tx: tx.append("t", [{"id": 10, "v": 10}]))
    on(lake, "dev", lambda tx: tx.append("t", [{"id": 11, "v": 11}]))
    lake.merge("dev")
    lake.deliver()
    fresh = [row for row in _sent(folder) if row not in first]
    assert [row["id"] for row in fresh if row.get("_op", "insert") == "insert"] == [9, 10, 11]
    if mode == "changes":
        assert [(r["id"], r["v"]) for r in fresh if r["_op"].startswith("update")] == [
            (3, 3),
            (3, 30),
        ]
    assert len(_sent(folder)) == len(first) + len(fresh)
    assert len(rows(lake, "t")) == 9


def _sent(folder: Path) -> list[dict[str, Any]]:
    found = [
        row for path in sorted(folder.rglob("*.parquet")) for row in pq.read_table(path).to_pylist()
    ]
    return sorted(found, key=lambda row: (row["id"], str(row.get("_op")) != "update_before"))
