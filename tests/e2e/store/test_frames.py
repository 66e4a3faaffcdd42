"""Lance tables as Spark frames and back, on a real Spark."""

from __future__ import annotations

import datetime
import decimal
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation

import tidelock
from tidelock.errors import (
    ColumnNotFound,
    EngineUnavailable,
    InvalidSchema,
    QueryFailed,
    RequiredColumnNull,
    WrongType,
)
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.reads import find_reads
from tidelock.run.engine.session import Engine
from tidelock.store.spark.query import run_query
from tidelock.store.spark.scan import FrameSource, scan_frame
from tidelock.store.spark.write import FrameTarget, write_frame, write_rewritten_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = TableSchema(
    (
        Column("id", pa.int64(), nullable=False),
        Column("amount", pa.decimal128(12, 2)),
        Column("note", pa.string()),
    )
)


def source(dataset: LanceDataset) -> FrameSource:
    fragments = tuple((f.fragment_id, f.count_rows()) for f in dataset.get_fragments())
    return FrameSource(dataset.uri, dataset.version, None, fragments, dataset.schema)


def target(dataset: LanceDataset, schema: TableSchema = ORDERS) -> FrameTarget:
    return FrameTarget(dataset.uri, dataset.version, None, schema, "orders")


def empty(path: Path, schema: TableSchema = ORDERS) -> LanceDataset:
    return lance.write_dataset(schema.arrow.empty_table(), path, enable_stable_row_ids=True)


def append(base: LanceDataset, frame: DataFrame) -> LanceDataset:
    written = write_frame(frame, target(base))
    operation = LanceOperation.Append([fragment.metadata for fragment in written])
    return LanceDataset.commit(base, operation, read_version=base.version, detached=True)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    """300,000 rows in three fragments of unequal size, every tenth row deleted."""
    table = pa.table({"n": pa.array(range(300_000)), "even": [n % 2 == 0 for n in range(300_000)]})
    path = tmp_path_factory.mktemp("numbers") / "n.lance"
    for begin, end in ((0, 200_000), (200_000, 290_000), (290_000, 300_000)):
        part = table.slice(begin, end - begin)
        mode = "create" if begin == 0 else "append"
        dataset = lance.write_dataset(part, path, mode=mode, enable_stable_row_ids=True)
    dataset.delete("n % 10 = 3")
    return dataset


LIVE = [n for n in range(300_000) if n % 10 != 3]


def test_every_row_is_read_once_by_several_tasks(
    spark: SparkSession, numbers: LanceDataset
) -> None:
    frame = scan_frame(spark, source(numbers), tasks=4)
    parts = frame.selectExpr("n", "spark_partition_id() AS part").toArrow()
    assert sorted(parts["n"].to_pylist()) == LIVE
    sizes = parts.group_by("part").aggregate([([], "count_all")])["count_all"].to_pylist()
    assert len(sizes) == 4
    assert max(sizes) < 1.2 * len(LIVE) / 4


def test_a_filter_and_a_choice_of_columns_are_applied_while_reading(
    spark: SparkSession, numbers: LanceDataset
) -> None:
    frame = scan_frame(
        spark, source(numbers), columns=["even"], filter="n >= 150000 OR n = 7", tasks=4
    )
    assert frame.columns == ["even"]
    assert frame.count() == sum(n >= 150_000 or n == 7 for n in LIVE)


def test_a_count_reads_no_column(spark: SparkSession, numbers: LanceDataset) -> None:
    assert scan_frame(spark, source(numbers), columns=[]).count() == len(LIVE)
    some = scan_frame(spark, source(numbers), columns=[], filter="n < 1000")
    assert some.columns == []
    assert some.count() == 900


def test_row_ids_and_addresses_come_as_bigint(spark: SparkSession, numbers: LanceDataset) -> None:
    frame = scan_frame(
        spark, source(numbers), columns=["n"], filter="n = 250001", with_row_ids=True
    )
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in frame.schema] == [
        ("n", "bigint", True),
        ("_rowid", "bigint", False),
        ("_rowaddr", "bigint", False),
    ]
    assert frame.collect() == [(250_001, 250_001, (1 << 32) + 50_001)]


