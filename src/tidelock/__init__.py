"""Tidelock: a transactional, incremental data pipeline for PySpark.

import tidelock

lake = tidelock.open("shop.lake", create=True)
lake.create_table("orders", "id BIGINT NOT NULL, amount DECIMAL(12,2)", key=["id"])
with lake.transaction(message="first load") as tx:
    tx.append("orders", [{"id": 1, "amount": Decimal("9.99")}])
lake.snapshot().table("orders").to_arrow()
"""

from tidelock import errors
from tidelock.model.commit import Commit, TableChange, TableState
from tidelock.run.lake import Lake, open
from tidelock.store.reading import Table
from tidelock.store.snapshot import Snapshot
from tidelock.store.transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "Commit",
    "Lake",
    "Snapshot",
    "Table",
    "TableChange",
    "TableState",
    "Transaction",
    "errors",
    "open",
]
