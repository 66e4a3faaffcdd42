"""Schemas that change hold what they promise on files, memory and S3 alike."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.test_lake import Open, open_lake

from tidelock import errors

__all__ = ["open_lake"]

DECLARED = """
CREATE TABLE customers (id BIGINT PRIMARY KEY, tier STRING NOT NULL DEFAULT 'basic');
CREATE TABLE orders (
  id BIGINT PRIMARY KEY, customer_id BIGINT REFERENCES customers, qty INT, note STRING,
  CHECK (qty > 0));
"""
CHANGED = """
CREATE TABLE customers (
  id BIGINT PRIMARY KEY, level STRING NOT NULL DEFAULT 'basic' RENAMED FROM tier);
CREATE TABLE purchases RENAMED FROM orders (
  id BIGINT PRIMARY KEY, customer_id BIGINT REFERENCES customers, qty BIGINT, n INT DEFAULT 3,
  CHECK (qty > 0));
"""


def rows(table: Any) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])


def test_a_schema_is_declared_changed_and_read_again_by_another_handle(open_lake: Open) -> None:
    lake = open_lake(create=True)
    lake.apply_schema(DECLARED)
    with lake.transaction() as tx:
        tx.append("customers", [{"id": 1}])
        tx.append("orders", [{"id": n, "customer_id": 1, "qty": n + 1} for n in range(3)])
    late = lake.transaction()
    late.append("customers", [{"id": 2, "tier": "gold"}])
    plan = lake.plan_schema(CHANGED)
    lake.apply_schema(plan, allow_data_loss=True)
    late.publish()
    with pytest.raises(errors.PlanOutdated):
        lake.apply_schema(plan, allow_data_loss=True)
    for handle in (lake, open_lake(), open_lake(read_only=True)):
        assert not handle.plan_schema(CHANGED)
        assert rows(handle.table("purchases")) == [
            {"id": n, "customer_id": 1, "qty": n + 1, "n": 3} for n in range(3)
        ]
        assert rows(handle.table("customers")) == [
            {"id": 1, "level": "basic"},
            {"id": 2, "level": "gold"},
        ]
        assert handle.snapshot(version=2).table("orders").schema.names[-1] == "note"
    lake.optimize()
    lake.collect_garbage(older_than=0)
    assert lake.verify().ok
    assert rows(open_lake().table("purchases"))[0]["n"] == 3
