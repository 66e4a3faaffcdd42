"""Users' data in every form, made into batches of exactly the table's schema, or refused."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

from tidelock.errors import (
    BrokenInvariant,
    ColumnNotFound,
    InvalidSchema,
    RequiredColumnNull,
    WrongType,
)
from tidelock.model.ddl import parse_schema
from tidelock.model.schema.schema import TableSchema
from tidelock.store.rows.inputs import Input, is_spark_frame, read_input

ORDERS = parse_schema(
    "id BIGINT NOT NULL, name STRING, amount DECIMAL(12,2), at TIMESTAMP", key="id"
)
AT = dt.datetime(2024, 5, 1, 12, 30)
ROWS = [
    {"id": 1, "name": "a", "amount": Decimal("1.50"), "at": AT},
    {"id": 2, "name": None, "amount": None, "at": None},
]
READ = [
    {"id": 1, "name": "a", "amount": Decimal("1.50"), "at": AT.replace(tzinfo=dt.UTC)},
    {"id": 2, "name": None, "amount": None, "at": None},
]
ARROW = pa.Table.from_pylist(READ, schema=ORDERS.arrow)


def rows_of(given: Input) -> list[dict[str, Any]]:
    batches = list(given.batches())
    for batch in batches:
        assert batch.schema.equals(given.schema.arrow, check_metadata=True)
        for column, field in zip(batch.columns, given.schema.arrow, strict=True):
            assert column.type.equals(field.type, check_metadata=True)
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def read(data: Any, schema: TableSchema = ORDERS) -> list[dict[str, Any]]:
    return rows_of(read_input(data, schema, "orders"))


def one(ddl: str, value: Any) -> Any:
    """The value as it comes back from a column of the type, given as Python."""
    return read([{"c": value}], parse_schema(f"c {ddl}"))[0]["c"]


def arrow(ddl: str, array: pa.Array) -> list[Any]:
    """The values as they come back from a column of the type, given as Arrow."""
    return [row["c"] for row in read(pa.table({"c": array}), parse_schema(f"c {ddl}"))]


class Stream:
    """What duckdb and others are to us: an object with Arrow's stream interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ARROW.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Any] = {
    "table": lambda: ARROW,
    "batch": lambda: ARROW.to_batches()[0],
    "reader": lambda: ARROW.to_reader(),
    "list of dicts": lambda: ROWS,
    "tuple of dicts": lambda: tuple(ROWS),
    "dict of lists": lambda: {name: [row[name] for row in ROWS] for name in ORDERS.names},
    "dict of arrays": lambda: {name: ARROW.column(name) for name in ORDERS.names},
    "list of batches": lambda: ARROW.to_batches(max_chunksize=1),
    "list of tables": lambda: [ARROW.slice(0, 1), ARROW.slice(1)],
    "generator": lambda: (batch for batch in ARROW.to_batches(max_chunksize=1)),
    "stream": lambda: Stream(),
    "dataset": lambda: pyarrow.dataset.dataset(ARROW),
    "scanner": lambda: pyarrow.dataset.dataset(ARROW).scanner(),
    "pandas": lambda: pd.DataFrame(ROWS, index=[7, 8]),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars with a categorical": lambda: pl.DataFrame(ROWS).with_columns(
        pl.col("name").cast(pl.Categorical)
    ),
    "other order and case": lambda: ARROW.select([3, 1, 0, 2]).rename_columns(
        ["AT", "Name", "ID", "amount"]
    ),
    "dicts of other case": lambda: [{k.upper(): v for k, v in row.items()} for row in ROWS],
    "with metadata": lambda: ARROW.replace_schema_metadata({"pandas": "{}"}),
    "nullable key": lambda: pa.table(ARROW.columns, names=ARROW.column_names),
    "large types": lambda: ARROW.cast(
        pa.schema(
            [
                ("id", pa.uint64()),
                ("name", pa.large_string()),
                ("amount", pa.decimal256(40, 4)),
                ("at", pa.timestamp("ns", tz="Asia/Tokyo")),
            ]
        )
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows_in_exactly_the_schema(form: str) -> None:
    assert read(FORMS[form]()) == READ


@pytest.mark.parametrize("form", ["reader", "generator", "stream", "dataset", "scanner"])
def test_what_streams_is_not_materialized_and_is_read_once(form: str) -> None:
    given = read_input(FORMS[form](), ORDERS, "orders")
    assert given.streaming
    assert given.table is None
    assert rows_of(given) == READ
    with pytest.raises(BrokenInvariant):
        given.batches()


@pytest.mark.parametrize("form", ["table", "list of dicts", "pandas", "polars", "dict of lists"])
def test_what_is_in_memory_is_a_table(form: str) -> None:
    given = read_input(FORMS[form](), ORDERS, "orders")
    assert not given.streaming
    assert given.table is not None
    assert given.table.num_rows == 2


def test_a_table_of_the_right_schema_passes_as_it_is() -> None:
    assert read_input(ARROW, ORDERS, "orders").table is ARROW


@pytest.mark.parametrize(
    "data",
    [
        [],
        {},
        {"id": []},
        ORDERS.arrow.empty_table(),
        iter([]),
        pa.RecordBatchReader.from_batches(ORDERS.arrow, []),
        pd.DataFrame({"id": []}, dtype="int64"),
    ],
)
def test_no_rows_are_fine_in_every_form(data: Any) -> None:
    if isinstance(data, dict) and not data:
        with pytest.raises(RequiredColumnNull, match="missing"):
            read(data)
    else:
        assert read(data) == []


def test_empty_batches_in_a_stream_are_fine() -> None:
    batches = [pa.RecordBatch.from_pylist([], ORDERS.arrow), *ARROW.to_batches()]
    assert read(iter(batches)) == READ


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ([(1, "a")], "a list of tuple"),
        ([{"id": 1}, 7], "a list of int"),
        ({"id": 1}, "a dict with int values"),
        ({"id": "ab"}, "a dict with str values"),
        ({"id": [1], "name": []}, "different lengths"),
        (7, "int"),
        ("orders.parquet", "str"),
        (None, "NoneType"),
        (iter([{"id": 1}]), "an iterator of dict"),
        (pd.Series([1], name="id"), "pandas Series"),
        (pl.LazyFrame({"id": [1]}), "LazyFrame"),
    ],
)
def test_other_forms_are_refused_with_what_to_give(data: Any, what: str) -> None:
    with pytest.raises(WrongType, match="orders") as caught:
        read(data)
    assert what in str(caught.value)


# Columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        [{"id": 1, "nmae": "x"}],
        {"id": [1], "nmae": ["x"]},
        pa.table({"id": [1], "nmae": ["x"]}),
        pa.table({"id": [1], "nmae": ["x"]}).to_reader(),
        iter(pa.table({"id": [1], "nmae": ["x"]}).to_batches()),
        pd.DataFrame({"id": [1], "nmae": ["x"]}),
        pl.DataFrame({"id": [1], "nmae": ["x"]}),
    ],
)
def test_an_unknown_column_is_named_with_the_closest_one(data: Any) -> None:
    with pytest.raises(ColumnNotFound, match=r"'orders' .*'nmae'.*Did you mean 'name'") as caught:
        read(data)
    assert (caught.value.table, caught.value.column) == ("orders", "nmae")


@pytest.mark.parametrize(
    "data", [{"name": ["x"]}, pa.table({"name": ["x"]}), pa.table({"name": ["x"]}).to_reader()]
)
def test_a_missing_required_column_is_named(data: Any) -> None:
    with pytest.raises(RequiredColumnNull, match=r"'id'.*'orders'.*missing") as caught:
        read(data)
    assert (caught.value.column, caught.value.actual) == ("id", "missing")


@pytest.mark.parametrize(
    "data",
    [
        pa.table([[1], [2]], names=["id", "ID"]),
        [{"id": 1, "ID": 2}],
        pd.DataFrame([[1, 2]], columns=["id", "id"]),
    ],
)
def test_two_columns_for_one_are_refused(data: Any) -> None:
    with pytest.raises(InvalidSchema, match="both for column 'id'"):
        read(data)


def test_rows_may_leave_out_columns_that_are_nullable() -> None:
    assert read([{"id": 1}, {"id": 2, "name": "b"}]) == [
        {"id": 1, "name": None, "amount": None, "at": None},
        {"id": 2, "name": "b", "amount": None, "at": None},
    ]


