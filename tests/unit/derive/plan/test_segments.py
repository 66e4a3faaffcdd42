"""Segments: where a view is cut, and what each part keeps."""

from __future__ import annotations

import pytest
from tests.unit.derive.sql.outlines import tree

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.operators import Merge, scans
from tidelock.derive.plan.segments import Bag, Groups, Partitions, Segment, cut, recomputing


def segments(query: str) -> tuple[Segment, ...]:
    return cut(lower(tree(query)))


def contents(query: str) -> list[str]:
    return [type(segment.content).__name__ for segment in segments(query)]


def reads(segment: Segment) -> list[str]:
    return [scan.table.lower() for scan in scans(segment.body)]


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("SELECT id FROM customers WHERE id > 3", ["Bag"]),
        ("SELECT c.id, o.amount FROM customers c JOIN orders o ON c.id = o.customer", ["Bag"]),
        ("SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer", ["Groups"]),
        ("SELECT customer, MAX(amount) AS m FROM orders GROUP BY customer", ["Groups"]),
        ("SELECT DISTINCT customer FROM orders", ["Groups"]),
        ("SELECT COUNT(*) AS n FROM orders", ["Groups"]),
        ("SELECT customer, MEDIAN(amount) AS m FROM orders GROUP BY customer", ["Partitions"]),
        (
            "SELECT customer, SUM(DISTINCT amount) AS s FROM orders GROUP BY customer",
            ["Partitions"],
        ),
        (
            "SELECT RANK() OVER (PARTITION BY customer ORDER BY id) AS r FROM orders",
            ["Partitions"],
        ),
        ("SELECT id FROM orders ORDER BY id LIMIT 3", ["Partitions"]),
        ("SELECT id FROM customers UNION ALL SELECT customer FROM orders", ["Bag"]),
    ],
)
def test_a_view_keeps_what_its_last_operator_needs(query: str, kept: list[str]) -> None:
    assert contents(query) == kept


def test_what_is_local_to_a_key_ends_a_segment_that_others_scan() -> None:
    inner, outer = segments(
        "SELECT c.id, t.s FROM customers c JOIN "
        "(SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer) t ON c.id = t.customer"
    )
    assert isinstance(inner.content, Groups)
    assert reads(inner) == ["orders"]
    assert isinstance(outer.content, Bag)
    assert sorted(reads(outer)) == [" #0", "customers"]


def test_the_partners_of_a_left_join_are_a_segment_of_their_own() -> None:
    partners, view = segments(
        "SELECT c.id, o.amount FROM customers c LEFT JOIN orders o ON c.id = o.customer"
    )
    assert isinstance(partners.content, Groups)
    assert isinstance(view.content, Bag)
    assert " #0" in reads(view)


def test_what_occurs_twice_is_kept_once() -> None:
    totals = lower(tree("SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer"))
    inner, view = cut(Merge((totals, totals), ("a", "b")))
    assert isinstance(inner.content, Groups)
    assert reads(view) == [" #0", " #0"]


def test_segments_come_after_those_that_they_read() -> None:
    found = segments(
        "SELECT n, COUNT(*) AS many FROM (SELECT customer, COUNT(*) AS n FROM orders "
        "GROUP BY customer) GROUP BY n"
    )
    for segment in found:
        inner = [int(table.removeprefix(" #")) for table in reads(segment) if table[0] == " "]
        assert all(number < segment.number for number in inner)
    assert [one.number for one in found] == list(range(len(found)))


def test_groups_whose_sums_would_drift_are_computed_again() -> None:
    (segment,) = segments("SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer")
    assert isinstance(segment.content, Groups)
    again = recomputing(segment)
    assert isinstance(again.content, Partitions)
    assert again.content.keys == segment.content.groups
    assert (again.number, again.body, again.output) == (
        segment.number,
        segment.body,
        segment.output,
    )
