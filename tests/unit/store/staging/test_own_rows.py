"""Rows that a transaction adds and changes again, while others publish before it.

The ids of such rows are given out again on top of another base, and others may have been given the
ids that they had: no row of others may be changed in their place.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from tests.support.lakes import NUMBERS, NUMBERS_DDL, numbers, rows_of, streamed

import tidelock
from tidelock import Lake, Transaction, errors
from tidelock.store.tables.next_row_id import next_row_id

START = [(one, 10 * one) for one in range(1, 5)]


@pytest.fixture
def lake() -> Iterator[Lake]:
    with tidelock.open(f"memory://{uuid.uuid4().hex}", create=True, actor="tests") as lake:
        lake.create_table("keyed", NUMBERS_DDL, key="id")
        lake.create_table("plain", NUMBERS_DDL)
        with lake.transaction() as tx:
            tx.append("keyed", numbers(*START))
            tx.append("plain", numbers(*START))
        yield lake


def rivals(lake: Lake, table: str, count: int) -> Counter[tuple[int, ...]]:
    """Rows of others, which are given the ids that a transaction counted on; all rows then."""
    with lake.transaction() as tx:
        tx.append(table, numbers(*[(1000 + one, one) for one in range(count)]))
    return rows_of(lake.table(table))


def sequences(lake: Lake, table: str) -> dict[int, int]:
    rows = lake.read_since(table, -1, limit=10_000).rows.to_pylist()
    assert len({row["_sequence"] for row in rows}) == len(rows)
    return {row["id"]: row["_sequence"] for row in rows}


def check_feed(lake: Lake, table: str) -> None:
    """What the newest commit tells of its changes is what it did."""
    version = lake.snapshot().version
    before = rows_of(lake.snapshot(version=version - 1).table(table))
    changes = lake.changes(table, since=version - 1).read_all()
    for *row, weight, _ in zip(*(c.to_pylist() for c in changes.columns), strict=True):
        before[tuple(row)] += weight
    assert +before == rows_of(lake.table(table))


@pytest.mark.parametrize("table", ["keyed", "plain"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("give", [list, streamed], ids=["in memory", "under an intent"])
def test_rows_that_were_appended_are_changed_wherever_they_end_up(
    lake: Lake, table: str, count: int, give: Callable[..., object]
) -> None:
    tx = lake.transaction()
    tx.append(table, give(numbers((11, 1), (12, 2), (13, 3))))
    assert tx.update(table, {"v": "v + 100"}, where="id IN (1, 12)") == 2
    assert tx.delete(table, where="id IN (2, 13)") == 2
    tx.append(table, give(numbers((14, 4))))
    assert tx.update(table, {"v": "v * 2"}, where="id >= 12") == 2
    before = rivals(lake, table, count)
    tx.publish()
    expected = before - Counter([(1, 10), (2, 20)])
    expected += Counter([(1, 110), (11, 1), (12, 204), (14, 8)])
    assert rows_of(lake.table(table)) == expected
    check_feed(lake, table)
    found = sequences(lake, table)
    newest = max((found[one] for one in found if one >= 1000), default=3)
    assert newest < found[11] < found[12] < found[14]
    assert found[1] == 0


@pytest.mark.parametrize("table", ["keyed", "plain"])
def test_many_small_changes_of_own_rows_are_folded_and_follow(lake: Lake, table: str) -> None:
    tx = lake.transaction()
    for one in range(20):
        tx.append(table, numbers((100 + one, 0)))
        tx.update(table, {"v": "v + 1"}, where="id >= 100")
    tx.delete(table, where="id = 105")
    before = rivals(lake, table, 5)
    tx.publish()
    own = Counter([(100 + one, 20 - one) for one in range(20) if one != 5])
    assert rows_of(lake.table(table)) == before + own
    check_feed(lake, table)
    sequences(lake, table)


def test_rows_that_were_upserted_are_changed_wherever_they_end_up(lake: Lake) -> None:
    tx = lake.transaction()
    tx.upsert("keyed", numbers((11, 1), (2, 2), (12, 3)))
    tx.append("keyed", numbers((13, 4)))
    assert tx.update("keyed", {"v": "v + 100"}, where="id IN (2, 12, 13)") == 3
    before = rivals(lake, "keyed", 4)
    tx.publish()
    expected = before - Counter([(2, 20)])
    expected += Counter([(2, 102), (11, 1), (12, 103), (13, 104)])
    assert rows_of(lake.table("keyed")) == expected
    check_feed(lake, "keyed")


@pytest.mark.parametrize("give", [list, streamed], ids=["in memory", "under an intent"])
@pytest.mark.parametrize("rival", ["a row comes", "a row goes"])
def test_own_rows_that_cannot_be_told_any_more_are_a_conflict(
    lake: Lake, rival: str, give: Callable[..., object]
) -> None:
    tx = lake.transaction()
    tx.upsert("keyed", give(numbers((3, 0), (11, 1), (12, 2))))
    tx.update("keyed", {"v": "v + 100"}, where="id = 12")
    with lake.transaction() as other:
        if rival == "a row comes":
            other.append("keyed", numbers((11, 0)))
        else:
            other.delete("keyed", where="id = 3")
    before = rows_of(lake.table("keyed"))
    with pytest.raises(errors.CommitConflict, match="'keyed' was changed by another commit"):
        tx.publish()
    assert rows_of(lake.table("keyed")) == before


@pytest.mark.parametrize("change", ["update", "delete"])
def test_a_row_of_the_table_that_was_upserted_and_changed_is_touched(
    lake: Lake, change: str
) -> None:
    tx = lake.transaction()
    tx.upsert("keyed", numbers((3, 0)))
    tx.update("keyed", {"v": "v + 1"}, where="id = 3")
    with lake.transaction() as other:
        if change == "update":
            other.update("keyed", {"v": "7"}, where="id = 3")
        else:
            other.delete("keyed", where="id = 3")
    with pytest.raises(errors.CommitConflict, match=r"\(id\) = 3 was"):
        tx.publish()


def test_a_row_that_was_changed_twice_is_touched_once(lake: Lake) -> None:
    tx = lake.transaction()
    for _ in range(3):
        tx.update("plain", {"v": "v + 1"}, where="id <= 2")
    tx.delete("plain", where="id = 2")
    before = rivals(lake, "plain", 2)
    tx.publish()
    expected = before - Counter([(1, 10), (2, 20)]) + Counter([(1, 13)])
    assert rows_of(lake.table("plain")) == expected


def test_own_keys_that_are_changed_again_are_checked_again(lake: Lake) -> None:
    def act(tx: Transaction) -> None:
        tx.append("keyed", numbers((11, 1), (12, 2)))
        tx.update("keyed", {"id": "id + 9"}, where="id = 11")

    tx = lake.transaction()
    act(tx)
    before = rivals(lake, "keyed", 3)
    tx.publish()
    assert rows_of(lake.table("keyed")) == before + Counter([(20, 1), (12, 2)])
    with lake.transaction() as other:
        other.delete("keyed", where="id = 12 OR id = 20")
    tx = lake.transaction()
    act(tx)
    with lake.transaction() as other:
        other.append("keyed", numbers((20, 0)))
    with pytest.raises(errors.DuplicateKey, match=r": 20\."):
        tx.publish()


def test_own_rows_follow_maintenance_and_rows_of_others(lake: Lake) -> None:
    for one in range(6):
        rivals(lake, "plain", one + 1)
    tx = lake.transaction()
    tx.append("plain", numbers((11, 1)))
    tx.update("plain", {"v": "v + 100"}, where="id IN (1, 11)")
    lake.optimize("plain")
    before = rivals(lake, "plain", 2)
    lake.optimize("plain")
    tx.publish()
    expected = before - Counter([(1, 10)]) + Counter([(1, 110), (11, 101)])
    assert rows_of(lake.table("plain")) == expected


def test_a_pin_tells_which_row_id_comes_next(lake: Lake) -> None:
    def pin() -> object:
        return lake._store.files.read(lake.snapshot().states()["plain"])

    for count in (1, 0, 300, 70_000):
        expected = next_row_id(pin())
        ids = pa.array(range(1000, 1000 + count))
        with lake.transaction() as tx:
            tx.append("plain", pa.table({"id": ids, "v": ids}, schema=NUMBERS))
            tx.delete("plain", where="id = 4")
        given = [one for row, one in _all_sequences(lake).items() if row >= 1000]
        assert sorted(given) == list(range(expected, expected + count))
        with lake.transaction() as tx:
            tx.delete("plain", where="id >= 1000")
        assert next_row_id(pin()) == expected + count
        lake.optimize("plain")
        assert next_row_id(pin()) == expected + count


def _all_sequences(lake: Lake) -> dict[int, int]:
    rows = lake.read_since("plain", -1, limit=200_000).rows
    return dict(zip(rows["id"].to_pylist(), rows["_sequence"].to_pylist(), strict=True))


def test_a_table_that_never_had_a_row_begins_with_id_0(lake: Lake) -> None:
    lake.create_table("new", NUMBERS_DDL)
    assert next_row_id(lake._store.files.read(lake.snapshot().states()["new"])) == 0
