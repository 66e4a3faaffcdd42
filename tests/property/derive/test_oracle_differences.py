"""A view that is computed anew changes by what differs, and by nothing else: rows of every type,
duplicates, NULLs, zeros of both signs and NaN, compared by the engine and by this process."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.support.lakes import seed_of

import tidelock
from tidelock import Lake
from tidelock.derive.refresh import table as refresh_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = """
    i INT, f DOUBLE, `{rows} g` FLOAT, d DECIMAL(20,3), s STRING, b BINARY, day DATE,
    at TIMESTAMP, plain TIMESTAMP_NTZ, list ARRAY<DOUBLE>, inner_ STRUCT<x: FLOAT, `a.b`: INT>,
    words MAP<STRING, DOUBLE>, deep ARRAY<STRUCT<m: MAP<INT, ARRAY<STRING>>>>
"""
MOMENT = dt.datetime(2026, 3, 1, 12, 0, 0, 123456)
FLOATS = [0.0, -0.0, float("nan"), float("inf"), 1.5, None]
VALUES: list[list[Any]] = [
    [0, 1, None],
    FLOATS,
    FLOATS,
    [Decimal("1.500"), None],
    ["", "é", "'", None],
    [b"", b"\x00\xff", None],
    [dt.date(1582, 10, 15), None],
    [MOMENT.replace(tzinfo=dt.UTC), None],
    [MOMENT, None],
    [[], [0.0, None], [-0.0, None], None],
    [{"x": 0.0, "a.b": 1}, {"x": -0.0, "a.b": 1}, {"x": None, "a.b": None}, None],
    [[("a", 0.0), ("b", None)], [("a", -0.0), ("b", None)], [], None],
    [[{"m": [(1, ["x"]), (2, None)]}], [{"m": None}], [None], [], None],
]


# Without a key, and with one: rows of their own, groups, and partitions of several rows.
VIEWS = {
    "anew": ("SELECT * FROM t", "full"),
    "bag": ("SELECT * FROM t WHERE i IS NULL OR i >= 0", "incremental"),
    "groups": ("SELECT i, s, count(*) AS n, sum(d) AS total FROM t GROUP BY i, s", "incremental"),
    "parts": (
        "SELECT i, d, count(*) OVER (PARTITION BY i) AS n, max(s) OVER (PARTITION BY i) AS m "
        "FROM t",
        "incremental",
    ),
}


@pytest.fixture
def lake(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    options: dict[str, Any] = {"engine": "sail"}
    if engine == "Spark":
        spark: SparkSession = request.getfixturevalue("spark")
        options = {"spark": spark}
    with tidelock.open(tmp_path / "lake", create=True, **options) as opened:
        opened.create_table("t", COLUMNS)
        yield opened


def random_rows(chance: random.Random, schema: pa.Schema) -> pa.Table:
    """Few values in few columns, so that there are many copies of a row."""
    free = chance.sample(range(len(VALUES)), 3)
    rows = []
    for _ in range(chance.randint(0, 30)):
        row = [
            chance.choice(values) if n in free else values[-1] for n, values in enumerate(VALUES)
        ]
        rows.append(dict(zip(schema.names, row, strict=True)))
    return pa.Table.from_pylist(rows, schema)


def told(rows: pa.Table) -> Counter[str]:
    """Rows as a multiset, in which 0.0 is not -0.0, and a NaN is another."""
    return Counter(repr(list(row.values())) for row in rows.to_pylist())


def told_changes(changes: pa.Table) -> dict[int, Counter[str]]:
    """What went (-1) and what came (1)."""
    sides: dict[int, Counter[str]] = {-1: Counter(), 1: Counter()}
    for row in changes.to_pylist():
        *values, weight, _ = row.values()
        sides[weight][repr(values)] += 1
    return sides


@pytest.mark.parametrize(("engine", "here_max"), [("Spark", 0), ("Sail", 0), ("Sail", 1000)])
def test_what_is_computed_anew_changes_by_what_differs(
    lake: Lake, engine: str, here_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh_table, "LOCAL_ROWS_MAX", here_max)
    for name, (query, mode) in VIEWS.items():
        lake.create_stream_table(name, query, refresh_mode=mode)
    schema = lake.table("t").to_arrow().schema
    with seed_of() as seed:
        chance = random.Random(seed)
        before = {name: told(lake.table(name).to_arrow()) for name in VIEWS}
        for step in range(3 if engine == "Spark" else 6):
            rows = random_rows(chance, schema)
            if step % 3 == 2:
                # The same rows, in another order.
                rows = lake.table("t").to_arrow()
                order = chance.sample(range(rows.num_rows), rows.num_rows)
                rows = rows.take(pa.array(order, pa.int64()))
            lake.run(lambda tx, rows=rows: tx.overwrite("t", rows))
            version = lake.snapshot().version
            lake.refresh(list(VIEWS), full=True)
            assert told(lake.table("anew").to_arrow()) == told(rows), f"step {step}"
            for name, (query, _) in VIEWS.items():
                after = told(lake.table(name).to_arrow())
                assert after == told(lake.sql(query).toArrow()), f"{name} at step {step}"
                sides = told_changes(lake.changes(name, since=version).read_all())
                expected = {-1: before[name] - after, 1: after - before[name]}
                assert sides == expected, f"{name} at step {step}"
                ids = lake.table(name).dataset.scanner(columns=[], with_row_id=True).to_table()
                assert len(set(ids.column("_rowid").to_pylist())) == ids.num_rows, name
                before[name] = after