def test_an_empty_table_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    dataset = empty(tmp_path / "t.lance")
    frame = scan_frame(spark, source(dataset), filter="id > 1")
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in frame.schema] == [
        ("id", "bigint", False),
        ("amount", "decimal(12,2)", True),
        ("note", "string", True),
    ]
    assert frame.count() == 0
    assert scan_frame(spark, source(dataset), columns=[]).count() == 0


def test_types_and_nullability_pass_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    schema = TableSchema(
        (
            Column("id", pa.int64(), nullable=False),
            Column("at", pa.timestamp("us", "UTC")),
            Column("local", pa.timestamp("us")),
            Column("day", pa.date32()),
            Column("raw", pa.binary()),
            Column("many", pa.list_(pa.field("item", pa.int32()))),
            Column("one", pa.struct([pa.field("x y", pa.float32()), pa.field("z", pa.bool_())])),
            Column("größe", pa.int8()),
        )
    )
    moment = datetime.datetime(2026, 3, 29, 1, 30, 0, 123456)
    row = {
        "id": 1,
        "at": moment.replace(tzinfo=datetime.UTC),
        "local": moment,
        "day": moment.date(),
        "raw": b"\x00\xff",
        "many": [1, None],
        "one": {"x y": 0.5, "z": None},
        "größe": -1,
    }
    rows = pa.Table.from_pylist([row, dict.fromkeys(row) | {"id": 2}], schema=schema.arrow)
    first = lance.write_dataset(rows, tmp_path / "first.lance")
    frame = scan_frame(spark, source(first))
    assert [field.dataType.simpleString() for field in frame.schema][1:3] == [
        "timestamp",
        "timestamp_ntz",
    ]
    base = empty(tmp_path / "second.lance", schema)
    written = write_frame(frame, target(base, schema))
    operation = LanceOperation.Append([fragment.metadata for fragment in written])
    second = LanceDataset.commit(base, operation, read_version=base.version)
    assert second.to_table().equals(rows)


def test_a_frame_becomes_few_fragments(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 200).selectExpr("id AS ID", "string(id) AS note")
    dataset = append(empty(tmp_path / "t.lance"), frame)
    assert len(dataset.get_fragments()) <= 4
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(1000))
    assert dataset.to_table()["amount"].null_count == 1000


def test_a_large_part_is_cut_into_files(spark: SparkSession, tmp_path: Path) -> None:
    base = empty(tmp_path / "t.lance")
    written = write_frame(spark.range(0, 10_000, 1, 1), target(base), rows_per_file=4000)
    assert sorted(fragment.rows for fragment in written) == [2000, 4000, 4000]


def test_a_frame_without_rows_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    base = empty(tmp_path / "t.lance")
    assert write_frame(spark.range(10).where("id < 0"), target(base)) == []
    assert not list((tmp_path / "t.lance").glob("data/*"))


@pytest.mark.parametrize(
    ("select", "error", "told"),
    [
        ("id, 'x' AS nots", ColumnNotFound, "nots"),
        ("note AS note FROM (SELECT 'a' AS note)", RequiredColumnNull, "id"),
        ("'seven' AS id", WrongType, "id"),
        ("id, id AS ID", InvalidSchema, "id"),
    ],
)
def test_wrong_columns_and_types_are_refused_before_a_task_runs(
    spark: SparkSession, tmp_path: Path, select: str, error: type[Exception], told: str
) -> None:
    text = f"SELECT {select}" if " FROM " in select else f"SELECT {select} FROM range(3)"
    frame = spark.sql(text)
    base = empty(tmp_path / "t.lance")
    with pytest.raises(error, match=told):
        write_frame(frame, target(base))
    assert not list((tmp_path / "t.lance").glob("data/*"))


