"""Serializable transactions: what they read must still hold when they commit."""

from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.lakes import (
    NUMBERS_DDL,
    age,
    check_log,
    numbers,
    rows_of,
    run,
    settle_chores,
    streamed,
)

import tidelock
from tidelock import Lake, Transaction, errors
from tidelock.store.staging import read_set

Act = Callable[[Transaction], object]
START = [(one, 10 * one) for one in range(1, 7)]


@pytest.fixture
def lake() -> Iterator[Lake]:
    with tidelock.open(f"memory://{uuid.uuid4().hex}", create=True, actor="tests") as lake:
        fill(lake)
        yield lake


def fill(lake: Lake) -> None:
    lake.create_table("keyed", NUMBERS_DDL, key="id")
    lake.create_table("plain", NUMBERS_DDL)
    lake.create_table("notes", NUMBERS_DDL)
    with lake.transaction() as tx:
        tx.append("keyed", numbers(*START))
        tx.append("plain", numbers(*START))


def commit(lake: Lake, act: Act) -> tidelock.Commit:
    with lake.transaction() as tx:
        act(tx)
    assert tx.commit is not None
    return tx.commit


def reading(lake: Lake, *reads: Act) -> Transaction:
    """A serializable transaction that has read something and writes elsewhere."""
    tx = lake.transaction(isolation="serializable")
    for read in reads:
        read(tx)
    tx.append("notes", numbers((1, 1)))
    return tx


READS: dict[str, Act] = {
    "to_arrow": lambda tx: tx.table("plain").to_arrow(filter="id <= 2"),
    "to_arrow of some columns": lambda tx: tx.table("plain").to_arrow(["v"], "id <= 2"),
    "to_arrow up to a limit": lambda tx: tx.table("plain").to_arrow(filter="id <= 2", limit=1),
    "to_batches": lambda tx: tx.table("plain").to_batches(filter="id <= 2").read_all(),
    "to_batches, not pulled": lambda tx: tx.table("plain").to_batches(filter="id <= 2"),
    "count": lambda tx: tx.table("plain").count("id <= 2"),
    "update": lambda tx: tx.update("plain", {"v": "v"}, where="id <= 2"),
    "update of nothing": lambda tx: tx.update("plain", {"v": "0"}, where="id <= 2 AND v > 99"),
    "delete": lambda tx: tx.delete("plain", where="id <= 2"),
}
WHOLE: dict[str, Act] = {
    "to_arrow": lambda tx: tx.table("plain").to_arrow(),
    "to_batches": lambda tx: tx.table("plain").to_batches(),
    "count": lambda tx: tx.table("plain").count(),
    "update": lambda tx: tx.update("plain", {"v": "v + 1"}),
    "as an Arrow stream": lambda tx: pa.table(tx.table("plain")),
    "as an input": lambda tx: tx.append("notes", tx.table("plain")),
}
MATTERS: dict[str, Act] = {
    "a row comes": lambda tx: tx.append("plain", numbers((0, 200))),
    "a row goes": lambda tx: tx.delete("plain", where="id = 2"),
    "a row changes": lambda tx: tx.update("plain", {"v": "200"}, where="id = 2"),
    "a row moves in": lambda tx: tx.update("plain", {"id": "0", "v": "200"}, where="id = 5"),
    "a row moves out": lambda tx: tx.update("plain", {"id": "9"}, where="id = 2"),
    "retention": lambda tx: tx.prune("plain", "id = 1"),
    "an overwrite": lambda tx: tx.overwrite("plain", numbers((1, 10), (2, 20))),
}
MATTERS_NOT: dict[str, Act] = {
    "another row comes": lambda tx: tx.append("plain", numbers((50, 1))),
    "another row goes": lambda tx: tx.delete("plain", where="id = 5"),
    "another row changes": lambda tx: tx.update("plain", {"v": "1"}, where="id = 5"),
    "another table changes": lambda tx: tx.append("keyed", numbers((50, 1))),
    "retention of other rows": lambda tx: tx.prune("plain", "id > 4"),
}


COMING = ("a row comes", "a row changes", "a row moves in")
"""What adds a row that an update of nothing would have found."""


