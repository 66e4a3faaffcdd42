"""Tidelock: a transactional, incremental data pipeline for PySpark.

import tidelock

lake = tidelock.open("shop.lake", create=True)
lake.create_table("orders", "id BIGINT NOT NULL, amount DECIMAL(12,2)", key=["id"])
with lake.transaction(message="first load") as tx:
    tx.append("orders", [{"id": 1, "amount": Decimal("9.99")}])
lake.snapshot().table("orders").to_arrow()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidelock import errors

if TYPE_CHECKING:
    from tidelock.derive.definitions.decorator import stream_table
    from tidelock.model.history.commit import Commit, TableChange, TableState
    from tidelock.run.lake import Lake
    from tidelock.run.open import open
    from tidelock.store.snapshot import Snapshot
    from tidelock.store.table import Table
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
    "stream_table",
]

# Imported when they are asked for: `tidelock --help` needs neither Lance nor Arrow.
_HOMES = {
    "Commit": "tidelock.model.history.commit",
    "Lake": "tidelock.run.lake",
    "Snapshot": "tidelock.store.snapshot",
    "Table": "tidelock.store.table",
    "TableChange": "tidelock.model.history.commit",
    "TableState": "tidelock.model.history.commit",
    "Transaction": "tidelock.store.transaction",
    "open": "tidelock.run.open",
    "stream_table": "tidelock.derive.definitions.decorator",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tidelock' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