# NULLs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        [{"id": 0}, {"id": None}, {"name": "x"}, {"id": None}, {"id": None}],
        {"id": [0, None, None, None, None]},
        pa.table({"id": [0, None, None, None, None]}),
        pa.table({"id": pa.chunked_array([[0, None], [None, None, None]])}),
        pd.DataFrame({"id": [0.0, None, np.nan, None, None]}),
        pl.DataFrame({"id": [0, None, None, None, None]}),
        iter(pa.table({"id": [0, None, None, None, None]}).to_batches()),
    ],
)
def test_a_null_in_a_required_column_is_shown_with_its_rows(data: Any) -> None:
    with pytest.raises(RequiredColumnNull, match=r"'id' of table 'orders'.*rows 1, 2, 3") as caught:
        read(data)
    assert caught.value.rows == [1, 2, 3]


def test_rows_of_a_stream_are_counted_from_its_beginning() -> None:
    table = pa.table({"id": [0, 1, 2, 3, None]})
    given = read_input(iter(table.to_batches(max_chunksize=2)), ORDERS, "orders")
    batches = given.batches()
    assert [next(batches).num_rows, next(batches).num_rows] == [2, 2]
    with pytest.raises(RequiredColumnNull, match="row 4"):
        next(batches)


@pytest.mark.parametrize(
    ("ddl", "good", "bad", "path"),
    [
        ("STRUCT<a: INT NOT NULL>", [{"a": 1}, None], {"a": None}, "c.a"),
        ("STRUCT<s: STRUCT<a: INT NOT NULL>>", [{"s": None}, None], {"s": {"a": None}}, "c.s.a"),
        ("ARRAY<INT NOT NULL>", [[], None, [1]], [1, None], "c.item"),
        ("ARRAY<STRUCT<a: INT NOT NULL>>", [[None], []], [{"a": 1}, {"a": None}], "c.item.a"),
        ("MAP<STRING, INT NOT NULL>", [{}, None, {"k": 1}], {"k": None}, "c.value"),
        ("MAP<STRING, STRUCT<a: INT NOT NULL>>", [{"k": None}], {"k": {"a": None}}, "c.value.a"),
    ],
)
@pytest.mark.parametrize("form", ["python", "arrow", "stream"])
def test_a_null_in_a_required_field_is_found_however_deep(
    ddl: str, good: list[Any], bad: Any, path: str, form: str
) -> None:
    schema = parse_schema(f"c {ddl}")
    relaxed = parse_schema(f"c {ddl.replace(' NOT NULL', '')}")

    def give(values: list[Any]) -> list[dict[str, Any]]:
        rows = [{"c": value} for value in values]
        if form == "python":
            return read(rows, schema)
        table = read_input(rows, relaxed, "t").table
        assert table is not None
        return read(table if form == "arrow" else iter(table.to_batches()), schema)

    assert len(give(good)) == len(good)
    with pytest.raises(RequiredColumnNull) as caught:
        give([*good, bad, bad])
    assert caught.value.column == path
    assert caught.value.rows == [len(good), len(good) + 1]


def test_what_lies_under_a_null_struct_or_list_is_nobodys_value() -> None:
    hidden = pa.array([1, None, 3], pa.int64())
    struct = pa.StructArray.from_arrays([hidden], ["a"], mask=pa.array([False, True, False]))
    assert arrow("STRUCT<a: INT NOT NULL>", struct) == [{"a": 1}, None, {"a": 3}]
    too_large = pa.array([1, 2**40, 3], pa.int64())
    struct = pa.StructArray.from_arrays([too_large], ["a"], mask=pa.array([False, True, False]))
    assert arrow("STRUCT<a: INT>", struct) == [{"a": 1}, None, {"a": 3}]
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), too_large, mask=pa.array([False, True, False])
    )
    assert arrow("ARRAY<INT>", lists) == [[1], None, [3]]


def test_a_null_key_of_a_map_is_refused() -> None:
    keys = pa.array(["a", None])
    entries = pa.StructArray.from_arrays([keys, pa.array([1, 2])], ["key", "value"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), entries)
    with pytest.raises((RequiredColumnNull, WrongType), match="'c'"):
        arrow("MAP<STRING, BIGINT>", lists)
    with pytest.raises(WrongType, match="NULL"):
        one("MAP<STRING, INT>", [(None, 1)])


# Types -----------------------------------------------------------------------------------------

UTC_TIME = AT.replace(tzinfo=dt.UTC)
BERLIN = dt.timezone(dt.timedelta(hours=2))


class Color(str, enum.Enum):  # noqa: UP042
    RED = "red"


