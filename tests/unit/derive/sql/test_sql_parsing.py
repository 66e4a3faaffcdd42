"""Queries become the operators that they mean, and read no more than they need."""

from __future__ import annotations

import pytest
from tests.unit.derive.sql.outlines import read, shape, tree

from tidelock.derive.algebra.operators import Aggregate, Join, Select, Top, Window, scans, walk


def only(query: str, kind: type) -> object:
    found = [one for one in walk(tree(query)) if isinstance(one, kind)]
    assert len(found) == 1
    return found[0]


def test_a_selection_reads_only_the_columns_that_it_needs() -> None:
    assert shape("SELECT name FROM customers WHERE country = 'DE'") == [
        "select where",
        "  scan customers(name, country)",
    ]


def test_a_count_reads_no_column_at_all() -> None:
    assert shape("SELECT count(*) AS n FROM orders") == ["aggregate by 0: count", "  scan Orders()"]


def test_the_columns_of_a_view_are_named_as_the_query_spells_them() -> None:
    view = read("SELECT ID, `Name`, country AS `Land` FROM CUSTOMERS")
    assert [name for name, _ in view.columns] == ["ID", "Name", "Land"]
    assert view.tables == ("customers",)


def test_a_column_that_is_chosen_twice_is_two_columns() -> None:
    view = read("SELECT id, id AS again FROM customers")
    assert len({column for _, column in view.columns}) == 2


def test_a_star_leaves_out_what_it_is_told_to() -> None:
    view = read("SELECT * EXCEPT (tags, day) FROM orders")
    assert [name for name, _ in view.columns] == ["id", "customer", "amount"]


@pytest.mark.parametrize(
    ("query", "means"),
    [
        ("TABLE customers", "SELECT * FROM customers"),
        (
            "(table customers) UNION TABLE `customers`",
            "SELECT * FROM customers UNION SELECT * FROM customers",
        ),
        ("SELECT id FROM (TABLE customers) c", "SELECT id FROM (SELECT * FROM customers) c"),
        (
            "WITH c AS (TABLE customers) TABLE c",
            "WITH c AS (SELECT * FROM customers) SELECT * FROM c",
        ),
        (
            "SELECT id FROM orders WHERE EXISTS (TABLE customers)",
            "SELECT id FROM orders WHERE EXISTS (SELECT * FROM customers)",
        ),
    ],
)
def test_a_table_named_for_a_query_is_all_of_its_rows(query: str, means: str) -> None:
    assert read(query).tables == read(means).tables
    assert shape(query) == shape(means)


def test_tables_named_for_queries_are_read_although_the_rest_is_not_kept_by_delta() -> None:
    for query in ("TABLE customers UNION ALL VALUES (1)", "VALUES (1) UNION ALL TABLE customers"):
        assert read(query).tables == ("customers",)


def test_a_column_may_be_called_table() -> None:
    query = (
        "SELECT (`table`) table, count(table) AS n FROM (SELECT id AS table FROM orders) GROUP BY 1"
    )
    assert [name for name, _ in read(query).columns] == ["table", "n"]


def test_using_gives_one_column_for_two_and_puts_it_first() -> None:
    view = read("SELECT * FROM (SELECT name, id FROM customers) JOIN orders USING (id)")
    assert [name for name, _ in view.columns] == [
        *("id", "name", "customer", "amount", "day", "tags")
    ]


def test_tables_are_listed_as_the_lake_spells_them_in_the_order_of_the_text() -> None:
    query = """
    WITH o AS (SELECT * FROM ORDERS), events AS (SELECT 1 AS x FROM customers)
    SELECT o.id FROM o, events WHERE EXISTS (SELECT 1 FROM Customers c WHERE c.id = o.customer)
    """
    assert read(query).tables == ("Orders", "customers")


