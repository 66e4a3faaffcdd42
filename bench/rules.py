"""What rules cost: few rows into a large table, and many rows at once.

The table is a shop's: orders with a key, of customers that there must be, each with a number that
no other has and an amount that is not negative. Customers are a tenth of the orders, and those of
new orders are taken at random; keys and numbers go up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tidelock
from bench.measure import Claim, folder, in_turns, middle
from tidelock import Lake
from tidelock.model.schema.alterations import AddRule
from tidelock.model.schema.declared import DeclaredRule
from tidelock.store.rules.limits import Limits

FEW_ROWS = 1_000
TIMES = 31
MANY_ROWS = 10_000_000
DDL = "id BIGINT, customer_id BIGINT, number BIGINT, amount DOUBLE"
NUMBERS_FROM = 1 << 40
RULES = (
    AddRule(DeclaredRule("reference", None, ("customer_id",), table="customers")),
    AddRule(DeclaredRule("unique", None, ("number",))),
    AddRule(DeclaredRule("check", None, condition="amount >= 0")),
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer_id", pa.int64()),
        ("number", pa.int64()),
        ("amount", pa.float64()),
    ]
)


def orders(chance: np.random.Generator, start: int, count: int, customers: int) -> pa.Table:
    ids = np.arange(start, start + count)
    columns = [ids, chance.integers(0, customers, count), ids + NUMBERS_FROM, ids * 0.5]
    return pa.table(columns, schema=SCHEMA)


def shop(path: Path, rows: int) -> Lake:
    """Orders with rules and without, of so many rows each, indexed."""
    chance = np.random.default_rng(7)
    customers = rows // 10
    lake = tidelock.open(path, create=True, actor="bench", master="local[2]")
    with lake.transaction() as tx:
        tx.create_table("customers", "id BIGINT", key="id")
        tx.append("customers", pa.table({"id": np.arange(customers)}))
        for name in ("plain", "ruled"):
            tx.create_table(name, DDL, key="id")
    every = orders(chance, 0, rows, customers)
    for name in ("plain", "ruled"):
        with lake.transaction() as tx:
            # The rules hold of what is made here; that they do is no part of what is measured.
            tx._rules.limits = Limits(driver_rows=1 << 40, alone_rows=1 << 40)
            tx.append(name, every.to_reader(1 << 20))
            if name == "ruled":
                tx.alter_table(name, *RULES)
    lake.optimize()
    assert lake._store.chores.finish(600)
    return lake


def appender(lake: Lake, name: str, rows: int) -> Any:
    chance = np.random.default_rng(8)

    def append(number: int) -> None:
        new = orders(chance, rows + number * FEW_ROWS, FEW_ROWS, rows // 10)
        with lake.transaction() as tx:
            tx.append(name, new)

    return append


def few_rows() -> Iterator[Claim]:
    with folder(steady=True) as path:
        large, small = shop(path / "large", 10_000_000), shop(path / "small", 1_000_000)
        ruled = appender(large, "ruled", 10_000_000)
        plain = appender(large, "plain", 10_000_000)
        less = appender(small, "ruled", 1_000_000)
        for number in range(10):
            for append in (ruled, plain, less):
                append(number)
        ours, theirs = in_turns(lambda n: ruled(n + 10), lambda n: plain(n + 10), TIMES)
        yield Claim(
            "append of 1,000 rows with a reference, a unique and a check at 10 million rows, "
            "against without rules (medians)",
            middle(ours) / middle(theirs),
            2.5,
            detail=f"{middle(ours) * 1e3:.1f} ms against {middle(theirs) * 1e3:.1f} ms",
        )
        begin = 10 + TIMES
        ours, theirs = in_turns(lambda n: ruled(n + begin), lambda n: less(n + 10), TIMES)
        yield Claim(
            "  the same against 1 million rows (medians)",
            middle(ours) / middle(theirs),
            1.3,
            detail=f"{middle(ours) * 1e3:.1f} ms against {middle(theirs) * 1e3:.1f} ms",
        )
        large.close()
        small.close()


def many_rows() -> Iterator[Claim]:
    customers = MANY_ROWS // 10
    with folder() as path:
        lake = tidelock.open(path / "lake", create=True, actor="bench", master="local[2]")
        with lake.transaction() as tx:
            tx.create_table("customers", "id BIGINT", key="id")
            tx.append("customers", pa.table({"id": np.arange(customers)}))
        frame = lake.spark.range(0, MANY_ROWS, 1, 4).selectExpr(
            "id",
            f"(id * 7919) % {customers} AS customer_id",
            f"id + {NUMBERS_FROM} AS number",
            "id * 0.5D AS amount",
        )

        def append(number: int, *rules: AddRule) -> None:
            name = f"{'ruled' if rules else 'plain'}{number}"
            with lake.transaction() as tx:
                tx.create_table(name, DDL, key="id")
                tx.alter_table(name, *rules)
            with lake.transaction() as tx:
                tx.append(name, frame)
            lake.drop_table(name)

        append(100)
        append(100, *RULES)
        ours, theirs = in_turns(lambda n: append(n, *RULES), append, 3)
        yield Claim(
            "Spark append of 10 million rows with a reference, a unique and a check, against "
            "without rules (medians)",
            middle(ours) / middle(theirs),
            2.0,
            detail=f"{middle(ours):.2f} s against {middle(theirs):.2f} s",
        )
        lake.close()


CLAIMS = [few_rows, many_rows]
