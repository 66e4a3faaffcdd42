"""A shop of orders and customers, a stream table over them, and measured refreshes of it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidelock
from bench.measure import seconds

MILLION = 1_000_000
REGIONS = 1000
CHANGED = 1000
QUERY = (
    "SELECT c.region, SUM(o.amount) AS total, COUNT(*) AS orders "
    "FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.region"
)
SPARK: dict[str, Any] = {"master": "local[2]"}
SAIL: dict[str, Any] = {"engine": "sail"}


def orders(ids: np.ndarray[Any, Any], rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    cents = pa.array(chance.integers(0, 100_000, len(ids))).cast(pa.decimal128(19, 0))
    hundred = pa.scalar(Decimal(100), pa.decimal128(3, 0))
    return pa.table(
        {
            "id": ids,
            "customer_id": chance.integers(0, rows // 100, len(ids)),
            "amount": pc.divide(cents, hundred).cast(pa.decimal128(12, 2), safe=False),
        }
    )


def shop(path: Path, rows: int, **engine: Any) -> tidelock.Lake:
    """A lake of so many orders, and a stream table of their sums by region."""
    lake = tidelock.open(path, create=not path.exists(), actor="bench", **engine)
    if "orders" not in lake.tables():
        fill(lake, rows)
        lake.create_stream_table("revenue", QUERY, refresh_mode="incremental")
        lake.refresh()
    return lake


def fill(lake: tidelock.Lake, rows: int) -> None:
    """So many orders, a million at a time, and a customer for every hundred of them."""
    lake.create_table("orders", "id BIGINT, customer_id BIGINT, amount DECIMAL(12,2)", key="id")
    lake.create_table("customers", "id BIGINT, region STRING", key="id")
    customers = rows // 100
    regions = pa.array([f"region {number % REGIONS}" for number in range(customers)])
    table = pa.table({"id": np.arange(customers), "region": regions})
    lake.run(lambda tx: tx.append("customers", table))
    for begin in range(0, rows, MILLION):
        some = orders(np.arange(begin, min(rows, begin + MILLION)), rows, begin)
        lake.run(lambda tx, some=some: tx.append("orders", some))
    lake.optimize()


def change(lake: tidelock.Lake, rows: int, number: int) -> None:
    """Give other amounts and customers to a thousand orders."""
    ids = np.random.default_rng(number).choice(rows, CHANGED, replace=False)
    lake.run(lambda tx: tx.upsert("orders", orders(np.sort(ids), rows, number)))


class Refreshes:
    """Refreshes of one lake, each after a change that is not measured."""

    def __init__(self, lake: tidelock.Lake, rows: int) -> None:
        self.lake = lake
        self.rows = rows
        self.number = 0
        for _ in range(3):
            self.prepare()
            self.refresh()

    def prepare(self) -> None:
        self.number += 1
        change(self.lake, self.rows, self.number)

    def refresh(self) -> None:
        (attempt,) = self.lake.refresh()
        assert attempt.action == "incremental", attempt

    def measure(self) -> float:
        self.prepare()
        return seconds(self.refresh)

    def recompute(self) -> float:
        return seconds(lambda: self.lake.snapshot().sql(QUERY).toArrow())
