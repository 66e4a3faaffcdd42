"""Spark streams into a lake through Spark Connect: the server runs what writes each batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import clusters
from tests.support.lakes import check_log
from tests.support.stream_queries import DDL, drain, frame, put

import tidelock
from tidelock.errors import InvalidOption


def test_a_connect_server_writes_each_batch_once_and_says_our_words(tmp_path: Path) -> None:
    with (
        clusters.connect_server(tmp_path / "server") as url,
        tidelock.open(tmp_path / "lake", create=True, remote=url, actor="ann") as lake,
    ):
        lake.create_table("t", DDL)
        lake.create_table("keyed", DDL, key="id")
        for number in range(2):
            put(tmp_path, f"{number}", [(number, 0), (9, number)])
        query = drain(lake, lake.spark, tmp_path)
        keyed = {"table": "keyed", "mode": "upsert", "checkpoint": tmp_path / "keyed"}
        drain(lake, lake.spark, tmp_path, **keyed)
        found = [one for one in check_log(lake) if "stream" in one.properties]
        assert [one.operation_id for one in found[:2]] == [f"stream/{query.id}/{n}" for n in (0, 1)]
        assert {one.actor for one in found} == {"ann"}
        assert sorted(lake.table("t").to_arrow()["id"].to_pylist()) == [0, 1, 9, 9]
        shown = {row["id"]: row["v"] for row in lake.table("keyed").to_arrow().to_pylist()}
        assert shown == {0: 0, 1: 0, 9: 1}
        put(tmp_path, "2", [(2, 0), (2, 1)])
        options = {"trigger": "available_now", **keyed}
        broken = lake.write_stream(frame(lake.spark, tmp_path), **options)
        with pytest.raises(Exception, match=r"DuplicateKey: .*'keyed'"):
            broken.awaitTermination(120)
        with tidelock.open("memory://away", create=True, remote=url) as away:
            away.create_table("t", DDL)
            with pytest.raises(InvalidOption, match="in the memory of this process"):
                drain(away, away.spark, tmp_path)