def test_a_null_in_a_required_column_comes_back_as_its_own_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT IF(id = 7, NULL, id) AS id FROM range(10)")
    with pytest.raises(RequiredColumnNull) as caught:
        write_frame(frame, target(empty(tmp_path / "t.lance")))
    assert caught.value.column == "id"
    assert caught.value.table == "orders"


def test_a_value_that_does_not_fit_comes_back_as_its_own_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT id, CAST(id AS DECIMAL(20, 5)) / 3 AS amount FROM range(10)")
    with pytest.raises(WrongType, match="amount"):
        write_frame(frame, target(empty(tmp_path / "t.lance")))


def test_an_error_of_the_query_itself_is_told_with_its_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT id, CAST(1 / (id - 5) AS DECIMAL(12, 2)) AS amount FROM range(10)")
    with pytest.raises(QueryFailed, match=r"orders.*DIVIDE_BY_ZERO"):
        write_frame(frame, target(empty(tmp_path / "t.lance")))


def test_rewritten_rows_keep_their_ids_and_hand_back_the_addresses_they_leave(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("id", "CAST(id AS DECIMAL(12, 2)) AS amount")
    base = append(empty(tmp_path / "t.lance"), frame)
    before = base.to_table(with_row_id=True, with_row_address=True, filter="id % 10 = 0")
    changed = scan_frame(spark, source(base), filter="id % 10 = 0", with_row_ids=True).selectExpr(
        "id", "CAST(amount + 1 AS DECIMAL(12, 2)) AS amount", "note", "_rowid", "_rowaddr"
    )
    written = write_rewritten_frame(changed, target(base), rows_per_file=4)
    replaced = [int(a) for w in written for a in np.frombuffer(w.replaces, "<u8")]
    assert sorted(replaced) == sorted(before["_rowaddr"].to_pylist())
    assert [len(w.replaces) for w in written] == [8 * w.rows for w in written]
    after = _commit_rewrite(base, [w.metadata for w in written], replaced)
    rows = after.to_table(with_row_id=True, filter="id % 10 = 0")
    assert dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True)) == dict(
        zip(before["id"].to_pylist(), before["_rowid"].to_pylist(), strict=True)
    )
    assert sorted(rows["amount"].to_pylist()) == [decimal.Decimal(n + 1) for n in range(0, 100, 10)]
    assert after.count_rows() == 100


def _commit_rewrite(base: LanceDataset, new: list[Any], replaced: list[int]) -> LanceDataset:
    updated = []
    for fragment in base.get_fragments():
        gone = [a & 0xFFFFFFFF for a in replaced if a >> 32 == fragment.fragment_id]
        left = fragment.delete(f"_rowaddr IN ({', '.join(str(a) for a in replaced)})")
        assert left is not None
        assert left.num_deletions == len(gone)
        updated.append(left)
    operation = LanceOperation.Update(
        removed_fragment_ids=[], updated_fragments=updated, new_fragments=new, fields_modified=[]
    )
    return LanceDataset.commit(base, operation, read_version=base.version, detached=True)


def test_a_query_runs_over_frames_by_their_names_and_leaves_no_view(
    spark: SparkSession, numbers: LanceDataset
) -> None:
    schema = TableSchema((Column("n", pa.int64()), Column("even", pa.bool_())))
    text = (
        "WITH numbers AS (SELECT n FROM Numbers WHERE n < 10)"
        " SELECT count(*) AS c, '{x}' AS x FROM numbers -- done"
    )
    plan = find_reads(text, {"numbers": schema}, lambda condition, _: condition)
    (read,) = plan.reads
    assert (read.columns, read.filter) == (("n",), "(n < 10)")
    frame = scan_frame(spark, source(numbers), columns=read.columns, filter=read.filter)
    result = run_query(spark, plan, {"numbers": frame})
    assert result.collect() == [(9, "{x}")]
    assert spark.catalog.listTables() == []


def test_a_query_that_spark_refuses_is_one_error(spark: SparkSession) -> None:
    plan = find_reads("SELECT no_such_function(1)", {}, lambda text, schema: None)
    with pytest.raises(QueryFailed, match="no_such_function"):
        run_query(spark, plan, {})


