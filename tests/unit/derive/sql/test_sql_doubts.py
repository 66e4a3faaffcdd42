"""What the reader does not understand is left to the engine; what it could misread it does not."""

from __future__ import annotations

import pytest
from tests.unit.derive.sql.outlines import SCHEMAS, read, shape

from tidelock.derive.algebra.operators import Aggregate, scans, walk
from tidelock.derive.sql.query import parse_view, read_view
from tidelock.errors import InvalidExpression, TableNotFound
from tidelock.model.ddl import parse_schema
from tidelock.model.sql.text import QueryText
from tidelock.model.sql.trees import _refuse_lost_words, read_query

DOUBTFUL = [
    "SELECT id FROM customers WHERE nosuch = 1",
    "SELECT id FROM customers WHERE id = = 1",
    "SELECT id, grouping__id AS g, count(*) AS n FROM customers GROUP BY id GROUPING SETS ((id))",
    "SELECT * EXCEPT (s.f) FROM customers",
    "SELECT id FROM customers UNION ALL (FROM customers)",
    "SELECT id, sum(id) OVER w AS s FROM customers WINDOW w AS v, v AS (PARTITION BY id)",
    "SELECT id FROM customers GROUP BY id HAVING EXISTS (SELECT 1 FROM orders WHERE sum(id) > 0)",
]


@pytest.mark.parametrize("query", DOUBTFUL)
def test_what_makes_no_sense_here_is_an_obstacle_with_a_doubt(query: str) -> None:
    view = read_view(query, SCHEMAS)
    assert view.root is None
    assert view.doubt is not None
    assert "not understood" in view.obstacles[0].reason
    assert "customers" in view.tables


def test_the_time_is_seen_in_a_query_that_is_not_understood() -> None:
    view = read_view("SELECT id FROM customers WHERE current_date() = = at", SCHEMAS)
    assert view.tells_time


def test_a_table_that_does_not_exist_is_no_doubt() -> None:
    with pytest.raises(TableNotFound):
        read_view("SELECT id FROM nowhere", SCHEMAS)


def test_a_column_without_a_name_is_no_doubt() -> None:
    with pytest.raises(InvalidExpression, match="no name"):
        read_view("SELECT count(*) FROM customers", SCHEMAS)


@pytest.mark.parametrize("word", ["all", "distinct"])
def test_a_word_that_nothing_follows_is_a_name(word: str) -> None:
    schemas = {"t": parse_schema(f"`{word}` INT, b INT")}
    view = parse_view(f"SELECT {word}, b FROM t", schemas)
    assert [name for name, _ in view.columns] == [word, "b"]
    counted = parse_view(f"SELECT count({word}) AS n FROM t", schemas)
    assert counted.root is not None
    (measure,) = (
        m for one in walk(counted.root) if isinstance(one, Aggregate) for m in one.measures
    )
    assert measure.argument is not None
    assert not measure.distinct


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("struct(id)", ["id"]),
        ("struct(ID)", ["ID"]),
        ("struct(c.id, name AS n)", ["id", "n"]),
        ("struct(id + 1, 'x', (id))", ["col1", "col2", "id"]),
        ("struct(more['k'])", ["k"]),
        ("struct(more.k)", ["k"]),
        ("struct(tags[0])", ["col1"]),
        ("to_json((id, name))", ["id", "name"]),
        ("transform(tags, x -> struct(x))", ["x"]),
    ],
)
def test_a_struct_is_named_after_what_is_written_in_it(call: str, names: list[str]) -> None:
    text = read_query(QueryText(f"SELECT {call} AS s FROM customers c")).sql("spark")
    assert "NAMED_STRUCT" in text.upper() or "STRUCT(" not in text.upper()
    for name in names:
        assert f"'{name}'" in text


def test_a_row_of_several_values_in_a_test_stays_one() -> None:
    query = "SELECT id FROM orders WHERE (id, customer) IN (SELECT id, id FROM customers)"
    assert any("semi join on 2" in line for line in shape(query))


