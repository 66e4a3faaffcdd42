"""What may be stored in which column, as Spark's INSERT has it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelock.model.ddl import parse_schema
from tidelock.model.sql.expressions.literals import read, read_plain
from tidelock.model.sql.expressions.syntax import Scope, parse
from tidelock.model.sql.store_assignment import always_fits, is_storable, same_fields, stored


def type_of(ddl: str) -> pa.DataType:
    return pa.null() if ddl == "VOID" else parse_schema(f"x {ddl}").columns[0].type


@pytest.mark.parametrize(
    ("given", "column", "storable", "fits"),
    [
        ("INT", "BIGINT", True, True),
        ("BIGINT", "INT", True, False),
        ("DOUBLE", "INT", True, False),
        ("INT", "DOUBLE", True, True),
        ("DECIMAL(5,2)", "DECIMAL(7,3)", True, True),
        ("DECIMAL(5,2)", "DECIMAL(5,1)", True, False),
        ("INT", "DECIMAL(12,2)", True, True),
        ("INT", "DECIMAL(5,2)", True, False),
        ("DOUBLE", "DECIMAL(38,2)", True, False),
        ("VOID", "STRING", True, True),
        ("INT", "STRING", True, True),
        ("BOOLEAN", "STRING", True, True),
        ("STRING", "INT", False, None),
        ("STRING", "DATE", False, None),
        ("BOOLEAN", "INT", False, None),
        ("INT", "BOOLEAN", False, None),
        ("DATE", "TIMESTAMP", True, True),
        ("TIMESTAMP", "TIMESTAMP_NTZ", True, True),
        ("DATE", "INT", False, None),
        ("BINARY", "INT", False, None),
        ("ARRAY<INT>", "ARRAY<BIGINT>", True, True),
        ("ARRAY<BIGINT>", "ARRAY<INT>", True, False),
        ("ARRAY<STRING>", "ARRAY<INT>", False, None),
        ("ARRAY<INT>", "STRING", False, None),
        ("MAP<STRING, INT>", "MAP<STRING, BIGINT>", True, True),
        ("STRUCT<a: INT>", "STRUCT<b: BIGINT>", True, True),
        ("STRUCT<a: INT>", "STRUCT<a: INT, b: INT>", False, None),
        ("INT", "ARRAY<INT>", False, None),
    ],
)
def test_types_are_taken_as_spark_takes_them(
    given: str, column: str, storable: bool, fits: bool | None
) -> None:
    assert is_storable(type_of(given), type_of(column)) is storable
    if fits is not None:
        assert always_fits(type_of(given), type_of(column)) is fits


def test_what_does_not_fit_is_refused_also_where_casts_are_lenient() -> None:
    assert stored("a", pa.int32(), pa.int32(), ansi=False) == "a"
    assert stored("a", pa.int32(), pa.int64(), ansi=False) == "CAST(a AS BIGINT)"
    assert stored("a", pa.int64(), pa.int32(), ansi=True) == "CAST(a AS INT)"
    lenient = stored("rand()", pa.float64(), pa.int32(), ansi=False)
    assert "raise_error" in lenient
    assert lenient.count("rand()") == 1


def test_fields_of_structs_are_compared_at_every_depth() -> None:
    one = type_of("ARRAY<STRUCT<a: INT, b: INT>>")
    assert same_fields(one, type_of("ARRAY<STRUCT<A: BIGINT, B: INT>>"))
    assert not same_fields(one, type_of("ARRAY<STRUCT<b: INT, a: INT>>"))


@pytest.mark.parametrize(
    "text",
    [
        *("1", "-1", "2147483648", "-2147483648", "-2147483649", "1.5", "-.5", "5.", "9" * 20),
        *("'a'", "''", "'é\n'", "NULL", "null", "true", "FALSE", "DATE '2024-01-01'"),
        *(
            "date'2024-01-01'",
            "TIMESTAMP '2024-01-01 00:00:00'",
            "TIMESTAMP'2024-01-01T01:02:03.5'",
        ),
    ],
)
def test_a_plain_literal_is_what_the_parser_takes_it_for(text: str) -> None:
    tree = parse(text, Scope(parse_schema("x INT"))).tree
    assert read_plain(text, "UTC") == read(tree, "UTC")


@pytest.mark.parametrize("text", ["'a\\b'", "'it''s'", "'${x}'", "1e5", "1L", "x", "f()", "- 1"])
def test_other_texts_need_the_parser(text: str) -> None:
    assert read_plain(text, "UTC") is None
