"""Views that are long, and tables that are named like something of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.streams import check

import tidelock
from tidelock.run.lake import Lake


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, spark=spark) as lake:
        lake.create_table("t", "id BIGINT, v BIGINT")
        lake.run(lambda tx: tx.append("t", [{"id": 1, "v": 1}, {"id": 2}]))
        yield lake


def test_long_expressions_are_computed_beside_short_ones(lake: Lake) -> None:
    for terms in (50, 600):
        total = "+".join(["v"] * terms)
        lake.create_stream_table(f"of_{terms}", f"SELECT id, {total} AS x FROM t")
    for action in ("full", "incremental"):
        assert {attempt.action for attempt in lake.refresh()} == {action}
        check(lake)
        lake.run(lambda tx: tx.append("t", [{"id": 3, "v": 7}]))


def test_a_table_may_be_named_like_an_inner_segment(lake: Lake) -> None:
    for name in ("#0", "r0", "packed", "q0r0"):
        lake.create_table(name, "id BIGINT, v BIGINT")
        lake.run(lambda tx, name=name: tx.append(name, [{"id": 1, "v": 5}]))
        inner = f"SELECT id, SUM(v) AS v FROM `{name}` GROUP BY id"
        query = f"SELECT id, MAX(v) AS m FROM ({inner}) GROUP BY id"
        lake.create_stream_table(f"of {name}", query, refresh_mode="incremental_strict")
    for _ in range(2):
        assert not [attempt for attempt in lake.refresh() if attempt.action == "failed"]
        check(lake)
        for name in ("#0", "r0", "packed", "q0r0"):
            lake.run(lambda tx, name=name: tx.append(name, [{"id": 1, "v": 2}, {"id": 2, "v": 3}]))


def test_a_part_that_cannot_be_computed_is_not_called_by_its_own_name(lake: Lake) -> None:
    inner = "SELECT id, MAX(1 DIV (v - 1)) AS x FROM t GROUP BY id"
    lake.create_stream_table("v", f"SELECT x, COUNT(*) AS n FROM ({inner}) GROUP BY x")
    (attempt,) = lake.refresh()
    assert attempt.action == "failed"
    assert "by zero" in attempt.reason
    assert "__tidelock" not in attempt.reason
