"""Arrow arrays of every type into columns of every type: taken, converted, or refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from test_inputs import AT, UTC_TIME, arrow, rows_of

from tidelock.errors import WrongType
from tidelock.model.ddl import parse_schema
from tidelock.store.rows.inputs import read_input

NAN = float("nan")
ARROW_FITS: list[tuple[str, pa.Array, list[Any]]] = [
    ("INT", pa.array([7, None], pa.int64()), [7, None]),
    ("INT", pa.array([7.0]), [7]),
    ("INT", pa.array([Decimal("7.00")]), [7]),
    ("BIGINT", pa.array([7], pa.uint64()), [7]),
    ("BIGINT", pa.array([7, 7]).dictionary_encode(), [7, 7]),
    ("DOUBLE", pa.array([7, 2**60]), [7.0, 2.0**60]),
    ("DOUBLE", pa.array([1.5], pa.float16()), [1.5]),
    ("FLOAT", pa.array([0.1, float("inf"), None]), [0.10000000149011612, float("inf"), None]),
    ("DECIMAL(38,38)", pa.array([0, None]), [Decimal(0), None]),
    ("DECIMAL(25,20)", pa.array([99999]), [Decimal(99999)]),
    ("DECIMAL(20,0)", pa.array([2**64 - 1], pa.uint64()), [Decimal(2**64 - 1)]),
    ("DECIMAL(5,2)", pa.array([0.1, 7.0, -0.0]), [Decimal("0.10"), Decimal(7), Decimal(0)]),
    ("DECIMAL(5,2)", pa.array([0.1], pa.float32()), [Decimal("0.10")]),
    ("DECIMAL(30,2)", pa.array([1e22]), [Decimal(10) ** 22]),
    ("DECIMAL(5,2)", pa.array([Decimal("7.1000")]), [Decimal("7.10")]),
    ("STRING", pa.array(["x"], pa.string_view()), ["x"]),
    ("BINARY", pa.array([b"xy"], pa.binary(2)), [b"xy"]),
    ("DATE", pa.array([86_400_000], pa.date64()), [dt.date(1970, 1, 2)]),
    ("DATE", pa.array([dt.datetime(2024, 5, 1), None]), [dt.date(2024, 5, 1), None]),
    ("TIMESTAMP", pa.array([AT]), [UTC_TIME]),
    ("TIMESTAMP", pa.array([UTC_TIME], pa.timestamp("ns", "Asia/Tokyo")), [UTC_TIME]),
    ("TIMESTAMP", pa.array([dt.date(2024, 5, 1)]), [dt.datetime(2024, 5, 1, tzinfo=dt.UTC)]),
    ("TIMESTAMP_NTZ", pa.array([AT], pa.timestamp("ms")), [AT]),
    ("ARRAY<STRUCT<a: INT>>", pa.nulls(2), [None, None]),
    (
        "ARRAY<INT>",
        pa.array([[1], None, [], [None]], pa.large_list(pa.int64())),
        [[1], None, [], [None]],
    ),
    ("ARRAY<INT>", pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), [[1, 2], None]),
    ("ARRAY<INT>", pa.array([[1], None, [2, 3]], pa.list_view(pa.int32())), [[1], None, [2, 3]]),
    ("ARRAY<INT>", pa.array([[1], [2], None, [3]]).slice(1), [[2], None, [3]]),
    ("ARRAY<INT>", pa.array([[1]], pa.list_(pa.field("element", pa.int32()))), [[1]]),
    (
        "MAP<STRING, INT>",
        pa.array(
            [[("a", 1)], None, [], [("b", None)]], pa.map_(pa.large_string(), pa.int64())
        ).slice(1),
        [None, [], [("b", None)]],
    ),
    (
        "MAP<STRING, INT>",
        pa.array([[{"key": "a", "value": 1}], None, []]),
        [[("a", 1)], None, []],
    ),
    (
        "STRUCT<a: INT, b: STRING, c: ARRAY<DATE>>",
        pa.array([{"B": "x", "a": 1}, None, {"B": None, "a": None}]).slice(1),
        [None, {"a": None, "b": None, "c": None}],
    ),
]


@pytest.mark.parametrize(("ddl", "array", "expected"), ARROW_FITS)
def test_an_arrow_array_that_fits_is_taken(ddl: str, array: pa.Array, expected: list[Any]) -> None:
    assert arrow(ddl, array) == expected


ARROW_MISFITS: list[tuple[str, pa.Array]] = [
    ("INT", pa.array([0, 2**31, 5, -(2**31) - 1])),
    ("INT", pa.array([0, 0.5, 5, NAN])),
    ("INT", pa.array([Decimal("0.0"), Decimal("0.5"), None, Decimal("0.7")])),
    ("BIGINT", pa.array([0, 2**63, None, 2**64 - 1], pa.uint64())),
    ("DOUBLE", pa.array([0, 2**53 + 1, 5, 2**62 + 1])),
    ("FLOAT", pa.array([0, 1e300, None, -1e300])),
    ("DECIMAL(5,2)", pa.array([0, 1000, 5, 1001])),
    ("DECIMAL(5,2)", pa.array([0.5, 0.125, None, NAN])),
    ("DECIMAL(5,2)", pa.array([Decimal("0.500"), Decimal("0.125"), None, Decimal("0.001")])),
    ("DATE", pa.array([None, AT, dt.datetime(2024, 5, 1), AT])),
    ("TIMESTAMP", pa.array([1000, 1001, None, 1], pa.timestamp("ns"))),
    ("ARRAY<INT>", pa.array([[0], [1, 2**31], None, [2**31]])),
    ("STRUCT<a: INT>", pa.array([{"a": 0}, {"a": 2**31}, None, {"a": 2**31}])),
    (
        "MAP<INT, INT>",
        pa.array([[], [(0, 2**31)], None, [(2**31, 0)]], pa.map_(pa.int64(), pa.int64())),
    ),
]


@pytest.mark.parametrize(("ddl", "array"), ARROW_MISFITS)
@pytest.mark.parametrize("form", ["table", "chunks", "reader"])
def test_values_that_do_not_fit_are_shown_with_their_rows(
    ddl: str, array: pa.Array, form: str
) -> None:
    schema = parse_schema(f"c {ddl}")
    table = pa.table({"c": array})
    if form == "chunks":
        table = pa.table({"c": pa.chunked_array([array.slice(0, 1), array.slice(1)])})
    with pytest.raises(WrongType, match=r"'c' of table 't'.*row 1") as caught:
        rows_of(read_input(table.to_reader() if form == "reader" else table, schema, "t"))
    assert caught.value.rows == [1, 3]
    assert str(caught.value.values) == str([array[1].as_py(), array[3].as_py()])
    assert caught.value.expected.startswith(ddl[:3])


@pytest.mark.parametrize(
    ("ddl", "array"),
    [
        ("INT", pa.array(["7"])),
        ("INT", pa.array([True])),
        ("BOOLEAN", pa.array([1])),
        ("STRING", pa.array([7])),
        ("STRING", pa.array([b"x"])),
        ("BINARY", pa.array(["x"])),
        ("DOUBLE", pa.array([True])),
        ("DECIMAL(5,2)", pa.array(["7"])),
        ("DATE", pa.array([7])),
        ("TIMESTAMP", pa.array([7])),
        ("TIMESTAMP_NTZ", pa.array([UTC_TIME])),
        ("STRING", pa.array([AT])),
        ("BIGINT", pa.array([7], pa.duration("s"))),
        ("ARRAY<INT>", pa.array([["7"]])),
        ("ARRAY<INT>", pa.array([7])),
        ("STRUCT<a: INT>", pa.array([{"a": "7"}])),
        ("MAP<STRING, INT>", pa.array([{"a": 1}])),
        ("STRING", pa.array([b"0" * 16], pa.uuid())),
    ],
)
@pytest.mark.parametrize("form", ["table", "reader"])
def test_a_type_that_the_column_does_not_take_is_refused_at_once(
    ddl: str, array: pa.Array, form: str
) -> None:
    schema = parse_schema(f"id INT, c {ddl}")
    table = pa.table({"c": array})
    with pytest.raises(WrongType, match=r"'c[.'].*of table 't'") as caught:
        read_input(table.to_reader() if form == "reader" else table, schema, "t")
    if form == "table":
        assert caught.value.rows == [0]
        assert len(caught.value.values) == 1