@pytest.mark.parametrize(
    ("read", "change"),
    [(r, c) for r in READS for c in MATTERS if r != "update of nothing" or c in COMING],
)
def test_a_change_of_what_was_read_is_a_conflict(lake: Lake, read: str, change: str) -> None:
    tx = reading(lake, READS[read])
    rival = commit(lake, MATTERS[change])
    with pytest.raises(errors.CommitConflict) as caught:
        tx.publish()
    assert (caught.value.table, caught.value.expected) == ("plain", 4)
    assert caught.value.actual == caught.value.version == rival.version
    assert lake.table("notes").count() == 0


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", MATTERS_NOT)
def test_a_change_of_what_was_not_read_is_none(lake: Lake, read: str, change: str) -> None:
    tx = reading(lake, READS[read])
    commit(lake, MATTERS_NOT[change])
    tx.publish()
    assert lake.table("notes").count() == 1
    check_log(lake)


@pytest.mark.parametrize("read", WHOLE)
@pytest.mark.parametrize("change", MATTERS_NOT)
def test_who_read_all_rows_conflicts_with_any_change_of_them(
    lake: Lake, read: str, change: str
) -> None:
    tx = reading(lake, WHOLE[read])
    commit(lake, MATTERS_NOT[change])
    if change == "another table changes":
        tx.publish()
        return
    with pytest.raises(errors.CommitConflict, match="'plain'") as caught:
        tx.publish()
    if read != "update":
        assert "has read all its rows as of version 4" in caught.value.message
        assert caught.value.filter is None


def test_the_error_says_what_was_read_and_who_changed_it(lake: Lake) -> None:
    tx = reading(
        lake,
        lambda tx: tx.table("plain").count("v > 1000"),
        lambda tx: tx.table("plain").to_arrow(filter="id = 2 OR v = 7"),
    )
    rival = commit(lake, lambda tx: tx.delete("plain", where="id = 2"))
    later = commit(lake, lambda tx: tx.append("plain", numbers((60, 1))))
    with pytest.raises(errors.CommitConflict) as caught:
        tx.publish()
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.message == (
        "Table 'plain': this transaction is serializable and has read the rows where id = 2 OR "
        f"v = 7 as of version 4, and version {rival.version} removed or added such rows. Nothing "
        "was written."
    )
    assert "lake.run" in str(error)
    assert error.filter == "id = 2 OR v = 7"
    assert (error.version, error.actual) == (rival.version, later.version)
    assert error.operation_id == tx.operation_id
    assert error.action is errors.Action.REFRESH_AND_RETRY


def test_a_row_that_both_touch_is_named_first(lake: Lake) -> None:
    tx = lake.transaction(isolation="serializable")
    tx.update("keyed", {"v": "0"}, where="id <= 2")
    commit(lake, lambda tx: tx.update("keyed", {"v": "1"}, where="id = 2"))
    with pytest.raises(errors.CommitConflict, match=r"the row with the key \(id\) = 2 was"):
        tx.publish()


def test_who_only_reads_publishes_nothing(lake: Lake) -> None:
    with lake.transaction(isolation="serializable") as tx:
        tx.table("plain").to_arrow()
        commit(lake, lambda rival: rival.append("plain", numbers((9, 9))))
        assert tx.table("plain").count() == 6
    assert tx.commit is None


def test_own_rows_are_read_without_harm(lake: Lake) -> None:
    tx = lake.transaction(isolation="serializable")
    tx.create_table("new", NUMBERS_DDL)
    tx.append("new", numbers((1, 1)))
    tx.append("keyed", numbers((70, 7)))
    assert tx.table("keyed").count("id = 70") == 1
    assert tx.update("keyed", {"v": "v + 1"}, where="id = 70") == 1
    assert tx.table("new").to_arrow().num_rows == 1
    commit(lake, lambda rival: rival.append("keyed", numbers((80, 8))))
    tx.publish()
    assert rows_of(lake.table("keyed")) == Counter([*START, (70, 8), (80, 8)])


def test_without_it_nothing_that_was_only_read_is_protected(lake: Lake) -> None:
    tx = lake.transaction()
    tx.table("plain").to_arrow()
    tx.append("notes", numbers((1, 1)))
    commit(lake, lambda rival: rival.delete("plain", where="true"))
    tx.publish()
    assert lake.table("notes").count() == 1


def test_maintenance_changes_nothing_that_was_read(lake: Lake) -> None:
    for one in range(20):
        commit(lake, lambda tx, one=one: tx.append("plain", numbers((100 + one, 1))))
    tx = reading(lake, lambda tx: tx.table("plain").to_arrow())
    lake.optimize()
    settle_chores(lake)
    assert any(one.kind == "maintenance" for one in lake.log())
    tx.publish()


