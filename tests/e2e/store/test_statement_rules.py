"""Statements that only an engine can run, and the rules of the tables that they change."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelock
from tidelock import Lake, errors

SCHEMA = """
CREATE TABLE customers (
  id BIGINT PRIMARY KEY, email STRING UNIQUE,
  tier STRING NOT NULL DEFAULT 'basic' CHECK (tier IN ('basic', 'gold')),
  since DATE DEFAULT current_date(), token STRING DEFAULT uuid());
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL REFERENCES customers,
  amount DECIMAL(12,2) CHECK (amount >= 0),
  CONSTRAINT few CARDINALITY (customer_id) BETWEEN 0 AND 2);
INSERT INTO customers (id, email, tier) VALUES (1, 'a@x', 'gold'), (2, 'b@x', 'basic');
INSERT INTO orders VALUES (1, 1, 5), (2, 2, 6);
"""
MERGE = "MERGE INTO customers c USING staged s ON c.id = s.id "


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, spark=spark) as lake:
        lake.execute(SCHEMA)
        yield lake


def customers(lake: Any) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in lake.table("customers").to_arrow().to_pylist()}


def test_defaults_are_given_to_rows_of_a_query_and_of_a_merge(lake: Lake) -> None:
    lake.execute("INSERT INTO customers (id) SELECT id + 10 FROM customers")
    lake.execute("INSERT INTO customers (id, tier, token) VALUES (20 + abs(-1), DEFAULT, DEFAULT)")
    lake.execute(
        MERGE + "WHEN MATCHED THEN UPDATE SET tier = DEFAULT "
        "WHEN NOT MATCHED THEN INSERT (id, token) VALUES (s.id, DEFAULT)",
        staged=[{"id": 1}, {"id": 31}, {"id": 32}],
    )
    lake.execute("UPDATE customers SET tier = DEFAULT WHERE id IN (SELECT customer_id FROM orders)")
    found = customers(lake)
    assert sorted(found) == [1, 2, 11, 12, 21, 31, 32]
    assert {row["tier"] for row in found.values()} == {"basic"}
    assert all(isinstance(row["since"], dt.date) for row in found.values())
    assert len({uuid.UUID(row["token"]) for row in found.values()}) == len(found)


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (
            MERGE + "WHEN MATCHED THEN UPDATE SET tier = 'iron'",
            errors.RuleBroken,
            "tier",
        ),
        (
            MERGE + "WHEN MATCHED THEN UPDATE SET tier = NULL",
            errors.RequiredColumnNull,
            "tier",
        ),
        (
            MERGE + "WHEN NOT MATCHED THEN INSERT (id, email) VALUES (s.id, 'a@x')",
            errors.RuleBroken,
            "email",
        ),
        (MERGE + "WHEN MATCHED THEN DELETE", errors.RuleBroken, "customer"),
        ("INSERT INTO orders SELECT id + 10, id + 7, 1 FROM orders", errors.RuleBroken, "customer"),
        ("INSERT INTO orders SELECT id + 10, 1, 1 FROM orders", errors.RuleBroken, "few"),
        (
            "UPDATE orders SET amount = (SELECT -max(id) FROM customers)",
            errors.RuleBroken,
            "amount",
        ),
        (
            "DELETE FROM customers WHERE id IN (SELECT customer_id FROM orders)",
            errors.RuleBroken,
            "customer",
        ),
        ("INSERT OVERWRITE customers (id) SELECT 1", errors.RuleBroken, "customer"),
        (
            "UPDATE customers SET email = (SELECT min(email) FROM customers)",
            errors.RuleBroken,
            "email",
        ),
    ],
)
def test_rules_hold_for_statements_of_the_engine(
    lake: Lake, text: str, error: type[errors.TidelockError], told: str
) -> None:
    before = lake.snapshot().version
    with pytest.raises(error) as caught:
        lake.execute(text, **({"staged": [{"id": 1}, {"id": 3}]} if "staged" in text else {}))
    assert told in str(caught.value)
    assert lake.snapshot().version == before


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO orders SELECT id + 10, id, 1 FROM customers WHERE tier = 'gold'",
        "UPDATE orders SET amount = 1 WHERE customer_id IN (SELECT id FROM customers)",
        "DELETE FROM orders WHERE customer_id NOT IN (SELECT id FROM customers)",
        "MERGE INTO orders o USING customers c ON o.customer_id = c.id"
        " WHEN MATCHED THEN UPDATE SET amount = 1",
    ],
)
def test_tables_that_a_statement_read_are_protected(lake: Lake, text: str) -> None:
    for isolation in ("serializable", "snapshot"):
        tx = lake.transaction(isolation=isolation)  # type: ignore[arg-type]
        tx.execute(text)
        lake.execute(f"INSERT INTO customers (id, tier) VALUES ({len(isolation)}, 'gold')")
        if isolation == "snapshot":
            tx.publish()
        else:
            with pytest.raises(errors.CommitConflict):
                tx.publish()


def test_a_text_declares_and_fills_tables_on_the_engine(lake: Lake) -> None:
    done = lake.execute(
        "CREATE TABLE totals (customer_id BIGINT REFERENCES customers, total DECIMAL(14,2));"
        "INSERT INTO totals SELECT customer_id, sum(amount) FROM orders GROUP BY customer_id;"
        "ALTER TABLE totals ADD COLUMN doubled DECIMAL(16,2) BACKFILL AS (total * 2);"
        "MERGE INTO totals t USING orders o ON t.customer_id = o.customer_id AND o.amount > :least "
        "WHEN MATCHED THEN UPDATE SET doubled = 0",
        {"least": 5},
    )
    assert [one.kind for one in done.statements] == [
        "CREATE TABLE", "INSERT", "ALTER TABLE", "MERGE"
    ]  # fmt: skip
    found = lake.table("totals").to_arrow().to_pylist()
    assert sorted((row["customer_id"], row["doubled"]) for row in found) == [(1, 10), (2, 0)]


def test_a_check_that_has_no_answer_is_named(lake: Lake) -> None:
    lake.execute("CREATE TABLE shares (id INT, CONSTRAINT whole CHECK (10 / id >= 1))")
    with pytest.raises(errors.QueryFailed, match=r"rule 'whole', 10 / id >= 1, has no answer"):
        lake.execute("INSERT INTO shares VALUES (0)")
    assert lake.table("shares").count() == 0
