"""The classic anomalies by name, and which level of isolation permits which.

anomaly                 snapshot                          serializable
dirty read              never                             never
non-repeatable read     never                             never
read skew               never                             never
lost update             never by update and delete;       never
                        by upsert of what was read
write skew              permitted                         never
phantom                 never seen; permitted to matter   never
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Literal

import pytest
from tests.support.lakes import numbers

import tidelock
from tidelock import Lake, Transaction, errors

Level = Literal["snapshot", "serializable"]
LEVELS: list[Level] = ["snapshot", "serializable"]


@pytest.fixture
def lake() -> Iterator[Lake]:
    with tidelock.open(f"memory://{uuid.uuid4().hex}", create=True, actor="tests") as lake:
        lake.create_table("accounts", "id BIGINT NOT NULL, v BIGINT", key="id")
        lake.create_table("shifts", "id BIGINT NOT NULL, v BIGINT")
        with lake.transaction() as tx:
            tx.append("accounts", numbers((1, 100), (2, 100)))
            tx.append("shifts", numbers((1, 1), (2, 1)))
        yield lake


def value(table: tidelock.Table, row: int) -> int:
    (found,) = table.to_arrow(["v"], f"id = {row}")["v"].to_pylist()
    return int(found)


@pytest.mark.parametrize("level", LEVELS)
def test_dirty_reads_never_happen(lake: Lake, level: Level) -> None:
    writer = lake.transaction()
    writer.update("accounts", {"v": "0"}, where="id = 1")
    assert value(lake.transaction(isolation=level).table("accounts"), 1) == 100
    writer.rollback()


@pytest.mark.parametrize("level", LEVELS)
def test_reads_repeat_and_show_one_moment(lake: Lake, level: Level) -> None:
    reader = lake.transaction(isolation=level)
    assert value(reader.table("accounts"), 1) == 100
    with lake.transaction() as tx:
        tx.update("accounts", {"v": "v - 50"}, where="id = 1")
        tx.update("accounts", {"v": "v + 50"}, where="id = 2")
        tx.append("accounts", numbers((3, 0)))
    assert [value(reader.table("accounts"), one) for one in (1, 2)] == [100, 100]
    assert reader.table("accounts").count() == 2
    reader.publish()


@pytest.mark.parametrize("level", LEVELS)
def test_an_update_is_never_lost_to_another_update(lake: Lake, level: Level) -> None:
    one, two = (lake.transaction(isolation=level) for _ in range(2))
    for tx in (one, two):
        tx.update("accounts", {"v": "v + 10"}, where="id = 1")
    one.publish()
    with pytest.raises(errors.CommitConflict, match=r"\(id\) = 1 was"):
        two.publish()
    assert value(lake.table("accounts"), 1) == 110


@pytest.mark.parametrize("level", LEVELS)
def test_an_update_is_lost_to_an_upsert_of_what_was_read_unless_serializable(
    lake: Lake, level: Level
) -> None:
    tx = lake.transaction(isolation=level)
    read = value(tx.table("accounts"), 1)
    tx.upsert("accounts", numbers((1, read + 10)))
    with lake.transaction() as rival:
        rival.update("accounts", {"v": "v + 10"}, where="id = 1")
    if level == "snapshot":
        tx.publish()
        assert value(lake.table("accounts"), 1) == 110
        return
    with pytest.raises(errors.CommitConflict, match="the rows where id = 1 as of"):
        tx.publish()
    assert value(lake.table("accounts"), 1) == 110


def leave(tx: Transaction, who: int) -> None:
    """Go off duty, if another stays."""
    if tx.table("shifts").count("v = 1") > 1:
        tx.update("shifts", {"v": "0"}, where=f"id = {who}")


@pytest.mark.parametrize("level", LEVELS)
def test_write_skew_is_permitted_by_snapshots_alone(lake: Lake, level: Level) -> None:
    one, two = (lake.transaction(isolation=level) for _ in range(2))
    leave(one, 1)
    leave(two, 2)
    one.publish()
    if level == "snapshot":
        two.publish()
        assert lake.table("shifts").count("v = 1") == 0
        return
    with pytest.raises(errors.CommitConflict, match="the rows where v = 1 as of"):
        two.publish()
    lake.run(lambda tx: leave(tx, 2), isolation=level)
    assert lake.table("shifts").count("v = 1") == 1


@pytest.mark.parametrize("level", LEVELS)
def test_phantoms_matter_to_snapshots_alone(lake: Lake, level: Level) -> None:
    """At most three shifts: each counts them and adds one."""
    one, two = (lake.transaction(isolation=level) for _ in range(2))
    for number, tx in enumerate((one, two)):
        assert tx.table("shifts").count("v = 1") == 2
        tx.append("shifts", numbers((3 + number, 1)))
    one.publish()
    if level == "snapshot":
        two.publish()
        assert lake.table("shifts").count("v = 1") == 4
        return
    with pytest.raises(errors.CommitConflict, match="the rows where v = 1 as of"):
        two.publish()
    assert lake.table("shifts").count("v = 1") == 3


@pytest.mark.parametrize("level", LEVELS)
def test_phantoms_of_a_delete_matter_to_snapshots_alone(lake: Lake, level: Level) -> None:
    """Who deletes all rows of a kind finds none afterwards, if it ran alone."""
    tx = lake.transaction(isolation=level)
    assert tx.delete("shifts", where="v = 1") == 2
    with lake.transaction() as rival:
        rival.append("shifts", numbers((9, 1)))
    if level == "snapshot":
        tx.publish()
        assert lake.table("shifts").count("v = 1") == 1
        return
    with pytest.raises(errors.CommitConflict):
        tx.publish()
