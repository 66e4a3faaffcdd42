"""Processes that try to break rules together: each does what the rules allow when it looks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from tests.support.ruled import cardinality, check, reference, unique

import tidelock
from tidelock import Lake, Transaction
from tidelock.errors import ConflictError, InputError

CUSTOMERS = 8
"""So few that everybody meets everybody."""
CONDITIONS: dict[str, Callable[[dict[str, Any]], bool | None]] = {
    "paid": lambda row: None if row["amount"] is None else row["amount"] >= 0,
    "one_open": lambda row: row["status"] == "open",
}
ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("customer", pa.int64()),
        ("amount", pa.int64()),
        ("status", pa.string()),
        ("code", pa.int64()),
    ]
)


def make(uri: str) -> None:
    with tidelock.open(uri, create=True) as lake, lake.transaction() as tx:
        tx.create_table("customers", "id BIGINT, email STRING", key="id")
        tx.create_table("orders", ORDERS, key="id")
        tx.create_table("notes", "order_id BIGINT, customer BIGINT")
        tx.create_table("tree", "id BIGINT, parent BIGINT", key="id")
        tx.alter_table("customers", unique("email"))
        tx.alter_table(
            "orders",
            reference("customer", "customers"),
            unique("code"),
            unique("customer", where="status = 'open'", name="one_open"),
            check("amount >= 0", name="paid"),
            cardinality("customer", most=4),
        )
        tx.alter_table(
            "notes",
            reference("order_id", "orders", on_delete="cascade"),
            reference("customer", "customers", on_delete="set null"),
        )
        tx.alter_table("tree", reference("parent", "tree", on_delete="cascade"))
        tx.append("tree", [{"id": 0, "parent": None}])


def fight(uri: str, seed: int, seconds: float) -> None:
    """Do random things until the time is over; what is refused is refused."""
    chance = random.Random(seed)
    until = time.monotonic() + seconds
    with tidelock.open(uri, actor=f"fighter {seed}") as lake:
        while time.monotonic() < until:
            step = chance.choice(STEPS)
            try:
                with lake.transaction(step.__name__) as tx:
                    step(lake, tx, chance)
                    # Long enough for others to publish something that this does not know of.
                    time.sleep(chance.choice([0.0, 0.0, 0.05]))
            except (InputError, ConflictError):
                continue


def add_customer(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    one = chance.randrange(CUSTOMERS)
    tx.upsert("customers", [{"id": one, "email": f"e{chance.randrange(CUSTOMERS)}"}])


def remove_customer(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    tx.delete("customers", f"id = {chance.randrange(CUSTOMERS)}")


def swap_customers(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    one, other = chance.sample(range(CUSTOMERS), 2)
    tx.update("customers", {"email": f"'x{other}'"}, f"id = {one}")
    tx.update("customers", {"email": f"'x{one}'"}, f"id = {other}")


def _orders(chance: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": chance.randrange(1_000_000),
            "customer": chance.choice([*range(CUSTOMERS), None]),
            "amount": chance.choice([1, 2, None, 3] + [-1] * (chance.random() < 0.1)),
            "status": chance.choice(["open", "done", "done", None]),
            "code": chance.choice([None, chance.randrange(30)]),
        }
        for _ in range(count)
    ]


def add_orders(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    tx.append("orders", _orders(chance, chance.randrange(1, 3)))


def stream_orders(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    """Under an intent, so that others may have to finish it."""
    batch = pa.RecordBatch.from_pylist(_orders(chance, 2), ORDERS)
    tx.append("orders", pa.RecordBatchReader.from_batches(ORDERS, [batch]))
    if chance.random() < 0.5:
        tx.delete("customers", f"id = {chance.randrange(CUSTOMERS)}")


def change_orders(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    low = chance.randrange(1_000_000)
    change = chance.choice([{"customer": str(chance.randrange(CUSTOMERS))}, {"status": "'open'"}])
    tx.update("orders", change, f"id >= {low} AND id < {low + 200_000}")


def remove_orders(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    tx.delete("orders", f"customer = {chance.randrange(CUSTOMERS)}")
    if chance.random() < 0.5:
        tx.delete("customers", f"id = {chance.randrange(CUSTOMERS)}")


def add_notes(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    ids = tx.table("orders").to_arrow(["id"]).column(0).to_pylist()
    if ids:
        customer = chance.choice([None, chance.randrange(CUSTOMERS)])
        tx.append("notes", [{"order_id": chance.choice(ids), "customer": customer}])


def grow_tree(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    ids = tx.table("tree").to_arrow(["id"]).column(0).to_pylist()
    row = {"id": chance.randrange(1, 1_000_000), "parent": chance.choice(ids)}
    tx.append("tree", [row])


def fell_tree(lake: Lake, tx: Transaction, chance: random.Random) -> None:
    low = chance.randrange(1, 1_000_000)
    tx.delete("tree", f"id >= {low} AND id < {low + 100_000}")


STEPS = [
    add_customer,
    add_customer,
    remove_customer,
    swap_customers,
    add_orders,
    add_orders,
    stream_orders,
    change_orders,
    remove_orders,
    add_notes,
    grow_tree,
    grow_tree,
    fell_tree,
]


def append_order(uri: str, customer: int) -> None:
    """One order under an intent."""
    with tidelock.open(uri, actor="the late one") as lake, lake.transaction("late") as tx:
        row = {"id": 7, "customer": customer, "amount": 1, "status": "done", "code": 7}
        batch = pa.RecordBatch.from_pylist([row], ORDERS)
        tx.append("orders", pa.RecordBatchReader.from_batches(ORDERS, [batch]))