def test_count_of_several_columns_counts_rows_in_which_none_is_null() -> None:
    root = read("SELECT count(customer, amount) AS n FROM orders").root
    assert root is not None
    text = repr(root)
    assert text.count("IS NULL") == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM customers c WHERE EXISTS (SELECT o.customer FROM orders o "
        "WHERE o.customer = c.id GROUP BY o.customer HAVING count(*) > 1)",
        "SELECT id FROM customers c WHERE id IN (SELECT max(o.customer) FROM orders o "
        "WHERE o.customer = c.id GROUP BY o.day)",
        "SELECT id FROM customers c WHERE id NOT IN (SELECT max(customer) FROM orders o "
        "WHERE o.customer = c.id)",
        "SELECT o.id FROM orders o JOIN customers c ON o.customer = c.id "
        "AND c.country IN (SELECT kind FROM events)",
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.id "
        "AND NOT EXISTS (SELECT 1 FROM events e WHERE e.kind = c.country)",
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.id "
        "AND NOT EXISTS (SELECT 1 FROM events e WHERE e.kind = o.id)",
        "SELECT o.id FROM orders o FULL JOIN customers c ON o.customer = c.id "
        "AND EXISTS (SELECT 1 FROM events WHERE kind = country)",
        "SELECT o.id FROM orders o LEFT ANTI JOIN customers c ON o.customer = c.id "
        "AND EXISTS (SELECT 1 FROM events WHERE kind = o.day)",
        "SELECT id FROM orders WHERE (customer, amount) NOT IN (SELECT id, id FROM customers)",
        "SELECT id FROM orders o WHERE customer NOT IN "
        "(SELECT value FROM events e WHERE e.value > o.customer)",
        "SELECT id FROM orders WHERE day = (SELECT DISTINCT day FROM orders WHERE amount = 1)",
        "SELECT id, (SELECT amount FROM orders o WHERE o.customer = c.id) AS a FROM customers c",
    ],
)
def test_subqueries_that_are_kept_by_delta(query: str) -> None:
    assert read(query).obstacles == ()


def test_a_subquery_in_an_outer_join_that_reads_both_sides_is_not_kept_by_delta() -> None:
    query = (
        "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.id "
        "AND EXISTS (SELECT 1 FROM events e WHERE e.kind = c.country AND e.value = o.id)"
    )
    view = read_view(query, SCHEMAS)
    assert view.doubt is None
    assert [one.reason for one in view.obstacles] == [
        "a subquery in the condition of a join is not kept by delta"
    ]


@pytest.mark.parametrize(
    "element", ["array(name, 'b')[0]", "more.list[0]", "filter(tags, x -> true)[0]"]
)
def test_an_element_of_an_array_is_one(element: str) -> None:
    schemas = {
        "t": parse_schema("name STRING, tags ARRAY<STRING>, more STRUCT<list: ARRAY<STRING>>")
    }
    view = parse_view(f"SELECT {element} AS x FROM t", schemas)
    assert view.root is not None
    assert "[0]" in repr(view.root)


def test_no_word_of_a_query_is_lost() -> None:
    # What reads `array(...)[0]` as an array of 0 loses `name`.
    for query in (
        "SELECT all, name FROM customers",
        "SELECT id FROM customers WHERE name LIKE 'x'",
    ):
        read_query(QueryText(query))
    with pytest.raises(InvalidExpression, match="not understood"):
        _refuse_lost_words(
            QueryText("SELECT id, name FROM t"), read_query(QueryText("SELECT id FROM t"))
        )


def test_a_hint_is_no_part_of_what_is_asked() -> None:
    hints = "/*+ BROADCAST(c), REPARTITION(3), SHUFFLE_HASH(o) */"
    query = (
        f"SELECT {hints} o.id FROM orders o JOIN (SELECT {hints} id FROM customers) c USING (id)"
    )
    assert read(query).root == read(query.replace(hints, "")).root is not None


