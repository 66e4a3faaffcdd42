"""Spark: scans and appends of 10 million rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import tidelock
from bench.measure import Claim, folder, in_turns, middle

ROWS = 10_000_000
DDL = "id BIGINT NOT NULL, k INT, v DOUBLE, s STRING"


def source(spark: Any) -> Any:
    return spark.range(0, ROWS, 1, 4).selectExpr(
        "id", "CAST(id % 1000 AS INT) AS k", "id * 0.5D AS v", "concat('name-', id % 100000) AS s"
    )


def bare_scan(spark: Any, table: Any) -> Any:
    """The simplest thing that reads Lance in parallel: fragments dealt to two tasks."""
    uri, version = table.path, table.dataset.version
    fragments = [fragment.fragment_id for fragment in table.dataset.get_fragments()]
    dealt = [fragments[0::2], fragments[1::2]]

    def read(batches: Any) -> Iterator[pa.RecordBatch]:
        import lance

        dataset = lance.dataset(uri, version=version)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for fragment in dealt[number]:
                    yield from dataset.get_fragment(fragment).scanner().to_batches()

    return spark.range(0, 2, 1, 2).mapInArrow(read, DDL)


def aggregate(frame: Any) -> None:
    """Reads every value of every column."""
    frame.selectExpr("sum(id)", "sum(k)", "sum(v)", "max(s)").collect()


def scans_and_appends() -> Iterator[Claim]:
    with folder() as path:
        lake = tidelock.open(path / "lake", create=True, actor="bench", master="local[2]")
        lake.create_table("t", DDL)
        spark = lake.spark
        frame = source(spark)

        def append(number: int) -> None:
            name = f"t{number}"
            with lake.transaction() as tx:
                tx.create_table(name, DDL)
                tx.append(name, frame)

        def parquet(number: int) -> None:
            frame.write.parquet(str(path / f"parquet-{number}"))

        append(100)
        parquet(100)
        ours, theirs = in_turns(append, parquet, 3)
        yield Claim(
            "Spark append of 10 million rows against Spark writing Parquet (medians)",
            middle(ours) / middle(theirs),
            1.5,
            detail=f"{middle(ours):.2f} s against {middle(theirs):.2f} s",
        )
        table = lake.snapshot().table("t100")
        native = spark.read.parquet(str(path / "parquet-100"))
        for candidate in (table.to_spark(), bare_scan(spark, table), native):
            aggregate(candidate)
        ours, bare = in_turns(
            lambda _: aggregate(table.to_spark()),
            lambda _: aggregate(bare_scan(spark, table)),
            7,
        )
        yield Claim(
            "Spark scan of 10 million rows against a bare mapInArrow Lance scan (medians)",
            middle(ours) / middle(bare),
            1.15,
            detail=f"{middle(ours):.2f} s against {middle(bare):.2f} s",
        )
        ours, theirs = in_turns(
            lambda _: aggregate(table.to_spark()), lambda _: aggregate(native), 7
        )
        yield Claim(
            "Spark scan of 10 million rows against native Parquet (medians)",
            middle(ours) / middle(theirs),
            1.6,
            detail=f"{middle(ours):.2f} s against {middle(theirs):.2f} s",
        )
        lake.close()


CLAIMS = [scans_and_appends]
