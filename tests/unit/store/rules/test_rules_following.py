"""ON DELETE CASCADE and SET NULL: what refers to a row that leaves follows, in one commit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.ruled import check, new_lake, reference, refused, rows_in, unique, violations

from tidelock import Lake
from tidelock.errors import InvalidSchema
from tidelock.store.log.line import Line


def shop(on_delete: str, *, key: str | None = "id") -> Lake:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("customers", "id BIGINT, name STRING", key="id")
        tx.create_table("orders", "id BIGINT, customer_id BIGINT", key=key)
        tx.create_table("lines", "order_id BIGINT, n INT")
        tx.alter_table("orders", reference("customer_id", "customers", on_delete=on_delete))
        if key:
            tx.alter_table("lines", reference("order_id", "orders", on_delete="cascade"))
    with lake.transaction() as tx:
        tx.append("customers", [{"id": one} for one in (1, 2, 3)])
        tx.append("orders", orders((10, 1), (11, 1), (20, 2), (30, None)))
        if key:
            tx.append("lines", [{"order_id": 10, "n": n} for n in range(3)])
            tx.append("lines", [{"order_id": 20, "n": 9}])
    return lake


def orders(*pairs: tuple[int, int | None]) -> list[dict[str, Any]]:
    return [{"id": one, "customer_id": customer} for one, customer in pairs]


def found(lake: Lake) -> dict[int, int | None]:
    return {row["id"]: row["customer_id"] for row in rows_in(lake.table("orders"))}


def test_children_are_deleted_with_their_parent_through_several_tables_and_counted() -> None:
    lake = shop("cascade")
    with lake.transaction() as tx:
        assert tx.delete("customers", "id = 1") == 1
    assert found(lake) == {20: 2, 30: None}
    assert [row["order_id"] for row in rows_in(lake.table("lines"))] == [20]
    assert tx.commit is not None
    counts = {change.table: change.deleted for change in tx.commit.tables}
    assert counts == {"customers": 1, "orders": 2, "lines": 3}
    assert not violations(lake.snapshot())


def test_children_without_a_key_follow_too() -> None:
    lake = shop("cascade", key=None)
    with lake.transaction() as tx:
        tx.delete("customers", "id <= 2")
    assert found(lake) == {30: None}


def test_children_get_null_and_keep_their_row_ids() -> None:
    lake = shop("set null")
    before = lake.table("orders").dataset.scanner(columns=["id"], with_row_id=True).to_table()
    with lake.transaction() as tx:
        tx.delete("customers", "id IN (1, 2)")
    assert found(lake) == {10: None, 11: None, 20: None, 30: None}
    after = lake.table("orders").dataset.scanner(columns=["id"], with_row_id=True).to_table()
    assert sorted(before.to_pylist(), key=str) == sorted(after.to_pylist(), key=str)
    assert tx.commit is not None
    assert tx.commit.table("orders").updated == 3
    assert lake.table("lines").count() == 4


def test_nothing_follows_what_comes_again() -> None:
    lake = shop("cascade")
    with lake.transaction() as tx:
        tx.delete("customers", "true")
        tx.append("customers", [{"id": 1}, {"id": 2}])
    with lake.transaction() as tx:
        tx.upsert("customers", [{"id": 1, "name": "x"}])
        tx.update("customers", {"name": "'y'"})
    assert found(lake) == {10: 1, 11: 1, 20: 2, 30: None}


def test_an_overwrite_takes_the_children_of_what_it_removes() -> None:
    lake = shop("cascade")
    with lake.transaction() as tx:
        tx.overwrite("customers", [{"id": 2}, {"id": 7}])
    assert found(lake) == {20: 2, 30: None}
    with lake.transaction() as tx:
        tx.overwrite("customers", [])
    assert found(lake) == {30: None}


def test_a_row_that_stays_with_another_value_takes_nothing_along() -> None:
    lake = shop("cascade")
    with refused(lake) as tx:
        tx.update("customers", {"id": "id + 10"}, "id = 1")
    assert len(found(lake)) == 4


def test_children_that_the_same_transaction_changes_follow_as_they_are() -> None:
    lake = shop("cascade")
    with lake.transaction() as tx:
        tx.append("orders", orders((12, 1), (31, 3)))
        tx.update("orders", {"customer_id": "3"}, "id = 11")
        tx.update("orders", {"customer_id": "1"}, "id = 20")
        tx.delete("customers", "id = 1")
    assert found(lake) == {11: 3, 30: None, 31: 3}
    assert lake.table("lines").count() == 0


def test_a_tree_that_refers_to_itself_falls_with_its_root() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("tree", "id BIGINT, parent BIGINT", key="id")
        tx.alter_table("tree", reference("parent", "tree", on_delete="cascade"))
        tx.append("tree", [{"id": 1}, {"id": 2}])
        tx.append("tree", [{"id": n, "parent": n // 2} for n in range(4, 200)])
        tx.append("tree", [{"id": 3, "parent": 1}])
    with lake.transaction() as tx:
        tx.delete("tree", "id = 3")
    left = {row["id"] for row in rows_in(lake.table("tree"))}

    def root(n: int) -> int:
        return n if n <= 3 else root(n // 2)

    assert left == {n for n in range(1, 200) if root(n) != 3}
    with lake.transaction() as tx:
        tx.delete("tree", "id = 2")
    assert {row["id"] for row in rows_in(lake.table("tree"))} == {1}


def test_a_long_chain_and_a_circle_fall_too() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("chain", "id BIGINT, next BIGINT", key="id")
        tx.alter_table("chain", reference("next", "chain", on_delete="cascade"))
        tx.append("chain", [{"id": n, "next": n - 1 if n else 149} for n in range(150)])
    with lake.transaction() as tx:
        tx.delete("chain", "id = 75")
    assert lake.table("chain").count() == 0


def test_both_ways_from_one_parent() -> None:
    """A row that would get NULL by one rule and leave by another leaves."""
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("p", "id BIGINT", key="id")
        tx.create_table("c", "id BIGINT, a BIGINT, b BIGINT, d BIGINT")
        tx.alter_table(
            "c",
            reference("a", "p", on_delete="cascade"),
            reference("b", "p", on_delete="set null"),
            reference("d", "p", on_delete="set null"),
        )
        tx.append("p", [{"id": 1}, {"id": 2}])
        rows = [(1, 1, 1, 1), (2, 2, 1, 1), (3, 2, 1, 2), (4, 2, 2, 1), (5, 2, 2, 2)]
        tx.append("c", [dict(zip(("id", "a", "b", "d"), one, strict=True)) for one in rows])
    with lake.transaction() as tx:
        tx.delete("p", "id = 1")
    left = {r["id"]: (r["a"], r["b"], r["d"]) for r in rows_in(lake.table("c"))}
    assert left == {2: (2, None, None), 3: (2, None, 2), 4: (2, 2, None), 5: (2, 2, 2)}


def test_what_follows_must_agree_with_all_other_rules() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("p", "id BIGINT", key="id")
        tx.create_table("c", "id BIGINT, p BIGINT, q BIGINT", key="id")
        tx.create_table("g", "c BIGINT")
        tx.alter_table("c", reference("p", "p", on_delete="set null"))
        tx.alter_table("c", check("p IS NOT NULL OR q IS NOT NULL", name="one_of"))
        tx.alter_table("g", reference("c", "c", name="held"))
        tx.append("p", [{"id": 1}, {"id": 2}])
        tx.append("c", [{"id": 1, "p": 1, "q": 1}, {"id": 2, "p": 2}])
    with lake.transaction() as tx:
        tx.delete("p", "id = 1")
    with refused(lake, match="one_of") as tx:
        tx.delete("p", "id = 2")


def test_a_restriction_below_stops_all_of_it() -> None:
    lake = shop("cascade")
    with lake.transaction() as tx:
        tx.create_table("bills", "order_id BIGINT")
        tx.alter_table("bills", reference("order_id", "orders", name="billed"))
        tx.append("bills", [{"order_id": 10}])
    with refused(lake, match="billed") as tx:
        tx.delete("customers", "id = 1")
    assert len(found(lake)) == 4
    with lake.transaction() as tx:
        tx.delete("bills", "true")
        tx.delete("customers", "id = 1")
    assert not violations(lake.snapshot())


def test_set_null_needs_columns_that_may_be_null() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("p", "id BIGINT", key="id")
        tx.create_table("c", "p BIGINT NOT NULL")
    with pytest.raises(InvalidSchema, match="nullable"), lake.transaction() as tx:
        tx.alter_table("c", reference("p", "p", on_delete="set null"))
    lake.alter_table("c", "ALTER COLUMN p DROP NOT NULL")
    lake.run(lambda tx: tx.alter_table("c", reference("p", "p", on_delete="set null")))
    for change in ("ALTER COLUMN p SET NOT NULL", "ADD PRIMARY KEY (p)"):
        with pytest.raises(InvalidSchema, match="nullable"):
            lake.alter_table("c", change)


def test_a_child_that_others_commit_meanwhile_follows_too() -> None:
    for on_delete, expected in (("cascade", {20: 2, 30: None}), ("set null", None)):
        lake = shop(on_delete)
        with lake.transaction() as tx:
            tx.delete("customers", "id = 1")
            with lake.transaction() as other:
                other.append("orders", orders((12, 1)))
                other.append("lines", [{"order_id": 12, "n": 1}])
        assert not violations(lake.snapshot())
        assert 12 not in found(lake) or found(lake)[12] is None
        if expected is not None:
            assert found(lake) == expected
            assert lake.table("lines").count() == 1
        assert tx.commit is not None
        change = tx.commit.table("orders")
        assert change.deleted + change.updated == 3


def test_what_followed_first_and_no_longer_does_is_not_touched() -> None:
    lake = shop("cascade")
    transaction = lake.transaction()
    transaction.delete("customers", "id = 1")
    head = transaction._head
    transaction.rebase(Line.up_to(lake._store.log, head))
    with lake.transaction() as other:
        other.update("orders", {"customer_id": "3"}, "customer_id = 1")
    transaction.publish()
    assert found(lake) == {10: 3, 11: 3, 20: 2, 30: None}
    assert transaction.commit is not None
    assert [change.table for change in transaction.commit.tables] == ["customers"]


def test_following_a_unique_column() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("people", "id BIGINT, email STRING", key="id")
        tx.create_table("logins", "n BIGINT, email STRING")
        tx.alter_table("people", unique("email"))
        tx.alter_table("logins", reference("email", "people", "email", on_delete="cascade"))
        tx.append("people", [{"id": 1, "email": "a"}, {"id": 2, "email": "b"}])
        tx.append("logins", [{"n": 1, "email": "a"}, {"n": 2, "email": "b"}, {"n": 3}])
    with lake.transaction() as tx:
        tx.delete("people", "id = 2")
    assert [row["n"] for row in rows_in(lake.table("logins"))] == [1, 3]
