"""Rules on the result of a query are assertions: a refresh that breaks one publishes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ruled import cardinality, check, reference, rows_in, unique

import tidelock
from tidelock import Lake
from tidelock.errors import InputError, InvalidSchema, RuleBroken, StreamTableWrite
from tidelock.model.schema.alterations import AddColumn, DropRule
from tidelock.model.schema.schema import Column


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """orders -> totals (by customer), large -> both (a group of three)."""
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        with lake.transaction() as tx:
            tx.create_table("customers", "id BIGINT", key="id")
            tx.create_table("orders", "id BIGINT, customer BIGINT, amount BIGINT", key="id")
            tx.append("customers", [{"id": n} for n in (1, 2, 3)])
            tx.append("orders", orders((1, 1, 10), (2, 1, 5), (3, 2, 7)))
        lake.create_stream_table(
            "totals", "SELECT customer, SUM(amount) AS total FROM orders GROUP BY customer"
        )
        lake.create_stream_table("large", "SELECT id, customer FROM orders WHERE amount > 6")
        lake.create_stream_table(
            "both",
            "SELECT t.customer, total, l.id FROM totals t JOIN large l ON t.customer = l.customer",
        )
        lake.refresh()
        yield lake


def orders(*rows: tuple[int, int | None, int]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "customer", "amount"), row, strict=True)) for row in rows]


def add(lake: Lake, *rows: tuple[int, int | None, int]) -> None:
    with lake.transaction() as tx:
        tx.upsert("orders", orders(*rows))


def totals(lake: Lake) -> dict[int, int]:
    return {row["customer"]: row["total"] for row in rows_in(lake.table("totals"))}


@pytest.mark.parametrize(
    ("rule", "bad", "told"),
    [
        (check("total <= 20", name="r"), (9, 1, 100), "customer = 1, total = 115"),
        (unique("total", name="r"), (9, 2, 8), "total = 15 is in 2 rows"),
        (reference("customer", "customers", name="r"), (9, 8, 1), "customer = 8 is not in"),
    ],
)
def test_a_refresh_that_breaks_a_rule_publishes_nothing_of_its_group_and_says_why(
    lake: Lake, rule: Any, bad: tuple[int, int, int], told: str
) -> None:
    with lake.transaction() as tx:
        tx.alter_table("totals", rule)
    before = totals(lake)
    version = lake.snapshot().version
    add(lake, bad)
    assert "failed" in {attempt.action for attempt in lake.refresh()}
    assert totals(lake) == before
    assert lake.snapshot().version == version + 1
    failed = lake.history("totals")[0]
    assert (failed.action, failed.condition) == ("failed", "RULE_BROKEN")
    assert "rule 'r' is broken" in failed.reason
    assert told.split(" = ")[0] in failed.reason
    assert failed.retry_at is not None
    # The data is put right, and the next attempt goes through.
    with lake.transaction() as tx:
        tx.delete("orders", "id = 9")
    lake.resume("totals")
    add(lake, (4, 3, 1))
    lake.refresh()
    assert totals(lake) == {1: 15, 2: 7, 3: 1}
    assert lake.history("totals")[0].action in ("incremental", "full")


def test_a_rule_that_does_not_hold_now_cannot_be_turned_on(lake: Lake) -> None:
    with pytest.raises(RuleBroken, match="total > 10 is false"), lake.transaction() as tx:
        tx.alter_table("totals", check("total > 10"))
    with lake.transaction() as tx:
        tx.alter_table("totals", check("total > 0", name="some"), cardinality("customer", most=1))
    assert [rule.name for rule in lake.rules("totals")] == ["some", "totals_customer_cardinality"]
    with lake.transaction() as tx:
        tx.alter_table("totals", DropRule("some"))
    assert "some" not in lake.rules("totals")


def test_rules_are_all_that_can_be_altered_of_a_result(lake: Lake) -> None:
    with pytest.raises(StreamTableWrite), lake.transaction() as tx:
        tx.alter_table("totals", AddColumn(Column("x", lake.table("orders").schema.arrow[0].type)))
    with pytest.raises(InvalidSchema, match="RESTRICT"), lake.transaction() as tx:
        tx.alter_table("totals", reference("customer", "customers", on_delete="cascade"))


def test_what_a_result_refers_to_cannot_leave(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.alter_table("totals", reference("customer", "customers", name="known"))
    with pytest.raises(RuleBroken, match="known"), lake.transaction() as tx:
        tx.delete("customers", "id = 1")
    with lake.transaction() as tx:
        tx.delete("customers", "id = 3")


def test_a_result_may_be_referred_to(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.alter_table("totals", unique("customer", name="one"))
        tx.create_table("notes", "customer BIGINT, text STRING")
        tx.alter_table("notes", reference("customer", "totals", "customer", name="noted"))
        tx.append("notes", [{"customer": 2, "text": "x"}])
    with lake.transaction() as tx:
        tx.delete("orders", "customer = 2")
    assert "failed" in {attempt.action for attempt in lake.refresh()}
    assert set(totals(lake)) == {1, 2}
    with lake.transaction() as tx:
        tx.delete("notes", "true")
    lake.refresh()
    assert set(totals(lake)) == {1}


def test_rules_stay_when_a_query_is_replaced(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.alter_table("totals", check("total <= 20", name="low"), unique("customer", name="one"))
    lake.drop_stream_table("both")
    lake.create_or_replace_stream_table(
        "totals", "SELECT customer, SUM(amount) + 0 AS total FROM orders GROUP BY customer"
    )
    lake.create_or_replace_stream_table(
        "totals",
        "SELECT customer, SUM(amount) AS total, COUNT(*) AS n FROM orders GROUP BY customer",
    )
    assert [rule.name for rule in lake.rules("totals") if rule.name] == ["low", "one"]
    lake.refresh()
    add(lake, (9, 1, 100))
    assert "failed" in {attempt.action for attempt in lake.refresh()}
    assert "rule 'low' is broken" in lake.history("totals")[0].reason
    with pytest.raises(InputError):
        lake.create_or_replace_stream_table("totals", "SELECT customer AS other FROM orders")
