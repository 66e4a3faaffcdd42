"""Spark streams into a lake: each micro-batch is one commit, whatever is killed or put back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support import lakes
from tests.support.lakes import check_log, numbers
from tests.support.stream_queries import DDL, drain, drain_in_process, frame, put

import tidelock
from tidelock import Commit, Lake
from tidelock.errors import InvalidOption, KeyRequired, TableNotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, spark=spark) as lake:
        lake.create_table("t", DDL)
        yield lake


def batches(lake: Lake) -> list[Commit]:
    """The commits that hold batches, oldest first."""
    return [one for one in check_log(lake) if "stream" in one.properties]


def ids(lake: Lake, table: str = "t") -> list[int]:
    return sorted(lake.table(table).to_arrow()["id"].to_pylist())


def test_each_batch_is_one_commit_that_says_which_it_is(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        put(tmp_path, f"{number}", [(number, 0), (number + 10, 0)])
    query = drain(lake, spark, tmp_path, query_name="events")
    assert query.exception() is None
    found = batches(lake)
    assert [one.properties["stream"]["batch"] for one in found] == [0, 1, 2]
    assert {one.properties["stream"]["query"] for one in found} == {query.id}
    assert {one.properties["stream"]["name"] for one in found} == {"events"}
    assert [one.properties["stream"]["rows"] for one in found] == [2, 2, 2]
    assert [one.operation_id for one in found] == [f"stream/{query.id}/{n}" for n in range(3)]
    assert lake.find_operation(f"stream/{query.id}/1") == found[1]
    assert ids(lake) == [0, 1, 2, 10, 11, 12]
    put(tmp_path, "more", [(20, 0)])
    again = drain(lake, spark, tmp_path, query_name="events")
    assert (again.id, ids(lake)[-1], len(batches(lake))) == (query.id, 20, 4)


def test_upserts_replace_by_key_and_aggregates_follow(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.create_table("sums", "id BIGINT NOT NULL, n BIGINT", key="id")
    put(tmp_path, "0", [(1, 5), (2, 5)])
    put(tmp_path, "1", [(1, 7), (3, 5)])
    sums = frame(spark, tmp_path).groupBy("id").agg({"v": "sum"}).toDF("id", "n")
    query = lake.write_stream(
        sums,
        table="sums",
        mode="upsert",
        output_mode="update",
        checkpoint=tmp_path / "sums",
        trigger={"availableNow": True},
    )
    assert query.awaitTermination(120)
    shown = {row["id"]: row["n"] for row in lake.table("sums").to_arrow().to_pylist()}
    assert shown == {1: 12, 2: 5, 3: 5}


def test_a_table_is_made_and_columns_are_added_where_that_is_asked_for(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "0", [(1, 5)])
    drain(lake, spark, tmp_path, table="made", create=True, key="id", checkpoint=tmp_path / "c")
    assert lake.table("made").key == ("id",)
    wider = frame(spark, tmp_path).selectExpr("*", "concat('n', id) AS note")
    options = {"trigger": "available_now", "table": "t"}
    refused = lake.write_stream(wider, checkpoint=tmp_path / "d", **options)
    with pytest.raises(Exception, match="note"):
        refused.awaitTermination(120)
    evolved = lake.write_stream(wider, checkpoint=tmp_path / "e", evolve=True, **options)
    assert evolved.awaitTermination(120)
    assert lake.table("t").to_arrow().to_pylist() == [{"id": 1, "v": 5, "note": "n1"}]


def test_a_batch_that_breaks_a_rule_ends_the_query_with_our_words(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.create_table("keyed", DDL, key="id")
    put(tmp_path, "0", [(1, 0)])
    put(tmp_path, "1", [(2, 0), (2, 1)])
    options = {"table": "keyed", "checkpoint": tmp_path / "c", "trigger": "available_now"}
    query = lake.write_stream(frame(spark, tmp_path), mode="upsert", **options)
    with pytest.raises(Exception, match=r"tidelock\.errors\.DuplicateKey: .*'keyed'"):
        query.awaitTermination(120)
    assert "DuplicateKey" in str(query.exception())
    assert ids(lake, "keyed") == [1], "the batches before it are published"


@pytest.mark.parametrize("at", ["stream.after_publish", "stream.before_publish"])
def test_a_query_killed_between_commit_and_checkpoint_publishes_each_batch_once(
    tmp_path: Path, at: str
) -> None:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", DDL)
        for number in range(4):
            put(tmp_path, f"{number}", [(number, 0)])
        killed = lakes.run(drain_in_process, str(tmp_path), failpoints=f"{at}=kill@2")
        assert killed == -9
        assert len(batches(lake)) == (2 if "after" in at else 1)
        assert lakes.run(drain_in_process, str(tmp_path)) == 0
        assert [one.properties["stream"]["batch"] for one in batches(lake)] == [0, 1, 2, 3]
        assert ids(lake) == [0, 1, 2, 3]


def test_an_older_checkpoint_passes_over_the_same_batches_and_refuses_others(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "0", [(0, 0)])
    drain(lake, spark, tmp_path)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    for number in (1, 2):
        put(tmp_path, f"{number}", [(number, 0)])
    drain(lake, spark, tmp_path)
    assert ids(lake) == [0, 1, 2]
    # The same files make the same batches again.
    restore(tmp_path)
    drain(lake, spark, tmp_path)
    assert (ids(lake), len(batches(lake))) == ([0, 1, 2], 3)
    # Other files under the numbers of batches that were published: what was not is not lost.
    restore(tmp_path)
    put(tmp_path, "3", [(3, 0)])
    options = {"table": "t", "trigger": "available_now", "checkpoint": tmp_path / "checkpoint"}
    query = lake.write_stream(frame(spark, tmp_path, maxFilesPerTrigger=9), **options)
    with pytest.raises(Exception, match=r"SourceDiverged: Batch 1 .* \(1 then, 3 now\)"):
        query.awaitTermination(120)
    assert ids(lake) == [0, 1, 2]
    # As many rows, but others.
    restore(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(tmp_path / "checkpoint", other / "checkpoint")
    (tmp_path / "in" / "1.json").unlink()
    query = lake.write_stream(frame(spark, tmp_path), **options)
    with pytest.raises(Exception, match=r"SourceDiverged: Batch 1 .* \(1 then, 1 now\)"):
        query.awaitTermination(120)


def restore(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint")
    shutil.copytree(folder / "older", folder / "checkpoint")


def test_rows_that_are_made_anew_each_time_are_passed_over_where_that_is_said(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "0", [(0, 0)])
    drain(lake, spark, tmp_path)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    put(tmp_path, "1", [(1, 0)])
    random = frame(spark, tmp_path).selectExpr("id", "CAST(rand() * 1e9 AS BIGINT) AS v")
    options = {"table": "t", "trigger": "available_now", "checkpoint": tmp_path / "checkpoint"}
    assert lake.write_stream(random, **options).awaitTermination(120)
    restore(tmp_path)
    with pytest.raises(Exception, match="SourceDiverged"):
        lake.write_stream(random, **options).awaitTermination(120)
    assert lake.write_stream(random, repeated="skip", **options).awaitTermination(120)
    assert ids(lake) == [0, 1]


def test_another_checkpoint_gives_all_rows_again_which_upserts_do_not_mind(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.create_table("keyed", DDL, key="id")
    put(tmp_path, "0", [(0, 0), (1, 0)])
    for checkpoint in ("one", "two"):
        drain(lake, spark, tmp_path, checkpoint=tmp_path / checkpoint)
        drain(
            lake,
            spark,
            tmp_path,
            checkpoint=tmp_path / f"keyed-{checkpoint}",
            table="keyed",
            mode="upsert",
        )
    assert ids(lake) == [0, 0, 1, 1]
    assert ids(lake, "keyed") == [0, 1]


def test_two_queries_write_one_table_side_by_side(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.create_table("keyed", DDL, key="id")
    for number in range(3):
        put(tmp_path, f"{number}", [(number, 0), (9, number)])
    options = {"table": "keyed", "mode": "upsert", "trigger": "available_now"}
    queries = [
        lake.write_stream(frame(spark, tmp_path), checkpoint=tmp_path / name, **options)
        for name in ("one", "two")
    ]
    assert all(query.awaitTermination(120) for query in queries)
    assert len(batches(lake)) == 6
    assert ids(lake, "keyed") == [0, 1, 2, 9]


def test_a_batch_without_rows_makes_no_commit(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "0", [(0, 0)])
    put(tmp_path, "1", [(1, 0)])
    options = {"table": "t", "trigger": "available_now", "checkpoint": tmp_path / "c"}
    assert lake.write_stream(frame(spark, tmp_path).where("id > 0"), **options).awaitTermination(
        120
    )
    assert (ids(lake), len(batches(lake))) == ([1], 1)


def test_what_cannot_be_started_is_refused_before_spark_is_asked(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path, "0", [(0, 0)])
    stream = frame(spark, tmp_path)

    def refused(error: type[Exception], match: str, **options: Any) -> None:
        given = {"frame": stream, "table": "t", "checkpoint": tmp_path / "c", **options}
        with pytest.raises(error, match=match):
            lake.write_stream(given.pop("frame"), **given)

    refused(InvalidOption, "takes a streaming DataFrame", frame=spark.range(1))
    refused(InvalidOption, "takes a streaming DataFrame", frame=numbers((1, 1)))
    refused(InvalidOption, "mode='merge'", mode="merge")
    refused(InvalidOption, "needs a checkpoint", checkpoint="")
    refused(InvalidOption, "repeated='no'", repeated="no")
    refused(InvalidOption, "trigger", trigger="soon")
    refused(TableNotFound, "nope", table="nope")
    refused(KeyRequired, "no key", mode="upsert")
    assert not spark.streams.active


def test_sail_says_what_to_use_in_its_place(tmp_path: Path) -> None:
    put(tmp_path, "0", [(0, 0)])
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("t", DDL)
        with pytest.raises(InvalidOption, match=r"Sail runs no micro-batches.*Apache Spark"):
            lake.write_stream(frame(lake.spark, tmp_path), table="t", checkpoint=tmp_path / "c")
