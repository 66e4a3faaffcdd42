"""What a table's schema may be: names, keys, and Arrow types as they are stored."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from tidelock.errors import ColumnNotFound, InvalidSchema, UnsupportedType
from tidelock.model.ddl import parse_schema
from tidelock.model.schema.schema import Column, table_schema
from tidelock.model.types import NESTING_MAX, normal_type

UTC = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.large_list(pa.int32()), pa.list_(pa.int32())),
        (pa.list_(pa.int32(), 3), pa.list_(pa.int32())),
        (
            pa.list_(pa.field("element", pa.int32(), False)),
            pa.list_(pa.field("item", pa.int32(), False)),
        ),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ns", tz="Europe/Berlin"), UTC),
        (pa.timestamp("ms", tz="+02:00"), UTC),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.date64(), pa.date32()),
        (pa.float16(), pa.float32()),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.decimal64(12, 2), pa.decimal128(12, 2)),
        (
            pa.map_(pa.large_string(), pa.uint8(), keys_sorted=True),
            pa.map_(pa.string(), pa.int16()),
        ),
        (
            pa.struct([pa.field("a", pa.large_list(pa.timestamp("ns")), False)]),
            pa.struct([pa.field("a", pa.list_(pa.timestamp("us")), False)]),
        ),
    ],
)
def test_arrow_types_are_stored_as_one_layout_each(given: pa.DataType, stored: pa.DataType) -> None:
    normal = normal_type(given, "c")
    assert normal.equals(stored, check_metadata=True)
    assert normal_type(normal, "c").equals(normal, check_metadata=True)


@pytest.mark.parametrize(
    "type_",
    [
        pa.null(),
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.time32("s"),
        pa.time64("us"),
        pa.decimal256(50, 2),
        pa.decimal128(10, -2),
        pa.dense_union([pa.field("a", pa.int32())]),
        pa.struct([]),
        pa.uuid(),
        pa.json_(),
        pa.list_(pa.duration("s")),
        pa.map_(pa.map_(pa.string(), pa.int32()), pa.int32()),
        pa.struct([("deep", pa.map_(pa.string(), pa.time64("ns")))]),
    ],
)
def test_a_type_that_cannot_be_stored_is_refused_by_name_with_a_way_out(type_: pa.DataType) -> None:
    with pytest.raises(UnsupportedType) as caught:
        parse_schema(pa.schema([("id", pa.int64()), ("odd", type_)]))
    assert caught.value.column.split(".")[0] == "odd"
    assert caught.value.instead in str(caught.value)
    assert caught.value.type in str(caught.value)


def test_nesting_has_a_limit_that_arrow_can_carry() -> None:
    type_ = pa.int32()
    for _ in range(NESTING_MAX):
        type_ = pa.map_(pa.string(), type_)
    assert table_schema([Column("c", type_)]).columns[0].type == type_
    with pytest.raises(InvalidSchema, match="nested deeper"):
        table_schema([Column("c", pa.list_(type_))])
    with pytest.raises(InvalidSchema, match="nested deeper"):
        parse_schema("c " + "ARRAY<" * 5000 + "INT" + ">" * 5000)


@pytest.mark.parametrize("name", ["_weight", "_VERSION", "_RowId", "_rowaddr", "_op", "_Sequence"])
def test_reserved_names_are_refused_in_any_case(name: str) -> None:
    with pytest.raises(InvalidSchema, match="reserved"):
        table_schema([Column(name, pa.int64())])


@pytest.mark.parametrize("name", ["", " ", " a", "a\n", "x" * 256, "a.b", "a`b", "*", 7])
def test_names_that_cannot_be_stored_are_refused(name: object) -> None:
    with pytest.raises(InvalidSchema, match="name"):
        table_schema([Column(name, pa.int64())])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["odd name", 'say "x"', "it's", "größe", "日本", "select", "1", "a,b"]
)
def test_names_that_need_quoting_are_names(name: str) -> None:
    schema = table_schema([Column(name, pa.int64())])
    assert schema.names == (name,)
    assert schema.find(name.title()) is schema.columns[0]


def test_inside_a_struct_dots_and_backticks_are_fine_and_doubles_are_not() -> None:
    schema = table_schema([Column("s", pa.struct([("a.b", pa.int32()), ("c`d", pa.int32())]))])
    assert [f.name for f in schema.columns[0].type] == ["a.b", "c`d"]
    with pytest.raises(InvalidSchema, match="two fields"):
        table_schema([Column("s", pa.struct([("a", pa.int32()), ("A", pa.int32())]))])


def test_a_table_needs_columns_and_no_two_of_one_name() -> None:
    with pytest.raises(InvalidSchema, match="at least one column"):
        table_schema([])
    with pytest.raises(InvalidSchema, match="two columns"):
        table_schema([Column("id", pa.int64()), Column("ID", pa.string())])


def test_a_key_column_is_required_whether_or_not_that_was_said() -> None:
    schema = parse_schema("ID BIGINT, Part STRING, n INT", key=["part", "id"])
    assert schema.key == ("Part", "ID")
    assert [column.nullable for column in schema.columns] == [False, False, True]
    assert schema.required == (0, 1)
    assert schema.arrow.field("ID").nullable is False


@pytest.mark.parametrize(
    "type_", ["FLOAT", "DOUBLE", "ARRAY<INT>", "MAP<INT,INT>", "STRUCT<a: INT>"]
)
def test_a_key_must_be_exactly_comparable(type_: str) -> None:
    with pytest.raises(InvalidSchema, match="cannot be in the key") as caught:
        parse_schema(f"k {type_}", key="k")
    assert caught.value.column == "k"


@pytest.mark.parametrize(
    "type_",
    [
        "TINYINT",
        "BIGINT",
        "DECIMAL(9,2)",
        "STRING",
        "BINARY",
        "BOOLEAN",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
    ],
)
def test_everything_exactly_comparable_may_be_a_key(type_: str) -> None:
    assert parse_schema(f"k {type_}", key="k").key == ("k",)


def test_an_unknown_or_repeated_key_column_is_named() -> None:
    with pytest.raises(InvalidSchema, match="Did you mean 'id'"):
        parse_schema("id INT", key="idd")
    with pytest.raises(InvalidSchema, match="twice"):
        parse_schema("id INT", key=["id", "ID"])
    with pytest.raises(InvalidSchema, match="look up"):
        parse_schema('`a"b` INT', key='a"b')


def test_columns_are_found_without_regard_to_case() -> None:
    schema = parse_schema("Id INT, Größe STRING")
    assert schema.column("GRÖßE").name == "Größe"
    with pytest.raises(ColumnNotFound, match="Did you mean 'Id'"):
        schema.column("Idd")


def test_positions_of_what_needs_care_are_known() -> None:
    schema = parse_schema(
        "a INT, b STRUCT<x: INT NOT NULL>, c MAP<STRING, INT>, d ARRAY<STRUCT<x: INT>>, "
        "e INT NOT NULL"
    )
    assert schema.required == (4,)
    assert schema.required_inside == (1, 2)
    assert schema.nested == (1, 2, 3)


def test_a_thousand_columns_are_quick() -> None:
    ddl = ", ".join(f"c{i} DECIMAL(12,2) NOT NULL" for i in range(1000))
    started = time.perf_counter()
    schema = parse_schema(ddl, key="c999")
    assert len(schema.arrow) == 1000
    assert time.perf_counter() - started < 1