def test_how_many_rows_exists_looks_at_is_no_part_of_what_is_asked() -> None:
    query = "SELECT id FROM customers c WHERE EXISTS (SELECT 1 FROM orders WHERE customer = c.id{})"
    plain = read(query.format("")).root
    assert read(query.format(" LIMIT 1")).root == plain is not None
    assert read(query.format(" LIMIT 0")).root is None
    assert read(query.format(" LIMIT 1 OFFSET 1")).root is None


@pytest.mark.parametrize("number", [".5", "0.5", "5.", ".5e1", "10.50"])
def test_a_number_may_begin_or_end_with_its_point(number: str) -> None:
    assert read(f"SELECT id + {number} AS x FROM customers WHERE id < {number}").obstacles == ()


def test_a_column_may_be_called_as() -> None:
    schemas = {"t": parse_schema("`as` INT, x INT")}
    for query in (
        "SELECT as, x FROM t",
        "SELECT as + 1 AS q, x AS as FROM t",
        "SELECT sum(as) AS q, max(t.as) AS m FROM t WHERE x > as AND as = 1",
    ):
        view = parse_view(query, schemas)
        assert view.root is not None
        assert ("c1", "as") in [pair for one in scans(view.root) for pair in one.columns]


def test_what_cannot_be_read_back_is_a_doubt() -> None:
    assert read_view("SELECT call(id) AS q FROM customers", SCHEMAS).obstacles


def test_all_as_a_name_in_group_by_is_no_grouping_by_all() -> None:
    schemas = {"t": parse_schema("`all` INT, b INT")}
    for query in (
        "SELECT count(*) AS n FROM t GROUP BY all",
        "SELECT count(*) AS n FROM t GROUP BY all, b",
    ):
        view = parse_view(query, schemas)
        assert "all is a name" in view.obstacles[0].reason


def test_the_name_of_a_lateral_view_keeps_its_words() -> None:
    schemas = {"t": parse_schema("a INT")}
    query = "SELECT `x y`.m AS v FROM t LATERAL VIEW explode(array(a)) `x y` AS m"
    assert parse_view(query, schemas).root is not None


def test_all_in_backticks_is_a_column_to_order_by() -> None:
    schemas = {"t": parse_schema("`all` INT, b INT")}
    for query in (
        "SELECT `all`, b FROM t ORDER BY `all`, b LIMIT 2",
        "SELECT rank() OVER (PARTITION BY b ORDER BY `all`) AS r FROM t",
        "SELECT rank() OVER (PARTITION BY b ORDER BY all) AS r FROM t",
    ):
        assert parse_view(query, schemas).root is not None
    (obstacle,) = parse_view("SELECT `all`, b FROM t ORDER BY ALL LIMIT 2", schemas).obstacles
    assert "ORDER BY ALL" in obstacle.reason


CALLED = [
    "SELECT id FROM t ORDER BY user LIMIT 2",
    "SELECT id FROM t ORDER BY `user` LIMIT 2",
    "SELECT id AS user, user AS u FROM plain",
    "SELECT id AS user, count(*) AS n FROM plain GROUP BY user",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM plain WHERE plain.id = user)",
]
MEANT = [
    "SELECT user, id FROM t ORDER BY user LIMIT 2",
    "SELECT id AS user FROM plain ORDER BY user LIMIT 2",
    "SELECT id FROM t ORDER BY t.user LIMIT 2",
    "SELECT id AS user, count(*) AS n FROM plain GROUP BY id HAVING user > 1",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM plain WHERE plain.id = t.user)",
    "SELECT user, count(*) AS n FROM t GROUP BY user",
]
USERS = {"t": parse_schema("user BIGINT, id BIGINT"), "plain": parse_schema("id BIGINT")}


@pytest.mark.parametrize("query", CALLED)
def test_a_bare_name_calls_a_function_where_spark_does_not_look_for_the_column(query: str) -> None:
    view = read_view(query, USERS)
    assert view.root is None
    assert "means a function" in view.obstacles[0].reason


@pytest.mark.parametrize("query", MEANT)
def test_a_bare_name_that_is_also_a_function_means_the_column_at_hand(query: str) -> None:
    assert parse_view(query, USERS).root is not None
