"""Schemas in the forms that people give them in, and as DDL again."""

from __future__ import annotations

import unicodedata
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark_types

from tidelock.errors import InvalidSchema, UnsupportedType
from tidelock.model.ddl import parse_schema, spark_ddl, to_ddl, type_name
from tidelock.model.names import fold, is_hidden
from tidelock.model.schema.schema import RESERVED_NAMES, Column, TableSchema, table_schema

PRIMITIVES = {
    "TINYINT": pa.int8(),
    "byte": pa.int8(),
    "SMALLINT": pa.int16(),
    "short": pa.int16(),
    "INT": pa.int32(),
    "Integer": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL": pa.decimal128(10, 0),
    "DEC(5)": pa.decimal128(5, 0),
    "NUMERIC( 38 , 38 )": pa.decimal128(38, 38),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}


@pytest.mark.parametrize(("ddl", "arrow"), PRIMITIVES.items())
def test_every_type_and_alias_is_read(ddl: str, arrow: pa.DataType) -> None:
    assert parse_schema(f"c {ddl}").columns == (Column("c", arrow),)


def test_a_whole_schema_is_read_as_spark_reads_it() -> None:
    schema = parse_schema(
        """
        id BIGINT NOT NULL COMMENT 'it''s the id, (really)',
        `odd name` string comment "with \\" quotes" NOT NULL,
        tags ARRAY< STRING >
        """
        ", m map<string,array<array<int>>>, s: STRUCT<a: INT NOT NULL, `b.c` STRING COMMENT 'x',"
        " date: DATE, d STRUCT<e: DECIMAL(5,1)>>, größe INT, 2nd INT",
        key="id",
    )
    assert schema.names == ("id", "odd name", "tags", "m", "s", "größe", "2nd")
    assert [c.nullable for c in schema.columns] == [False, False, True, True, True, True, True]
    assert schema.column("m").type == pa.map_(pa.string(), pa.list_(pa.list_(pa.int32())))
    assert schema.column("s").type == pa.struct(
        [
            pa.field("a", pa.int32(), False),
            pa.field("b.c", pa.string()),
            pa.field("date", pa.date32()),
            pa.field("d", pa.struct([pa.field("e", pa.decimal128(5, 1))])),
        ]
    )


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("", "at least one column"),
        ("id", "expected the type of column 'id', found the end"),
        ("id INT name STRING", "character 8"),
        ("id INT,", "a column name"),
        ("id INT;", "found ';'"),
        ("a-b INT", "found '-b INT'"),
        ("id INT NOT", "NULL after NOT"),
        ("t ARRAY", "ARRAY<"),
        ("t ARRAY<>", "a type inside"),
        ("t ARRAY<INT", "> at the end of ARRAY"),
        ("t MAP<INT>", "a comma"),
        ("t DECIMAL(x)", "a number"),
        ("t DECIMAL(5", ", or )"),
        ("t INT COMMENT x", "in quotes"),
        ("t INT DEFAULT", "an expression after DEFAULT, found the end"),
        ("t INT DEFAULT (1", "a parenthesis that closes"),
        ("id INT PRIMARY", "expected PRIMARY KEY, found 'PRIMARY'"),
        ("id INT PRIMARY KEY, a INT PRIMARY KEY", "here is a second"),
        ("id INT UNIQUE", "columns alone are wanted"),
        ("id INT CHECK (id > 0)", "columns alone are wanted"),
        ("id INT GENERATED ALWAYS AS (1)", "generated"),
        ("id INT NOT NULL NOT NULL", "said twice"),
        ("s STRUCT<a: INT>, s.b INT", "cannot be declared by itself"),
        ("t STRING COLLATE UNICODE_CI", "collation"),
    ],
)
def test_what_cannot_be_read_is_shown_where_it_is(ddl: str, says: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_schema(ddl)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("ddl", "instead"),
    [
        ("VARCHAR(10)", "STRING"),
        ("CHAR(3)", "STRING"),
        ("VARIANT", "JSON"),
        ("INTERVAL DAY TO SECOND", "BIGINT"),
        ("TIME(6)", "BIGINT"),
        ("VOID", "STRING"),
        ("STRUCT<>", "field"),
        ("DECIMAL(39,0)", "38"),
        ("DECIMAL(5,6)", "s <= p"),
        ("INT(4)", "Spark SQL"),
        ("MONEY", "Spark SQL"),
        ("ARRAY<STRUCT<a: VARCHAR(5)>>", "STRING"),
    ],
)
def test_an_unsupported_type_names_its_column_and_what_to_use(ddl: str, instead: str) -> None:
    with pytest.raises(UnsupportedType, match="'odd") as caught:
        parse_schema(f"id INT, odd {ddl}")
    assert instead in caught.value.instead


def test_a_list_of_columns_holds_key_defaults_and_comments() -> None:
    schema = parse_schema("id BIGINT PRIMARY KEY, a INT DEFAULT 1 + 2 NOT NULL COMMENT 'it''s'")
    assert schema.key == ("id",)
    assert not schema.column("id").nullable
    column = schema.column("a")
    assert (column.default, column.nullable, column.comment) == ("1 + 2", False, "it's")
    assert parse_schema("a INT, b INT, PRIMARY KEY (b, a)").key == ("b", "a")
    assert parse_schema("a INT PRIMARY KEY", key=["A"]).key == ("a",)
    with pytest.raises(InvalidSchema, match="given twice"):
        parse_schema("a INT PRIMARY KEY, b INT", key="b")


