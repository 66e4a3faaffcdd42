"""Rules at a merge: what each side keeps by itself and both together would break is a conflict."""

from __future__ import annotations

import pytest
from tests.support.merged import conflicts, on, part, rows
from tests.support.ruled import (
    cardinality,
    check,
    new_lake,
    reference,
    unique,
    violations,
)

from tidelock import Lake
from tidelock.errors import CommitConflict
from tidelock.model.schema.rules import OnDelete


def shop(on_delete: OnDelete = "restrict") -> Lake:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("customers", "id BIGINT, name STRING, email STRING", key="id")
        tx.create_table("orders", "id BIGINT, customer_id BIGINT, amount BIGINT", key="id")
        tx.alter_table(
            "orders", reference("customer_id", "customers", name="fk", on_delete=on_delete)
        )
        tx.append("customers", [{"id": one, "name": f"c{one}"} for one in (1, 2, 3)])
        tx.append("orders", [{"id": 1, "customer_id": 1, "amount": 5}])
    return lake


@pytest.mark.parametrize("on_delete", ["restrict", "cascade", "set null"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_child_of_a_parent_that_the_other_side_deleted_is_a_conflict(
    on_delete: OnDelete, turned: bool
) -> None:
    lake = shop(on_delete)
    sides = [
        lambda tx: tx.delete("customers", "id = 2"),
        lambda tx: tx.append("orders", [{"id": 7, "customer_id": 2, "amount": 1}]),
    ]
    part(lake, *(reversed(sides) if turned else sides))
    (found,) = conflicts(lake)
    assert (found.table, found.kind, found.key) == ("orders", "orphaned reference", {"id": 7})
    assert found.columns == ("customer_id",)
    assert "customer_id = 2 is not in customers (id)" in found.why
    shown = found.source if turned else found.target
    assert shown == {"id": 7, "customer_id": 2, "amount": 1}
    assert (found.target if turned else found.source) is None


def test_the_same_unique_value_from_both_sides_is_a_conflict() -> None:
    lake = shop()
    on(lake, "main", lambda tx: tx.alter_table("customers", unique("email", name="mail")))
    part(
        lake,
        lambda tx: tx.update("customers", {"email": "'a@b'"}, "id = 1"),
        lambda tx: tx.update("customers", {"email": "'a@b'"}, "id = 2"),
    )
    found = conflicts(lake)
    assert sorted((one.kind, str(one.key)) for one in found) == [
        ("uniqueness", "{'id': 1}"),
        ("uniqueness", "{'id': 2}"),
    ]
    (first,) = (one for one in found if one.key == {"id": 1})
    assert first.source is not None
    assert first.source["email"] == "a@b"
    assert first.target is not None
    assert first.target["email"] is None


def test_a_value_that_a_rule_of_the_other_side_forbids_is_told_as_a_rule_against_data() -> None:
    lake = shop()
    part(
        lake,
        lambda tx: tx.alter_table("orders", check("amount < 100", name="small")),
        lambda tx: tx.append("orders", [{"id": 8, "customer_id": 1, "amount": 500}]),
    )
    (found,) = conflicts(lake)
    assert (found.kind, found.key, found.columns) == (
        "rule against data",
        {"id": 8},
        ("amount",),
    )


def test_columns_that_each_side_changed_may_break_a_check_together() -> None:
    lake = shop()
    on(lake, "main", lambda tx: tx.alter_table("orders", "ADD COLUMN paid BIGINT"))
    on(lake, "main", lambda tx: tx.update("orders", {"paid": "0"}, "true"))
    on(lake, "main", lambda tx: tx.alter_table("orders", check("paid <= amount", name="due")))
    part(
        lake,
        lambda tx: tx.update("orders", {"paid": "5"}, "id = 1"),
        lambda tx: tx.update("orders", {"amount": "3"}, "id = 1"),
    )
    (found,) = conflicts(lake)
    assert (found.kind, found.key) == ("value constraint", {"id": 1})


def test_rows_of_both_sides_may_be_too_many_together() -> None:
    lake = shop()
    on(
        lake,
        "main",
        lambda tx: tx.alter_table("orders", cardinality("customer_id", most=2, name="few")),
    )
    part(
        lake,
        lambda tx: tx.append("orders", [{"id": 8, "customer_id": 1}]),
        lambda tx: tx.append("orders", [{"id": 9, "customer_id": 1}]),
    )
    found = conflicts(lake)
    assert {one.kind for one in found} == {"cardinality"}
    assert sorted(one.key["id"] for one in found if one.key) == [1, 8, 9]


def test_a_column_that_one_side_requires_and_the_other_left_empty_is_a_conflict() -> None:
    lake = shop()
    part(
        lake,
        lambda tx: tx.alter_table("orders", "ALTER COLUMN amount SET NOT NULL"),
        lambda tx: tx.append("orders", [{"id": 8, "customer_id": 1}]),
    )
    (found,) = conflicts(lake)
    assert (found.kind, found.columns) == ("value constraint", ("amount",))


def test_a_column_is_required_after_the_merge_when_the_source_filled_it_before() -> None:
    lake = shop()
    on(lake, "main", lambda tx: tx.append("orders", [{"id": 2, "customer_id": 1}]))
    lake.create_branch("dev")
    on(
        lake,
        "dev",
        lambda tx: tx.update("orders", {"amount": "0"}, "amount IS NULL"),
        lambda tx: tx.alter_table("orders", "ALTER COLUMN amount SET NOT NULL"),
    )
    on(lake, "main", lambda tx: tx.append("orders", [{"id": 8, "customer_id": 1, "amount": 2}]))
    lake.merge("dev")
    assert [row["amount"] for row in rows(lake, "orders")] == [5, 0, 2]
    assert not lake.table("orders").schema.column("amount").nullable


def test_conflicts_of_rows_and_of_rules_are_reported_together() -> None:
    lake = shop()

    def here(tx: object) -> None:
        tx.delete("customers", "id = 2")  # type: ignore[attr-defined]
        tx.update("customers", {"name": "'x'"}, "id = 1")  # type: ignore[attr-defined]

    def there(tx: object) -> None:
        tx.append("orders", [{"id": 7, "customer_id": 2}])  # type: ignore[attr-defined]
        tx.update("customers", {"name": "'y'"}, "id = 1")  # type: ignore[attr-defined]

    part(lake, here, there)
    assert {(one.table, one.kind) for one in conflicts(lake)} == {
        ("customers", "divergent update"),
        ("orders", "orphaned reference"),
    }


def test_rules_come_with_a_branch_and_hold_of_what_both_sides_wrote() -> None:
    lake = shop()
    part(
        lake,
        lambda tx: tx.alter_table("orders", check("amount < 100", name="small")),
        lambda tx: tx.append("orders", [{"id": 8, "customer_id": 1, "amount": 50}]),
    )
    on(lake, "main", lambda tx: tx.alter_table("customers", unique("name", name="named")))
    lake.merge("dev")
    assert "small" in {one.name for one in lake.rules("orders")}
    assert "named" in {one.name for one in lake.rules("customers")}
    assert not violations(lake.snapshot(), {"small": lambda row: row["amount"] < 100})


def test_a_table_that_is_dropped_here_and_referred_to_there_is_a_conflict() -> None:
    lake = shop()
    on(lake, "main", lambda tx: tx.create_table("parts", "id BIGINT", key="id"))
    on(lake, "main", lambda tx: tx.create_table("uses", "id BIGINT, part BIGINT", key="id"))
    part(
        lake,
        lambda tx: tx.drop_table("parts"),
        lambda tx: tx.alter_table("uses", reference("part", "parts", name="part_of")),
    )
    (found,) = conflicts(lake)
    assert found.kind == "schema"
    assert "referred to by 'uses'" in found.why


def test_a_merge_is_made_again_when_a_parent_is_deleted_while_it_is_published() -> None:
    """What rules were compared with is part of what publication looks at again."""
    lake = shop()
    part(
        lake,
        lambda tx: tx.append("orders", [{"id": 7, "customer_id": 2}]),
        lambda tx: tx.update("customers", {"name": "'z'"}, "id = 3"),
    )
    from tidelock.store.merge.merge import Merging
    from tidelock.store.merge.options import Options

    store = lake._store
    transaction = store.begin("main")
    Merging(store, "dev", "main", Options(), transaction).run()
    on(lake, "main", lambda tx: tx.delete("customers", "id = 2"))
    with pytest.raises(CommitConflict):
        transaction.publish()
    assert [one.kind for one in conflicts(lake)] == ["orphaned reference"]
    assert not violations(lake.snapshot())