def test_conditions_go_down_to_the_tables_and_equalities_become_keys() -> None:
    query = """
    SELECT c.name, o.amount FROM customers c, orders o
    WHERE c.id = o.customer AND c.country = 'DE' AND o.amount > 5 AND o.day < o.day + c.id
    """
    assert shape(query) == [
        "select",
        "  inner join on 1 and more",
        "    select where",
        "      scan customers(id, name, country)",
        "    select where",
        "      scan Orders(customer, amount, day)",
    ]


def test_tables_are_joined_in_an_order_in_which_each_has_a_key() -> None:
    query = """
    SELECT a.name, b.name AS other FROM customers a, customers b, orders o
    WHERE a.id = o.customer AND o.id = b.id
    """
    joins = [one for one in walk(tree(query)) if isinstance(one, Join)]
    assert [len(one.keys) for one in joins] == [1, 1]


def test_what_all_cases_of_an_or_share_becomes_a_key() -> None:
    query = """
    SELECT o.id FROM orders o, customers c
    WHERE (o.customer = c.id AND c.country = 'DE') OR (o.customer = c.id AND o.amount > 100)
    """
    assert shape(query)[1] == "  inner join on 1 and more"


def test_a_key_that_is_computed_is_a_column_below_the_join() -> None:
    query = "SELECT o.id FROM orders o JOIN customers c ON o.customer + 1 = c.id"
    join = only(query, Join)
    assert isinstance(join, Join)
    assert isinstance(join.left, Select)
    assert join.keys[0][0] in join.left.output


def test_an_outer_join_whose_missing_partners_are_dropped_anyway_is_an_inner_one() -> None:
    left = "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.id"
    assert shape(left)[1] == "  left join on 1"
    assert shape(f"{left} WHERE c.country = 'DE'")[1] == "  inner join on 1"
    assert shape(f"{left} WHERE c.country IS NULL")[1].strip() == "left join on 1"
    assert shape(f"{left} WHERE coalesce(c.country, 'DE') = 'DE'")[1].strip() == "left join on 1"


def test_a_condition_of_a_left_join_stays_where_it_counts() -> None:
    query = """
    SELECT o.id, c.name FROM orders o
    LEFT JOIN customers c ON o.customer = c.id AND c.country = 'DE' AND o.amount > 5
    """
    assert shape(query) == [
        "select",
        "  left join on 1 and more",
        "    scan Orders(id, customer, amount)",
        "    select where",
        "      scan customers(id, name, country)",
    ]


def test_conditions_on_groups_are_asked_before_grouping_and_others_after() -> None:
    query = """
    SELECT customer, n FROM (
        SELECT customer, count(*) AS n FROM orders GROUP BY customer
    ) WHERE customer > 5 AND n > 1
    """
    assert shape(query) == [
        "select where",
        "  aggregate by 1: count",
        "    select where",
        "      scan Orders(customer)",
    ]


def test_aggregates_are_measures_under_their_usual_names() -> None:
    query = """
    SELECT mean(amount) AS m, every(amount > 1) AS e, count(DISTINCT customer) AS d,
        sum(amount) FILTER (WHERE day IS NULL) AS f, sum(amount) + count(*) AS s
    FROM orders
    """
    found = only(query, Aggregate)
    assert isinstance(found, Aggregate)
    assert [one.function for one in found.measures] == [
        *("avg", "bool_and", "count", "sum", "sum", "count")
    ]
    distinct, filtered = found.measures[2:4]
    assert distinct.distinct
    assert filtered.condition is not None
    assert filtered.condition.endswith("IS NULL")
    assert found.measures[5].argument is None


@pytest.mark.parametrize(
    "by", ["year(day), customer", "y, customer", "1, 2", "ALL", "y, Orders.CUSTOMER"]
)
def test_groups_may_be_named_by_expression_alias_or_position(by: str) -> None:
    query = f"SELECT year(day) AS y, customer, sum(amount) AS s FROM orders GROUP BY {by}"
    assert shape(query) == [
        "aggregate by 2: sum",
        "  select",
        "    scan Orders(customer, amount, day)",
    ]


