"""A store that stops answering while a lake is open: one kind of error, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from tests.support.s3_server import running_server

import tidelock
from tidelock import Lake
from tidelock.errors import StoreUnavailable

ROWS = 40_000
"""Enough for an index on the key."""
IMPATIENT = {"client_max_retries": "0", "client_retry_timeout": "1", "timeout": "2s"}


@dataclass
class Abandoned:
    """A lake whose store is gone, and transactions that had begun before."""

    lake: Lake
    begun: list[Any]


@pytest.fixture(scope="module")
def abandoned() -> Iterator[Abandoned]:
    with running_server() as server:
        server.create_bucket("bucket")
        options = {**server.storage_options, **IMPATIENT}
        lake = tidelock.open("s3://bucket/lake", create=True, storage_options=options)
        lake.create_table("sites", "id BIGINT, name STRING", key="id")
        rows = pa.table({"id": range(ROWS), "name": ["x"] * ROWS})
        lake.run(lambda tx: tx.append("sites", rows))
        lake.run(lambda tx: tx.upsert("sites", [{"id": 7, "name": "y"}]))
        begun = [lake.transaction().__enter__() for _ in USES]
    yield Abandoned(lake, begun)
    lake.close()


USES: dict[str, Callable[[Lake, Any], Any]] = {
    "begin": lambda lake, tx: lake.transaction().__enter__(),
    "snapshot": lambda lake, tx: lake.snapshot(),
    "read": lambda lake, tx: tx.table("sites").to_arrow(),
    "filter": lambda lake, tx: tx.table("sites").count("name = 'z'"),
    "stream": lambda lake, tx: tx.table("sites").to_batches().read_all(),
    "append": lambda lake, tx: (tx.append("sites", [{"id": -1}]), tx.publish()),
    "upsert": lambda lake, tx: (tx.upsert("sites", [{"id": -2}]), tx.publish()),
    "update": lambda lake, tx: tx.update("sites", {"name": "'y'"}, "id = 39999"),
    "delete": lambda lake, tx: tx.delete("sites", "id = 39998"),
    "changes": lambda lake, tx: lake.changes("sites", 1).read_all(),
}


@pytest.mark.parametrize("use", USES)
def test_a_store_that_is_gone_is_said_to_be(abandoned: Abandoned, use: str) -> None:
    transaction = abandoned.begun.pop()
    try:
        with pytest.raises(StoreUnavailable) as raised:
            USES[use](abandoned.lake, transaction)
    finally:
        transaction.rollback()
    assert ".rs:" not in str(raised.value)