@pytest.mark.parametrize("word", ["show", "check", "unique", "constraint", "primary", "rename"])
def test_words_of_statements_may_be_the_names_of_columns(word: str) -> None:
    """Also at the beginning, where some of them are commands to a tokenizer."""
    assert parse_schema(f"{word} STRING, b INT, for TIMESTAMP").names == (word, "b", "for")


def test_a_pyspark_struct_type_is_read_with_its_nullability() -> None:
    t = spark_types
    spark = t.StructType(
        [
            t.StructField("id", t.LongType(), False),
            t.StructField("at", t.TimestampType()),
            t.StructField("local", t.TimestampNTZType()),
            t.StructField("amount", t.DecimalType(12, 2)),
            t.StructField("tags", t.ArrayType(t.StringType(), containsNull=False)),
            t.StructField("m", t.MapType(t.ByteType(), t.DateType(), valueContainsNull=False)),
            t.StructField("s", t.StructType([t.StructField("a b", t.BinaryType(), False)])),
        ]
    )
    assert parse_schema(spark, key="id") == parse_schema(
        "id BIGINT NOT NULL, at TIMESTAMP, local TIMESTAMP_NTZ, amount DECIMAL(12,2), "
        "tags ARRAY<STRING NOT NULL>, m MAP<TINYINT, DATE NOT NULL>, "
        "s STRUCT<`a b`: BINARY NOT NULL>",
        key="id",
    )


@pytest.mark.parametrize(
    "type_",
    [
        spark_types.VarcharType(3),
        spark_types.CharType(3),
        spark_types.VariantType(),
        spark_types.NullType(),
        spark_types.DayTimeIntervalType(),
        spark_types.YearMonthIntervalType(),
        spark_types.CalendarIntervalType(),
        spark_types.StringType("UNICODE_CI"),
        spark_types.StructType([]),
    ],
)
def test_pyspark_types_that_cannot_be_stored_are_refused(type_: Any) -> None:
    with pytest.raises((UnsupportedType, InvalidSchema), match="odd"):
        parse_schema(spark_types.StructType([spark_types.StructField("odd", type_)]))


def test_an_arrow_schema_columns_and_a_schema_are_read() -> None:
    expected = TableSchema((Column("id", pa.int64(), False), Column("n", pa.string())), ("id",))
    arrow = pa.schema([("id", pa.int64()), ("n", pa.large_string())], metadata={"x": "y"})
    assert parse_schema(arrow, key="id") == expected
    assert (
        parse_schema([Column("id", pa.int64()), Column("n", pa.string())], key=["id"]) == expected
    )
    assert parse_schema(expected) == expected


@pytest.mark.parametrize(
    "schema", [None, 7, {"id": "INT"}, [("id", "INT")], spark_types.LongType()]
)
def test_other_forms_are_refused_with_the_forms_there_are(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match="DDL string"):
        parse_schema(schema)


def test_types_are_named_as_spark_names_them() -> None:
    assert type_name(pa.large_string()) == "STRING"
    assert type_name(pa.timestamp("ns", tz="Europe/Berlin")) == "TIMESTAMP"
    assert type_name(pa.uint8()) == "UINT8"
    struct = pa.struct([pa.field("a b", pa.map_(pa.string(), pa.int32()), False)])
    assert type_name(pa.list_(struct)) == "ARRAY<STRUCT<`a b`: MAP<STRING, INT> NOT NULL>>"


NAMES = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cn", "Co"), include_characters="`\"'. ,<>:é"),
    min_size=1,
    max_size=12,
)


def usable(name: str) -> bool:
    if name != name.strip() or name.isspace() or is_hidden(name):
        return False
    return fold(name) not in RESERVED_NAMES


def fits_lance(name: str) -> bool:
    # There are signs that become another one when they are normalized, such as U+1FEF.
    return name != "*" and not set(unicodedata.normalize("NFC", name)) & set(".`")


FIELD_NAMES = NAMES.filter(usable)
COLUMN_NAMES = FIELD_NAMES.filter(fits_lance)
SIMPLE = st.one_of(
    st.sampled_from(sorted(set(PRIMITIVES.values()), key=str)),
    st.integers(1, 38).flatmap(lambda p: st.builds(pa.decimal128, st.just(p), st.integers(0, p))),
)


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(
        st.tuples(FIELD_NAMES, inner, st.booleans()),
        min_size=1,
        max_size=4,
        unique_by=lambda f: fold(f[0]),
    )
    return st.one_of(
        st.builds(lambda t, n: pa.list_(pa.field("item", t, n)), inner, st.booleans()),
        st.builds(
            lambda k, t, n: pa.map_(k, pa.field("value", t, n)), SIMPLE, inner, st.booleans()
        ),
        fields.map(lambda each: pa.struct([pa.field(*field) for field in each])),
    )


COLUMNS = st.lists(
    st.builds(Column, COLUMN_NAMES, st.recursive(SIMPLE, nested, max_leaves=8), st.booleans()),
    min_size=1,
    max_size=6,
    unique_by=lambda column: fold(column.name),
)


@settings(deadline=None, max_examples=60)
@given(COLUMNS)
def test_every_schema_is_read_back_from_its_ddl(columns: list[Column]) -> None:
    schema = table_schema(columns)
    assert parse_schema(to_ddl(schema)) == schema
    assert parse_schema(to_ddl(schema)).arrow.equals(schema.arrow, check_metadata=True)
    assert parse_schema(schema.arrow) == schema


@settings(deadline=None, max_examples=60)
@given(COLUMNS)
def test_ddl_for_spark_says_the_same_but_for_elements(columns: list[Column]) -> None:
    schema = table_schema(columns)
    read = parse_schema(spark_ddl(schema))
    assert read.names == schema.names
    assert [c.nullable for c in read.columns] == [c.nullable for c in schema.columns]
