"""MIN and MAX that are kept equal those that are computed anew, whatever comes and leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.lakes import seed_of
from tests.support.streams import change_tables, check, create_tables

import tidelock
from tidelock.run.lake import Lake

QUERIES = {
    "plain": (
        "SELECT g, MIN(x) AS lo, MAX(x) AS hi, MIN(amount) AS least, MAX(s) AS last, "
        "COUNT_IF(x > 2) AS n FROM t GROUP BY g"
    ),
    "filtered": "SELECT s, MAX(x) FILTER (WHERE g > 0) AS hi, SUM(x) AS sx FROM t GROUP BY s",
    "computed": "SELECT g, MAX(x) - MIN(x) AS spread, MIN(x > 1) AS b FROM t GROUP BY g",
    "typed": "SELECT g, MAX(DATE'2024-01-01' + x) AS d FROM t WHERE x >= 0 GROUP BY g",
    "unseen": "SELECT MAX(x) AS hi FROM t GROUP BY g, s",
    "whole": "SELECT MIN(x) AS lo, MAX(amount) AS hi FROM t",
    "joined": "SELECT u.name, MAX(t.x + u.v) AS hi FROM t JOIN u ON t.g = u.g GROUP BY u.name",
    "outer": "SELECT t.g, MIN(u.v) AS lo FROM t LEFT JOIN u ON t.g = u.g GROUP BY t.g",
    "united": (
        "SELECT z, MAX(y) AS hi FROM (SELECT g AS z, x AS y FROM t UNION ALL SELECT a, a FROM d) "
        "GROUP BY z"
    ),
    "nested": "SELECT MAX(hi) AS top FROM (SELECT g, MAX(x) AS hi FROM t GROUP BY g)",
    "floats": "SELECT g, MIN(f) AS lo, MAX(f) AS hi FROM t GROUP BY g",
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        create_tables(lake)
        yield lake


def test_extremes_equal_their_recomputation_after_every_step(lake: Lake) -> None:
    with seed_of() as seed:
        chance = random.Random(seed)
        change_tables(lake, chance)
        for name, query in QUERIES.items():
            lake.create_stream_table(f"v_{name}", query, refresh_mode="incremental_strict")
        for _ in range(8):
            report = lake.refresh()
            assert not [attempt for attempt in report if attempt.action == "failed"]
            check(lake)
            change_tables(lake, chance)


def test_extremes_follow_what_comes_and_what_leaves(lake: Lake) -> None:
    def rows(*values: tuple[int, int, int]) -> list[dict[str, int]]:
        return [{"id": one, "g": group, "x": x} for one, group, x in values]

    def step(*values: tuple[int, int, int], where: str = "false") -> dict[int, tuple[int, int]]:
        with lake.transaction() as tx:
            tx.upsert("t", rows(*values))
            tx.delete("t", where=where)
        (attempt,) = lake.refresh()
        assert attempt.action in ("incremental", "full"), attempt
        check(lake)
        found = lake.table("v").to_arrow().to_pylist()
        return {row["g"]: (row["lo"], row["hi"]) for row in found}

    query = "SELECT g, MIN(x) AS lo, MAX(x) AS hi FROM t GROUP BY g"
    lake.create_stream_table("v", query, refresh_mode="incremental_strict")
    assert step((1, 1, 5), (2, 1, 7), (3, 1, 9), (4, 2, 4)) == {1: (5, 9), 2: (4, 4)}
    assert step((5, 1, 6), (6, 2, 8)) == {1: (5, 9), 2: (4, 8)}
    assert step(where="id = 2") == {1: (5, 9), 2: (4, 8)}
    assert step(where="id = 3") == {1: (5, 6), 2: (4, 8)}
    assert step((1, 1, 2)) == {1: (2, 6), 2: (4, 8)}
    assert step((1, 1, 6), (4, 3, 1)) == {1: (6, 6), 2: (8, 8), 3: (1, 1)}
    assert step(where="g = 1") == {2: (8, 8), 3: (1, 1)}
