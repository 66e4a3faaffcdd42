"""What computing a view anew did not change is no change to whoever follows it, whatever its size:
tables below go by delta, feeds are silent, and sinks send what differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelock
from tidelock import Lake
from tidelock.derive.refresh import table as refresh_table

LIMIT = 20


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(refresh_table, "LOCAL_ROWS_MAX", LIMIT)
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as opened:
        opened.create_table("t", "id BIGINT NOT NULL, x INT", key="id")
        fill(opened, 3 * LIMIT)
        yield opened


def fill(lake: Lake, rows: int) -> None:
    lake.run(lambda tx: tx.overwrite("t", [{"id": n, "x": n % 7} for n in range(rows)]))


def changes(lake: Lake, name: str, since: int) -> list[tuple[Any, ...]]:
    found = lake.changes(name, since=since).read_all().to_pylist()
    return sorted((row["id"], row["_weight"]) for row in found)


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_views_below_and_feeds_see_what_differs_and_sinks_send_nothing_else(
    lake: Lake, mode: str, tmp_path: Path
) -> None:
    lake.create_stream_table("v", "SELECT id, x + 1 AS y FROM t", refresh_mode=mode)
    lake.create_stream_table("w", "SELECT id, y FROM v WHERE y > 1", refresh_mode="incremental")
    lake.create_sink("out", table="v", kind="jsonl", to=str(tmp_path / "out"), feed="changes")
    lake.refresh()
    lake.deliver()
    version = lake.snapshot().version

    (again,) = lake.refresh("v", full=True)
    assert (again.action, again.rows_in, again.rows_out) == ("full", 3 * LIMIT, 0)
    assert changes(lake, "v", version) == []
    assert [one.action for one in lake.refresh("w")] == ["none"]
    assert [one.rows for one in lake.deliver()] == [0]

    lake.run(lambda tx: tx.update("t", {"x": "100"}, where="id = 5"))
    (anew,) = lake.refresh("v", full=True)
    assert (anew.action, anew.rows_out) == ("full", 2)
    assert changes(lake, "v", version) == [(5, -1), (5, 1)]
    (below,) = lake.refresh("w")
    assert (below.action, below.rows_in, below.rows_out) == ("incremental", 2, 2)
    assert [one.rows for one in lake.deliver()] == [2]
    files = sorted((tmp_path / "out").rglob("*.jsonl"))
    sent = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(sent) == 3 * LIMIT + 2


def test_a_member_reads_what_differs_of_one_that_its_group_computed_anew(lake: Lake) -> None:
    lake.create_stream_table("v", "SELECT id, x + 1 AS y FROM t", refresh_mode="full")
    joined = "SELECT t.id, t.x, v.y FROM t JOIN v ON t.id = v.id"
    lake.create_stream_table("w", joined, refresh_mode="incremental")
    lake.refresh()
    lake.run(lambda tx: tx.update("t", {"x": "100"}, where="id = 5"))
    first, second = lake.refresh()
    assert (first.table, first.action, first.rows_out) == ("v", "full", 2)
    # Two of the table, and two of the view.
    assert (second.action, second.rows_in, second.rows_out) == ("incremental", 4, 2)
    assert lake.table("w").to_arrow(filter="id = 5").to_pylist() == [{"id": 5, "x": 100, "y": 101}]


def test_both_ways_to_compare_meet_at_the_limit(lake: Lake) -> None:
    lake.create_stream_table("v", "SELECT id, x FROM t", refresh_mode="full")
    lake.refresh()
    before = 3 * LIMIT
    for rows in (LIMIT + 1, LIMIT, LIMIT - 1, LIMIT, LIMIT + 1, LIMIT + 1, 0, LIMIT + 1, 1):
        fill(lake, rows)
        version = lake.snapshot().version
        lake.refresh("v", full=True)
        differing = range(min(before, rows), max(before, rows))
        weight = 1 if rows > before else -1
        assert changes(lake, "v", version) == [(n, weight) for n in differing]
        assert lake.table("v").count() == rows
        before = rows


def test_copies_of_a_row_come_and_go_one_by_one(lake: Lake) -> None:
    lake.create_stream_table("v", "SELECT x AS id FROM t", refresh_mode="full")
    lake.refresh()
    assert lake.table("v").count() == 3 * LIMIT
    version = lake.snapshot().version
    # Of seven rows with about nine copies each, one copy leaves, and then several of several rows.
    lake.run(lambda tx: tx.delete("t", where="id = 0"))
    lake.refresh("v", full=True)
    assert changes(lake, "v", version) == [(0, -1)]
    version = lake.snapshot().version
    lake.run(lambda tx: tx.delete("t", where="id < 14"))
    lake.refresh("v", full=True)
    gone = [(n % 7, -1) for n in range(1, 14)]
    assert changes(lake, "v", version) == sorted(gone)
    ids = lake.table("v").dataset.scanner(columns=[], with_row_id=True).to_table()
    assert len(set(ids.column("_rowid").to_pylist())) == 3 * LIMIT - 14