@pytest.mark.parametrize("matters", [True, False])
def test_maintenance_in_between_hides_no_change(lake: Lake, matters: bool) -> None:
    for one in range(6):
        commit(lake, lambda tx, one=one: tx.append("plain", numbers((100 + one, 1))))
    tx = reading(lake, lambda tx: tx.table("plain").count("id = 103"))
    lake.optimize("plain")
    row = 103 if matters else 104
    commit(lake, lambda tx: tx.update("plain", {"v": "0"}, where=f"id = {row}"))
    lake.optimize("plain")
    commit(lake, lambda tx: tx.append("plain", numbers((7, 7))))
    if not matters:
        tx.publish()
        return
    with pytest.raises(errors.CommitConflict, match="id = 103"):
        tx.publish()


def test_many_rows_that_went_are_looked_through(lake: Lake) -> None:
    lake.create_table("large", NUMBERS_DDL)
    ids = pa.array(range(20_000))
    commit(lake, lambda tx: tx.append("large", pa.table({"id": ids, "v": ids})))
    reads = [
        reading(lake, lambda tx, one=one: tx.table("large").count(f"v = {one}"))
        for one in (7_000, 7_001, 15_000)
    ]
    gone = "id > 5000 AND id < 10000 AND id <> 7001"
    commit(lake, lambda tx: tx.delete("large", where=gone))
    with pytest.raises(errors.CommitConflict, match="v = 7000 as of"):
        reads[0].publish()
    reads[1].publish()
    reads[2].publish()


def test_many_conditions_are_kept_up_to_a_bound(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_set, "CONDITIONS_MAX", 100)

    def read(count: int) -> Transaction:
        tx = lake.transaction(isolation="serializable")
        for one in range(count):
            tx.table("plain").count(f"id = {1000 + one}")
        tx.append("notes", numbers((1, 1)))
        return tx

    few, enough, many = read(1), read(100), read(101)
    unread, wanted = read(70), read(70)
    commit(lake, lambda tx: tx.append("plain", numbers((999, 1))))
    few.publish()
    enough.publish()
    unread.publish()
    with pytest.raises(errors.CommitConflict, match="has read all its rows"):
        many.publish()
    commit(lake, lambda tx: tx.append("plain", numbers((1069, 1))))
    with pytest.raises(errors.CommitConflict, match="the rows where id = 1069"):
        wanted.publish()


# Tables that come and go


def test_a_table_that_was_not_there_must_not_come(lake: Lake) -> None:
    def look(tx: Transaction) -> None:
        with pytest.raises(errors.TableNotFound):
            tx.table("Later")

    tx = reading(lake, look)
    lake.create_table("later", NUMBERS_DDL)
    with pytest.raises(errors.CommitConflict, match=r"'Later': .* found no such table"):
        tx.publish()


def test_a_table_that_was_there_must_not_go(lake: Lake) -> None:
    tx = reading(lake, lambda tx: tx.table("plain").schema)
    lake.drop_table("plain")
    with pytest.raises(errors.CommitConflict, match=r"found it as of version 4, .* dropped it"):
        tx.publish()


def test_a_table_must_not_be_replaced(lake: Lake) -> None:
    tx = reading(lake, lambda tx: tx.table("plain").schema)
    lake.drop_table("plain")
    lake.create_table("plain", "x INT")
    with pytest.raises(errors.CommitConflict, match="put another in its place"):
        tx.publish()


@pytest.mark.parametrize("change", ["create", "drop", "rows"])
def test_who_listed_all_tables_sees_them_come_and_go(lake: Lake, change: str) -> None:
    tx = reading(lake, lambda tx: tx.tables())
    if change == "create":
        lake.create_table("more", NUMBERS_DDL)
    elif change == "drop":
        lake.drop_table("keyed")
    else:
        commit(lake, lambda rival: rival.append("plain", numbers((9, 9))))
        tx.publish()
        return
    with pytest.raises(errors.CommitConflict, match="'more'" if change == "create" else "'keyed'"):
        tx.publish()


