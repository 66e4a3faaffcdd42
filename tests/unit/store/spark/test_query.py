"""What a query reads, decided from its text alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelock.errors import InvalidExpression, TableNotFound
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.expressions import parse_filter
from tidelock.model.sql.reads import QueryReads, TableRead, find_reads
from tidelock.store.spark.query import bind


def schema(*names: str) -> TableSchema:
    return TableSchema(tuple(Column(name, pa.int64()) for name in names))


SCHEMAS = {
    "orders": schema("id", "customer_id", "amount", "status"),
    "customers": schema("id", "name", "city"),
    "Ränge x": schema("Ü", "b"),
}


def translate(text: str, table: TableSchema) -> str | None:
    return parse_filter(text, table).lance


def plan(text: str) -> QueryReads:
    return find_reads(text, SCHEMAS, translate)


def reads(text: str) -> dict[str, TableRead]:
    return {read.name: read for read in plan(text).reads}


def columns(text: str, table: str = "orders") -> set[str] | None:
    found = reads(text)[table].columns
    return None if found is None else set(found)


def filters(text: str) -> dict[str, str | None]:
    return {name: read.filter for name, read in reads(text).items()}


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("SELECT 1", set()),
        ("VALUES (1), (2)", set()),
        ("SELECT * FROM range(10)", set()),
        ("SELECT id FROM orders", {"orders"}),
        ("select ID from ORDERS;", {"orders"}),
        ("SELECT `Ü` FROM `RÄNGE X`", {"Ränge x"}),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM customers)", {"orders", "customers"}),
        ("SELECT (SELECT max(id) FROM customers) FROM range(1)", {"customers"}),
        ("(SELECT id FROM orders) UNION ALL (SELECT id FROM customers)", {"orders", "customers"}),
        ("WITH q AS (SELECT id FROM orders) SELECT * FROM q", {"orders"}),
        ("FROM orders SELECT id", {"orders"}),
        ("TABLE orders", {"orders"}),
        ("FROM orders |> WHERE id > 1 |> SELECT id", {"orders"}),
        ("SELECT * FROM (orders JOIN customers USING (id)) t", {"orders", "customers"}),
        ("SELECT * FROM orders o, LATERAL (SELECT o.id + 1) t", {"orders"}),
        ("-- note\n/* and */ SELECT id FROM orders -- end", {"orders"}),
    ],
)
def test_the_tables_of_a_query_are_found(text: str, tables: set[str]) -> None:
    assert set(reads(text)) == tables


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("WITH orders AS (SELECT 1 AS id) SELECT id FROM orders", set()),
        ("WITH Orders AS (SELECT id FROM customers) SELECT id FROM ORDERS", {"customers"}),
        # Inside its own definition the name still means the table.
        ("WITH orders AS (SELECT * FROM orders) SELECT * FROM orders", {"orders"}),
        ("WITH a AS (SELECT * FROM customers), customers AS (TABLE a) SELECT 1", {"customers"}),
        (
            "SELECT * FROM (WITH orders AS (SELECT 1 AS id) SELECT * FROM orders) x"
            " JOIN orders ON true",
            {"orders"},
        ),
        (
            "WITH RECURSIVE orders(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM orders)"
            " SELECT n FROM orders",
            set(),
        ),
    ],
)
def test_a_name_that_the_query_defines_covers_the_table_where_sql_says_so(
    text: str, tables: set[str]
) -> None:
    assert set(reads(text)) == tables


@pytest.mark.parametrize(
    "text",
    [
        "FROM orders |> DROP status |> SET amount = amount + 1",
        "SELECT update, o.delete AS drop, `merge` FROM orders o UNION TABLE orders",
        "SELECT * FROM (SELECT id insert FROM orders) UNION TABLE orders",
    ],
)
def test_words_of_changes_are_names_and_steps_where_no_statement_begins(text: str) -> None:
    assert list(reads(text)) == ["orders"]


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE orders",
        "INSERT INTO orders SELECT * FROM orders",
        "WITH q AS (SELECT 1) INSERT INTO orders SELECT * FROM q",
        "FROM orders INSERT INTO customers SELECT *",
        "MERGE INTO orders USING customers ON true WHEN MATCHED THEN DELETE",
        "SET spark.sql.ansi.enabled = false",
        "SHOW TABLES",
        "EXPLAIN SELECT 1",
        "CREATE TEMP VIEW v AS SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE orders",
        "",
        "  -- nothing",
        ";",
        "SELECT 'not closed",
        "SELECT * FROM IDENTIFIER('orders')",
        "SELECT * FROM orders VERSION AS OF 3",
    ],
)
def test_what_is_not_one_query_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        plan(text)


@pytest.mark.parametrize("name", ["order", "default.orders", "parquet.`/etc/x`", "global_temp.v"])
def test_a_table_outside_of_the_snapshot_is_not_found(name: str) -> None:
    with pytest.raises(TableNotFound):
        plan(f"SELECT * FROM {name}")


def test_an_unknown_table_is_met_with_the_nearest_name() -> None:
    with pytest.raises(TableNotFound, match="Did you mean 'orders'"):
        plan("SELECT * FROM ordres")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT * FROM orders", None),
        ("SELECT o.* FROM orders o", None),
        ("SELECT count(*) FROM orders", set()),
        ("SELECT 1 FROM orders", set()),
        ("SELECT AMOUNT FROM orders", {"amount"}),
        ("SELECT sum(amount) FROM orders WHERE id > 1 GROUP BY status", {"amount", "id", "status"}),
        ("SELECT count(*) OVER (PARTITION BY status) FROM orders", {"status"}),
        ("SELECT struct(*) FROM orders", None),
        ("SELECT count(DISTINCT *) FROM orders", None),
        ("SELECT transform(array(1), x -> x + amount) FROM orders", {"amount"}),
        ("SELECT o.amount FROM orders o JOIN customers c ON c.id = 1", {"amount"}),
        ("SELECT c.name FROM orders o JOIN customers c USING (id)", {"id"}),
        ("SELECT c.name FROM orders NATURAL JOIN customers c", None),
        ("SELECT 1 FROM customers WHERE EXISTS (SELECT * FROM orders)", set()),
        ("SELECT t.* FROM (customers c JOIN orders o ON c.id = o.id) t", None),
        ("SELECT * FROM orders PIVOT (sum(amount) FOR status IN (1, 2))", None),
        ("SELECT a FROM orders AS o(a, b, c, d)", None),
        ("SELECT id FROM orders UNION SELECT * FROM customers", {"id"}),
        ("WITH q AS (SELECT status FROM orders) SELECT * FROM q", {"status"}),
        ("TABLE orders", None),
        ("FROM orders |> SELECT id", None),
    ],
)
def test_only_the_columns_that_can_be_meant_are_read(text: str, wanted: set[str] | None) -> None:
    assert columns(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "SELECT nope FROM orders",
        "SELECT o.nope FROM orders o",
        "SELECT id FROM orders WHERE nope = 1",
        "WITH q AS (SELECT nope FROM orders) SELECT nope FROM q",
    ],
)
def test_all_columns_are_there_for_spark_to_suggest_one_when_a_name_is_unknown(text: str) -> None:
    assert columns(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT amount AS a FROM orders ORDER BY a",
        "SELECT q.a FROM (SELECT amount a FROM orders) q",
        "WITH q(a) AS (SELECT amount FROM orders) SELECT a FROM q",
        "SELECT x + amount FROM orders LATERAL VIEW explode(array(1)) AS x",
        "SELECT amount.a FROM orders",
        "SELECT orders.amount.a FROM orders",
    ],
)
def test_names_that_the_text_defines_are_no_reason_to_read_more(text: str) -> None:
    assert columns(text) == {"amount"}


def test_a_qualified_column_is_read_from_its_own_table_alone() -> None:
    found = reads("SELECT c.name FROM orders o JOIN customers c ON o.customer_id = c.id")
    assert found["orders"].columns == ("customer_id",)
    assert found["customers"].columns == ("id", "name")


@pytest.mark.parametrize(
    ("text", "pushed"),
    [
        ("SELECT * FROM orders WHERE id = 5", {"orders"}),
        ("SELECT * FROM orders o WHERE o.id = 5 AND rand() < 2", {"orders"}),
        ("SELECT * FROM orders WHERE id = 5 OR amount = 1", {"orders"}),
        ("SELECT * FROM orders", set()),
        ("SELECT * FROM orders HAVING id = 5", set()),
        ("SELECT * FROM orders o JOIN customers c ON o.id = c.id AND c.city = 1", {"customers"}),
        (
            "SELECT * FROM orders o, customers c WHERE o.id = 1 AND city = 2",
            {"orders", "customers"},
        ),
        ("SELECT * FROM orders o JOIN customers c ON true WHERE o.id = c.id", set()),
        # `id` alone may be either's.
        ("SELECT * FROM orders o JOIN customers c USING (id) WHERE id = 1", set()),
        ("SELECT * FROM orders o LEFT JOIN customers c ON c.city = 1 WHERE o.id = 2", {"orders"}),
        ("SELECT * FROM orders o LEFT JOIN customers c ON true WHERE c.city = 1", set()),
        ("SELECT * FROM orders o LEFT JOIN customers c ON o.amount = 1", set()),
        ("SELECT * FROM orders o RIGHT JOIN customers c ON true WHERE o.id = 1", set()),
        ("SELECT * FROM orders o FULL JOIN customers c ON true WHERE c.id = 1", set()),
        ("SELECT * FROM orders o LEFT SEMI JOIN customers c ON o.id = c.id AND c.city = 1", set()),
        ("SELECT * FROM orders o LEFT ANTI JOIN customers c ON c.city = 1 WHERE id = 1", set()),
        ("SELECT * FROM orders TABLESAMPLE (10 ROWS) WHERE id = 1", set()),
        ("SELECT * FROM orders AS o(a, id, c, d) WHERE id = 1", set()),
        ("SELECT * FROM orders LATERAL VIEW explode(array(1)) t AS id WHERE id = 1", set()),
        ("SELECT * FROM orders o, (SELECT 1 AS amount) q WHERE amount = 1", set()),
        ("SELECT * FROM orders o, (SELECT 1 AS x) q WHERE o.amount = 1", {"orders"}),
        (
            "SELECT * FROM orders WHERE id IN (SELECT id FROM customers WHERE city = 1)",
            {"customers"},
        ),
        ("SELECT * FROM customers c WHERE EXISTS (SELECT 1 FROM orders WHERE id = c.id)", set()),
        ("WITH q AS (SELECT * FROM orders WHERE id = 1) SELECT * FROM q", {"orders"}),
        ("WITH q AS (SELECT * FROM orders) SELECT * FROM q WHERE id = 1", set()),
        ("SELECT * FROM orders LIMIT 5", set()),
    ],
)
def test_a_condition_is_applied_early_only_where_it_holds_anyway(
    text: str, pushed: set[str]
) -> None:
    assert {name for name, told in filters(text).items() if told is not None} == pushed


def test_a_table_that_occurs_twice_keeps_the_rows_of_both_occurrences() -> None:
    told = filters(
        "SELECT * FROM orders a JOIN orders b ON a.id = b.id WHERE a.id = 1 AND b.id = 2"
    )
    assert told["orders"] is not None
    assert " OR " in told["orders"]


def test_a_table_that_occurs_once_without_a_condition_is_read_whole() -> None:
    assert filters("SELECT * FROM orders a JOIN orders b ON a.id = b.id WHERE a.id = 1") == {
        "orders": None
    }


def test_the_text_is_bound_unchanged_behind_the_definitions_of_its_tables() -> None:
    text = "SELECT '{x}' FROM Orders;"
    assert bind(plan(text)) == ("WITH `Orders` AS (SELECT * FROM {t0})\nSELECT '{{x}}' FROM Orders")


def test_a_query_with_definitions_of_its_own_is_nested() -> None:
    text = "WITH orders AS (SELECT id FROM orders) SELECT * FROM orders -- end"
    assert bind(plan(text)) == f"WITH `orders` AS (SELECT * FROM {{t0}})\n(\n{text}\n)"
