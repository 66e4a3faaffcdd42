"""Which filters and assignments run without Spark, in which words, and which are refused."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelock.errors import BrokenInvariant, ColumnNotFound, InvalidExpression, WrongType
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.expressions import Assignment, parse_assignment, parse_filter

SCHEMA = TableSchema(
    (
        Column("id", pa.int64(), nullable=False),
        Column("Tiny", pa.int8()),
        Column("qty", pa.int32()),
        Column("amount", pa.decimal128(12, 2)),
        Column("fee", pa.decimal128(12, 2)),
        Column("big", pa.decimal128(38, 10)),
        Column("ratio", pa.float64()),
        Column("share", pa.float32()),
        Column("name", pa.string()),
        Column("raw", pa.binary()),
        Column("ok", pa.bool_()),
        Column("day", pa.date32()),
        Column("at", pa.timestamp("us", "UTC")),
        Column("local", pa.timestamp("us")),
        Column("tags", pa.list_(pa.string())),
        Column("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        Column("two words", pa.int32()),
        Column('say "hi"', pa.int32()),
        Column("back`tick", pa.int32()),
        Column("Größe", pa.int32()),
    )
)


def lance(sql: str, **options: Any) -> str | None:
    return parse_filter(sql, SCHEMA, **options).lance


def why(sql: str, **options: Any) -> str:
    found = parse_filter(sql, SCHEMA, **options)
    assert found.lance is None
    assert found.why_spark
    return found.why_spark


def assign(column: str, sql: object, **options: Any) -> Assignment:
    return parse_assignment(column, sql, SCHEMA, **options)


def rows(**columns: list[Any]) -> pa.Table:
    fields = [pa.field(name, SCHEMA.column(name).type) for name in columns]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("id = 5", "`id` = 5"),
        ("5 > id", "`id` < 5"),
        ("ID == 5L", "`id` = 5"),
        ("id <> 5", "(`id` <> 5 AND `id` IS NOT NULL)"),
        ("NOT id = 5", "(`id` <> 5 AND `id` IS NOT NULL)"),
        ("! id < 5", "`id` >= 5"),
        ("id <=> 5", "`id` = 5"),
        ("id <=> NULL", "`id` IS NULL"),
        ("NOT id <=> NULL", "`id` IS NOT NULL"),
        ("id IS DISTINCT FROM 5", "((`id` <> 5 AND `id` IS NOT NULL) OR `id` IS NULL)"),
        ("id = NULL", "false"),
        ("NOT id = NULL", "false"),
        ("id IN (1, NULL, 2)", "`id` IN (1, 2)"),
        ("id NOT IN (1, NULL)", "false"),
        ("id NOT IN (1, 2)", "(`id` NOT IN (1, 2) AND `id` IS NOT NULL)"),
        ("id BETWEEN 1 AND 3", "(`id` >= 1 AND `id` <= 3)"),
        ("id NOT BETWEEN 1 AND 3", "(`id` < 1 OR `id` > 3)"),
        ("id NOT BETWEEN 1 AND NULL", "`id` < 1"),
        ("ok", "`ok` = true"),
        ("NOT ok", "`ok` = false"),
        ("TRUE", "true"),
        ("1 = 1", "true"),
        ("1 = 1 AND ok", "`ok` = true"),
        ("ok AND NULL", "false"),
        ("ok OR NULL", "`ok` = true"),
        (
            "NOT (id = 1 AND (ok OR qty IS NULL))",
            "((`id` <> 1 AND `id` IS NOT NULL) OR (`ok` = false AND `qty` IS NOT NULL))",
        ),
        ("amount = fee", "`amount` = `fee`"),
        ("name LIKE 'a%'", "`name` LIKE 'a%'"),
        ("name NOT LIKE 'a_'", "(`name` NOT LIKE 'a_' AND `name` IS NOT NULL)"),
        ("name = 'it''s'", "`name` = 'it''s'"),
        ('name = "it\'s"', "`name` = 'it''s'"),
        ("raw = X'00Ff'", "`raw` = X'00ff'"),
    ],
)
def test_a_condition_is_given_to_lance_without_any_negated_null(sql: str, expected: str) -> None:
    assert lance(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("tiny < 1000", "`Tiny` IS NOT NULL"),
        ("tiny > 1000", "false"),
        ("tiny = 1000", "false"),
        ("tiny <> 1000", "`Tiny` IS NOT NULL"),
        ("tiny IN (1000, 1)", "`Tiny` IN (1)"),
        ("qty < 1.5", "`qty` <= 1"),
        ("qty > -1.5", "`qty` >= -1"),
        ("qty = 1.50", "false"),
        ("qty = 1.0", "`qty` = 1"),
        ("qty < 1e1", "`qty` < 10"),
        ("id = -9223372036854775808", "`id` = cast('-9223372036854775808' as bigint)"),
        ("amount = 1.5", "`amount` = cast('1.50' as decimal(12,2))"),
        ("amount < 1.555", "`amount` <= cast('1.55' as decimal(12,2))"),
        ("amount > -1.555", "`amount` >= cast('-1.55' as decimal(12,2))"),
        ("amount < 99999999999", "`amount` IS NOT NULL"),
        ("ratio = -0.0", "`ratio` = 0.0"),
        ("ratio < 0.1", "(`ratio` < 0.1 AND NOT isnan(`ratio`))"),
        ("ratio >= 2", "(`ratio` >= 2.0 OR isnan(`ratio`))"),
        ("share = 0.1", "false"),
        ("share = 0.5", "`share` = 0.5"),
        ("share > 1e300", "(`share` > 3.4028234663852886e+38 OR isnan(`share`))"),
        ("day < '2024-02-29'", "`day` < date '2024-02-29'"),
        ("day = DATE '0001-01-01'", "`day` = date '0001-01-01'"),
        ("at = TIMESTAMP '1970-01-01 00:00:01.5'", "`at` = cast(1500000 as timestamp(6))"),
        ("at = '1970-01-01T01:00:00+01:00'", "`at` = cast(0 as timestamp(6))"),
        ("local >= TIMESTAMP_NTZ '1969-12-31'", "`local` >= cast(-86400000000 as timestamp(6))"),
    ],
)
def test_a_literal_becomes_a_value_of_the_columns_type_or_the_answer(
    sql: str, expected: str
) -> None:
    assert lance(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("`two words` = 1", "`two words` = 1"),
        ("`TWO WORDS` = 1", "`two words` = 1"),
        ('`say "hi"` = 1', '`say "hi"` = 1'),
        ("`größe` = 1", "`Größe` = 1"),
        ("TINY = 1", "`Tiny` = 1"),
    ],
)
def test_names_are_quoted_in_the_case_of_the_schema(sql: str, expected: str) -> None:
    assert lance(sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "upper(name) = 'A'",
        "id + 1 = 2",
        "id / 2 = 1",
        "CAST(name AS INT) = 5",
        "CASE WHEN ok THEN TRUE ELSE FALSE END",
        "name = 5",
        "qty = '5'",
        "ok = 'true'",
        "day < 'garbage'",
        "day < '2024-1-1'",
        "day < '2024-02-30'",
        "day = TIMESTAMP '2024-01-01 00:00:00'",
        "at = local",
        "local = TIMESTAMP '2024-01-01 00:00:00'",
        "local = '2024-01-01 00:00:00Z'",
        "at = '2024-01-01 00:00:00.1234567'",
        "at = '2024-01-01 24:00:00'",
        "id < 1e10",
        "id < 9223372036854775807.5",
        "qty < 100000000000000000000",
        "amount = 1e0",
        "amount < 12345678901234567890123456789012345678",
        "id = 0.12345678901234567890123456789012345678",
        "ratio = share",
        "ratio = ratio",
        "qty = id",
        "qty IN (1, '2')",
        "qty IN (1, id)",
        "day IN ('2024-01-01', DATE '2024-01-02')",
        "raw = 'abc'",
        "raw = X'abc'",
        "name LIKE 'a/%' ESCAPE '/'",
        "name LIKE 'a\\\\%'",
        "name = 'tab\\t'",
        "name = r'x'",
        "name = 'a' 'b'",
        "name = '${x}'",
        "name ILIKE 'a'",
        "name RLIKE 'a'",
        "name LIKE ANY ('a')",
        "name = +'a'",
        "qty = +5",
        "qty = 0x1F",
        "qty IN (1, 2,)",
        "qty ISNULL",
        "qty = 1 -- or not",
        "qty = -(-2147483648)",
        "qty = 128Y",
        "qty BETWEEN SYMMETRIC 3 AND 1",
        "ok IS TRUE",
        "(qty = 1) IS NULL",
        "ok = (qty = 1)",
        "date('2024-01-01', id) = day",
        "like(name, 'a')",
        "tags IS NULL",
        "place IS NULL",
        "place.city = 'Rome'",
        "tags[0] = 'x'",
        "exists(tags, t -> t = 'x')",
        "`back``tick` = 1",
        "1.0 = 1.0",
        "'a' = 'a'",
        "isnan(ratio)",
        "day = current_date()",
        "ratio = 1e400",
        "share = 0.1F",
    ],
)
def test_what_lance_is_not_known_to_decide_alike_is_left_to_spark(sql: str) -> None:
    assert why(sql)


def test_the_reason_names_the_part_that_needs_spark() -> None:
    assert why("id = 1 AND upper(name) = 'A'") == "the function upper"
    assert why("id = 1 AND name RLIKE 'A'") == "name RLIKE 'A'"
    assert why("qty = '5'") == "qty (INT) compared with '5'"
    assert why("tags IS NULL") == "tags has the type ARRAY<STRING>"


def test_the_columns_are_those_that_are_read_in_the_order_of_the_schema() -> None:
    found = parse_filter("NAME = 'x' OR upper(`Name`) < '' OR Id = 1 OR place.zip = 2", SCHEMA)
    assert found.columns == ("id", "name", "place")
    assert parse_filter("exists(tags, t -> t = name)", SCHEMA).columns == ("name", "tags")
    assert parse_filter("CAST(name AS STRING COLLATE UNICODE) = 'x'", SCHEMA).columns == ("name",)
    assert parse_filter("extract(year FROM day) = 2024", SCHEMA).columns == ("day",)


def test_a_column_may_be_qualified_by_the_tables_name() -> None:
    assert lance("Orders.id = 1", table_name="orders") == "`id` = 1"
    with pytest.raises(ColumnNotFound):
        lance("other.id = 1", table_name="orders")
    with pytest.raises(ColumnNotFound):
        lance("orders.id = 1")
    assert why("place.city = 'x'", table_name="place")
    # A table and a column of one name: Spark decides what place.zip and place.id mean.
    assert why("place.id = 1", table_name="place")


def test_a_time_is_read_in_the_given_zone() -> None:
    noon = "at = TIMESTAMP '2024-07-01 12:00:00'"
    assert lance(noon) == "`at` = cast(1719835200000000 as timestamp(6))"
    assert lance(noon, zone="+02:00") == "`at` = cast(1719828000000000 as timestamp(6))"
    assert lance(noon, zone="Europe/Berlin") == "`at` = cast(1719828000000000 as timestamp(6))"
    assert lance("at > DATE '2024-07-01'", zone="Europe/Berlin") == (
        "`at` > cast(1719784800000000 as timestamp(6))"
    )
    assert lance("local = '2024-07-01'", zone="Europe/Berlin") == (
        "`local` = cast(1719792000000000 as timestamp(6))"
    )


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("2024-03-31 02:30:00", "Europe/Berlin"),
        ("2024-10-27 02:30:00", "Europe/Berlin"),
        ("1900-01-01 00:00:00", "Europe/Berlin"),
        ("2024-01-01 00:00:00", "Nowhere/Land"),
        ("2024-01-01 00:00:00", "PST"),
        ("2024-01-01 00:00:00", "+19:00"),
    ],
)
def test_a_time_that_is_not_one_sure_instant_is_left_to_spark(text: str, zone: str) -> None:
    assert why(f"at = TIMESTAMP '{text}'", zone=zone)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("id =", "cannot be read"),
        ("id = 1 id = 2", "cannot be read"),
        ("id = 'x", "not closed"),
        ("id = 1; ok", "semicolon"),
        ("id = 1;", "semicolon"),
        ("max(id) = 1", "aggregate"),
        ("count(*) > 1", "aggregate"),
        ("sum(id) OVER () > 1", "window"),
        ("row_number() = 1", "window"),
        ("id IN (SELECT 1)", "subquery"),
        ("EXISTS (SELECT 1)", "subquery"),
        ("id = (SELECT 1)", "subquery"),
        ("explode(tags) = 'x'", "generator"),
        ("*", "star"),
        ("id = ?", "parameter"),
        ("id = :x", "parameter"),
        ("id", "not a condition"),
        ("'true'", "not a condition"),
        ("NULL", "not a condition"),
        ("id + 1", "not a condition"),
        ("name || 'x'", "not a condition"),
    ],
)
def test_what_can_never_be_a_filter_is_refused(sql: str, says: str) -> None:
    with pytest.raises(InvalidExpression, match=says) as caught:
        parse_filter(sql, SCHEMA)
    assert caught.value.expression == sql


def test_an_error_says_where_the_text_goes_wrong() -> None:
    with pytest.raises(InvalidExpression, match="near 'bad', at character 18") as caught:
        parse_filter("id = 1\n  and bad bad", SCHEMA)
    assert caught.value.position == 18


def test_an_unknown_column_is_named_with_the_closest_one() -> None:
    with pytest.raises(ColumnNotFound, match=r"'nmae'.*'name'") as caught:
        parse_filter("upper(nmae) = 'x'", SCHEMA)
    assert caught.value.column == "nmae"


def test_long_and_deep_conditions_go_to_lance_only_while_it_can_take_them() -> None:
    many = ", ".join(map(str, range(20_000)))
    assert lance(f"id IN ({many})") is not None
    assert lance(" OR ".join(f"id = {n}" for n in range(900))) is not None
    assert why(" OR ".join(f"id = {n}" for n in range(1100)))
    deep = "id = 0"
    for n in range(100):
        deep = f"({deep}) {'AND' if n % 2 else 'OR'} qty > {n}"
        if n == 10:
            assert lance(deep) is not None
        if n == 30:
            assert why(deep)
    with pytest.raises(InvalidExpression, match="nested too deeply"):
        parse_filter(deep, SCHEMA)


@pytest.mark.parametrize(
    ("column", "sql", "given", "expected"),
    [
        ("qty", "qty + 1", {"qty": [1, None]}, [2, None]),
        ("id", "id - 10", {"id": [5]}, [-5]),
        ("id", "qty * 3", {"qty": [2]}, [6]),
        ("tiny", "-tiny", {"Tiny": [127, None]}, [-127, None]),
        ("amount", "amount * 1.1", {"amount": [Decimal("10.05"), None]}, [Decimal("11.06"), None]),
        ("amount", "amount * -1.1", {"amount": [Decimal("10.05")]}, [Decimal("-11.06")]),
        (
            "amount",
            "amount + fee",
            {"amount": [Decimal("1.50")], "fee": [Decimal("0.25")]},
            [Decimal("1.75")],
        ),
        ("amount", "qty", {"qty": [7]}, [Decimal("7.00")]),
        ("amount", "1.005", {"id": [1, 2]}, [Decimal("1.01"), Decimal("1.01")]),
        ("ratio", "ratio * 1.1", {"ratio": [3.0]}, [3.3000000000000003]),
        ("ratio", "id", {"id": [2**53 + 1]}, [float(2**53)]),
        ("ratio", "0.1", {"id": [1]}, [0.1]),
        ("share", "ratio", {"ratio": [1e300]}, [float("inf")]),
        ("name", "'it''s'", {"id": [1, 2]}, ["it's", "it's"]),
        ("name", "NULL", {"id": [1]}, [None]),
        ("tags", "tags", {"tags": [["x"], None]}, [["x"], None]),
        ("tags", "NULL", {"id": [1]}, [None]),
        ("ok", "FALSE", {"id": [1]}, [False]),
        ("raw", "X'00ff'", {"id": [1]}, [b"\x00\xff"]),
        ("day", "DATE '2024-02-29'", {"id": [1]}, [dt.date(2024, 2, 29)]),
        (
            "at",
            "TIMESTAMP '2024-01-01 00:00:00'",
            {"id": [1]},
            [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
        ),
    ],
)
def test_an_assignment_is_computed_without_spark(
    column: str, sql: str, given: dict[str, list[Any]], expected: list[Any]
) -> None:
    one = assign(column, sql)
    result = one.evaluate(rows(**given))
    assert result.type == one.column.type
    assert result.to_pylist() == expected
    assert one.evaluate(rows(**given).slice(0, 0)).to_pylist() == []


@pytest.mark.parametrize(
    ("column", "sql", "given", "value"),
    [
        ("qty", "qty + 1", {"qty": [1, None, 2**31 - 1]}, "2147483648"),
        ("id", "id * id", {"id": [1, 2**62]}, str(2**124)),
        ("tiny", "tiny + 1", {"Tiny": [1, 127]}, "128"),
        ("tiny", "1000", {"id": [1]}, "1000"),
        ("tiny", "-tiny", {"Tiny": [-128]}, "128"),
        ("amount", "amount * 10", {"amount": [Decimal("9999999999.99")]}, "99999999999.90"),
        ("amount", "id", {"id": [1, 10**10]}, "10000000000"),
    ],
)
def test_an_overflow_names_the_column_and_the_first_value_that_does_not_fit(
    column: str, sql: str, given: dict[str, list[Any]], value: str
) -> None:
    one = assign(column, sql)
    with pytest.raises(WrongType, match=value) as caught:
        one.evaluate(rows(**given))
    assert caught.value.column == one.column.name
    assert caught.value.value == value
    assert caught.value.expression == sql


def test_the_right_side_is_not_computed_where_the_left_side_is_null() -> None:
    one = assign("qty", "qty + (`two words` * 2)")
    given = rows(qty=[None, 1], **{"two words": [2**31 - 1, 4]})
    assert one.evaluate(given).to_pylist() == [None, 9]


@pytest.mark.parametrize(
    ("column", "sql"),
    [
        ("qty", "qty / 2"),
        ("qty", "qty % 2"),
        ("qty", "abs(qty)"),
        ("qty", "CAST(name AS INT)"),
        ("qty", "amount"),
        ("qty", "ratio"),
        ("qty", "1.5"),
        ("qty", "1 + 1"),
        ("qty", "qty + NULL"),
        ("qty", "qty + 1 + 2"),
        ("qty", "(qty + 1) + `two words`"),
        ("qty", "CASE WHEN ok THEN 1 END"),
        ("qty", "place.zip"),
        ("name", "name || 'x'"),
        ("name", "qty"),
        ("name", "'tab\\t'"),
        ("ratio", "amount"),
        ("ratio", "ratio + amount"),
        ("share", "0.1"),
        ("big", "big * 1.1"),
        ("big", "big + big"),
        ("at", "day"),
        ("day", "at"),
        ("day", "day + 1"),
    ],
)
def test_other_assignments_are_left_to_spark(column: str, sql: str) -> None:
    one = assign(column, sql)
    assert one.native is None
    assert one.why_spark
    with pytest.raises(BrokenInvariant):
        one.evaluate(rows(qty=[1]))


@pytest.mark.parametrize(
    ("column", "sql"),
    [
        ("qty", "'5'"),
        ("qty", "name"),
        ("qty", "ok"),
        ("qty", "day"),
        ("ok", "1"),
        ("ok", "'true'"),
        ("day", "'2024-01-01'"),
        ("at", "'2024-01-01'"),
        ("raw", "'abc'"),
        ("day", "5"),
        ("amount", "X'00'"),
    ],
)
def test_a_value_of_another_family_is_refused_as_spark_refuses_to_store_it(
    column: str, sql: str
) -> None:
    with pytest.raises(WrongType, match="cannot be stored") as caught:
        assign(column, sql)
    assert caught.value.column == SCHEMA.column(column).name
    assert caught.value.expression == sql


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("qty", 5),
        ("qty", -(2**31)),
        ("id", -(2**63)),
        ("amount", Decimal("1.50")),
        ("amount", Decimal("1E+2")),
        ("ratio", 1e-7),
        ("ratio", -0.0),
        ("ok", True),
        ("raw", b"\x00"),
        ("day", dt.date(1, 1, 1)),
        ("at", dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=1)))),
        ("local", dt.datetime(2024, 1, 1, 12, 0, 0, 5)),
        ("name", None),
    ],
)
def test_a_python_value_that_is_not_text_stands_for_itself(column: str, value: object) -> None:
    assert assign(column, value).evaluate(rows(id=[1])).to_pylist() == [value]


def test_a_python_value_without_a_form_in_sql_is_refused() -> None:
    for value in (float("nan"), object(), [1]):
        with pytest.raises(InvalidExpression, match="has no form"):
            assign("ratio", value)


def test_an_unknown_target_and_an_unknown_source_are_named() -> None:
    with pytest.raises(ColumnNotFound, match="'qyt'"):
        assign("qyt", "1")
    with pytest.raises(ColumnNotFound, match="'qyt'"):
        assign("qty", "qyt + 1")


def test_filters_and_assignments_travel_to_workers() -> None:
    one = assign("amount", "amount * 1.1")
    assert pickle.loads(pickle.dumps(one)) == one
    condition = parse_filter("id = 1", SCHEMA)
    assert pickle.loads(pickle.dumps(condition)) == condition
