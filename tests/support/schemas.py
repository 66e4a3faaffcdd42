"""A lake whose schema is changed, for tests that disturb the change: before and after."""

from __future__ import annotations

from typing import Any

import tidelock
from tidelock import Lake

ACTOR = "the planner"
DECLARED = """
CREATE TABLE customers (id BIGINT PRIMARY KEY, tier STRING NOT NULL DEFAULT 'basic', boss BIGINT);
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, customer_id BIGINT REFERENCES customers, qty INT, note STRING,
  CHECK (qty > 0));
CREATE TABLE old (x INT);
"""
WANTED = """
CREATE TABLE customers (
  id BIGINT PRIMARY KEY, level STRING DEFAULT 'basic' RENAMED FROM tier, email STRING UNIQUE,
  boss BIGINT);
CREATE TABLE purchases RENAMED FROM orders (
  id BIGINT PRIMARY KEY, qty BIGINT, customer_id BIGINT REFERENCES customers,
  n INT NOT NULL DEFAULT 3,
  CHECK (qty > 0));
CREATE TABLE orders (a INT);
"""
Contract = dict[str, tuple[str, list[dict[str, Any]]]]


def contract(lake: Lake, **selector: Any) -> Contract:
    """Every table as it is declared, with its rows."""
    snapshot = lake.snapshot(**selector)
    found: Contract = {}
    for state in snapshot.tables():
        described = lake.schema(state.name, branch=snapshot.branch, version=snapshot.version)
        table = snapshot.table(state.name)
        # The columns of the pin are those of the declaration.
        assert table.dataset.schema.equals(described.schema.arrow), state.name
        ids = [field.id() for field in table.dataset.lance_schema.fields()]
        assert ids == [column.id for column in described.schema.columns], state.name
        found[state.name] = (described.ddl, sorted(table.to_arrow().to_pylist(), key=repr))
    return found


def make(uri: str) -> None:
    with tidelock.open(uri, create=True, actor="maker") as lake:
        lake.apply_schema(DECLARED)
        for start in (0, 10):
            with lake.transaction() as tx:
                tx.upsert("customers", [{"id": 1}, {"id": 2, "boss": 1}])
                rows = [{"id": start + n, "customer_id": 1, "qty": n + 1} for n in range(5)]
                tx.append("orders", rows)
        with lake.transaction() as tx:
            tx.delete("orders", "id = 12")


def change(uri: str) -> None:
    with tidelock.open(uri, actor=ACTOR) as lake:
        change_with(lake)


def change_with(lake: Lake) -> None:
    plan = lake.plan_schema(WANTED, drop_undeclared=True)
    lake.apply_schema(plan, allow_data_loss=True)
