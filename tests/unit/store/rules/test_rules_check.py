"""CHECK: no row is committed for which the condition is false."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.ruled import check, new_lake, refused, rows_in

from tidelock import Lake
from tidelock.errors import InvalidExpression, InvalidSchema, RuleBroken
from tidelock.model.schema.alterations import AddRule, DropColumn, RenameColumn
from tidelock.model.schema.declared import DeclaredRule
from tidelock.store.rules.kinds import check as check_kind

DDL = "id BIGINT, amount DECIMAL(12,2), tier STRING, since DATE"


def orders(*rules: AddRule, key: str | None = "id") -> Lake:
    lake = new_lake()
    with lake.transaction() as tx:
        tx.create_table("orders", DDL, key=key)
        tx.alter_table("orders", *rules)
    return lake


def append(lake: Lake, *rows: dict[str, Any]) -> None:
    with lake.transaction() as tx:
        tx.append("orders", list(rows))


def test_a_row_for_which_it_is_false_is_refused_and_shown() -> None:
    lake = orders(check("amount >= 0", name="not_negative"))
    append(lake, {"id": 1, "amount": 0})
    with pytest.raises(RuleBroken) as caught:
        append(lake, {"id": 2, "amount": -5}, {"id": 3, "amount": 5}, {"id": 4, "amount": -1})
    assert caught.value.message == (
        "Table 'orders': rule 'not_negative' is broken by 2 rows: amount >= 0 is false for "
        "(id = 2, amount = -5.00), (id = 4, amount = -1.00). Nothing was written."
    )
    assert caught.value.kind == "check"
    assert lake.table("orders").count() == 1


def test_what_is_unknown_is_not_false() -> None:
    lake = orders(check("amount >= 0"), check("tier IN ('basic', 'gold')"))
    append(lake, {"id": 1, "amount": None, "tier": None})


@pytest.mark.parametrize(
    ("condition", "good", "bad"),
    [
        ("tier IN ('basic', 'gold')", {"tier": "gold"}, {"tier": "Gold"}),
        ("amount BETWEEN 1 AND 5", {"amount": 5}, {"amount": 6}),
        ("since >= DATE '2020-01-01'", {"since": "2020-01-01"}, {"since": "2019-12-31"}),
        ("amount > 0 OR tier = 'free'", {"amount": 0, "tier": "free"}, {"amount": 0, "tier": "x"}),
        ("NOT (tier = 'x' AND amount = 1)", {"tier": "x"}, {"tier": "x", "amount": 1}),
    ],
)
def test_enums_ranges_and_combinations(condition: str, good: Any, bad: Any) -> None:
    import datetime

    def typed(row: Any) -> Any:
        if "since" in row:
            return {**row, "since": datetime.date.fromisoformat(row["since"])}
        return row

    lake = orders(check(condition))
    append(lake, {"id": 1, **typed(good)})
    with pytest.raises(RuleBroken):
        append(lake, {"id": 2, **typed(bad)})


def test_updates_upserts_and_overwrites_are_checked() -> None:
    lake = orders(check("amount >= 0"))
    append(lake, {"id": 1, "amount": 1})
    with refused(lake) as tx:
        tx.update("orders", {"amount": "amount - 2"})
    with refused(lake) as tx:
        tx.upsert("orders", [{"id": 1, "amount": -1}])
    with refused(lake) as tx:
        tx.overwrite("orders", [{"id": 1, "amount": -1}])
    assert [row["amount"] for row in rows_in(lake.table("orders"))] == [1]


def test_a_row_that_is_put_right_before_the_end_is_fine() -> None:
    lake = orders(check("amount >= 0"))
    with lake.transaction() as tx:
        tx.append("orders", [{"id": 1, "amount": -1}, {"id": 2, "amount": -1}])
        tx.update("orders", {"amount": "1"}, "id = 1")
        tx.delete("orders", "id = 2")
    assert lake.table("orders").count() == 1


def test_a_column_that_is_checked_may_be_renamed_and_not_dropped() -> None:
    lake = orders(check("orders.amount >= 0 AND tier <> 'x'", name="c"))
    with lake.transaction() as tx:
        tx.alter_table("orders", RenameColumn("amount", "total"))
        tx.rename_table("orders", "sales")
    with refused(lake, match="total = -1") as tx:
        tx.append("sales", [{"id": 1, "total": -1, "tier": "y"}])
    with pytest.raises(InvalidSchema, match="rule 'c'"), lake.transaction() as tx:
        tx.alter_table("sales", DropColumn("total"))


@pytest.mark.parametrize(
    "condition",
    ["since <= current_date()", "since <= current_date", "rand() > 0", "my_own(amount) = 1"],
)
def test_a_condition_that_may_change_its_mind_is_refused(condition: str) -> None:
    lake = orders()
    with pytest.raises(InvalidSchema, match="holds of a row for good"), lake.transaction() as tx:
        tx.alter_table("orders", check(condition))


@pytest.mark.parametrize("condition", ["amount", "amount + 1", "sum(amount) > 0", "amount >"])
def test_what_is_no_condition_on_one_row_is_refused(condition: str) -> None:
    lake = orders()
    with pytest.raises(InvalidExpression), lake.transaction() as tx:
        tx.alter_table("orders", check(condition))


def test_a_check_needs_a_condition() -> None:
    lake = orders()
    with pytest.raises(InvalidSchema, match="no condition"), lake.transaction() as tx:
        tx.alter_table("orders", AddRule(DeclaredRule("check", "c")))


def test_rows_are_looked_at_once_however_often_they_are_rebased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = orders(check("amount >= 0"))
    looked: list[list[str]] = []
    plain = check_kind._false

    def counted(*arguments: Any) -> Any:
        looked.append(arguments[-1])
        return plain(*arguments)

    monkeypatch.setattr(check_kind, "_false", counted)
    with lake.transaction() as tx:
        tx.append("orders", [{"id": 1, "amount": 1}])
        append(lake, {"id": 2, "amount": 1})
        append(lake, {"id": 3, "amount": 1})
    assert len(looked) == 3
    assert lake.table("orders").count() == 3
