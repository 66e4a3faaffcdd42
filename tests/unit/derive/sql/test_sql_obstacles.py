"""What cannot be kept by delta is an obstacle with a place; what is wrong is an error with one."""

from __future__ import annotations

import pytest
from tests.unit.derive.sql.outlines import read

from tidelock.errors import ColumnNotFound, InvalidExpression, TableNotFound, TidelockError

OBSTACLES = {
    "SELECT id, rand() AS r FROM customers": "differently each time",
    "SELECT id, uuid() AS u FROM customers": "differently each time",
    "SELECT id, my_function(id) AS x FROM customers": "not built into Spark",
    "SELECT id, other.max(id) AS x FROM customers": "not built into Spark",
    "SELECT id, current_timestamp() AS t FROM customers": "frozen for each refresh",
    "SELECT id, current_date AS t FROM customers": "frozen for each refresh",
    "SELECT id FROM orders WHERE day < now()": "frozen for each refresh",
    "SELECT id, unix_timestamp() AS t FROM customers": "frozen for each refresh",
    "SELECT id FROM orders WHERE day < DATE 'today'": "frozen for each refresh",
    "SELECT id FROM orders WHERE day < date('yesterday')": "frozen for each refresh",
    "SELECT id, CAST('now UTC' AS TIMESTAMP) AS t FROM customers": "frozen for each refresh",
    "SELECT id, current_user() AS u FROM customers": "session",
    "SELECT id, monotonically_increasing_id() AS m FROM customers": "differently",
    "SELECT id, row_number() OVER (ORDER BY id) AS r FROM customers": "without PARTITION BY",
    "SELECT id, sum(id) OVER () AS s FROM customers": "without PARTITION BY",
    "SELECT customer, first(amount) AS f FROM orders GROUP BY customer": "order in which rows",
    "SELECT customer, any_value(id) AS f FROM orders GROUP BY customer": "order in which rows",
    "SELECT percentile_approx(amount, 0.5) AS p FROM orders": "order in which rows arrive",
    "SELECT id, arrays_zip(tags, tags) AS z FROM orders": "named after columns",
    "SELECT id FROM customers ORDER BY ALL LIMIT 2": "ORDER BY ALL",
    "SELECT * FROM customers TABLESAMPLE (10 PERCENT)": "TABLESAMPLE",
    "SELECT * FROM customers PIVOT (count(id) FOR country IN ('DE', 'FR'))": "PIVOT",
    "WITH RECURSIVE r AS (SELECT id FROM customers UNION SELECT id FROM r) SELECT id FROM r": (
        "recursive"
    ),
    "SELECT c.id, l.x FROM customers c, LATERAL (SELECT c.id + 1 AS x) l": "lateral",
    "SELECT id FROM range(5)": "no table",
    "VALUES (1, 2)": "no table",
    "SELECT 1 AS one": "no table",
    "SELECT id FROM customers UNION ALL SELECT 1": "no table",
    "FROM customers |> SELECT id": "pipe",
    "SELECT id FROM customers LIMIT 1 + 1": "plain number",
    "SELECT kind, more FROM events LIMIT 3": "MAP",
    "SELECT id, customer IN (SELECT id FROM customers) AS known FROM orders": "NULL counts",
    "SELECT id FROM orders WHERE (customer IN (SELECT id FROM customers)) IS NULL": "NULL counts",
    "SELECT c.id FROM customers c JOIN orders o "
    "ON c.id = o.customer OR o.amount NOT IN (SELECT value FROM events)": "NULL counts",
    "SELECT id FROM orders WHERE (customer IN (SELECT id FROM customers) AND amount > 1) "
    "OR customer NOT IN (SELECT id FROM customers)": "NULL counts",
    "SELECT id FROM orders WHERE amount > ALL (SELECT id FROM customers)": "in this place",
    "SELECT id FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id "
    "AND EXISTS (SELECT 1 FROM events e WHERE e.value = c.id))": "query around",
    "SELECT window(at, '1 hour') AS w, count(*) AS n FROM events GROUP BY 1": "time windows",
    "SELECT id, explode(tags) FROM orders LATERAL VIEW json_tuple('{}', 'a') x": "name them",
    "SELECT id, size(explode(tags)) AS x FROM orders": "one row is looked at",
    "SELECT id, row_number() AS r FROM customers": "one row is looked at",
    "SELECT c.id FROM customers c JOIN orders o ON sum(o.id) = c.id": "one row is looked at",
    "SELECT struct(*) AS s FROM customers": "star inside",
    "SELECT count(c.*) AS n FROM customers c": "star inside",
    "SELECT 1 + id AS x, count(*) AS n FROM customers GROUP BY id + 1": "not seen to be made",
    "SELECT kind, last_value(value) OVER (PARTITION BY kind ORDER BY at) AS l FROM events": (
        "share a frame"
    ),
}


@pytest.mark.parametrize("query", OBSTACLES)
def test_an_obstacle_says_why(query: str) -> None:
    view = read(query)
    assert view.root is None
    assert view.columns == ()
    reasons = " / ".join(one.reason for one in view.obstacles)
    assert OBSTACLES[query] in reasons


