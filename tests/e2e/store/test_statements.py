"""Statements that change tables, on a real Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidelock
from tidelock import Lake, errors
from tidelock.store.statements import merge
from tidelock.store.statements.reports import StatementReport

HOSTILE = ["'", "''; DROP TABLE orders; --", '"', "`", "\\", "${spark.app.name}", "{t0}", ":p", "?"]
STAGED = [
    {"id": 1, "customer": "ada", "amount": 11},
    {"id": 3, "customer": None, "amount": None},
    {"id": 9, "customer": "mary", "amount": 90},
]


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, spark=spark) as lake:
        lake.execute(
            "CREATE TABLE orders (id BIGINT NOT NULL, customer STRING, amount DECIMAL(12,2),"
            " PRIMARY KEY (id)); CREATE TABLE plain (a INT, s STRING);"
            "INSERT INTO orders VALUES (1, 'ada', 10), (2, 'grace', 20), (3, NULL, 30);"
            "INSERT INTO plain VALUES (1, 'x'), (1, 'x'), (2, NULL), (NULL, 'y')"
        )
        yield lake


def rows(lake: Any, table: str = "orders") -> list[tuple[Any, ...]]:
    found = lake.table(table).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def ids(lake: Lake, table: str = "orders") -> dict[Any, int]:
    found = lake.read_since(table, -1, limit=100).rows.to_pylist()
    return {row["id"]: row["_sequence"] for row in found}


# INSERT


def test_the_rows_of_a_query_are_inserted(lake: Lake) -> None:
    done = lake.execute(
        "INSERT INTO plain SELECT CAST(id AS INT), customer FROM orders WHERE amount >= :least;"
        "INSERT INTO plain (s) SELECT s FROM plain WHERE a IS NULL;"
        "INSERT INTO plain TABLE plain;"
        "INSERT INTO plain BY NAME SELECT upper(s) AS S FROM plain WHERE a = 2;"
        "WITH q AS (SELECT 7 AS x) INSERT INTO plain SELECT x, 'q' FROM q",
        {"least": 20},
    )
    assert [one.inserted for one in done.statements] == [2, 1, 7, 4, 1]
    assert lake.table("plain").count() == 19


def test_a_table_is_read_while_it_is_replaced(lake: Lake) -> None:
    (report,) = lake.execute(
        "INSERT OVERWRITE plain SELECT a + 10, s FROM plain WHERE a IS NOT NULL"
    ).statements
    assert report == StatementReport("INSERT", "plain", inserted=3, deleted=4)
    assert rows(lake, "plain") == [(11, "x"), (11, "x"), (12, None)]
    (report,) = lake.execute(
        "INSERT INTO plain REPLACE WHERE s = 'x' SELECT DISTINCT a, lower(s) FROM plain"
    ).statements
    assert report == StatementReport("INSERT", "plain", inserted=2, deleted=2)
    assert rows(lake, "plain") == [(11, "x"), (12, None), (12, None)]


def test_values_that_only_spark_computes_are_inserted_too(lake: Lake) -> None:
    lake.execute(
        "INSERT INTO plain VALUES (1 + 1, upper('a')), (DEFAULT, concat('b', :x))", {"x": "c"}
    )
    assert rows(lake, "plain")[-2:] == [(None, "bc"), (None, "y")]
    assert (2, "A") in rows(lake, "plain")


def test_values_are_stored_as_spark_stores_them(lake: Lake) -> None:
    lake.execute("INSERT INTO plain SELECT 5000000000 - 4999999995, 12")
    assert (5, "12") in rows(lake, "plain")
    lake.execute("INSERT INTO orders SELECT 8, true, 1.005D")
    assert (8, "true", Decimal("1.01")) in rows(lake)


@pytest.mark.parametrize(
    ("sql", "error", "told"),
    [
        ("INSERT INTO plain SELECT 5000000000, 'x'", errors.QueryFailed, "overflow"),
        ("INSERT INTO plain SELECT 'x', 'x'", errors.WrongType, "STRING, which cannot be stored"),
        ("INSERT INTO plain SELECT 1", errors.InvalidExpression, "1 values are given for 2"),
        ("INSERT INTO plain SELECT b, s FROM plain", errors.ColumnNotFound, "no column 'b'"),
        ("INSERT INTO plain SELECT a, s FROM plane", errors.TableNotFound, "Did you mean 'plain'"),
        ("INSERT INTO plain BY NAME SELECT 1 AS b", errors.ColumnNotFound, "no column 'b'"),
        ("INSERT INTO orders SELECT NULL, 'x', 1", errors.RequiredColumnNull, "'id'"),
        ("INSERT INTO orders (amount) SELECT 1", errors.RequiredColumnNull, "'id'"),
        ("INSERT INTO orders SELECT id, 'x', 1 FROM orders", errors.DuplicateKey, "already: 1"),
        ("INSERT INTO orders SELECT 7, 'x', a FROM plain", errors.DuplicateKey, "more than once"),
        ("INSERT INTO plain SELECT * FROM", errors.QueryFailed, "refused the INSERT"),
        ("UPDATE orders SET id = 1 + length(customer)", errors.RequiredColumnNull, "'id'"),
        ("UPDATE orders SET id = length('x')", errors.DuplicateKey, "more than once"),
        ("UPDATE orders SET amount = upper(customer)", errors.WrongType, "cannot be stored"),
        ("UPDATE orders SET amount = 1 / 0 WHERE id = 1", errors.QueryFailed, "Division by zero"),
        (
            "UPDATE orders SET amount = (SELECT a FROM plain)",
            errors.QueryFailed,
            "More than one row",
        ),
        ("UPDATE orders SET id = (SELECT b FROM plain)", errors.ColumnNotFound, "'b'"),
        (
            "UPDATE orders SET id = explode(array(id, 9)) WHERE id IN (SELECT 1)",
            errors.QueryFailed,
            "GENERATOR",
        ),
        ("DELETE FROM orders WHERE id IN (SELECT b FROM plain)", errors.ColumnNotFound, "'b'"),
    ],
)
def test_what_spark_or_the_table_refuses_changes_nothing(
    lake: Lake, sql: str, error: type[errors.TidelockError], told: str
) -> None:
    before = lake.snapshot().version
    with pytest.raises(error) as caught:
        lake.execute(sql)
    assert told in str(caught.value)
    assert "__tidelock" not in str(caught.value)
    assert lake.snapshot().version == before


# UPDATE and DELETE


def test_updates_and_deletes_read_other_tables_and_keep_row_ids(lake: Lake) -> None:
    before = ids(lake)
    done = lake.execute(
        "UPDATE orders AS o SET amount = (SELECT max(p.a) FROM plain p WHERE p.a = o.id),"
        " customer = coalesce(customer, 'nobody') WHERE EXISTS (SELECT 1 FROM plain WHERE a = o.id)"
        " OR o.customer IS NULL;"
        "DELETE FROM orders WHERE id IN (SELECT a FROM plain WHERE s = 'x');"
        "WITH q AS (SELECT 2 AS id) DELETE FROM plain WHERE a IN (SELECT id FROM q)"
    )
    assert [(one.updated, one.deleted) for one in done.statements] == [(3, 0), (0, 1), (0, 1)]
    assert rows(lake) == [(2, "grace", Decimal("2.00")), (3, "nobody", None)]
    assert ids(lake) == {2: before[2], 3: before[3]}


def test_a_statement_sees_the_statements_before_it(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.execute("INSERT INTO orders SELECT id + 10, customer, amount FROM orders")
        tx.execute("UPDATE orders SET amount = amount * 2 WHERE id IN (SELECT max(id) FROM orders)")
        tx.execute("DELETE FROM orders WHERE id < (SELECT avg(id) FROM orders)")
        assert tx.sql("SELECT count(*) AS n FROM orders").toArrow().to_pylist() == [{"n": 3}]
        assert lake.table("orders").count() == 3
    assert rows(lake) == [
        (11, "ada", Decimal("10.00")),
        (12, "grace", Decimal("20.00")),
        (13, None, Decimal("60.00")),
    ]


# MERGE


def test_a_merge_does_what_its_first_fitting_clause_says(lake: Lake) -> None:
    before = ids(lake)
    done = lake.execute(
        "MERGE INTO orders USING staged ON orders.id = staged.id "
        "WHEN MATCHED AND staged.amount > orders.amount THEN UPDATE SET amount = staged.amount "
        "WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND amount > 100 THEN INSERT (id) VALUES (-1) "
        "WHEN NOT MATCHED THEN INSERT (id, customer) VALUES (id, customer) "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET customer = upper(customer)",
        staged=STAGED,
    )
    assert tuple(done.statements) == (
        StatementReport("MERGE", "orders", inserted=1, updated=2, deleted=1),
    )
    assert rows(lake) == [
        (1, "ada", Decimal("11.00")),
        (2, "GRACE", Decimal("20.00")),
        (9, "mary", None),
    ]
    after = ids(lake)
    assert (after[1], after[2]) == (before[1], before[2])
    assert after[9] > max(before.values())


def test_a_star_sets_all_columns(lake: Lake) -> None:
    lake.execute(
        "MERGE INTO orders o USING staged s ON o.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        staged=STAGED,
    )
    assert rows(lake) == [
        (1, "ada", Decimal("11.00")),
        (2, "grace", Decimal("20.00")),
        (3, None, None),
        (9, "mary", Decimal("90.00")),
    ]


def test_a_merge_reads_its_own_table_and_tables_without_a_key(lake: Lake) -> None:
    lake.execute(
        "MERGE INTO plain USING (SELECT a + 1 AS a, count(*) AS n FROM plain GROUP BY a) AS q "
        "ON plain.a = q.a "
        "WHEN MATCHED THEN UPDATE SET s = CAST(q.n AS STRING) "
        "WHEN NOT MATCHED THEN INSERT (a, s) VALUES (q.a, 'new')"
    )
    assert rows(lake, "plain") == [
        *((1, "x"), (1, "x"), (2, "2"), (3, "new")),
        *((None, "new"), (None, "y")),
    ]


def test_nulls_never_match(lake: Lake) -> None:
    (report,) = lake.execute(
        "MERGE INTO plain USING plain AS q ON plain.a = q.a AND plain.s = q.s "
        "WHEN NOT MATCHED THEN INSERT (s) VALUES ('unmatched')"
    ).statements
    assert report.inserted == 2


def test_several_matches_of_one_row_are_refused_with_its_key(lake: Lake) -> None:
    twice = [{"id": 1, "amount": 1}, {"id": 1, "amount": 2}, {"id": 2, "amount": 3}]
    merge = "MERGE INTO orders o USING staged s ON o.id = s.id WHEN MATCHED "
    with pytest.raises(errors.MultipleMatches, match=r"key \(id\) 1\. Keep one") as caught:
        lake.execute(merge + "THEN UPDATE SET amount = s.amount", staged=twice)
    assert (caught.value.columns, caught.value.values) == (["id"], [(1,)])
    with pytest.raises(errors.MultipleMatches):
        lake.execute(merge + "AND s.amount < 9 THEN DELETE", staged=twice)
    done = lake.execute(merge + "AND s.amount = 2 THEN UPDATE SET amount = 5", staged=twice)
    assert done.statements[0].updated == 1
    assert lake.execute(merge + "THEN DELETE", staged=twice).statements[0].deleted == 2
    with pytest.raises(errors.MultipleMatches, match=r"row \(a, s\) \(1, 'x'\)"):
        lake.execute(
            "MERGE INTO plain USING staged s ON a = s.id WHEN MATCHED THEN UPDATE SET s = 'z'",
            staged=twice,
        )


@pytest.mark.parametrize(
    ("clauses", "error", "told"),
    [
        ("WHEN NOT MATCHED THEN INSERT (id) VALUES (2)", errors.DuplicateKey, "after this"),
        ("WHEN MATCHED THEN UPDATE SET id = 2", errors.DuplicateKey, "(id)"),
        ("WHEN MATCHED THEN UPDATE SET id = NULL", errors.RequiredColumnNull, "'id'"),
        ("WHEN NOT MATCHED THEN INSERT (amount) VALUES (2)", errors.RequiredColumnNull, "'id'"),
        ("WHEN MATCHED THEN UPDATE SET amount = s.customer", errors.WrongType, "'s.customer'"),
        ("WHEN MATCHED THEN UPDATE SET amont = 1", errors.ColumnNotFound, "mean 'amount'?"),
        ("WHEN MATCHED THEN UPDATE SET amount = s.amont", errors.ColumnNotFound, "'s.amont'"),
        ("WHEN NOT MATCHED THEN INSERT (id) VALUES (o.id)", errors.ColumnNotFound, "'o.id'"),
        (
            "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET amount = s.amount",
            errors.ColumnNotFound,
            "'s.amount'",
        ),
        ("WHEN MATCHED AND amount > 1 THEN DELETE", errors.QueryFailed, "AMBIGUOUS"),
    ],
)
def test_a_merge_that_cannot_be_is_a_typed_error(
    lake: Lake, clauses: str, error: type[errors.TidelockError], told: str
) -> None:
    before = lake.snapshot().version
    with pytest.raises(error) as caught:
        lake.execute(f"MERGE INTO orders o USING staged s ON o.id = s.id {clauses}", staged=STAGED)
    assert told in str(caught.value)
    assert "__tidelock" not in str(caught.value)
    assert lake.snapshot().version == before


def test_values_are_computed_only_where_their_clause_applies(lake: Lake) -> None:
    lake.execute(
        "MERGE INTO orders o USING staged s ON o.id = s.id "
        "WHEN MATCHED AND s.id = 1 THEN UPDATE SET amount = 10 / (2 - s.id) "
        "WHEN MATCHED AND 1 / (s.id - 1) > 0 THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (id, 8 / (id - 1))",
        staged=STAGED,
    )
    assert rows(lake) == [
        (1, "ada", Decimal("10.00")),
        (2, "grace", Decimal("20.00")),
        (9, None, Decimal("1.00")),
    ]


def test_a_source_that_answers_differently_each_time_is_asked_once(lake: Lake) -> None:
    done = lake.execute(
        "MERGE INTO orders o USING (SELECT CAST(rand() * 4 AS BIGINT) AS id, uuid() AS u "
        "FROM range(1)) s ON o.id = s.id "
        "WHEN MATCHED THEN UPDATE SET customer = s.u "
        "WHEN NOT MATCHED THEN INSERT (id, customer) VALUES (s.id, s.u)"
    )
    (report,) = done.statements
    assert report.inserted + report.updated == 1


def test_empty_tables_and_empty_sources_are_merged(lake: Lake) -> None:
    nothing = pa.table({"id": pa.array([], pa.int64()), "amount": pa.array([], pa.int32())})
    clauses = (
        "WHEN MATCHED THEN UPDATE SET amount = s.amount "
        "WHEN NOT MATCHED THEN INSERT (id, amount) VALUES (s.id, s.amount) "
    )
    merge = f"MERGE INTO orders USING s ON orders.id = s.id {clauses}"
    (report,) = lake.execute(merge, s=nothing).statements
    assert report == StatementReport("MERGE", "orders")
    left = lake.execute(merge + "WHEN NOT MATCHED BY SOURCE THEN DELETE", s=nothing).statements
    assert left[0].deleted == 3
    (report,) = lake.execute(merge, s=[{"id": 1, "amount": 5}]).statements
    assert report == StatementReport("MERGE", "orders", inserted=1)


def test_a_large_target_is_merged_by_shuffling(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "LARGE_ROWS", 0)
    done = lake.execute(
        "MERGE INTO orders USING (SELECT id + 1 AS id FROM orders) s ON orders.id = s.id "
        "WHEN MATCHED THEN UPDATE SET customer = 'seen' "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    assert done.statements[0] == StatementReport("MERGE", "orders", 1, 2, 1)


def test_values_of_every_type_come_through(lake: Lake) -> None:
    ddl = (
        "id INT NOT NULL, b BOOLEAN, f DOUBLE, m DECIMAL(20,5), d DATE, t TIMESTAMP,"
        "n TIMESTAMP_NTZ, x BINARY, l ARRAY<INT>, p MAP<STRING, INT>,"
        "r STRUCT<a: INT, `b c`: STRING>"
    )
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    row = {
        "id": 1,
        "b": True,
        "f": 1.5,
        "m": Decimal("1.50000"),
        "d": moment.date(),
        "t": moment,
        "n": moment.replace(tzinfo=None),
        "x": b"\0",
        "l": [1, None],
        "p": [("k", 1)],
        "r": {"a": 1, "b c": "x"},
    }
    lake.create_table("wide", ddl, key="id")
    with lake.transaction() as tx:
        tx.append("wide", [row])
    lake.execute(
        "MERGE INTO wide USING (SELECT * FROM wide UNION ALL "
        "SELECT 2, b, f, m, d, t, n, x, l, p, r FROM wide) s ON wide.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;"
        "INSERT INTO wide SELECT 3, b, f, m, d, t, n, x, l, p, r FROM wide WHERE id = 1;"
        "UPDATE wide SET f = f WHERE id IN (SELECT 3)"
    )
    found = sorted(lake.table("wide").to_arrow().to_pylist(), key=lambda one: one["id"])
    assert found == [{**row, "id": number} for number in (1, 2, 3)]


# Parameters and relations


def test_hostile_text_stays_text_on_spark(lake: Lake) -> None:
    params = {f"x{number}": value for number, value in enumerate(HOSTILE)}
    listed = ", ".join(f":{name}" for name in params)
    pairs = ", ".join(f"({number}, concat(:x{number}, ''))" for number in range(len(HOSTILE)))
    lake.execute(
        f"INSERT OVERWRITE plain VALUES {pairs};"
        f"UPDATE plain SET s = concat(s, s) WHERE s IN ({listed}) AND a IN (SELECT a FROM plain);"
        f"MERGE INTO plain USING (VALUES {pairs}) AS q(n, x) "
        "ON plain.a = q.n AND plain.s = concat(q.x, q.x) WHEN MATCHED THEN UPDATE SET s = q.x",
        params,
    )
    assert sorted(rows(lake, "plain")) == list(enumerate(HOSTILE))
    for number in (1, 5):
        found = lake.sql("SELECT a FROM plain WHERE s = ?", [HOSTILE[number]]).toArrow()
        assert found.to_pylist() == [{"a": number}]


def test_a_parameter_is_the_value_that_was_given(lake: Lake) -> None:
    moment = dt.datetime(2024, 1, 2, 3, tzinfo=dt.UTC)
    given = [None, True, 5, 2**40, 1.5, Decimal("1.10"), "x", b"\0x", moment.date(), moment]
    given += [moment.replace(tzinfo=None), Decimal(2**70)]
    asked = ", ".join(f"? AS x{number}" for number in range(len(given)))
    (found,) = lake.snapshot().sql(f"SELECT {asked}", given).toArrow().to_pylist()
    assert list(found.values()) == given
    (large,) = lake.sql("SELECT :x AS x", {"x": 2**70}).toArrow().to_pylist()
    assert large == {"x": Decimal(2**70)}


def test_parameters_narrow_what_a_query_reads(lake: Lake) -> None:
    frame = lake.sql("SELECT customer FROM orders WHERE id = :id", {"id": 2})
    assert frame.toArrow().to_pylist() == [{"customer": "grace"}]


FORMS: dict[str, Any] = {
    "a reader": lambda spark: pa.table({"id": [1, 9], "customer": ["new", "mary"]}).to_reader(),
    "dicts": lambda spark: [{"id": 1, "customer": "new"}, {"id": 9, "customer": "mary"}],
    "pandas": lambda spark: pd.DataFrame({"id": [1, 9], "customer": ["new", "mary"]}),
    "polars": lambda spark: pl.DataFrame({"id": [1, 9], "customer": ["new", "mary"]}),
    "Spark": lambda spark: spark.createDataFrame(
        [(1, "new"), (9, "mary")], "id INT, customer STRING"
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_relations_are_given_in_many_forms(lake: Lake, spark: Any, form: str) -> None:
    lake.execute(
        "MERGE INTO orders USING Staged AS s ON orders.id = s.id "
        "WHEN MATCHED THEN UPDATE SET customer = s.customer "
        "WHEN NOT MATCHED THEN INSERT (id, customer) VALUES (s.id, s.customer);"
        "INSERT INTO plain SELECT CAST(id AS INT), customer FROM staged",
        staged=FORMS[form](spark),
    )
    assert {row[0]: row[1] for row in rows(lake)} == {1: "new", 2: "grace", 3: None, 9: "mary"}
    assert {(1, "new"), (9, "mary")} <= set(rows(lake, "plain"))


def test_a_table_of_another_version_is_a_relation(lake: Lake) -> None:
    before = lake.snapshot()
    lake.execute("UPDATE orders SET customer = 'lost'")
    lake.execute(
        "MERGE INTO orders USING old ON orders.id = old.id "
        "WHEN MATCHED THEN UPDATE SET customer = old.customer",
        old=before.table("orders"),
    )
    assert rows(lake) == rows(before)


@pytest.mark.parametrize("name", ["a b", "select", "it's", "{x}"])
def test_hostile_names_come_through_spark(lake: Lake, name: str) -> None:
    quoted = f"`{name}`"
    lake.execute(
        f"CREATE TABLE {quoted} ({quoted} INT, b STRING, PRIMARY KEY ({quoted}));"
        f"INSERT INTO {quoted} ({quoted}) SELECT a FROM plain WHERE a = 2;"
        f"UPDATE {quoted} AS {quoted} SET b = concat('x', {quoted}.{quoted});"
        f"MERGE INTO {quoted} AS t "
        f"USING (SELECT {quoted} + 1 AS {quoted} FROM {quoted}) AS {quoted} "
        f"ON t.{quoted} = {quoted}.{quoted} "
        f"WHEN NOT MATCHED THEN INSERT ({quoted}, b) VALUES ({quoted}, 'new') "
        f"WHEN NOT MATCHED BY SOURCE THEN UPDATE SET b = concat(b, {quoted});"
        f"DELETE FROM {quoted} WHERE b = concat('ne', 'w')"
    )
    assert rows(lake, name) == [(2, "x22")]


# Stream tables


def test_stream_tables_are_not_changed_by_hand_and_are_read(lake: Lake) -> None:
    lake.create_stream_table("totals", "SELECT count(*) AS n FROM orders")
    lake.refresh()
    for sql in (
        "INSERT INTO totals VALUES (1)",
        "UPDATE totals SET n = 1",
        "DELETE FROM totals",
        "TRUNCATE TABLE totals",
        "DROP TABLE totals",
        "MERGE INTO totals USING plain ON true WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(errors.StreamTableWrite):
            lake.execute(sql)
    lake.execute("INSERT INTO plain SELECT CAST(n AS INT), 'n' FROM totals")
    assert (3, "n") in rows(lake, "plain")


def test_a_session_that_is_lenient_stores_no_other_value(lake: Lake, spark: Any) -> None:
    lenient = spark.newSession()
    lenient.conf.set("spark.sql.ansi.enabled", "false")
    with tidelock.open(lake.uri, spark=lenient) as other:
        for sql in (
            "INSERT INTO plain SELECT 5000000000, 'x'",
            "UPDATE plain SET a = a * CAST(rand() + 5000000000 AS BIGINT) WHERE a = 1",
            "MERGE INTO plain USING (SELECT 5000000000 AS b) q ON plain.a = 2 "
            "WHEN MATCHED THEN UPDATE SET a = q.b",
        ):
            with pytest.raises(errors.QueryFailed, match="does not fit INT"):
                other.execute(sql)
        other.execute("INSERT INTO plain SELECT 5L, 'x'")
    assert (5, "x") in rows(lake, "plain")


# Beside others


MERGE_STAGED = (
    "MERGE INTO orders USING staged ON orders.id = staged.id WHEN MATCHED AND staged.amount IS NULL"
    " THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def test_a_merge_conflicts_by_row(lake: Lake) -> None:
    before = ids(lake)
    tx = lake.transaction()
    tx.execute(MERGE_STAGED, staged=pa.Table.from_pylist(STAGED))
    lake.execute(
        "UPDATE orders SET amount = 21 WHERE id = 2; INSERT INTO orders VALUES (8, 'h', 8)"
    )
    lake.optimize()
    tx.publish()
    assert rows(lake) == [
        (1, "ada", Decimal("11.00")),
        (2, "grace", Decimal("21.00")),
        (8, "h", Decimal("8.00")),
        (9, "mary", Decimal("90.00")),
    ]
    assert ids(lake)[1] == before[1]


@pytest.mark.parametrize("matching", ["WHEN NOT MATCHED THEN INSERT *", "WHEN MATCHED THEN DELETE"])
def test_a_merge_that_touched_no_row_goes_on_top_of_others(lake: Lake, matching: str) -> None:
    tx = lake.transaction()
    staged = [{"id": 20, "customer": "new", "amount": 1}]
    tx.execute(f"MERGE INTO orders USING staged ON orders.id = staged.id {matching}", staged=staged)
    lake.execute("INSERT INTO orders VALUES (8, 'h', 8); DELETE FROM orders WHERE id = 1")
    tx.publish()
    expected = {2, 3, 8} | ({20} if "INSERT" in matching else set())
    assert {row[0] for row in rows(lake)} == expected


def test_a_merge_loses_to_who_touched_its_row_or_took_its_key(lake: Lake) -> None:
    staged = pa.Table.from_pylist(STAGED)
    tx = lake.transaction()
    tx.execute(MERGE_STAGED, staged=staged)
    lake.execute("UPDATE orders SET amount = 31 WHERE id = 3")
    with pytest.raises(errors.CommitConflict, match=r"\(id\) = 3"):
        tx.publish()
    tx = lake.transaction()
    tx.execute(MERGE_STAGED, staged=staged)
    lake.execute("INSERT INTO orders VALUES (9, 'else', 9)")
    with pytest.raises(errors.DuplicateKey):
        tx.publish()
    lake.execute(MERGE_STAGED, staged=staged)
    assert rows(lake)[-1] == (9, "mary", Decimal("90.00"))


def test_a_merge_of_rows_of_its_own_transaction_conflicts_by_table(lake: Lake) -> None:
    tx = lake.transaction()
    tx.execute("INSERT INTO orders VALUES (9, 'x', 1)")
    tx.execute(MERGE_STAGED, staged=pa.Table.from_pylist(STAGED))
    lake.execute("INSERT INTO orders VALUES (8, 'h', 8)")
    with pytest.raises(errors.CommitConflict):
        tx.publish()