def test_tables_that_a_transaction_makes_and_drops_itself_are_its_own(lake: Lake) -> None:
    with lake.transaction(isolation="serializable") as tx:
        tx.table("plain").to_arrow()
        tx.drop_table("plain")
        with pytest.raises(errors.TableNotFound):
            tx.table("plain")
        tx.create_table("plain", "x INT")
        tx.append("plain", [{"x": 1}])
        tx.tables()
    assert rows_of(lake.table("plain")) == Counter([(1,)])


# What is asked for


@pytest.mark.parametrize("value", ["serialisable", "SNAPSHOT", "", None, 1])
def test_other_levels_are_refused(lake: Lake, value: object) -> None:
    with pytest.raises(errors.InvalidOption, match="'snapshot' or 'serializable'"):
        lake.transaction(isolation=value)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOption, match="'snapshot' or 'serializable'"):
        lake.run(lambda tx: None, isolation=value)  # type: ignore[arg-type]


def test_a_function_is_run_again_until_what_it_read_holds(lake: Lake) -> None:
    calls = []

    def act(tx: Transaction) -> int:
        calls.append(tx.base_version)
        total = sum(tx.table("plain").to_arrow(["v"])["v"].to_pylist())
        if len(calls) == 1:
            commit(lake, lambda rival: rival.append("plain", numbers((7, 1000))))
        tx.append("notes", numbers((1, total)))
        return total

    assert lake.run(act, isolation="serializable") == 1210
    assert len(calls) == 2
    assert rows_of(lake.table("notes")) == Counter([(1, 1210)])


# Work of writers that died


def load(uri: str, read: bool) -> None:
    with (
        tidelock.open(uri, actor="the loader") as lake,
        lake.transaction("load", isolation="serializable") as tx,
    ):
        if read:
            tx.table("plain").count("id = 1")
        tx.append("notes", streamed(numbers((1, 1))))


@pytest.mark.parametrize("read", [True, False])
def test_what_a_dead_writer_read_is_not_taken_for_unchanged(tmp_path: Path, read: bool) -> None:
    uri = str(tmp_path / "lake")
    with tidelock.open(uri, create=True) as lake:
        fill(lake)
    assert run(load, uri, read, failpoints="publish.before_put=kill") == -9
    with tidelock.open(uri, heal=False) as lake:
        commit(lake, lambda tx: tx.update("plain", {"v": "0"}, where="id = 1"))
    age(uri)
    with tidelock.open(uri) as lake:
        assert lake.recoveries()[0].outcome == ("discarded" if read else "rolled_forward")
        assert lake.table("notes").count() == (0 if read else 1)


BROKEN: dict[str, tuple[Act, Act, Act]] = {
    "a key": (
        lambda tx: tx.table("keyed").count("id = 9"),
        lambda tx: tx.append("keyed", numbers((9, 1))),
        lambda tx: tx.append("keyed", numbers((9, 2))),
    ),
    "a unique value": (
        lambda tx: tx.table("keyed").count("v = 99"),
        lambda tx: tx.append("keyed", numbers((8, 99))),
        lambda tx: tx.append("keyed", numbers((9, 99))),
    ),
    "a reference": (
        lambda tx: tx.table("keyed").count("id = 2"),
        lambda tx: tx.append("notes", numbers((2, 1))),
        lambda tx: tx.delete("keyed", "id = 2"),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_breaks_because_what_was_read_changed_is_a_conflict_to_be_tried_again(
    lake: Lake, rule: str
) -> None:
    lake.alter_table("keyed", "ADD UNIQUE (v)")
    lake.alter_table("notes", "ADD FOREIGN KEY (id) REFERENCES keyed")
    look, act, rival = BROKEN[rule]
    tx = lake.transaction(isolation="serializable")
    look(tx)
    act(tx)
    commit(lake, rival)
    with pytest.raises(errors.CommitConflict, match="serializable"):
        tx.publish()


def test_run_counts_on_where_another_took_the_number_first(lake: Lake) -> None:
    lake.alter_table("keyed", "ADD UNIQUE (v)")
    rivals = [7]

    def number(tx: Transaction) -> None:
        highest = max(tx.table("keyed").to_arrow()["id"].to_pylist())
        tx.append("keyed", numbers((highest + 1, 500)))
        if rivals:
            commit(lake, lambda other: other.append("keyed", numbers((rivals.pop(), 400))))

    lake.run(number, isolation="serializable")
    assert sorted(lake.table("keyed").to_arrow()["id"].to_pylist())[-2:] == [7, 8]
