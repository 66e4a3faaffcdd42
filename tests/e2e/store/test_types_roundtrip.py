"""Every type comes back from Lance and from Spark exactly as it went in, nulls at every level."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from tidelock.model.ddl import parse_schema, spark_ddl, to_ddl
from tidelock.model.schema.schema import Column, TableSchema, table_schema
from tidelock.model.types import NESTING_MAX
from tidelock.store.rows.inputs import read_input
from tidelock.store.rows.pieces import rechunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
ITEM = {"a": 1, "b": "x", "c": None}
EMPTY_ITEM = {"a": None, "b": None, "c": None}
STRUCT = "STRUCT<a: INT, b: STRING, c: BOOLEAN>"
STRUCTS = [ITEM, None, EMPTY_ITEM, {"a": 2, "b": "", "c": True}]

VALUES: dict[str, list[Any]] = {
    "TINYINT": [0, None, -128, 127],
    "SMALLINT": [0, None, -(2**15), 2**15 - 1],
    "INT": [0, None, -(2**31), 2**31 - 1],
    "BIGINT": [0, None, -(2**63), 2**63 - 1],
    "FLOAT": [0.5, None, math.inf, -0.0],
    "DOUBLE": [0.1, None, -math.inf, 5e-324],
    "DECIMAL(1,0)": [Decimal(9), None, Decimal(-9)],
    "DECIMAL(12,2)": [Decimal("0.01"), None, Decimal("-9999999999.99")],
    "DECIMAL(38,0)": [Decimal(10) ** 37, None, Decimal(-1)],
    "DECIMAL(38,38)": [Decimal("0." + "9" * 38), None, Decimal(0)],
    "STRING": ["", None, "a\0b", "é😀" * 100, "x" * 70_000],
    "BINARY": [b"", None, b"\0\xff", b"y" * 70_000],
    "BOOLEAN": [True, None, False],
    "DATE": [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)],
    "TIMESTAMP": [FIRST, None, LAST, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
    "TIMESTAMP_NTZ": [FIRST, None, LAST],
    "INT NOT NULL": [1, 2],
    f"{STRUCT}": STRUCTS,
    f"{STRUCT} NOT NULL": [ITEM, EMPTY_ITEM],
    "STRUCT<a: INT NOT NULL, b: STRING NOT NULL>": [{"a": 1, "b": ""}, None],
    f"STRUCT<s: {STRUCT}>": [{"s": ITEM}, {"s": None}, None, {"s": EMPTY_ITEM}],
    "STRUCT<l: ARRAY<INT>>": [{"l": [1, None]}, {"l": []}, {"l": None}, None],
    "ARRAY<INT>": [[1, None, 2], [], None, [None]],
    "ARRAY<INT NOT NULL>": [[1], [], None],
    "ARRAY<BOOLEAN>": [[True, None, False], [], None],
    "ARRAY<STRING>": [["", None, "x"], [], None, [None]],
    "ARRAY<DECIMAL(20,3)>": [[Decimal("1.500"), None], [], None],
    "ARRAY<TIMESTAMP>": [[FIRST, None], [], None],
    "ARRAY<ARRAY<INT>>": [[[1], [], None, [None]], [], None, [[]]],
    f"ARRAY<{STRUCT}>": [STRUCTS, [], None, [None], [EMPTY_ITEM]],
    "MAP<STRING, INT>": [{"k": 1, "": None}, {}, None],
    "MAP<INT, BOOLEAN>": [{1: True, 2: None}, {}, None],
    "MAP<STRING, INT NOT NULL>": [{"k": 1}, {}, None],
    "MAP<STRING, INT> NOT NULL": [{"k": None}, {}],
    f"MAP<STRING, {STRUCT}>": [{"k": ITEM, "l": None, "m": EMPTY_ITEM}, {}, None],
    "MAP<STRING, ARRAY<INT>>": [{"k": [1], "l": [], "m": None}, {}, None],
    "MAP<STRING, MAP<STRING, INT>>": [{"k": {"q": 1}, "l": {}, "m": None}, {}, None],
    "MAP<STRUCT<a: INT>, INT>": [[({"a": 1}, 1), ({"a": None}, None)], {}, None],
    "ARRAY<MAP<STRING, INT>>": [[{"k": 1}, {}, None], [], None],
    "ARRAY<STRUCT<m: MAP<STRING, ARRAY<STRUCT<d: DATE>>>>>": [
        [{"m": {"k": [{"d": dt.date(2024, 5, 1)}, {"d": None}, None], "l": [], "m": None}}],
        [{"m": {}}, {"m": None}, None],
        [],
        None,
    ],
}
NAMES = [
    "odd name",
    'a "quote"',
    "it's",
    "größe",
    "日本 😀",
    "select",
    "a,b",
    "(x)",
    "CamelCase",
]


def table_of(schema: TableSchema, rows: list[dict[str, Any]]) -> pa.Table:
    table = read_input(rows, schema, "t").table
    assert table is not None
    return table


def everything() -> tuple[TableSchema, pa.Table]:
    """One table with a column for each type, one for each odd name, and one of great depth."""
    parts = [f"c{i} {ddl}" for i, ddl in enumerate(VALUES)]
    parts += [f"`{name}` INT" for name in NAMES]
    schema = parse_schema(", ".join(parts))
    count = math.lcm(*{len(values) for values in VALUES.values()})
    rows = [
        {f"c{i}": values[n % len(values)] for i, values in enumerate(VALUES.values())}
        | dict.fromkeys(NAMES, n)
        for n in range(count)
    ]
    return schema, table_of(schema, rows)


@pytest.mark.parametrize("ddl", VALUES)
def test_lance_returns_every_value_of_every_type(ddl: str, tmp_path: Path) -> None:
    schema = parse_schema(f"n INT, c {ddl}")
    values = VALUES[ddl]
    for times in (1, 500):
        table = table_of(schema, [{"n": n, "c": c} for n, c in enumerate(values * times)])
        uri = str(tmp_path / str(times))
        dataset = lance.write_dataset(table, uri, enable_stable_row_ids=True)
        assert dataset.schema.equals(schema.arrow, check_metadata=True)
        back = dataset.to_table()
        assert back.schema.equals(schema.arrow, check_metadata=True)
        assert back.equals(table)
        lance.write_dataset(table, uri, mode="append")
        dataset = lance.dataset(uri)
        dataset.delete("n = 1")
        dataset.optimize.compact_files()
        kept = [row for row in table.to_pylist() if row["n"] != 1]
        assert dataset.to_table().to_pylist() == kept * 2
        assert dataset.to_table(filter="n = 0").to_pylist() == kept[:1] * 2


@pytest.mark.parametrize("ddl", [ddl for ddl in VALUES if "NOT NULL" not in ddl])
def test_lance_tells_columns_of_only_nulls_and_only_empties_apart(ddl: str, tmp_path: Path) -> None:
    schema = parse_schema(f"n INT, c {ddl}")
    empty = next((v for v in VALUES[ddl] if v is not None and not v), VALUES[ddl][0])
    for name, values in {"null": [None] * 3, "empty": [empty] * 3, "both": [empty, None]}.items():
        table = table_of(schema, [{"c": value} for value in values])
        assert lance.write_dataset(table, str(tmp_path / name)).to_table().equals(table)


@pytest.mark.parametrize("ddl", VALUES)
def test_lance_takes_every_slice_that_comes_out_of_chunking(ddl: str, tmp_path: Path) -> None:
    schema = parse_schema(f"c {ddl}")
    table = table_of(schema, [{"c": value} for value in VALUES[ddl] * 9])
    cut = table.slice(3)
    given = read_input(cut, schema, "t")
    assert lance.write_dataset(given.table, str(tmp_path / "cut")).to_table().equals(cut)
    for rows in (5, 13):
        uri = str(tmp_path / str(rows))
        for chunk in rechunk(read_input(cut, schema, "t").batches(), rows, 1 << 30):
            lance.write_dataset(chunk, uri, mode="append")
        assert lance.dataset(uri).to_table().to_pylist() == cut.to_pylist()


def test_lance_holds_the_deepest_type_that_is_allowed(tmp_path: Path) -> None:
    type_, value = pa.int32(), 1
    for _ in range(NESTING_MAX):
        type_, value = pa.map_(pa.string(), type_), [("k", value)]  # type: ignore[assignment]
    schema = table_schema([Column("c", type_)])
    table = table_of(schema, [{"c": value}, {"c": None}])
    assert lance.write_dataset(table, str(tmp_path / "deep")).to_table().equals(table)


def test_lance_holds_a_thousand_columns(tmp_path: Path) -> None:
    schema = parse_schema(", ".join(f"c{i} BIGINT" for i in range(1000)))
    table = table_of(schema, [{f"c{i}": i for i in range(1000)}])
    assert lance.write_dataset(table, str(tmp_path / "wide")).to_table().equals(table)


@pytest.mark.parametrize("name", NAMES)
def test_lance_reads_filters_and_upserts_by_odd_names(name: str, tmp_path: Path) -> None:
    schema = parse_schema(f"id INT, `{name}` INT", key="id" if '"' in name else name)
    table = table_of(schema, [{"id": i, name: i} for i in range(3)])
    dataset = lance.write_dataset(table, str(tmp_path / "t"), enable_stable_row_ids=True)
    assert dataset.to_table(columns=[name], filter=f"`{name}` = 1").to_pylist() == [{name: 1}]
    changed = table_of(schema, [{"id": 1, name: 1}, {"id": 7, name: 7}])
    upsert = dataset.merge_insert(list(schema.key)).when_matched_update_all()
    upsert.when_not_matched_insert_all().execute(changed)
    assert sorted(dataset.to_table().column(name).to_pylist()) == [0, 1, 2, 7]


def test_spark_reads_every_value_of_every_type(spark: SparkSession, tmp_path: Path) -> None:
    schema, table = everything()
    uri = str(tmp_path / "all")
    lance.write_dataset(table, uri, max_rows_per_file=table.num_rows)

    def scan(fragments: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import lance  # Only after the worker has forked.

        for batch in fragments:
            for number in batch.column(0).to_pylist():
                yield from lance.dataset(uri).get_fragment(number).to_batches()

    frame = spark.createDataFrame(pa.table({"fragment": [0]})).mapInArrow(scan, spark_ddl(schema))
    back = read_input(frame.toArrow(), schema, "t").table
    assert back is not None
    assert back.schema.equals(schema.arrow, check_metadata=True)
    assert back.to_pylist() == table.to_pylist()


def test_spark_parses_the_ddl_and_its_schema_is_read_back(spark: SparkSession) -> None:
    schema, _ = everything()
    read = parse_schema(spark.createDataFrame([], spark_ddl(schema)).schema)
    # Spark is told of NOT NULL for whole columns only.
    relaxed = to_ddl(schema).replace("INT NOT NULL>", "INT>").replace("INT NOT NULL, b", "INT, b")
    assert read == parse_schema(relaxed.replace("STRING NOT NULL>", "STRING>"))
