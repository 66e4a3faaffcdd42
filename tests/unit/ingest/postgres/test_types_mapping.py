"""Every column of PostgreSQL has a type in the lake; another may be asked for where it is exact."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from tests.unit.ingest.postgres.pg_types import (
    BOOL,
    BOX,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    NUMERIC,
    OID,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    array,
    column,
    domain,
    numeric,
)

from tidelock.errors import InvalidOption, UnsupportedType
from tidelock.ingest.postgres.types import (
    PgColumn,
    PgType,
    map_column,
    map_columns,
    mapping_table,
    taken_columns,
)
from tidelock.model.types import normal_type

MAPPED = [
    (BOOL, "BOOLEAN"),
    (INT2, "SMALLINT"),
    (INT4, "INT"),
    (INT8, "BIGINT"),
    (OID, "BIGINT"),
    (FLOAT4, "FLOAT"),
    (FLOAT8, "DOUBLE"),
    (numeric(10, 2), "DECIMAL(10,2)"),
    (numeric(38, 38), "DECIMAL(38,38)"),
    (numeric(39, 0), "DECIMAL(38,18)"),
    (numeric(1000, 1000), "DECIMAL(38,18)"),
    (numeric(3, 5), "DECIMAL(38,18)"),
    (numeric(3, -2), "DECIMAL(38,18)"),
    (numeric(1000, -1000), "DECIMAL(38,18)"),
    (NUMERIC, "DECIMAL(38,18)"),
    (DATE, "DATE"),
    (TIMESTAMP, "TIMESTAMP_NTZ"),
    (TIMESTAMPTZ, "TIMESTAMP"),
    (PgType(1184, "timestamp(3) with time zone", 3), "TIMESTAMP"),
    (BYTEA, "BINARY"),
    (TEXT, "STRING"),
    (PgType(2950, "uuid"), "STRING"),
    (PgType(70_000, "mood", kind="enum"), "STRING"),
    (PgType(70_000, "pair", kind="composite"), "STRING"),
    (PgType(70_000, "date"), "STRING"),
    (PgType(3904, "int4range", kind="range"), "STRING"),
    (PgType(4451, "int4multirange", kind="multirange"), "STRING"),
    (PgType(22, "int2vector", kind="array", element=INT2), "STRING"),
    (domain(numeric(10, 2)), "DECIMAL(10,2)"),
    (domain(domain(DATE)), "DATE"),
    (domain(array(INT4)), "ARRAY<INT>"),
    (array(domain(INT8)), "ARRAY<BIGINT>"),
    (array(numeric(10, 2)), "ARRAY<DECIMAL(10,2)>"),
    (array(BOX), "ARRAY<STRING>"),
]


@pytest.mark.parametrize(("type_", "lake"), MAPPED, ids=lambda one: getattr(one, "name", one))
def test_each_type_has_one_in_the_lake(type_: PgType, lake: str) -> None:
    mapped = map_column(column(type_))
    assert mapped.lake_type == lake
    assert normal_type(mapped.type, "c") == mapped.type
    assert pickle.loads(pickle.dumps(mapped)) == mapped


@pytest.mark.parametrize(
    ("type_", "asked"),
    [
        (NUMERIC, "DECIMAL(20,4)"),
        (numeric(10, 2), "decimal(38, 10)"),
        (INT4, "BIGINT"),
        (INT8, "INT"),
        (INT8, "DECIMAL(20,0)"),
        (OID, "INT"),
        (DATE, "STRING"),
        (DATE, "DATE"),
        (array(INT4), "ARRAY<BIGINT>"),
        (array(INT4), "STRING"),
        (array(DATE), "ARRAY<STRING>"),
        (domain(NUMERIC), "DECIMAL(20,4)"),
        (BYTEA, "STRING"),
    ],
)
def test_another_type_may_be_asked_for_where_values_stay_as_they_are(
    type_: PgType, asked: str
) -> None:
    mapped = map_column(column(type_), asked)
    assert mapped.lake_type.replace(" ", "") == asked.upper().replace(" ", "")


@pytest.mark.parametrize(
    ("type_", "asked"),
    [
        (NUMERIC, "DOUBLE"),
        (NUMERIC, "BIGINT"),
        (FLOAT4, "DOUBLE"),
        (FLOAT8, "FLOAT"),
        (TEXT, "BIGINT"),
        (TIMESTAMP, "TIMESTAMP"),
        (DATE, "TIMESTAMP_NTZ"),
        (BYTEA, "ARRAY<BINARY>"),
        (array(INT4), "ARRAY<INT NOT NULL>"),
        (array(INT4), "ARRAY<DATE>"),
        (array(INT4), "INT"),
        (PgType(22, "int2vector", kind="array", element=INT2), "ARRAY<SMALLINT>"),
        (BOOL, "STRUCT<a: INT>"),
    ],
)
def test_a_type_that_would_change_values_is_refused_with_column_and_type(
    type_: PgType, asked: str
) -> None:
    with pytest.raises(UnsupportedType) as refused:
        map_column(column(type_), asked)
    assert refused.value.column == "c"
    assert refused.value.source_type == type_.name
    assert "'c'" in str(refused.value)
    assert type_.name in str(refused.value)


@pytest.mark.parametrize(
    "asked", ["", "DECIMAL(39,2)", "VARCHAR(3)", "INT INT", "ARRAY<", "naught"]
)
def test_what_is_no_type_is_refused_with_the_column(asked: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        map_column(column(NUMERIC, "amount"), asked)
    assert (refused.value.column, refused.value.type) == ("amount", asked)
    assert "'amount'" in str(refused.value)


def test_columns_are_mapped_with_what_is_asked_for_by_name() -> None:
    columns = [column(INT4, "id"), column(NUMERIC, "amount")]
    mapped = map_columns(columns, {"amount": "DECIMAL(20,4)"})
    assert [(one.name, one.lake_type) for one in mapped] == [
        ("id", "INT"),
        ("amount", "DECIMAL(20,4)"),
    ]
    assert [one.lake_type for one in map_columns(columns)] == ["INT", "DECIMAL(38,18)"]


def test_a_name_that_is_misspelt_is_refused_with_what_there_is() -> None:
    with pytest.raises(InvalidOption, match="Did you mean 'amount'") as refused:
        map_columns([column(NUMERIC, "amount")], {"amuont": "DECIMAL(20,4)"})
    assert refused.value.column == "amuont"


def test_generated_columns_stay_behind_with_a_note() -> None:
    total = PgColumn("total", 2, NUMERIC, generated=True)
    identity = PgColumn("id", 1, INT8, not_null=True, identity=True)
    taken = taken_columns([identity, total])
    assert taken.columns == (identity,)
    assert list(taken.notes) == ["total"]
    assert "generated" in taken.notes["total"]
    assert [one.name for one in map_columns([identity, total])] == ["id"]
    with pytest.raises(InvalidOption, match="generated"):
        map_columns([identity, total], {"total": "STRING"})


def test_a_column_tells_what_its_type_is() -> None:
    told = PgColumn("c", 3, numeric(10, 2))
    assert (told.type_oid, told.type_name, told.typmod, told.kind) == (
        1700,
        "numeric(10,2)",
        655366,
        "base",
    )
    assert replace(told, name="d").type == told.type


def test_the_table_of_the_mapping_has_all_types_and_four_cells_a_line() -> None:
    lines = mapping_table().splitlines()
    assert lines[0] == "| PostgreSQL type | lake type | values kept as text | text |"
    assert {line.replace("\\|", "").count("|") for line in lines} == {5}
    named = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1] for line in lines}
    assert named["timestamp with time zone"] == "TIMESTAMP"
    assert named["numeric"] == "DECIMAL(38,18)"
    assert named["numeric(p,s), 0 <= s <= p <= 38"] == "DECIMAL(p,s)"
    assert named["uuid"] == named["enum"] == named["any other"] == "STRING"
    assert len(named) == len(lines), "a type is told once"
