"""Statements and the rules of tables: defaults, what is refused, and what was read."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import tidelock
from tidelock import errors
from tidelock.run.lake import Lake

SCHEMA = """
CREATE TABLE customers (
  id BIGINT PRIMARY KEY, email STRING UNIQUE,
  tier STRING NOT NULL DEFAULT 'basic' CHECK (tier IN ('basic', 'gold')),
  since DATE DEFAULT current_date(), token STRING DEFAULT uuid());
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL REFERENCES customers,
  amount DECIMAL(12,2) CHECK (amount >= 0),
  CONSTRAINT few CARDINALITY (customer_id) BETWEEN 0 AND 2);
"""


@pytest.fixture
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    with tidelock.open(f"memory://{request.node.name}", create=True) as lake:
        lake.execute(SCHEMA)
        yield lake


def rows(lake: Any, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = lake.table(table).to_arrow(columns=list(columns) or None).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_what_is_not_listed_gets_its_default(lake: Lake) -> None:
    lake.execute("INSERT INTO customers (id) VALUES (1), (2)")
    lake.execute(
        "INSERT INTO customers (id, tier, token) VALUES (3, DEFAULT, 't'), (4, 'gold', 'u')"
    )
    assert rows(lake, "customers", "id", "tier") == [
        (1, "basic"), (2, "basic"), (3, "basic"), (4, "gold")
    ]  # fmt: skip
    found = lake.table("customers").to_arrow().to_pylist()
    assert len({row["since"] for row in found}) == 1
    assert found[0]["since"] is not None
    assert len({uuid.UUID(row["token"]) for row in found if row["id"] < 3}) == 2


def test_an_update_sets_a_default(lake: Lake) -> None:
    lake.execute("INSERT INTO customers (id, tier) VALUES (1, 'gold')")
    lake.execute("UPDATE customers SET tier = DEFAULT, email = DEFAULT WHERE id = 1")
    assert rows(lake, "customers", "id", "tier", "email") == [(1, "basic", None)]


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("INSERT INTO customers (id, tier) VALUES (2, 'iron')", errors.RuleBroken, "tier"),
        ("INSERT INTO customers (id, tier) VALUES (2, NULL)", errors.RequiredColumnNull, "tier"),
        ("INSERT INTO customers (id) VALUES (1)", errors.DuplicateKey, "(id)"),
        ("INSERT INTO customers (id, email) VALUES (2, 'a@x')", errors.RuleBroken, "email"),
        ("UPDATE customers SET tier = 'iron'", errors.RuleBroken, "tier"),
        ("UPDATE customers SET tier = NULL", errors.RequiredColumnNull, "tier"),
        ("INSERT INTO orders VALUES (10, 9, 1)", errors.RuleBroken, "customer"),
        ("INSERT INTO orders VALUES (10, 1, -1)", errors.RuleBroken, "amount"),
        ("UPDATE orders SET customer_id = 9", errors.RuleBroken, "customer"),
        ("DELETE FROM customers WHERE id = 1", errors.RuleBroken, "customer"),
        ("TRUNCATE TABLE customers", errors.RuleBroken, "customer"),
        ("INSERT INTO orders VALUES (2, 1, 1), (3, 1, 1)", errors.RuleBroken, "few"),
    ],
)
def test_rules_hold_for_statements(
    lake: Lake, text: str, error: type[errors.TidelockError], told: str
) -> None:
    lake.execute("INSERT INTO customers (id, email) VALUES (1, 'a@x')")
    lake.execute("INSERT INTO orders VALUES (1, 1, 5)")
    before = lake.snapshot().version
    with pytest.raises(error, match=r".") as caught:
        lake.execute(text)
    assert told in str(caught.value)
    assert lake.snapshot().version == before


def test_references_are_compared_at_the_end_of_a_text(lake: Lake) -> None:
    done = lake.execute(
        "INSERT INTO orders VALUES (1, 7, 5); INSERT INTO customers (id) VALUES (7)"
    )
    assert [one.summary for one in done.statements] == ["INSERT orders +1", "INSERT customers +1"]


def test_tables_are_declared_altered_and_filled_in_one_commit(lake: Lake) -> None:
    before = lake.snapshot().version
    done = lake.execute(
        "CREATE TABLE t (a INT); INSERT INTO t VALUES (1);"
        "ALTER TABLE t ADD COLUMN b INT DEFAULT 5;"
        "INSERT INTO t (a) VALUES (2); COMMENT ON TABLE t IS 'of two columns';"
        "ALTER TABLE t RENAME COLUMN a TO c; UPDATE t SET b = 6 WHERE c = :c",
        {"c": 2},
    )
    assert done.version == before + 1
    assert rows(lake, "t", "c", "b") == [(1, 5), (2, 6)]
    assert [one.kind for one in done.statements][:3] == ["CREATE TABLE", "INSERT", "ALTER TABLE"]


def test_a_text_that_fails_leaves_a_transaction_as_it_was(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)")
        with pytest.raises(errors.ColumnNotFound, match="Statement 4"):
            tx.execute(
                "ALTER TABLE t ADD COLUMN b INT DEFAULT 1; ALTER TABLE t RENAME TO u;"
                "INSERT INTO u VALUES (2, 2); DELETE FROM u WHERE nothing = 1"
            )
        tx.execute("INSERT INTO t VALUES (3)")
    assert rows(lake, "t") == [(1,), (3,)]


def test_one_declaration_that_fails_midway_leaves_nothing(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.execute("CREATE TABLE t (a INT)")
        with pytest.raises(errors.ColumnNotFound):
            tx.execute("ALTER TABLE t ADD COLUMN b INT, DROP COLUMN nothing")
        with pytest.raises(errors.TidelockError):
            tx.execute("CREATE TABLE u (a INT REFERENCES nowhere)")
        tx.execute("INSERT INTO t VALUES (3)")
    assert rows(lake, "t") == [(3,)]
    assert "u" not in [one.name for one in lake.tables()]


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE customers SET email = 'z' WHERE tier = 'gold'",
        "DELETE FROM customers WHERE tier = 'gold'",
        "UPDATE customers SET email = NULL",
        "DELETE FROM customers",
    ],
)
def test_what_a_statement_read_is_protected_where_that_is_asked_for(lake: Lake, text: str) -> None:
    lake.execute("INSERT INTO customers (id, tier) VALUES (1, 'gold')")
    tx = lake.transaction(isolation="serializable")
    tx.execute(text)
    lake.execute("INSERT INTO customers (id, tier) VALUES (2, 'gold')")
    with pytest.raises(errors.CommitConflict):
        tx.publish()


def test_what_it_did_not_read_is_not(lake: Lake) -> None:
    lake.execute("INSERT INTO customers (id, tier) VALUES (1, 'gold')")
    tx = lake.transaction(isolation="serializable")
    tx.execute("UPDATE customers SET email = 'z' WHERE tier = 'gold'")
    lake.execute("INSERT INTO customers (id, tier) VALUES (2, 'basic')")
    tx.publish()
    assert rows(lake, "customers", "id", "email") == [(1, "z"), (2, None)]