@pytest.mark.parametrize(
    ("text", "line", "position"),
    [
        ("SELECT nope FROM orders", 1, 7),
        ("SELECT id\nFROM orders\nWHERE nope > 1", 3, 6),
        ("WITH q AS (SELECT id FROM orders)\nSELECT nope FROM q JOIN orders USING (id)", 2, 7),
        ("SELECT o.id,\n nope FROM orders o JOIN notes n ON o.id = n.id", 2, 1),
    ],
)
def test_an_unknown_column_is_told_where_it_is_written_and_what_there_is(
    spark: SparkSession, tmp_path: Path, text: str, line: int, position: int
) -> None:
    with tidelock.open(tmp_path / "lake", create=True, spark=spark) as lake:
        lake.create_table("orders", "id BIGINT, note STRING")
        lake.create_table("notes", "id BIGINT, text STRING")
        with pytest.raises(QueryFailed, match=r"`nope`.*`note`") as caught:
            lake.sql(text)
        assert f"line {line} pos {position}" in caught.value.message


def test_lines_are_the_users_also_without_a_table(spark: SparkSession) -> None:
    text = "WITH q AS (SELECT 1 AS a)\nSELECT nope FROM q"
    plan = find_reads(text, {}, lambda text, schema: None)
    with pytest.raises(QueryFailed, match="line 2 pos 7"):
        run_query(spark, plan, {})


def test_times_without_a_zone_are_read_alike_from_rows_arrow_and_frames(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    times = [
        datetime.datetime(2026, 7, 1, 12),
        # An hour that a clock change skips, one that it repeats, and one far in the future.
        datetime.datetime(2026, 3, 29, 2, 30),
        datetime.datetime(2026, 10, 25, 2, 30),
        datetime.datetime(2045, 7, 1, 12),
    ]
    rows = pa.table({"n": range(len(times)), "t": pa.array(times, pa.timestamp("us"))})
    literals = ", ".join(f"({n}, TIMESTAMP_NTZ '{time}')" for n, time in enumerate(times))
    frame = session.sql(f"SELECT * FROM VALUES {literals} AS v(n, t)")
    with tidelock.open(tmp_path / "lake", create=True, spark=session) as lake:
        forms = {"rows": rows.to_pylist(), "arrow": rows, "frame": frame}
        for name, data in forms.items():
            lake.create_table(name, "n INT, t TIMESTAMP")
            lake.run(lambda tx, name=name, data=data: tx.append(name, data))
        cast = frame.selectExpr("n", "CAST(t AS TIMESTAMP) AS t").toArrow()
        wanted = sorted(
            cast.cast(pa.schema([("n", "int32"), ("t", pa.timestamp("us", "UTC"))])).to_pylist(),
            key=str,
        )
        for name in forms:
            assert sorted(lake.table(name).to_arrow().to_pylist(), key=str) == wanted


def test_engines_of_one_process_share_its_spark(spark: SparkSession) -> None:
    with Engine() as engine:
        assert engine.get() is spark
    assert spark.range(3).count() == 3
    with Engine(master="local[7]") as other, pytest.raises(EngineUnavailable, match="local"):
        other.get()


def test_a_given_session_is_never_stopped(spark: SparkSession) -> None:
    engine = Engine(spark)
    assert engine.started
    assert engine.zone == "UTC"
    engine.close()
    assert spark.range(3).count() == 3


def test_our_own_session_says_nothing_on_the_console_and_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    program = """
import os, lance
from tidelock.run.engine.session import Engine
with Engine(master="local[1]", memory="512m") as engine:
    spark = engine.get()
    def same(batches):
        yield from batches
    assert spark.range(10).mapInArrow(same, "id long").count() == 10
    try:
        spark.sql("SELECT * FROM nowhere").collect()
    except Exception as error:
        assert "nowhere" in str(error)
assert not [name for name in os.environ if name.startswith(("SPARK_CONNECT", "SPARK_REMOTE"))]
"""
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert not list((tmp_path / "tmp").glob("tidelock-*"))
