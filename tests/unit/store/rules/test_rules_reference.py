"""REFERENCES: what is referred to is there, whoever changes which side."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.support.ruled import new_lake, reference, refused, rows_in, unique, violations

from tidelock import Lake
from tidelock.errors import InvalidSchema, RuleBroken, TableInUse
from tidelock.model.schema.alterations import (
    AddRule,
    ChangeType,
    DropColumn,
    DropRule,
    RenameColumn,
    SetKey,
)


def shop(*rules: AddRule) -> Lake:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("orders", "id BIGINT, customer_id BIGINT, part STRING")
        tx.create_table("customers", "id BIGINT, name STRING", key="id")
        tx.alter_table("orders", *(rules or (reference("customer_id", "customers", name="fk"),)))
    return lake


def customers(*ids: int) -> list[dict[str, Any]]:
    return [{"id": one, "name": f"c{one}"} for one in ids]


def orders(*pairs: tuple[int, int | None]) -> list[dict[str, Any]]:
    return [{"id": one, "customer_id": customer} for one, customer in pairs]


def filled() -> Lake:
    lake = shop()
    with lake.transaction() as tx:
        tx.append("customers", customers(1, 2, 3))
        tx.append("orders", orders((1, 1), (2, 1), (3, 2), (4, None)))
    return lake


def test_a_row_that_refers_to_none_is_refused_and_named() -> None:
    lake = filled()
    with pytest.raises(RuleBroken) as caught, lake.transaction() as tx:
        tx.append("orders", orders((5, 7), (6, 7), (7, 9), (8, 3)))
    assert caught.value.message == (
        "Table 'orders': rule 'fk' is broken by 3 rows: customer_id = 7 is not in customers (id), "
        "customer_id = 9 is not in customers (id). Nothing was written."
    )
    assert [row["id"] for row in caught.value.rows] == [5, 6, 7]
    assert caught.value.kind == "reference"


def test_parent_and_child_may_come_in_any_order() -> None:
    lake = shop()
    with lake.transaction() as tx:
        tx.append("orders", orders((1, 1)))
        tx.append("customers", customers(1))
    with lake.transaction() as tx:
        tx.append("customers", customers(2))
        tx.append("orders", orders((2, 2)))
    assert not violations(lake.snapshot())


def test_a_parent_that_is_referred_to_cannot_be_deleted_unless_its_children_go_too() -> None:
    lake = filled()
    with refused(lake, match="customer_id = 1 is not in customers") as tx:
        tx.delete("customers", "id = 1")
    with lake.transaction() as tx:
        tx.delete("customers", "id = 1")
        tx.update("orders", {"customer_id": "2"}, "id = 1")
        tx.delete("orders", "id = 2")
    with lake.transaction() as tx:
        tx.delete("customers", "id = 3")
    assert not violations(lake.snapshot())


def test_a_parent_that_comes_again_is_there() -> None:
    lake = filled()
    with lake.transaction() as tx:
        tx.delete("customers", "true")
        tx.append("customers", customers(2, 1))
    with lake.transaction() as tx:
        tx.overwrite("customers", customers(1, 2, 9))
    with lake.transaction() as tx:
        tx.upsert("customers", [{"id": 1, "name": "other"}])
        tx.update("customers", {"name": "'x'"})
    with refused(lake) as tx:
        tx.overwrite("customers", customers(1, 9))
    with refused(lake) as tx:
        tx.overwrite("customers", [])


def test_what_is_referred_to_cannot_be_changed_under_its_children() -> None:
    lake = filled()
    with refused(lake) as tx:
        tx.update("customers", {"id": "11"}, "id = 1")
    with lake.transaction() as tx:
        tx.update("customers", {"id": "11"}, "id = 1")
        tx.update("orders", {"customer_id": "11"}, "customer_id = 1")
        tx.update("customers", {"id": "33"}, "id = 3")
    assert not violations(lake.snapshot())


def test_a_child_that_moves_is_checked() -> None:
    lake = filled()
    with refused(lake) as tx:
        tx.update("orders", {"customer_id": "customer_id + 10"}, "id = 1")
    with lake.transaction() as tx:
        tx.update("orders", {"customer_id": "NULL"}, "id = 1")


def test_several_columns_refer_together_and_a_null_in_one_exempts() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("parts", "maker STRING, number BIGINT", key=["maker", "number"])
        tx.create_table("uses", "number BIGINT, maker STRING")
        tx.alter_table("uses", reference(("number", "maker"), "parts", "number", "maker"))
        tx.append("parts", [{"maker": "a", "number": 1}, {"maker": "b", "number": 2}])
        tx.append("uses", [{"maker": "a", "number": 1}, {"maker": "z", "number": None}])
    with refused(lake, match=r"\(number, maker\) = \(2, 'a'\) is not in parts") as tx:
        tx.append("uses", [{"maker": "a", "number": 2}])
    with refused(lake) as tx:
        tx.delete("parts", "maker = 'a'")
    with lake.transaction() as tx:
        tx.delete("parts", "maker = 'b'")


def test_columns_that_are_unique_can_be_referred_to() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("people", "id BIGINT, email STRING", key="id")
        tx.create_table("logins", "email STRING")
        tx.alter_table("people", unique("email", name="emails"))
        tx.alter_table("logins", reference("email", "people", "email", name="fk"))
        tx.append("people", [{"id": 1, "email": "a"}, {"id": 2, "email": None}])
        tx.append("logins", [{"email": "a"}, {"email": None}])
    with refused(lake) as tx:
        tx.update("people", {"email": "NULL"}, "id = 1")
    with pytest.raises(TableInUse) as caught, lake.transaction() as tx:
        tx.alter_table("people", DropRule("emails"))
    assert (caught.value.table, caught.value.dependents) == ("people", ["logins"])
    with lake.transaction() as tx:
        tx.alter_table("logins", DropRule("fk"))
        tx.alter_table("people", DropRule("emails"))


def test_a_table_may_refer_to_itself() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("tree", "id BIGINT, parent BIGINT", key="id")
        tx.alter_table("tree", reference("parent", "tree"))
        tx.append("tree", [{"id": 2, "parent": 1}, {"id": 1, "parent": 1}, {"id": 3}])
    with refused(lake) as tx:
        tx.delete("tree", "id = 1")
    with lake.transaction() as tx:
        tx.delete("tree", "id IN (1, 2)")
    with refused(lake) as tx:
        tx.append("tree", [{"id": 4, "parent": 5}])


def test_a_table_that_is_referred_to_is_dropped_with_its_children_or_not() -> None:
    lake = filled()
    with pytest.raises(TableInUse) as caught:
        lake.drop_table("customers")
    assert caught.value.dependents == ["orders"]
    assert caught.value.rules == ["fk"]
    with lake.transaction() as tx:
        tx.drop_table("customers")
        tx.alter_table("orders", DropRule("fk"))
    lake = filled()
    with lake.transaction() as tx:
        tx.drop_table("customers")
        tx.drop_table("orders")
    assert not lake.tables()
    lake = filled()
    lake.drop_table("orders")
    lake.drop_table("customers")


def test_the_columns_that_are_referred_to_stay_what_they_are() -> None:
    lake = filled()
    for alterations in ([SetKey(())], [SetKey(()), SetKey(("name",))]):
        with refused(lake, TableInUse) as tx:
            tx.alter_table("customers", *alterations)
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("p", "a INT, b INT", key="a")
        tx.create_table("c", "a INT")
        tx.alter_table("c", reference("a", "p"))
    with refused(lake, TableInUse) as tx:
        tx.alter_table("p", ChangeType("a", pa.int64()))
    with refused(lake, TableInUse) as tx:
        tx.alter_table("c", ChangeType("a", pa.int64()))
    with lake.transaction() as tx:
        tx.alter_table("p", ChangeType("a", pa.int64()))
        tx.alter_table("c", ChangeType("a", pa.int64()))
    with pytest.raises(InvalidSchema), lake.transaction() as tx:
        tx.alter_table("c", DropColumn("a"))


def test_renames_of_tables_and_columns_are_followed() -> None:
    lake = filled()
    with lake.transaction() as tx:
        tx.rename_table("customers", "clients")
        tx.alter_table("clients", RenameColumn("id", "number"))
        tx.alter_table("orders", RenameColumn("customer_id", "client"))
    with refused(lake, match=r"client = 7 is not in clients \(number\)") as tx:
        tx.append("orders", [{"id": 9, "client": 7}])
    with refused(lake) as tx:
        tx.delete("clients", "number = 1")


def test_another_table_of_the_same_name_is_not_what_is_referred_to() -> None:
    lake = filled()
    with refused(lake, TableInUse) as tx:
        tx.drop_table("customers")
        tx.create_table("customers", "id BIGINT, name STRING", key="id")
        tx.append("customers", customers(1, 2, 3))


@pytest.mark.parametrize("on_delete", ["cascade", "set null", "restrict"])
def test_retention_takes_no_children_along(on_delete: str) -> None:
    lake = shop(reference("customer_id", "customers", on_delete=on_delete))
    with lake.transaction() as tx:
        tx.append("customers", customers(1, 2))
        tx.append("orders", orders((1, 1)))
    with refused(lake) as tx:
        tx.prune("customers", "id = 1")
    with lake.transaction() as tx:
        tx.prune("customers", "id = 2")
    assert [row["id"] for row in rows_in(lake.table("customers"))] == [1]


def test_two_parents_of_one_child() -> None:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("a", "id BIGINT", key="id")
        tx.create_table("b", "id BIGINT", key="id")
        tx.create_table("pairs", "a BIGINT, b BIGINT", key=["a", "b"])
        tx.alter_table("pairs", reference("a", "a"), reference("b", "b"))
        tx.append("a", [{"id": 1}])
        tx.append("b", [{"id": 2}])
        tx.append("pairs", [{"a": 1, "b": 2}])
    with refused(lake, match="pairs_a_fkey") as tx:
        tx.append("pairs", [{"a": 2, "b": 2}])
    with refused(lake, match="pairs_b_fkey") as tx:
        tx.delete("b", "true")
