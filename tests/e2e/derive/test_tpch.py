"""The 22 queries of TPC-H as stream tables, through cycles of inserts, updates and deletes."""

from __future__ import annotations

import random
from pathlib import Path

from tests.support.streams import check
from tests.tpch.cycles import QUERIES, change, generate, load

import tidelock

SCALE = 0.1
CYCLES = 5


def test_all_queries_are_kept_by_delta_and_equal_their_recomputation(tmp_path: Path) -> None:
    generate(tmp_path, SCALE)
    chance = random.Random(22)
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        load(lake, tmp_path)
        for name, query in QUERIES.items():
            lake.create_stream_table(name, query, refresh_mode="incremental")
        lake.refresh()
        check(lake)
        for cycle in range(CYCLES):
            change(lake, chance, cycle)
            report = lake.refresh()
            ways = [attempt.action for attempt in report]
            assert ways.count("failed") == 0, [a.reason for a in report if a.action == "failed"]
            print(f"cycle {cycle}: {ways.count('incremental')} of 22 by delta")  # noqa: T201
            assert ways.count("incremental") >= 20
            check(lake)
