"""Subqueries become joins that give the same rows, NULLs and empty answers included."""

from __future__ import annotations

import pytest
from tests.unit.derive.sql.outlines import read, shape, tree

from tidelock.derive.algebra.operators import Join, OuterJoin, Select, walk


def test_in_and_exists_are_semi_joins_on_their_equalities() -> None:
    within = (
        "SELECT id FROM orders WHERE customer IN (SELECT id FROM customers WHERE country = 'DE')"
    )
    there = """
    SELECT id FROM orders o WHERE EXISTS (
        SELECT 1 FROM customers c WHERE c.id = o.customer AND c.country = 'DE')
    """
    expected = [
        "select",
        "  semi join on 1",
        "    scan Orders(id, customer)",
        "    select where",
        "      scan customers(id, country)",
    ]
    assert shape(within) == expected
    assert shape(there) == expected


def test_other_conditions_on_the_outside_are_conditions_of_the_join() -> None:
    query = """
    SELECT id FROM orders o WHERE NOT EXISTS (
        SELECT 1 FROM orders p WHERE p.customer = o.customer AND p.amount > o.amount)
    """
    assert shape(query)[1] == "  anti join on 1 and more"


def test_not_in_of_columns_without_nulls_is_an_anti_join() -> None:
    assert shape("SELECT id FROM customers WHERE id NOT IN (SELECT id FROM orders)") == [
        "anti join on 1",
        "  scan customers(id)",
        "  scan Orders(id)",
    ]


def test_not_in_with_nulls_also_counts_them() -> None:
    query = "SELECT id FROM customers WHERE id NOT IN (SELECT customer FROM orders)"
    assert shape(query)[1:4] == [
        "  inner join on 0 and more",
        "    anti join on 1",
        "      scan customers(id)",
    ]
    assert "        aggregate by 0: count, count" in shape(query)


def test_an_aggregate_of_its_own_is_joined_as_the_one_row_that_it_is() -> None:
    assert shape("SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)") == [
        "select",
        "  inner join on 0 and more",
        "    scan Orders(id, amount)",
        "    aggregate by 0: avg",
        "      scan Orders(amount)",
    ]


def test_an_aggregate_for_each_row_is_joined_by_its_groups() -> None:
    query = """
    SELECT id FROM customers c
    WHERE 100 < (SELECT sum(amount) FROM orders o WHERE o.customer = c.id)
    """
    assert shape(query)[1:4] == [
        "  inner join on 1",
        "    scan customers(id)",
        "    select where",
    ]


def test_a_count_of_nothing_is_zero() -> None:
    counted = "SELECT count(*) + 1 FROM orders o WHERE o.customer = c.id"
    query = f"SELECT id, ({counted}) AS n FROM customers c"
    root = tree(query)
    assert isinstance(root, Select)
    assert isinstance(root.input, OuterJoin)
    assert root.input.kind == "left"
    assert root.columns[1].sql.startswith("coalesce(")


def test_types_that_compare_in_another_type_are_not_grouped_by() -> None:
    query = """
    SELECT kind, (SELECT count(*) FROM customers c WHERE c.id = e.kind) AS n FROM events e
    """
    lines = shape(query)
    assert "        distinct" in lines
    same = [one.same_types for one in walk(tree(query)) if isinstance(one, OuterJoin)]
    assert same == [True]


def test_a_row_that_is_looked_up_by_its_key_is_joined() -> None:
    query = (
        "SELECT id, (SELECT name FROM customers c WHERE c.id = o.customer) AS name FROM orders o"
    )
    assert shape(query)[1] == "  left join on 1"


def test_exists_inside_of_another_condition_is_a_count() -> None:
    query = """
    SELECT id FROM orders o
    WHERE amount > 5 OR EXISTS (SELECT 1 FROM customers c WHERE c.id = o.customer)
    """
    assert shape(query)[1].strip() == "left join on 1"
    assert any("aggregate by 1: count" in line for line in shape(query))


def test_exists_over_an_aggregate_of_everything_reads_nothing_without_having() -> None:
    query = "SELECT id FROM customers c WHERE {} (SELECT max(id) FROM orders o WHERE o.id = c.id)"
    assert shape(query.format("EXISTS")) == ["scan customers(id)"]
    assert "  scan customers(id)" in shape(query.format("NOT EXISTS"))


def test_having_of_an_aggregate_of_everything_is_a_measure_beside_its_value() -> None:
    query = """
    SELECT id FROM customers c WHERE id NOT IN (
        SELECT max(o.customer) AS m FROM orders o WHERE o.customer = c.id HAVING m > count(*))
    """
    assert "    aggregate by 1: max, count" in shape(query)


def test_in_below_a_not_asks_for_rows_that_may_be_equal() -> None:
    query = "SELECT id FROM orders WHERE amount > 3 OR customer NOT IN (SELECT value FROM events)"
    (join,) = (one for one in walk(tree(query)) if isinstance(one, Join))
    assert join.condition is not None
    assert join.condition.sql.startswith("coalesce(")
    positive = "SELECT id FROM orders WHERE amount > 3 OR customer IN (SELECT value FROM events)"
    assert "    aggregate by 1: count" in shape(positive)


@pytest.mark.parametrize("kind", ["LEFT", "FULL", "LEFT SEMI", "LEFT ANTI"])
def test_conditions_of_outer_joins_may_ask_of_the_side_that_stays(kind: str) -> None:
    join = f"SELECT c.id FROM customers c {kind} JOIN orders o ON c.id = o.customer AND c.id"
    assert tree(f"{join} IN (SELECT value FROM events)") is not None
    # Spark's answer is not that of SQL where it asks the join and not the rows of one side.
    kept = read(f"{join} NOT IN (SELECT value FROM events)").root is not None
    assert kept == (kind == "LEFT SEMI")
