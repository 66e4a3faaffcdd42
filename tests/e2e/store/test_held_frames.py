"""A DataFrame reads its snapshot whenever it is asked, whoever collected garbage meanwhile."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lakes import collect_all, run

import tidelock
from tidelock import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_SECONDS = 1.0


def fill(lake: Lake, number: int) -> None:
    with lake.transaction() as tx:
        tx.overwrite("orders", [{"id": n, "amount": number} for n in range(number)])
        tx.overwrite("regions", [{"id": n, "name": f"r{number}"} for n in range(2)])


def collect(uri: str) -> None:
    with tidelock.open(uri) as lake:
        assert not collect_all(lake).errors


def collect_elsewhere(lake: Lake) -> None:
    gc.collect()
    time.sleep(2.2 * LEASE_SECONDS)
    assert run(collect, lake.uri) == 0


def opened(path: Path, **options: Any) -> Lake:
    lake = tidelock.open(path, create=True, lease_seconds=LEASE_SECONDS, **options)
    lake.create_table("orders", "id BIGINT NOT NULL, amount BIGINT", key="id")
    lake.create_table("regions", "id BIGINT, name STRING")
    for number in (3, 4, 5):
        fill(lake, number)
    return lake


def check_frames(lake: Lake) -> None:
    """Frames of an old version, and frames that were made from those, and nothing else of it."""
    old = lake.snapshot(version=4)
    known = weakref.ref(old)
    frames = {
        "table": old.table("orders").to_spark(),
        "filtered": old.table("orders").to_spark(filter="id % 2 = 0"),
        "derived": old.table("orders").to_spark().groupBy("amount").count().where("count > 1"),
        "query": old.sql("SELECT o.id, r.name FROM orders o JOIN regions r ON o.id = r.id"),
        "of a query": old.sql("SELECT * FROM orders").selectExpr("id + 1 AS id").distinct(),
    }
    del old
    with lake.transaction() as tx:
        frames["of a transaction"] = tx.sql("SELECT * FROM orders").limit(100)
        tx.append("regions", [{"id": 9, "name": "r9"}])
    fill(lake, 6)
    for _ in range(2):
        collect_elsewhere(lake)
    assert {name: frame.count() for name, frame in frames.items()} == {
        "table": 4,
        "filtered": 2,
        "derived": 1,
        "query": 2,
        "of a query": 4,
        "of a transaction": 5,
    }
    assert known() is not None
    frames.clear()
    collect_elsewhere(lake)
    assert known() is None
    with pytest.raises(tidelock.errors.SnapshotExpired):
        tidelock.open(lake.uri, read_only=True).snapshot(version=4).table("orders")


def test_frames_keep_what_they_read_on_a_local_spark(tmp_path: Path, spark: SparkSession) -> None:
    with opened(tmp_path / "lake", spark=spark) as lake:
        check_frames(lake)
        assert lake.sql("SELECT 1 AS one").sparkSession.conf.get("spark.app.name")


def test_frames_keep_what_they_read_on_sail(tmp_path: Path) -> None:
    pytest.importorskip("pysail")
    with opened(tmp_path / "lake", engine="sail") as lake:
        check_frames(lake)
