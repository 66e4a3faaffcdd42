"""Queries over a few local rows: their own session, their packing, and adding without them."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from weakref import ref

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from tests.support.streams import check

import tidelock
from tidelock.derive.plan.state_columns import COUNT
from tidelock.derive.refresh.delta import delta, sums
from tidelock.derive.spark.engine_query import SMALL_ROWS, EngineQuery, _ask, asking
from tidelock.errors import QueryFailed
from tidelock.run.engine.session import Engine
from tidelock.run.lake import Lake

TYPES: dict[str, tuple[pa.DataType, list[object]]] = {
    "tiny": (pa.int8(), [1, None]),
    "whole": (pa.int64(), [2**62, None]),
    "single": (pa.float32(), [0.5, None]),
    "double": (pa.float64(), [float("inf"), None]),
    "exact": (pa.decimal128(38, 10), [Decimal("12345678901234567890.0123456789"), None]),
    "text": (pa.string(), ["ä'`{x}", None]),
    "bytes": (pa.binary(), [b"\x00\xff", None]),
    "flag": (pa.bool_(), [True, None]),
    "day": (pa.date32(), [dt.date(1582, 10, 4), None]),
    "moment": (pa.timestamp("us", "UTC"), [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), None]),
    "local": (pa.timestamp("us"), [dt.datetime(2024, 3, 31, 2, 30), None]),
    "list": (pa.list_(pa.int64()), [[1, None], None]),
    "pair": (pa.struct([("a", pa.string()), ("b", pa.timestamp("us", "UTC"))]), [None, None]),
}


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with Engine(spark) as engine:
        yield engine


def rows_of_every_type() -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in TYPES.items()})


def test_every_type_goes_through_alike(engine: Engine) -> None:
    rows = rows_of_every_type()
    small, large = EngineQuery(engine), EngineQuery(engine)
    name = small.local(rows)
    assert small.local(rows.slice(0, 0)) == "r1"
    found = small.run(f"SELECT * FROM {name} UNION ALL SELECT * FROM r1")
    large.local(rows)
    large.frame(engine.get().range(1))
    expected = large.run("SELECT r0.* FROM r0")
    assert found.to_pylist() == expected.to_pylist() == rows.to_pylist()
    assert found.schema.types == expected.schema.types


def test_queries_that_are_asked_together_are_answered_as_if_alone(engine: Engine) -> None:
    rows = rows_of_every_type()
    asked = {
        "SELECT * FROM r0": rows.to_pylist(),
        "SELECT * FROM r0 WHERE false": [],
        "SELECT whole, count(*) AS n FROM r0 JOIN r1 USING (whole) GROUP BY whole": [
            {"whole": 2**62, "n": 1}
        ],
        "SELECT text AS `a'b{`, 1 AS r0 FROM r0 WHERE flag": [{"a'b{": "ä'`{x}", "r0": 1}],
        "SELECT 1 / (whole - whole) AS z FROM r0": "DIVIDE_BY_ZERO",
        "SELECT nothing FROM r0": "UNRESOLVED_COLUMN",
    }
    begun = threading.Barrier(len(asked))

    def run(sql: str) -> object:
        query = EngineQuery(engine)
        query.local(rows)
        query.local(rows)
        with asking(engine):
            begun.wait(30)
            try:
                return query.run(sql).to_pylist()
            except QueryFailed as error:
                return error.message

    with ThreadPoolExecutor(len(asked)) as pool:
        answers = dict(zip(asked, pool.map(run, asked), strict=True))
    for sql, expected in asked.items():
        if isinstance(expected, str):
            assert expected in str(answers[sql])
        else:
            assert answers[sql] == expected


def test_small_queries_follow_the_settings_of_the_session(spark: SparkSession) -> None:
    session = spark.newSession()
    with Engine(session) as engine:
        zone = "SELECT current_timezone() AS z FROM r0"

        def ask() -> object:
            query = EngineQuery(engine)
            query.local(pa.table({"x": [1]}))
            return query.run(zone).column("z").to_pylist()[0]

        for name in ("UTC", "Asia/Tokyo", "Europe/Berlin"):
            session.conf.set("spark.sql.session.timeZone", name)
            engine.follow_settings()
            assert ask() == name
        small = engine.small()
        assert small is not None
        engine.follow_settings()
        assert small is engine.small()
        assert small is not session
        assert session.conf.get("spark.sql.adaptive.enabled") == "true"
        assert small.conf.get("spark.sql.adaptive.enabled") == "false"


def test_many_rows_and_frames_go_to_the_session_itself(engine: Engine) -> None:
    query = EngineQuery(engine)
    query.local(pa.table({"x": range(SMALL_ROWS + 1)}))
    assert query.prepare("SELECT * FROM r0").sparkSession is engine.get()
    query = EngineQuery(engine)
    query.local(pa.table({"x": [1]}))
    query.frame(engine.get().range(3))
    assert query.run("SELECT COUNT(*) AS n FROM r0, r1").column("n").to_pylist() == [3]


def test_a_refresh_follows_the_settings_of_the_session(tmp_path: Path, spark: SparkSession) -> None:
    session = spark.newSession()
    moment = dt.datetime(2024, 1, 1, 20, tzinfo=dt.UTC)
    with tidelock.open(tmp_path / "lake", create=True, spark=session) as lake:
        lake.create_table("t", "id BIGINT, at TIMESTAMP", key="id")
        query = "SELECT id, CAST(at AS STRING) AS told FROM t"
        lake.create_stream_table("told", query, refresh_mode="incremental_strict")
        lake.refresh()
        for number, (zone, told) in enumerate(
            [("UTC", "2024-01-01 20:00:00"), ("Asia/Tokyo", "2024-01-02 05:00:00")]
        ):
            session.conf.set("spark.sql.session.timeZone", zone)
            lake.run(lambda tx, n=number: tx.append("t", [{"id": n, "at": moment}]))
            (attempt,) = lake.refresh()
            assert attempt.action == "incremental"
            rows = lake.snapshot().table("told").to_arrow(filter=f"id = {number}").to_pylist()
            assert rows == [{"id": number, "told": told}]


ADDED = {
    "sums": "SELECT g, SUM(x) AS sx, SUM(amount) AS sa, COUNT(*) AS n, COUNT(x) AS nx FROM t "
    "GROUP BY g",
    "all_of_it": "SELECT SUM(x) AS sx, COUNT(*) AS n, COUNT_IF(x > 1) AS many FROM t",
    "unseen": "SELECT SUM(x) AS sx FROM t GROUP BY g, name",
    "floating": "SELECT f, COUNT(*) AS n FROM t GROUP BY f",
}


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, spark=spark) as lake:
        columns = "id BIGINT, g INT, x BIGINT, amount DECIMAL(12,2), name STRING, f DOUBLE"
        lake.create_table("t", columns, key="id")
        yield lake


def written(rows: pa.Table) -> list[str]:
    """The rows in an order that does not depend on theirs; NaN is as good as any number."""
    return sorted(map(repr, rows.to_pylist()))


def seen(kept: sums.Kept, rows: pa.Table) -> pa.Table:
    """The groups that have rows: what is shown of the others nobody sees."""
    return rows.filter(pc.greater(rows.column(COUNT), 0)) if kept.state_columns.keys else rows


def test_groups_are_added_here_as_the_engine_adds_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[pa.Table] = []

    def both(kept: sums.Kept, totals: pa.Table, stored: pa.Table) -> sums.Grown | None:
        here = sums.add_here(kept, totals, stored)
        query = EngineQuery(lake._store.engine)
        there = sums.add_by_engine(query, kept, f"SELECT * FROM {query.local(totals)}", stored)
        assert here is not None
        assert here.rows.schema == there.rows.schema
        assert written(seen(kept, here.rows)) == written(seen(kept, there.rows))
        assert sorted(here.there.tolist()) == sorted(there.there.tolist())
        engines.append(here.rows)
        return here

    monkeypatch.setattr(delta, "add_here", both)
    nan = float("nan")
    rows = [
        {"id": n, "g": n % 3 or None, "x": n, "amount": Decimal(n), "name": "a", "f": f}
        for n, f in enumerate([0.0, -0.0, nan, nan, None, 1.5])
    ]
    lake.run(lambda tx: tx.append("t", rows))
    for name, query in ADDED.items():
        lake.create_stream_table(name, query, refresh_mode="incremental_strict")
    lake.refresh()
    lake.run(lambda tx: tx.delete("t", "id IN (1, 2, 4)"))
    lake.run(lambda tx: tx.append("t", [{"id": 9, "g": 7, "f": nan}, {"id": 10, "f": -0.0}]))
    lake.refresh()
    check(lake)
    lake.run(lambda tx: tx.delete("t", "true"))
    lake.refresh()
    check(lake)
    assert len(engines) == 2 * len(ADDED)


def test_a_sum_that_does_not_fit_fails_and_changes_nothing(lake: Lake) -> None:
    lake.run(lambda tx: tx.append("t", [{"id": 1, "g": 1, "x": 2**62}]))
    query = "SELECT g, SUM(x) AS sx FROM t GROUP BY g"
    lake.create_stream_table("totals", query, refresh_mode="incremental_strict")
    lake.refresh()
    lake.run(lambda tx: tx.append("t", [{"id": 2, "g": 1, "x": 2**62}]))
    (attempt,) = lake.refresh()
    assert attempt.action == "failed"
    assert "overflow" in attempt.reason.lower()
    assert lake.snapshot().table("totals").to_arrow().to_pylist() == [{"g": 1, "sx": 2**62}]


def test_questions_that_are_alike_leave_each_other_alone(engine: Engine) -> None:
    small = engine.small()
    assert small is not None
    rows = pa.table({"name": ["cc"], "n": pa.array([None], pa.int32())})
    tables = [rows, rows.slice(0, 0)]
    plain = "SELECT l.name AS a, r.n AS b FROM r0 l LEFT JOIN r1 r ON l.name = r.name"
    literal = (
        "SELECT l.name AS a, r.c AS b FROM r0 l "
        "LEFT JOIN (SELECT name, n, 3 AS c FROM r1) r ON l.name = r.name"
    )
    answers = _ask(ref(small), [(plain, tables), (literal, tables)])
    assert [one.to_pylist() for one in answers] == [[{"a": "cc", "b": None}]] * 2
