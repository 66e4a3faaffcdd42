"""Declared tables with a real engine: defaults, backfills, evolution, and columns of the past."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock
from tidelock import Lake, errors

DDL = """
    id BIGINT PRIMARY KEY, tier STRING NOT NULL DEFAULT 'basic', mark STRING DEFAULT uuid(),
    at TIMESTAMP DEFAULT now(), due DATE DEFAULT date_add(current_date(), 7),
    tags ARRAY<STRING> DEFAULT array('a', 'b'), half DECIMAL(4,2) DEFAULT 7 / 2
"""


@pytest.fixture(params=["spark", "sail"])
def lake(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    options: dict[str, Any] = {}
    if request.param == "spark":
        request.getfixturevalue("spark")
    else:
        options["engine"] = "sail"
    with tidelock.open(tmp_path / "lake", create=True, **options) as lake:
        lake.create_table("t", DDL)
        yield lake


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table("t").to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def check_defaults(rows: list[dict[str, Any]]) -> None:
    assert {row["tier"] for row in rows} == {"basic"}
    assert len({row["mark"] for row in rows}) == len(rows)
    (moment,) = {row["at"] for row in rows}
    assert {row["due"] for row in rows} == {moment.date() + dt.timedelta(days=7)}
    assert all(row["tags"] == ["a", "b"] for row in rows)
    assert {str(row["half"]) for row in rows} == {"3.50"}


def test_rows_of_frames_get_the_defaults_of_their_transaction(lake: Lake) -> None:
    frame = lake.spark.createDataFrame(pa.table({"id": list(range(500))})).repartition(3)
    with lake.transaction() as tx:
        tx.append("t", frame)
        tx.append("t", [{"id": 1000}, {"id": 1001, "tags": ["a", "b"]}])
        tx.upsert("t", lake.spark.createDataFrame(pa.table({"id": [3, 2000]})))
    rows = rows_of(lake)
    assert len(rows) == 503
    check_defaults(rows)


def test_a_null_of_a_frame_stays_one_and_a_required_column_has_its_default(lake: Lake) -> None:
    given = pa.table({"id": [1], "mark": pa.array([None], pa.string())})
    with lake.transaction() as tx:
        tx.overwrite("t", lake.spark.createDataFrame(given))
    (row,) = rows_of(lake)
    assert row["mark"] is None
    assert row["tier"] == "basic"


def test_a_default_that_the_engine_refuses_is_refused_when_it_is_declared(lake: Lake) -> None:
    for default, kind in (
        ("INT DEFAULT length(5, 6)", errors.QueryFailed),
        ("INT DEFAULT concat('a', 'b')", errors.WrongType),
        ("INT DEFAULT 1 / 0", errors.QueryFailed),
    ):
        with pytest.raises(kind, match="default of column 'x'"):
            lake.alter_table("t", f"ADD COLUMN x {default}")
    assert lake.snapshot().version == 1


def test_an_empty_array_or_map_is_a_default(lake: Lake) -> None:
    lake.alter_table(
        "t",
        "ADD COLUMN labels ARRAY<STRING> DEFAULT array()",
        "ADD COLUMN odd MAP<STRING, INT> DEFAULT map()",
    )
    lake.execute("INSERT INTO t (id) VALUES (1)")
    assert [(row["labels"], row["odd"]) for row in rows_of(lake)] == [([], [])]
    with pytest.raises(errors.QueryFailed, match="default of column 'x'"):
        lake.alter_table("t", "ADD COLUMN x ARRAY<STRING> DEFAULT map()")


def test_rows_that_are_there_are_filled_from_any_expression(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.append("t", [{"id": n} for n in range(5)])
    lake.alter_table(
        "t",
        "ADD COLUMN big STRING BACKFILL AS (upper(concat(tier, id)))",
        "ADD COLUMN later DATE NOT NULL DEFAULT date_add(current_date(), 1)",
    )
    rows = rows_of(lake)
    assert [row["big"] for row in rows] == [f"BASIC{n}" for n in range(5)]
    assert len({row["later"] for row in rows}) == 1
    with pytest.raises(errors.RequiredColumnNull, match="NULL in 3 rows"):
        lake.alter_table("t", "ADD COLUMN odd INT NOT NULL BACKFILL AS (IF(id % 2 = 1, 1, NULL))")


def test_a_table_evolves_with_a_frame(lake: Lake) -> None:
    frame = lake.spark.createDataFrame(
        pa.table({"id": [1, 2], "extra": [{"x": 1}, None], "n": pa.array([1, None], pa.int32())})
    )
    with lake.transaction() as tx, pytest.raises(errors.ColumnNotFound, match="'extra', 'n'"):
        tx.append("t", frame)
    with lake.transaction() as tx:
        tx.append("t", frame, evolve=True)
    assert [row["extra"] for row in rows_of(lake)] == [{"x": 1}, None]
    shown = {column.name: column.nullable for column in lake.schema("t").schema.columns}
    assert shown["extra"]
    assert shown["n"]
    found = lake.sql("SELECT sum(extra.x) AS x, sum(n) AS n FROM t").toArrow().to_pylist()
    assert found == [{"x": 1, "n": 1}]


def test_queries_read_each_version_with_its_columns(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.append("t", [{"id": 1}])
    lake.alter_table("t", "RENAME COLUMN tier TO `le vel`", "DROP COLUMN tags", "ADD COLUMN n INT")
    now = lake.sql("SELECT `le vel`, n FROM t").toArrow().to_pylist()
    then = lake.snapshot(version=2).sql("SELECT tier, tags FROM t").toArrow().to_pylist()
    assert now == [{"le vel": "basic", "n": None}]
    assert then == [{"tier": "basic", "tags": ["a", "b"]}]
