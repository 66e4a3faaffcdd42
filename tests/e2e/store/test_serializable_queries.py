"""Serializable transactions that read through Spark: by query, by frame, by conditions of Spark's.

And what frames write: rows that executors wrote are changed again by the same transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.lakes import NUMBERS_DDL, numbers, rows_of

import tidelock
from tidelock import Lake, Transaction, errors

pytestmark = pytest.mark.usefixtures("spark")

Act = Callable[[Transaction], object]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = tidelock.open(tmp_path / "lake", create=True)
    for table in ("keyed", "plain", "notes"):
        lake.create_table(table, NUMBERS_DDL, key="id" if table == "keyed" else None)
    with lake.transaction() as tx:
        for table in ("keyed", "plain"):
            tx.append(table, numbers(*[(one, 10 * one) for one in range(1, 7)]))
    return lake


def reading(lake: Lake, read: Act) -> Transaction:
    tx = lake.transaction(isolation="serializable")
    read(tx)
    tx.append("notes", numbers((1, 1)))
    return tx


FILTERED: dict[str, Act] = {
    "a query": lambda tx: tx.sql("SELECT SUM(v) FROM plain WHERE id <= 2").toArrow(),
    "a query that is not run": lambda tx: tx.sql("SELECT v FROM plain p WHERE p.id <= 2"),
    "a query that reads it twice": lambda tx: tx.sql(
        "SELECT v FROM plain WHERE id = 1 UNION ALL SELECT v FROM plain WHERE id = 2"
    ),
    "a query of two tables": lambda tx: tx.sql(
        "SELECT k.v FROM plain p JOIN keyed k ON k.id = p.id WHERE p.id <= 2"
    ),
    "a frame": lambda tx: tx.table("plain").to_spark(filter="id <= 2"),
}
WHOLE: dict[str, Act] = {
    "a query": lambda tx: tx.sql("SELECT COUNT(*) FROM plain"),
    "a condition of Spark's in a query": lambda tx: tx.sql("SELECT v FROM plain WHERE id % 7 = 1"),
    "a condition of Spark's": lambda tx: tx.table("plain").count("id % 7 = 1"),
    "a delete by one": lambda tx: tx.delete("plain", where="id % 7 = 1"),
    "an update by one": lambda tx: tx.update("plain", {"v": "0"}, where="id % 7 = 1"),
    "a frame": lambda tx: tx.table("plain").to_spark(),
    "a frame with a condition of Spark's": lambda tx: tx.table("plain").to_spark(
        filter="id % 7 = 1"
    ),
}


@pytest.mark.parametrize("read", FILTERED)
def test_a_query_is_protected_by_the_rows_that_it_reads(lake: Lake, read: str) -> None:
    free, hit = reading(lake, FILTERED[read]), reading(lake, FILTERED[read])
    lake.run(lambda tx: (tx.append("plain", numbers((50, 1))), tx.delete("plain", "id = 5")))
    free.publish()
    lake.run(lambda tx: tx.update("plain", {"v": "0"}, where="id = 2"))
    with pytest.raises(errors.CommitConflict, match="has read the rows where"):
        hit.publish()
    assert lake.table("notes").count() == 1


@pytest.mark.parametrize("read", WHOLE)
def test_what_only_spark_evaluates_protects_all_rows(lake: Lake, read: str) -> None:
    tx = reading(lake, WHOLE[read])
    lake.run(lambda tx: tx.append("plain", numbers((50, 1))))
    with pytest.raises(errors.CommitConflict, match="has read all its rows"):
        tx.publish()


def test_a_query_of_a_table_that_is_not_there_is_protected_too(lake: Lake) -> None:
    def look(tx: Transaction) -> None:
        with pytest.raises(errors.TableNotFound):
            tx.sql("SELECT * FROM later")

    tx = reading(lake, look)
    lake.create_table("later", NUMBERS_DDL)
    with pytest.raises(errors.CommitConflict, match="found no such table"):
        tx.publish()


def test_a_query_of_own_rows_is_no_read_of_others(lake: Lake) -> None:
    tx = lake.transaction(isolation="serializable")
    tx.create_table("new", NUMBERS_DDL)
    tx.append("new", numbers((1, 1)))
    assert tx.sql("SELECT SUM(v) AS s FROM new").toArrow()["s"].to_pylist() == [1]
    lake.run(lambda rival: rival.append("plain", numbers((50, 1))))
    tx.publish()


@pytest.mark.parametrize("column", ["v", "id"])
def test_an_update_on_spark_is_by_row_as_any_other(lake: Lake, column: str) -> None:
    def act(tx: Transaction) -> None:
        shifted = f"{column} + 1000 * (1 + id % 1)"
        assert tx.update("keyed", {column: shifted}, where="id % 7 = 1") == 1

    free, hit = lake.transaction(), lake.transaction()
    act(free)
    act(hit)
    lake.run(lambda tx: tx.update("keyed", {"v": "0"}, where="id = 2"))
    free.publish()
    with pytest.raises(errors.CommitConflict, match=r"the row with the key \(id\) = 1 was"):
        hit.publish()
    changed = (1, 1010) if column == "v" else (1001, 10)
    assert rows_of(lake.table("keyed")) == Counter(
        [changed, (2, 0), *[(one, 10 * one) for one in range(3, 7)]]
    )


@pytest.mark.parametrize("operation", ["append", "upsert"])
def test_rows_of_a_frame_are_changed_again_wherever_they_end_up(lake: Lake, operation: str) -> None:
    rows = [(2, 7), (11, 1), (12, 2)] if operation == "upsert" else [(11, 1), (12, 2)]
    frame = lake.spark.createDataFrame(rows, NUMBERS_DDL)
    tx = lake.transaction()
    getattr(tx, operation)("keyed", frame)
    assert tx.update("keyed", {"v": "v + 100"}, where="id IN (1, 12)") == 2
    lake.run(lambda rival: rival.append("keyed", numbers((50, 1), (51, 1), (52, 1))))
    before = rows_of(lake.table("keyed"))
    tx.publish()
    replaced = Counter([(1, 10)] + ([(2, 20)] if operation == "upsert" else []))
    new = Counter([(1, 110), (11, 1), (12, 102)] + ([(2, 7)] if operation == "upsert" else []))
    assert rows_of(lake.table("keyed")) == before - replaced + new


def test_a_frame_that_others_were_ahead_of_is_a_conflict_if_its_rows_were_changed(
    lake: Lake,
) -> None:
    tx = lake.transaction()
    tx.upsert("keyed", lake.spark.createDataFrame([(11, 1), (12, 2)], NUMBERS_DDL))
    tx.update("keyed", {"v": "v + 100"}, where="id = 12")
    lake.run(lambda rival: rival.append("keyed", numbers((12, 0))))
    before = rows_of(lake.table("keyed"))
    with pytest.raises(errors.CommitConflict, match="'keyed' was changed by another commit"):
        tx.publish()
    assert rows_of(lake.table("keyed")) == before