def test_an_obstacle_names_its_place_and_the_tables_are_known_all_the_same() -> None:
    view = read("SELECT c.id,\n  o.amount * rand() AS x\nFROM customers c, orders o")
    (obstacle,) = view.obstacles
    assert (obstacle.line, obstacle.column, obstacle.sql) == (2, 14, "rand()")
    assert view.tables == ("customers", "Orders")


def test_an_obstacle_shows_the_words_of_the_query() -> None:
    view = read("SELECT o.customer, first(o.amount) AS f FROM orders o GROUP BY o.customer")
    assert view.obstacles[0].sql == "first(o.amount)"


def test_every_obstacle_of_the_functions_is_told_at_once() -> None:
    view = read("SELECT rand() AS a, uuid() AS b, now() AS c FROM customers")
    assert len(view.obstacles) == 3


ERRORS: dict[str, tuple[type[TidelockError], int, int]] = {
    "": (InvalidExpression, 0, 0),
    "SELECT": (InvalidExpression, 0, 0),
    "SELECT id FROM": (InvalidExpression, 0, 0),
    "SELECT id FROM customers WHERE (id = 1": (InvalidExpression, 0, 0),
    "SELECT 'open FROM customers": (InvalidExpression, 0, 0),
    "SELECT id FROM customers; SELECT 2": (InvalidExpression, 1, 25),
    "DELETE FROM customers": (InvalidExpression, 1, 1),
    "SELECT id FROM customer": (TableNotFound, 1, 16),
    "SELECT id FROM other.customers": (TableNotFound, 1, 16),
    "SELECT id FROM customers WHERE id IN (SELECT id FROM nothing)": (TableNotFound, 1, 54),
    "SELECT\n  nme FROM customers": (ColumnNotFound, 2, 3),
    "SELECT c.nme FROM customers c": (ColumnNotFound, 1, 8),
    "SELECT customers.id FROM customers c": (ColumnNotFound, 1, 8),
    "SELECT id FROM customers, orders": (InvalidExpression, 1, 8),
    "SELECT name, name FROM customers": (InvalidExpression, 1, 14),
    "SELECT id, name AS ID FROM customers": (InvalidExpression, 1, 12),
    "SELECT name,\n  id + 1 FROM customers": (InvalidExpression, 2, 3),
    "SELECT *, name FROM customers": (InvalidExpression, 1, 8),
    "SELECT count(*) FROM customers": (InvalidExpression, 1, 8),
    "SELECT * EXCEPT (nme) FROM customers": (ColumnNotFound, 1, 18),
    "SELECT x.* FROM customers c": (InvalidExpression, 1, 8),
    "SELECT name, count(*) AS n FROM customers GROUP BY country": (InvalidExpression, 1, 8),
    "SELECT country FROM customers GROUP BY 2": (InvalidExpression, 1, 40),
    "SELECT id FROM customers ORDER BY 2 LIMIT 1": (InvalidExpression, 1, 35),
    "SELECT id FROM customers WHERE count(*) > 1": (InvalidExpression, 1, 32),
    "SELECT sum(max(id)) AS x FROM customers": (InvalidExpression, 1, 8),
    "SELECT id FROM customers UNION SELECT id, name FROM customers": (InvalidExpression, 1, 39),
    "SELECT id FROM customers WHERE id IN (SELECT id, name FROM customers)": (
        InvalidExpression,
        1,
        32,
    ),
    "SELECT (SELECT id, name FROM customers) AS x FROM orders": (InvalidExpression, 1, 16),
    "SELECT id FROM customers JOIN orders USING (country)": (InvalidExpression, 1, 45),
    "SELECT id, sum(id) OVER w AS s FROM customers": (InvalidExpression, 1, 12),
    "SELECT * FROM (SELECT id FROM customers) AS x(a, b)": (InvalidExpression, 1, 23),
    "SELECT id FROM customers WHERE id = :limit": (InvalidExpression, 0, 0),
}


@pytest.mark.parametrize("query", ERRORS)
def test_what_is_wrong_is_an_error_with_line_and_column(query: str) -> None:
    kind, line, column = ERRORS[query]
    with pytest.raises(kind) as caught:
        read(query)
    assert type(caught.value) is kind
    if line:
        assert (caught.value.line, caught.value.column_number) == (line, column)
        assert f"Line {line}, column {column}:" in str(caught.value)


def test_a_misspelt_name_is_met_with_a_suggestion() -> None:
    with pytest.raises(ColumnNotFound, match="Did you mean 'name'"):
        read("SELECT nme FROM customers")
    with pytest.raises(TableNotFound, match="Did you mean 'customers'"):
        read("SELECT id FROM custmers")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM (" * 500 + "SELECT id FROM customers" + ")" * 500,
        "SELECT id FROM customers WHERE " + " OR ".join(["id = 1"] * 2000),
        " UNION ALL ".join(["SELECT id FROM customers"] * 2000),
    ],
    ids=["queries", "conditions", "unions"],
)
def test_a_query_that_is_nested_too_deeply_is_refused(query: str) -> None:
    with pytest.raises(InvalidExpression, match="nested too deeply"):
        read(query)


def test_a_long_condition_is_no_obstacle() -> None:
    many = " OR ".join(f"id = {number}" for number in range(200))
    assert read(f"SELECT id FROM customers WHERE {many}").obstacles == ()
