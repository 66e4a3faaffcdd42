"""A stream table that was made on one engine and is refreshed on another, which types otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidelock
from tidelock import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARES = "SELECT id, amount / parts AS share FROM orders"


@pytest.fixture
def engines(spark: SparkSession) -> dict[str, dict[str, Any]]:
    return {"Spark": {"spark": spark}, "Sail": {"engine": "sail"}}


@contextmanager
def opened(folder: Path, options: dict[str, Any]) -> Iterator[Lake]:
    with tidelock.open(folder / "lake", create=True, **options) as lake:
        if "orders" not in lake.tables():
            lake.create_table("orders", "id INT, amount DECIMAL(12,2), parts INT")
            lake.run(lambda tx: tx.append("orders", [{"id": 1, "amount": 10, "parts": 4}]))
        yield lake


@pytest.mark.parametrize(("made_on", "other"), [("Spark", "Sail"), ("Sail", "Spark")])
def test_other_types_are_refused_by_their_true_reason_and_suspend_nothing(
    tmp_path: Path, engines: dict[str, dict[str, Any]], made_on: str, other: str
) -> None:
    with opened(tmp_path, engines[made_on]) as lake:
        lake.create_stream_table("shares", SHARES)
        lake.create_stream_table("big", "SELECT id FROM shares WHERE share > 1")
        assert [one.action for one in lake.refresh()] == ["full", "full"]
    with opened(tmp_path, engines[other]) as lake:
        lake.run(lambda tx: tx.append("orders", [{"id": 2, "amount": 9, "parts": 2}]))
        explained = lake.explain("shares")
        for _ in range(3):
            (failed,) = lake.refresh("shares")
        assert failed.action == "failed"
        assert failed.condition == "ENGINE_MISMATCH"
        assert failed.reason.startswith(
            f"'shares' cannot be refreshed here: it was made on {made_on}, and {other} gives "
        )
        spark, sail = "DECIMAL(23,13)", "DECIMAL(16,6)"
        then, now = (spark, sail) if made_on == "Spark" else (sail, spark)
        assert f"{now} for 'share' instead of {then}" in failed.reason
        assert f"Refresh it on {made_on}" in failed.reason
        assert "__tidelock" not in failed.reason
        assert (explained.mode, explained.reason) == ("failed", failed.reason)
        assert [one.name for one in lake.stream_tables() if "suspended" in one.status] == []
        assert len(lake.history("shares")) == 2, "what is said again is one record"
        # What both engines type alike goes on.
        assert lake.refresh("big")[0].action == "none"
    with opened(tmp_path, engines[made_on]) as lake:
        assert lake.refresh("shares")[0].action in ("full", "incremental")
        assert lake.table("shares").count() == 2


def test_what_another_engine_cannot_compute_suspends_nothing(
    tmp_path: Path, engines: dict[str, dict[str, Any]]
) -> None:
    with opened(tmp_path, engines["Spark"]) as lake:
        lake.create_stream_table(
            "codes", "SELECT id, try_to_date(CAST(id AS STRING)) AS day FROM orders"
        )
        lake.refresh()
    with opened(tmp_path, engines["Sail"]) as lake:
        lake.run(lambda tx: tx.append("orders", [{"id": 2}]))
        (failed,) = lake.refresh()
        assert failed.condition == "ENGINE_MISMATCH", failed
        assert "it was made on Spark, and here is Sail." in failed.reason
        assert "suspended" not in lake.stream_tables()[0].status
    with opened(tmp_path, engines["Spark"]) as lake:
        assert lake.refresh("codes")[0].action in ("full", "incremental")


def test_a_source_that_changed_is_still_to_blame(
    tmp_path: Path, engines: dict[str, dict[str, Any]]
) -> None:
    with opened(tmp_path, engines["Spark"]) as lake:
        lake.create_stream_table(
            "totals", "SELECT id, sum(amount) AS total FROM orders GROUP BY id"
        )
        lake.refresh()
        with lake.transaction() as tx:
            tx.drop_table("orders")
            tx.create_table("orders", "id INT, amount DOUBLE, parts INT")
        (failed,) = lake.refresh()
        assert failed.condition == "DEFINITION_BROKEN"
        assert failed.reason.startswith("suspended: The columns of 'orders' changed so that")
        assert "DOUBLE for 'total' instead of DECIMAL(22,2)" in failed.reason
        assert "__tidelock" not in failed.reason
