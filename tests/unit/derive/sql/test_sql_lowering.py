"""Everything is lowered to the core, by laws that stand in the operators themselves."""

from __future__ import annotations

import pytest
from tests.unit.derive.sql.outlines import outline, tree

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.laws import is_core
from tidelock.derive.algebra.operators import (
    Aggregate,
    Generate,
    Join,
    Merge,
    Operator,
    Select,
    walk,
)


def core(query: str) -> list[str]:
    return outline(lower(tree(query)))


def joins(operator: Operator) -> list[Join]:
    return [one for one in walk(operator) if isinstance(one, Join)]


def test_distinct_is_one_group_for_each_row() -> None:
    assert core("SELECT DISTINCT country FROM customers") == [
        "aggregate by 1: ",
        "  scan customers(country)",
    ]


def test_a_union_is_the_distinct_rows_of_both() -> None:
    assert core("SELECT id FROM customers UNION SELECT customer FROM orders") == [
        "aggregate by 1: ",
        "  merge of 2",
        "    scan customers(id)",
        "    scan Orders(customer)",
    ]


def test_a_semi_join_asks_for_the_distinct_keys_of_the_other_side() -> None:
    assert core("SELECT c.id FROM customers c LEFT SEMI JOIN orders o ON c.id = o.customer") == [
        "select",
        "  inner join on 1",
        "    scan customers(id)",
        "    aggregate by 1: ",
        "      select",
        "        scan Orders(customer)",
    ]


def test_an_anti_join_asks_for_the_distinct_keys_of_the_other_side() -> None:
    lines = core("SELECT c.id FROM customers c LEFT ANTI JOIN orders o ON c.id = o.customer")
    assert lines == [
        "anti on 1",
        "  scan customers(id)",
        "  aggregate by 1: ",
        "    select",
        "      scan Orders(customer)",
    ]


def test_a_left_join_knows_the_distinct_keys_of_its_right_side() -> None:
    query = "SELECT c.id, o.amount FROM customers c LEFT JOIN orders o ON c.id = o.customer"
    assert core(query)[1:] == [
        "  left on 1",
        "    scan customers(id)",
        "    scan Orders(customer, amount)",
        "    aggregate by 1: ",
        "      select",
        "        scan Orders(customer, amount)",
    ]


def test_outer_joins_in_a_row_read_what_is_before_them_once() -> None:
    query = "SELECT c.id FROM customers c" + "".join(
        f" LEFT JOIN orders o{n} ON c.id = o{n}.customer" for n in range(5)
    )
    lines = core(query)
    assert sum("scan customers" in line for line in lines) == 1
    assert sum("scan Orders" in line for line in lines) == 2 * 5


def test_a_full_join_adds_what_has_no_partner_on_the_other_side() -> None:
    query = "SELECT c.id, o.amount FROM customers c FULL JOIN orders o ON c.id = o.customer"
    lines = core(query)
    assert lines[1:3] == ["  merge of 2", "    left on 1"]
    assert "      anti on 1" in lines


def test_a_condition_on_both_sides_of_an_outer_join_is_asked_of_values() -> None:
    query = """
    SELECT o.id, p.id AS other FROM orders o LEFT JOIN orders p
    ON o.customer = p.customer AND o.amount < p.amount
    """
    lines = core(query)
    assert lines[1:3] == ["  merge of 2", "    inner join on 1 and more"]
    assert "      anti on 2" in lines


def test_a_condition_on_both_sides_is_asked_of_the_values_that_it_reads() -> None:
    query = """
    SELECT o.id, o.tags FROM orders o LEFT SEMI JOIN orders p
    ON o.customer = p.customer AND o.amount < p.amount
    """
    outer = joins(lower(tree(query)))[0]
    # By customer and amount; NULLs are values like others here.
    assert len(outer.keys) == 2
    assert outer.null_safe == (0, 1)


def test_keys_of_different_types_are_asked_by_the_values_of_one_side() -> None:
    exact = "SELECT o.id FROM orders o LEFT SEMI JOIN customers c ON o.customer = c.id"
    mixed = "SELECT e.value FROM events e LEFT SEMI JOIN customers c ON e.kind = c.id"
    assert joins(lower(tree(exact)))[0].null_safe == ()
    assert joins(lower(tree(mixed)))[0].null_safe == (0,)


def test_a_shared_subtree_stays_the_same_in_both_places() -> None:
    query = """
    SELECT c.id FROM customers c JOIN orders p ON p.id = c.id
    LEFT ANTI JOIN orders o ON c.id = o.customer AND o.day < p.day
    """
    found = [one for one in walk(lower(tree(query))) if isinstance(one, Join)]
    inner = [one for one in found if not any(isinstance(x, Aggregate) for x in walk(one.right))]
    assert len(inner) > len(set(inner))


def test_grouping_sets_read_their_input_once() -> None:
    lowered = lower(tree("SELECT country, name, count(*) AS n FROM customers GROUP BY CUBE (1, 2)"))
    assert sum(isinstance(one, Generate) for one in walk(lowered)) == 1
    assert not any(isinstance(one, Merge) for one in walk(lowered))


def test_equal_grouping_sets_are_told_apart() -> None:
    once = "SELECT country, count(*) AS n FROM customers GROUP BY GROUPING SETS ((country), ())"
    twice = once.replace("())", "(), ())")
    groups = [
        len(one.groups)
        for query in (once, twice)
        for one in walk(lower(tree(query)))
        if isinstance(one, Aggregate)
    ]
    assert groups == [2, 3]


def test_a_group_that_no_set_holds_keeps_its_type() -> None:
    query = "SELECT country, name FROM customers GROUP BY country, name GROUPING SETS ((name))"
    lowered = lower(tree(query))
    made = [
        one.sql for select in walk(lowered) if isinstance(select, Select) for one in select.columns
    ]
    assert "NULL" not in made
    assert any(sql.startswith("CASE WHEN FALSE THEN") for sql in made)


@pytest.mark.parametrize("kind", ["INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
def test_set_operations_count_both_sides(kind: str) -> None:
    lowered = lower(tree(f"SELECT id FROM customers {kind} SELECT customer FROM orders"))
    assert is_core(lowered)
    assert any("aggregate by 1: sum, sum" in line for line in outline(lowered))
    assert any(isinstance(one, Generate) for one in walk(lowered)) == kind.endswith("ALL")


def test_what_is_lowered_gives_the_columns_that_were_asked_for() -> None:
    query = "SELECT o.amount, c.name FROM customers c RIGHT JOIN orders o ON c.id = o.customer"
    root = tree(query)
    assert lower(root).output == root.output
