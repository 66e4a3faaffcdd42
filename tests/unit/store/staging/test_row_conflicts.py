"""Two transactions on one table: they conflict by row, not by table."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from tests.support.lakes import (
    NUMBERS_DDL,
    check_log,
    collect_all,
    contents,
    numbers,
    rows_of,
    settle_chores,
)

import tidelock
from tidelock import Lake, Transaction, errors

Act = Callable[[Transaction], object]
START = [(one, 10 * one) for one in range(1, 7)]


@pytest.fixture
def lake() -> Iterator[Lake]:
    with tidelock.open(f"memory://{uuid.uuid4().hex}", create=True, actor="tests") as lake:
        lake.create_table("keyed", NUMBERS_DDL, key="id")
        lake.create_table("plain", NUMBERS_DDL)
        with lake.transaction() as tx:
            tx.append("keyed", numbers(*START))
            tx.append("plain", numbers(*START))
        yield lake


def commit(lake: Lake, act: Act) -> tidelock.Commit:
    with lake.transaction() as tx:
        act(tx)
    assert tx.commit is not None
    return tx.commit


def update(table: str, row: int, by: int = 1) -> Act:
    return lambda tx: tx.update(table, {"v": f"v + {by}"}, where=f"id = {row}")


def delete(table: str, row: int) -> Act:
    return lambda tx: tx.delete(table, where=f"id = {row}")


def sequence_of(lake: Lake, table: str, row: int) -> int:
    rows = lake.read_since(table, -1, limit=1000).rows.to_pylist()
    return next(one["_sequence"] for one in rows if one["id"] == row)


ACTS = {"update": update, "delete": delete}
EFFECTS = {"update": [(10 + 1)], "delete": []}


@pytest.mark.parametrize("table", ["keyed", "plain"])
@pytest.mark.parametrize("first", ACTS)
@pytest.mark.parametrize("second", ACTS)
def test_changes_of_different_rows_are_both_published(
    lake: Lake, table: str, first: str, second: str
) -> None:
    slow = lake.transaction()
    ACTS[second](table, 1)(slow)
    commit(lake, ACTS[first](table, 2))
    slow.publish()
    expected = Counter(START)
    for act, row in ((first, 2), (second, 1)):
        del expected[row, 10 * row]
        if act == "update":
            expected[row, 10 * row + 1] += 1
    assert rows_of(lake.table(table)) == expected
    check_log(lake)


@pytest.mark.parametrize("table", ["keyed", "plain"])
@pytest.mark.parametrize(
    "between",
    [
        lambda tx, t: tx.append(t, numbers((50, 1))),
        lambda tx, t: tx.update(t, {"v": "v + 1"}, where="id > 1"),
        lambda tx, t: tx.delete(t, where="id > 1"),
        lambda tx, t: tx.upsert("keyed", numbers((2, 2), (50, 1))),
    ],
    ids=["append", "update", "delete", "upsert"],
)
def test_a_change_stands_whatever_happens_to_other_rows(
    lake: Lake, table: str, between: Callable[[Transaction, str], object]
) -> None:
    slow = lake.transaction()
    slow.update(table, {"v": "-v"}, where="id = 1")
    commit(lake, lambda tx: between(tx, table))
    before = rows_of(lake.table(table))
    slow.publish()
    assert rows_of(lake.table(table)) == before - Counter([(1, 10)]) + Counter([(1, -10)])


@pytest.mark.parametrize("table", ["keyed", "plain"])
@pytest.mark.parametrize("first", ACTS)
@pytest.mark.parametrize("second", ACTS)
def test_changes_of_one_row_conflict_and_name_it(
    lake: Lake, table: str, first: str, second: str
) -> None:
    sequence = sequence_of(lake, table, 3)
    slow = lake.transaction()
    ACTS[second](table, 3)(slow)
    rival = commit(lake, ACTS[first](table, 3))
    later = commit(lake, update(table, 5))
    before = contents(lake)
    with pytest.raises(errors.CommitConflict) as caught:
        slow.publish()
    error = caught.value
    assert (error.table, error.expected, error.actual) == (table, 3, later.version)
    assert error.version == rival.version
    assert error.operation_id == slow.operation_id
    assert error.action is errors.Action.REFRESH_AND_RETRY
    assert error.row == ((3,) if table == "keyed" else sequence)
    told = "key (id) = 3" if table == "keyed" else f"sequence {sequence}"
    assert f"'{table}': the row with the {told} was updated or deleted" in error.message
    assert f"by version {rival.version}" in error.message
    assert contents(lake) == before


def test_a_conflict_names_the_first_rows_of_many_by_all_columns_of_their_key(lake: Lake) -> None:
    lake.create_table("t", "a BIGINT NOT NULL, b STRING NOT NULL, v BIGINT", key=["b", "a"])
    rows = [{"a": one, "b": "it's", "v": 0} for one in range(5)]
    commit(lake, lambda tx: tx.append("t", rows))
    slow = lake.transaction()
    slow.update("t", {"v": "1"})
    commit(lake, lambda tx: tx.update("t", {"v": "2"}, where="a > 0"))
    with pytest.raises(errors.CommitConflict) as caught:
        slow.publish()
    assert "(b, a) = ('it''s', 1), ('it''s', 2), ('it''s', 3) and 1 more were" in str(caught.value)
    assert caught.value.rows == [("it's", 1), ("it's", 2), ("it's", 3)]
    assert errors.TidelockError.__reduce__(caught.value)[1][3]["row"] == ("it's", 1)


RIVALS: dict[str, Act] = {
    "an upsert": lambda tx: tx.upsert("keyed", numbers((3, 0))),
    "an overwrite": lambda tx: tx.overwrite("keyed", numbers(*START)),
    "retention": lambda tx: tx.prune("keyed", "id <= 3"),
    "a delete and an append of its key": lambda tx: (
        tx.delete("keyed", "id = 3"),
        tx.append("keyed", numbers((3, 30))),
    ),
}


@pytest.mark.parametrize("rival", RIVALS)
def test_whatever_touches_a_row_is_in_the_way(lake: Lake, rival: str) -> None:
    slow = lake.transaction()
    slow.update("keyed", {"v": "0"}, where="id = 3")
    commit(lake, RIVALS[rival])
    with pytest.raises(errors.CommitConflict, match=r"the row with the key \(id\) = 3 was"):
        slow.publish()


@pytest.mark.parametrize("table", ["keyed", "plain"])
def test_an_overwrite_and_a_drop_conflict_with_any_change(lake: Lake, table: str) -> None:
    overwriting, dropping = lake.transaction(), lake.transaction()
    overwriting.overwrite(table, numbers((9, 9)))
    dropping.drop_table(table)
    rival = commit(lake, lambda tx: tx.append(table, numbers((50, 1))))
    for slow in (overwriting, dropping):
        with pytest.raises(errors.CommitConflict, match=f"'{table}' was changed") as caught:
            slow.publish()
        assert (caught.value.expected, caught.value.actual) == (3, rival.version)


def test_an_upsert_is_merged_again_whoever_changed_its_rows(lake: Lake) -> None:
    slow = lake.transaction()
    slow.upsert("keyed", numbers((3, 33), (60, 60)))
    commit(lake, lambda tx: (tx.update("keyed", {"v": "0"}, "id = 3"), tx.delete("keyed", "id=4")))
    slow.publish()
    assert rows_of(lake.table("keyed")) == Counter(
        [(1, 10), (2, 20), (3, 33), (5, 50), (6, 60), (60, 60)]
    )


# Maintenance in between


def fragments(lake: Lake, table: str, count: int) -> None:
    """Rows 1..count of a table in a fragment each."""
    for one in range(1, count + 1):
        commit(lake, lambda tx, one=one: tx.append(table, numbers((100 + one, one))))


def maintain(lake: Lake, table: str) -> None:
    """Let rows be moved, by compaction or by a fold that is due anyway."""
    lake.optimize(table)
    settle_chores(lake)
    assert any(one.kind == "maintenance" for one in lake.log(limit=None))


@pytest.mark.parametrize("when", ["before", "after", "both"])
@pytest.mark.parametrize("table", ["keyed", "plain"])
def test_rows_that_maintenance_moved_are_not_touched(lake: Lake, table: str, when: str) -> None:
    fragments(lake, table, 6)
    slow = lake.transaction()
    slow.update(table, {"v": "v + 1000"}, where="id IN (1, 102, 105)")
    slow.delete(table, where="id = 106")
    if when in ("before", "both"):
        maintain(lake, table)
    commit(lake, lambda tx: tx.update(table, {"v": "v + 7"}, where="id IN (2, 101)"))
    commit(lake, lambda tx: tx.append(table, numbers((300, 3))))
    if when in ("after", "both"):
        maintain(lake, table)
    before = rows_of(lake.table(table))
    slow.publish()
    moved = Counter([(1, 10), (102, 2), (105, 5)])
    expected = before - moved - Counter([(106, 6)])
    expected += Counter({(one, value + 1000): 1 for one, value in moved})
    assert rows_of(lake.table(table)) == expected


@pytest.mark.parametrize("when", ["before", "after", "both"])
@pytest.mark.parametrize("table", ["keyed", "plain"])
def test_a_touched_row_is_found_though_maintenance_moved_it(
    lake: Lake, table: str, when: str
) -> None:
    fragments(lake, table, 6)
    slow = lake.transaction()
    slow.update(table, {"v": "0"}, where="id IN (1, 102, 105)")
    if when in ("before", "both"):
        maintain(lake, table)
    rival = commit(lake, update(table, 105))
    if when in ("after", "both"):
        maintain(lake, table)
    commit(lake, update(table, 102))
    sequence = sequence_of(lake, table, 105)
    with pytest.raises(errors.CommitConflict) as caught:
        slow.publish()
    assert caught.value.row == ((105,) if table == "keyed" else sequence)
    assert caught.value.version == rival.version


def test_a_long_history_of_changes_and_folds_is_followed(lake: Lake) -> None:
    fragments(lake, "plain", 12)
    slow, late = lake.transaction(), lake.transaction()
    for tx in (slow, late):
        tx.update("plain", {"v": "-v"}, where="id IN (3, 104)")
    for round in range(40):
        commit(lake, update("plain", 101 + round % 3))
        if round % 10 == 5:
            lake.optimize("plain")
    settle_chores(lake)
    slow.publish()
    found = dict(rows_of(lake.table("plain")).keys())
    assert (found[3], found[104]) == (-30, -4)
    assert found[101] + found[102] + found[103] == 1 + 2 + 3 + 40
    with pytest.raises(errors.CommitConflict, match=r"sequences 2, \d+ were"):
        late.publish()


def test_a_large_change_is_followed_as_a_small_one(lake: Lake) -> None:
    lake.create_table("large", NUMBERS_DDL)
    for start in (0, 30_000):
        ids = pa.array(range(start, start + 30_000))
        commit(lake, lambda tx, ids=ids: tx.append("large", pa.table({"id": ids, "v": ids})))
    slow, late = lake.transaction(), lake.transaction()
    assert slow.update("large", {"v": "v + 1"}, where="id >= 100 AND id < 30000") == 29_900
    assert late.delete("large", where="id >= 30000") == 30_000
    commit(lake, lambda tx: tx.delete("large", where="id < 50"))
    assert lake.optimize("large")
    commit(lake, lambda tx: tx.delete("large", where="id = 59999"))
    slow.publish()
    with pytest.raises(errors.CommitConflict, match="the row with the sequence 59999 was"):
        late.publish()
    found = lake.table("large").to_arrow(filter="id >= 100 AND id < 30000").to_pydict()
    assert found["id"] == [one - 1 for one in found["v"]]
    assert len(found["id"]) == 29_900


def test_garbage_collection_in_between_leaves_what_is_looked_at(lake: Lake) -> None:
    fragments(lake, "keyed", 6)
    slow, late = lake.transaction(), lake.transaction()
    slow.update("keyed", {"v": "0"}, where="id = 101")
    late.update("keyed", {"v": "0"}, where="id = 102")
    for round in range(5):
        commit(lake, update("keyed", 103 + round % 2))
        assert lake.optimize("keyed")
        assert not collect_all(lake).errors
    commit(lake, update("keyed", 102))
    assert not collect_all(lake).errors
    slow.publish()
    with pytest.raises(errors.CommitConflict, match=r"= 102 was"):
        late.publish()


def test_a_history_that_cannot_be_read_any_more_is_a_conflict(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = lake.transaction()
    slow.update("plain", {"v": "0"}, where="id = 1")
    commit(lake, update("plain", 1))

    def expired(*_: object) -> None:
        raise errors.SnapshotExpired("gone")

    monkeypatch.setattr("tidelock.store.staging.staged_table.first_touch", expired)
    with pytest.raises(errors.CommitConflict, match="'plain' was changed by another commit"):
        slow.publish()


# Keys


def test_a_key_that_was_taken_meanwhile_is_refused(lake: Lake) -> None:
    slow = lake.transaction()
    slow.update("keyed", {"id": "id + 100"}, where="id IN (1, 2)")
    commit(lake, lambda tx: tx.append("keyed", numbers((102, 0))))
    with pytest.raises(errors.DuplicateKey, match=r"would occur more than once .*: 102\."):
        slow.publish()
    assert rows_of(lake.table("keyed")) == Counter([*START, (102, 0)])


def test_a_key_that_became_free_meanwhile_may_be_taken(lake: Lake) -> None:
    slow = lake.transaction()
    slow.update("keyed", {"id": "id + 100"}, where="id = 1")
    commit(lake, lambda tx: tx.append("keyed", numbers((101, 0))))
    commit(lake, lambda tx: tx.update("keyed", {"id": "id + 100"}, where="id = 101"))
    slow.publish()
    assert rows_of(lake.table("keyed")) == Counter([*START[1:], (101, 10), (201, 0)])


def test_keys_that_rows_change_among_themselves_are_checked_again(lake: Lake) -> None:
    slow = lake.transaction()
    slow.update("keyed", {"id": "3 - id"}, where="id IN (1, 2)")
    commit(lake, update("keyed", 5))
    slow.publish()
    assert rows_of(lake.table("keyed")) == Counter(
        [(2, 10), (1, 20), (3, 30), (4, 40), (5, 51), (6, 60)]
    )


def test_two_that_choose_one_key_do_not_both_get_it(lake: Lake) -> None:
    slow = lake.transaction()
    slow.update("keyed", {"id": "77"}, where="id = 1")
    commit(lake, lambda tx: tx.update("keyed", {"id": "77"}, where="id = 2"))
    with pytest.raises(errors.DuplicateKey):
        slow.publish()


# Retention


def test_retention_goes_on_beside_changes_of_other_rows(lake: Lake) -> None:
    slow = lake.transaction()
    slow.prune("plain", "id <= 2")
    commit(lake, update("plain", 5))
    slow.publish()
    assert slow.commit is not None
    assert slow.commit.kind == "retention"
    assert rows_of(lake.table("plain")) == Counter([(3, 30), (4, 40), (5, 51), (6, 60)])


def test_retention_conflicts_with_a_change_of_a_row_that_it_removes(lake: Lake) -> None:
    slow = lake.transaction()
    slow.prune("keyed", "id <= 2")
    commit(lake, update("keyed", 2))
    with pytest.raises(errors.CommitConflict, match="= 2 was"):
        slow.publish()