def test_windows_over_one_partition_are_one_operator() -> None:
    query = """
    SELECT id, rank() OVER w AS r, sum(amount) OVER (PARTITION BY customer) AS s,
        count(*) OVER (PARTITION BY day) AS n
    FROM orders WINDOW w AS (PARTITION BY customer ORDER BY amount)
    """
    found = [one for one in walk(tree(query)) if isinstance(one, Window)]
    assert sorted(len(one.columns) for one in found) == [1, 2]


def test_rows_of_equal_order_are_told_apart_by_the_key() -> None:
    view = read(
        "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY day) AS r FROM orders"
    )
    assert view.root is not None
    (window,) = (one for one in walk(view.root) if isinstance(one, Window))
    (scan,) = scans(view.root)
    key = next(name for name, original in scan.columns if original == "id")
    assert window.columns[0].sql.endswith(f"`{key}`)")
    assert any("window" in note for note in view.notes)


def test_a_limit_is_completed_to_a_total_order_and_says_so() -> None:
    view = read("SELECT id, amount FROM orders ORDER BY amount DESC LIMIT 3")
    assert isinstance(view.root, Top)
    names = dict(view.columns)
    assert view.root.order == (
        f"`{names['amount']}` DESC NULLS LAST, `{names['id']}` ASC NULLS FIRST"
    )
    assert any("LIMIT" in note for note in view.notes)


def test_a_limit_over_a_key_is_total_as_it_is() -> None:
    view = read("SELECT id, amount FROM orders ORDER BY id LIMIT 3 OFFSET 2")
    assert isinstance(view.root, Top)
    assert view.root.reads == (dict(view.columns)["id"],)
    assert view.root.offset == 2
    assert view.notes == ()


def test_an_order_without_a_limit_is_left_out_and_says_so() -> None:
    view = read("SELECT id FROM customers ORDER BY name")
    assert view.root is not None
    assert not any(isinstance(one, Top) for one in walk(view.root))
    assert len(view.notes) == 1


def test_a_named_query_is_read_as_often_as_it_is_used() -> None:
    query = """
    WITH big AS (SELECT customer, sum(amount) AS s FROM orders GROUP BY customer)
    SELECT b.customer FROM big b JOIN big c ON b.s = c.s
    """
    assert [one.table for one in scans(tree(query))] == ["Orders", "Orders"]


def test_functions_stay_the_calls_that_were_written() -> None:
    query = """
    SELECT date_format(day, 'yyyy') AS a, dateadd(MONTH, 1, day) AS b, nvl(amount, 0) AS c,
        transform(tags, x -> upper(x)) AS d, trunc(day, 'MM') AS e, 'it''s' AS f
    FROM orders
    """
    root = tree(query)
    assert isinstance(root, Select)
    texts = [one.sql for one in root.columns]
    assert texts[0].startswith("date_format(")
    assert texts[1].startswith("dateadd(MONTH, 1,")
    assert texts[2].startswith("nvl(")
    assert "x -> upper(x)" in texts[3]
    assert texts[4].endswith(", 'MM')")
    assert texts[5] == "'it\\'s'"


def test_a_predicate_is_asked_of_a_comparison_and_not_of_its_right_side() -> None:
    query = "SELECT o.id FROM orders o JOIN customers c ON o.id = c.id IN (true)"
    (join,) = (one for one in walk(tree(query)) if isinstance(one, Join))
    assert join.keys == ()


def test_a_name_in_the_text_is_never_taken_for_a_generated_one() -> None:
    root = tree("SELECT transform(tags, c1 -> concat(c1, name)) AS x, c2.name AS c3 FROM orders, "
                "customers c2")  # fmt: skip
    made = {name for one in walk(root) for name in one.output}
    assert made.isdisjoint({"c1", "c2", "c3"})
