"""A folder of delivered files is read as it is, by everybody: nothing but rows is in it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import tidelock
from tidelock import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id BIGINT, text STRING, n INT, day DATE, amount DECIMAL(10,2)"
TEXTS = ["EU", "a/b", "007", "é 日本%", None, "EU"]
ROWS = [
    {
        "id": n,
        "text": TEXTS[n % len(TEXTS)],
        "n": n % 3 or None,
        "day": dt.date(2026, 1, 1 + n % 2),
        "amount": Decimal(n),
    }
    for n in range(30)
]
LAYOUTS: list[list[str]] = [[], ["text"], ["n", "day"]]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", DDL)
        yield lake


def deliver(lake: Lake, folder: Path, kind: str, partition_by: list[str]) -> None:
    """Two deliveries, and one that died on the way to a file and left something."""
    options: dict[str, Any] = {"kind": kind, "partition_by": partition_by or None}
    lake.create_sink("s", table="t", to=str(folder), rows_per_file=7, **options)
    for some in (ROWS[:20], ROWS[20:]):
        lake.run(lambda tx, some=some: tx.append("t", some))
        lake.deliver("s")
    (folder.parent / "_tidelock" / folder.name / "unfinished-1").write_text("half of a file")


def as_read(rows: list[dict[str, Any]], columns: list[str]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in ["id", *columns]) for row in rows)


@pytest.mark.parametrize("partition_by", LAYOUTS, ids=lambda one: "-".join(one) or "whole")
def test_parquet_is_read_as_a_folder(
    lake: Lake, tmp_path: Path, partition_by: list[str], spark: SparkSession
) -> None:
    folder = tmp_path / "out"
    deliver(lake, folder, "parquet", partition_by)
    names = ["text", "n", "day", "amount"]
    expected = as_read(ROWS, names)
    assert as_read(pl.read_parquet(folder).to_dicts(), names) == expected
    assert as_read(pl.scan_parquet(folder).collect().to_dicts(), names) == expected
    assert as_read(ds.dataset(folder).to_table().to_pylist(), names) == expected
    assert as_read(pq.read_table(folder, partitioning=None).to_pylist(), names) == expected
    read = spark.read.parquet(str(folder)).select("id", *names).toArrow()
    assert as_read(read.to_pylist(), names) == expected
    whole = spark.read.option("recursiveFileLookup", "true").parquet(str(folder))
    assert as_read(whole.select("id", *names).toArrow().to_pylist(), names) == expected


def test_lines_of_json_and_csv_are_read_as_folders(lake: Lake, tmp_path: Path) -> None:
    deliver(lake, tmp_path / "lines", "jsonl", ["n"])
    assert sorted(pl.scan_ndjson(tmp_path / "lines").collect()["id"]) == list(range(30))
    lake.drop_sink("s")
    lake.create_sink("s", table="t", kind="csv", to=str(tmp_path / "csv"), partition_by=["n"])
    lake.deliver("s")
    assert sorted(pl.scan_csv(tmp_path / "csv").collect()["id"]) == list(range(30))