PYTHON_FITS: list[tuple[str, Any, Any]] = [
    ("INT", 7.0, 7),
    ("INT", Decimal("7.00"), 7),
    ("TINYINT", np.int64(7), 7),
    ("BIGINT", np.uint8(7), 7),
    ("BIGINT", -(2**63), -(2**63)),
    ("DOUBLE", 7, 7.0),
    ("DOUBLE", 2**60, 2.0**60),
    ("DOUBLE", Decimal("0.1"), 0.1),
    ("DOUBLE", float("inf"), float("inf")),
    ("FLOAT", 0.5, 0.5),
    ("FLOAT", 2**24, 2.0**24),
    ("FLOAT", np.float64(0.25), 0.25),
    ("DECIMAL(5,2)", 7, Decimal("7.00")),
    ("DECIMAL(5,2)", 0.1, Decimal("0.10")),
    ("DECIMAL(5,2)", Decimal("7.1000"), Decimal("7.10")),
    ("DECIMAL(38,20)", 0.1, Decimal("0.10000000000000000000")),
    ("DECIMAL(38,0)", 10**37, Decimal(10) ** 37),
    ("STRING", np.str_("x"), "x"),
    ("STRING", Color.RED, "red"),
    ("BINARY", bytearray(b"x"), b"x"),
    ("BINARY", memoryview(b"x"), b"x"),
    ("BOOLEAN", np.bool_(True), True),
    ("DATE", dt.date(1, 1, 1), dt.date(1, 1, 1)),
    ("DATE", dt.datetime(2024, 5, 1), dt.date(2024, 5, 1)),
    ("DATE", np.datetime64("2024-05-01"), dt.date(2024, 5, 1)),
    ("TIMESTAMP", AT, UTC_TIME),
    ("TIMESTAMP", AT.replace(tzinfo=BERLIN), UTC_TIME - dt.timedelta(hours=2)),
    ("TIMESTAMP", dt.date(2024, 5, 1), dt.datetime(2024, 5, 1, tzinfo=dt.UTC)),
    ("TIMESTAMP", pd.Timestamp(AT), UTC_TIME),
    ("TIMESTAMP", np.datetime64(AT, "ns"), UTC_TIME),
    ("TIMESTAMP", pd.NaT, None),
    ("TIMESTAMP_NTZ", AT, AT),
    ("INT", pd.NA, None),
    ("ARRAY<INT>", (1, None, 2.0), [1, None, 2]),
    ("ARRAY<DOUBLE>", np.array([1.5, 2]), [1.5, 2.0]),
    ("ARRAY<STRING>", [], []),
    ("MAP<STRING, INT>", {"a": 1, "b": None}, [("a", 1), ("b", None)]),
    ("MAP<STRING, INT>", [("a", 1)], [("a", 1)]),
    ("MAP<STRING, INT>", {}, []),
    ("STRUCT<a: INT, b: STRING>", {"A": 1}, {"a": 1, "b": None}),
    ("STRUCT<a: ARRAY<STRUCT<b: DATE>>>", {"a": [{"b": None}, None]}, {"a": [{"b": None}, None]}),
    ("INT", pa.scalar(7, pa.int8()), 7),
]


@pytest.mark.parametrize(("ddl", "value", "expected"), PYTHON_FITS)
def test_a_python_value_that_fits_is_taken(ddl: str, value: Any, expected: Any) -> None:
    assert one(ddl, value) == expected


PYTHON_MISFITS: list[tuple[str, Any]] = [
    ("INT", "7"),
    ("INT", True),
    ("INT", 7.5),
    ("INT", float("nan")),
    ("INT", 2**31),
    ("INT", Decimal("7.5")),
    ("BIGINT", 2**63),
    ("BIGINT", 10**30),
    ("DOUBLE", "7.5"),
    ("DOUBLE", True),
    ("DOUBLE", 2**53 + 1),
    ("DOUBLE", 10**400),
    ("FLOAT", 1e300),
    ("FLOAT", 2**24 + 1),
    ("DECIMAL(5,2)", "7.5"),
    ("DECIMAL(5,2)", True),
    ("DECIMAL(5,2)", Decimal("7.123")),
    ("DECIMAL(5,2)", 1000),
    ("DECIMAL(5,2)", 0.125),
    ("DECIMAL(5,2)", float("nan")),
    ("DECIMAL(5,2)", Decimal("NaN")),
    ("DECIMAL(5,2)", Decimal("Infinity")),
    ("STRING", 7),
    ("STRING", b"x"),
    ("STRING", "\ud800"),
    ("STRING", uuid.UUID(int=1)),
    ("BINARY", "x"),
    ("BOOLEAN", 1),
    ("BOOLEAN", "true"),
    ("DATE", "2024-05-01"),
    ("DATE", AT),
    ("DATE", 7),
    ("TIMESTAMP", 7),
    ("TIMESTAMP", "2024-05-01"),
    ("TIMESTAMP", np.datetime64("2024-05-01T00:00:00.000000001")),
    ("TIMESTAMP_NTZ", UTC_TIME),
    ("ARRAY<INT>", 7),
    ("ARRAY<STRING>", "ab"),
    ("ARRAY<INT>", [1, "x"]),
    ("ARRAY<INT>", {1}),
    ("MAP<STRING, INT>", [1]),
    ("MAP<STRING, INT>", {1: 1}),
    ("STRUCT<a: INT>", [1]),
    ("STRUCT<a: INT>", {"a": "x"}),
    ("STRUCT<a: INT>", {"a": 1, "A": 2}),
]


@pytest.mark.parametrize(("ddl", "value"), PYTHON_MISFITS)
def test_a_python_value_that_does_not_fit_is_refused_with_its_row(ddl: str, value: Any) -> None:
    schema = parse_schema(f"id INT, c {ddl}")
    with pytest.raises(WrongType, match=r"'c' of table 't'.*row 1") as caught:
        read_input([{"c": None}, {"c": value}, {"c": None}, {"c": value}], schema, "t")
    assert caught.value.rows == [1, 3]
    assert caught.value.values[0] is value
    assert (caught.value.table, caught.value.column) == ("t", "c")


def test_an_unknown_field_of_a_struct_is_named_by_its_path() -> None:
    schema = parse_schema("c STRUCT<name: STRING>")
    for data in ([{"c": {"nam": "x"}}], pa.table({"c": [{"nam": "x"}]})):
        with pytest.raises(ColumnNotFound, match="Did you mean 'name'") as caught:
            read(data, schema)
        assert caught.value.column == "c.nam"


NAN = float("nan")


def test_nan_stays_nan_but_in_pandas_it_is_a_missing_value() -> None:
    schema = parse_schema("c DOUBLE")
    assert str(arrow("DOUBLE", pa.array([NAN]))) == "[nan]"
    assert str(read(pl.DataFrame({"c": [NAN]}), schema)) == "[{'c': nan}]"
    assert str(one("DOUBLE", NAN)) == "nan"
    assert read(pd.DataFrame({"c": [NAN, 1.0]}), schema) == [{"c": None}, {"c": 1.0}]
    assert read(pd.DataFrame({"c": [NAN, 1.0]}), parse_schema("c INT")) == [{"c": None}, {"c": 1}]


def test_pandas_columns_of_objects_are_read_by_the_columns_type() -> None:
    schema = parse_schema("m MAP<STRING, INT>, l ARRAY<INT>, d DATE, n DECIMAL(5,2), s STRING")
    frame = pd.DataFrame(
        {
            "m": [{"a": 1}, None],
            "l": [np.array([1, 2]), None],
            "d": [dt.date(2024, 5, 1), None],
            "n": [Decimal("1.5"), NAN],
            "s": pd.Categorical(["x", None]),
        }
    )
    assert read(frame, schema) == [
        {"m": [("a", 1)], "l": [1, 2], "d": dt.date(2024, 5, 1), "n": Decimal("1.50"), "s": "x"},
        dict.fromkeys(schema.names),
    ]
    with pytest.raises(WrongType, match="'s'"):
        read(pd.DataFrame({"s": pd.Series(["x", 7], dtype=object)}), schema)


def test_a_spark_frame_is_known_by_its_class_alone() -> None:
    classic = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})
    connect = type("DataFrame", (classic,), {"__module__": "pyspark.sql.connect.dataframe"})
    assert is_spark_frame(classic())
    assert is_spark_frame(connect())
    for other in (ARROW, [], pd.DataFrame(), pl.DataFrame(), None):
        assert not is_spark_frame(other)


def test_a_failing_stream_raises_its_own_error() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from ARROW.to_batches()
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        read(failing())


def test_a_thousand_columns_are_read_in_every_form() -> None:
    schema = parse_schema(", ".join(f"c{i} INT" for i in range(1000)))
    row = {f"C{i}": i for i in range(1000)}
    expected = [{f"c{i}": i for i in range(1000)}]
    for data in ([row], pa.Table.from_pylist([row]), pa.Table.from_pylist([row]).to_reader()):
        assert read(data, schema) == expected
