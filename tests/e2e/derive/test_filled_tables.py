"""Views over tables that are filled from the beginning, changed, emptied and filled again.

All views stand in one lake and are compared with their query after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.streams import check

import tidelock
from tidelock.errors import InvalidExpression
from tidelock.run.lake import Lake
from tidelock.store.transaction import Transaction

Rows = list[dict[str, Any]]


def numbers(*values: int | None) -> Rows:
    return [{"a": value} for value in values]


def pairs(*values: tuple[int | None, int | None]) -> Rows:
    return [{"a": a, "b": b} for a, b in values]


TABLES: dict[str, tuple[str, Rows]] = {
    "one": ("a INT", numbers(1, 2)),
    "two": ("a INT", numbers(1, 2)),
    "three": ("a INT", numbers(1)),
    "ab": ("a INT, b INT", pairs((1, 2), (2, 3), (None, 2), (3, None), (2, 3))),
    "cd": ("a INT, b INT", pairs((1, 2), (2, None), (4, 5), (4, 5), (1, 7))),
    "names": (
        "`all` INT, `distinct` INT, `_w` INT, l INT, r INT, d STRUCT<`F x`: INT, g: STRING>",
        [
            {"all": 1, "distinct": 2, "_w": 3, "l": 4, "r": None, "d": {"F x": 1, "g": "x"}},
            {"all": None, "distinct": 2, "_w": 3, "l": 5, "r": 6, "d": None},
        ],
    ),
}

# Aggregates and DISTINCT above outer and anti-joins, and these above each other.
JOINS = [
    "SELECT two.a, count(*) AS n FROM one LEFT JOIN two ON one.a = two.a GROUP BY two.a",
    "SELECT DISTINCT one.a, two.a AS b FROM one LEFT JOIN two ON one.a = two.a",
    "SELECT a, count(*) AS n FROM one WHERE a NOT IN (SELECT a FROM three) GROUP BY a",
    "SELECT a, count(*) AS n FROM one WHERE NOT EXISTS "
    "(SELECT 1 FROM three WHERE three.a = one.a) GROUP BY a",
    "SELECT a FROM one WHERE a NOT IN (SELECT a FROM three) UNION SELECT a FROM three",
    "SELECT a FROM one WHERE NOT EXISTS (SELECT 1 FROM two WHERE two.a = one.a "
    "AND NOT EXISTS (SELECT 1 FROM three WHERE three.a = two.a))",
    "SELECT b FROM ab WHERE b NOT IN (SELECT x.b FROM ab x WHERE x.a NOT IN (SELECT a FROM three))",
    "SELECT one.a, d.a AS x FROM one LEFT JOIN (SELECT a FROM two WHERE NOT EXISTS "
    "(SELECT 1 FROM three WHERE three.a = two.a)) d ON one.a = d.a",
    "SELECT one.a FROM one LEFT JOIN (SELECT two.a FROM two LEFT JOIN three ON two.a = three.a "
    "WHERE three.a IS NULL) d ON one.a = d.a WHERE d.a IS NULL",
    "SELECT ab.b, one.a, two.a AS t, three.a AS h FROM ab LEFT JOIN one ON ab.a = one.a "
    "LEFT JOIN two ON ab.b = two.a LEFT JOIN three ON two.a = three.a",
    "SELECT ab.b, one.a, two.a AS t FROM ab FULL JOIN one ON ab.a = one.a "
    "FULL JOIN two ON ab.b = two.a",
    "SELECT ab.a, cd.b FROM ab LEFT JOIN cd ON ab.a = cd.a AND ab.b < cd.b",
    "SELECT one.a, max(ab.b) AS m, count(ab.b) AS c FROM one RIGHT JOIN ab ON ab.a = one.a "
    "GROUP BY one.a",
    "SELECT 10 / a AS x FROM one WHERE a NOT IN (SELECT a FROM three)",
    "SELECT one.a, two.a AS b FROM one LEFT JOIN two ON true",
    "SELECT b, 100 / count(*) AS share, max(a) - min(a) AS width FROM ab GROUP BY b",
]
SUBQUERIES = [
    "SELECT a, b FROM ab WHERE (a, b) NOT IN (SELECT a, b FROM cd)",
    "SELECT a, b FROM ab WHERE a NOT IN (SELECT a FROM cd WHERE cd.b > ab.b)",
    "SELECT a FROM ab WHERE EXISTS (SELECT cd.b FROM cd WHERE cd.a = ab.a GROUP BY cd.b "
    "HAVING count(*) > 1)",
    "SELECT a FROM ab WHERE b NOT IN (SELECT max(b) FROM cd WHERE cd.a = ab.a GROUP BY cd.b)",
    "SELECT a FROM ab WHERE b IN (SELECT max(b) FROM cd WHERE cd.a = ab.a)",
    "SELECT a FROM ab WHERE 0 IN (SELECT count(*) FROM cd WHERE cd.a = ab.a)",
    "SELECT ab.a, cd.b FROM ab JOIN cd ON ab.a = cd.a AND ab.b IN (SELECT a FROM two)",
    "SELECT ab.a, cd.b FROM ab LEFT JOIN cd ON ab.a = cd.a AND cd.b NOT IN (SELECT a FROM three)",
    "SELECT ab.a, (SELECT DISTINCT cd.b FROM cd WHERE cd.a = ab.a AND cd.b = 7) AS x FROM ab",
    "SELECT a FROM ab WHERE b < (SELECT DISTINCT b FROM cd WHERE a = 4)",
    "WITH c AS (SELECT ab.a, cd.b FROM ab JOIN cd ON ab.a = cd.a WHERE ab.b NOT IN "
    "(SELECT a FROM three)) SELECT x.a, y.b FROM c x JOIN c y ON x.a = y.a JOIN c z ON y.b = z.b "
    "JOIN c w ON z.a = w.a",
]
# EXISTS and IN inside of other conditions, and over an aggregate of everything.
ANSWERS = [
    "SELECT a, b FROM ab WHERE b = 3 OR a NOT IN (SELECT a FROM cd WHERE b IS NOT NULL)",
    "SELECT a, b FROM ab WHERE b = 2 OR a NOT IN (SELECT b FROM cd)",
    "SELECT a, b FROM ab WHERE NOT (b = 3 OR a IN (SELECT b FROM cd WHERE cd.a > ab.a))",
    "SELECT a, b FROM ab WHERE NOT (a NOT IN (SELECT b FROM cd) AND b NOT IN (SELECT a FROM cd))",
    "SELECT a, b FROM ab WHERE a = 3 OR (a, b) NOT IN (SELECT b, a FROM cd)",
    "SELECT a FROM ab WHERE EXISTS (SELECT max(b) FROM cd WHERE cd.a = ab.a)",
    "SELECT a FROM ab WHERE NOT EXISTS (SELECT 1 FROM cd WHERE cd.a = ab.a HAVING count(*) > 1)",
    "SELECT a FROM ab WHERE a IN (SELECT 2 FROM cd WHERE cd.a = ab.a HAVING count(*) = 1)",
    "SELECT a FROM ab WHERE a NOT IN (SELECT max(b) AS m FROM cd WHERE cd.a < ab.a HAVING m < 5)",
    "SELECT a FROM ab WHERE 2 IN (SELECT count(*) FROM cd WHERE cd.a = ab.a) OR b IN "
    "(SELECT count(b) FROM cd WHERE cd.a = ab.b)",
    "SELECT ab.a FROM ab LEFT SEMI JOIN cd ON ab.a = cd.a AND ab.b NOT IN (SELECT a FROM three)",
    "SELECT ab.a, ab.b FROM ab LEFT ANTI JOIN cd ON ab.a = cd.a AND ab.b IN (SELECT a FROM two)",
    "SELECT ab.a, cd.b FROM ab LEFT JOIN cd ON ab.a = cd.a AND ab.b IN (SELECT a FROM three)",
    "SELECT ab.a, cd.b FROM ab FULL JOIN cd ON ab.a = cd.a AND cd.b IN (SELECT a FROM two) "
    "AND EXISTS (SELECT 1 FROM three WHERE three.a = ab.b - 1)",
    "SELECT a, (SELECT max(b) FROM cd WHERE cd.a = ab.a HAVING count(*) > 1) AS m FROM ab",
    "SELECT a, EXISTS (SELECT 1 FROM cd HAVING count(*) > 3) AS x FROM ab",
]
# Subqueries in the condition of a join that read the other side than it asks, and TABLE.
SIDES = [
    "SELECT ab.a, cd.b FROM ab LEFT JOIN cd ON ab.a = cd.a "
    "AND NOT EXISTS (SELECT 1 FROM three WHERE three.a = ab.b)",
    "SELECT ab.a, cd.b FROM ab FULL JOIN cd ON ab.a = cd.a "
    "AND NOT EXISTS (SELECT 1 FROM two WHERE two.a = cd.b)",
    "SELECT ab.a FROM ab LEFT ANTI JOIN cd ON ab.a = cd.a "
    "AND EXISTS (SELECT 1 FROM three WHERE three.a = ab.b)",
    "TABLE ab UNION (TABLE cd)",
    "WITH w AS (TABLE ab) SELECT w.a, x.b FROM w JOIN (TABLE cd) x ON w.a = x.a",
]
NAMES = [
    "SELECT all, l FROM names",
    "SELECT count(all) AS n, count(distinct) AS m FROM names",
    "SELECT l, struct(all) AS s, to_json(struct(r, l + 1, d.`F x`)) AS j FROM names",
    "SELECT max(struct(all, l)) AS m, to_json(max((l, r))) AS j FROM names",
    "SELECT struct(r) AS k, count(*) AS n FROM names GROUP BY struct(r)",
    "SELECT l, to_json(struct(l, count(*), (SELECT count(*) FROM one))) AS j FROM names GROUP BY l",
    "SELECT to_json(struct(m['k'], s['F x'], s.g, x[0])) AS j "
    "FROM (SELECT map('k', l) AS m, d AS s, array(l) AS x FROM names)",
    "SELECT transform(array(l), x -> to_json(struct(x))) AS z FROM names",
    "SELECT count(a, b) AS n, count(a, b) FILTER (WHERE a > 1) AS m FROM ab",
    "SELECT l AS _w, r AS `_again`, sum(_w) AS d FROM names GROUP BY l, r",
    "SELECT ab.a, n.d FROM ab LEFT JOIN names n ON ab.a = n.l",
    "SELECT CAST(v AS STRING) AS s FROM (SELECT CAST(a AS DECIMAL(10,2)) AS v FROM one "
    "UNION ALL SELECT CAST(a AS DECIMAL(12,4)) FROM two)",
]
BINDING = [
    "SELECT a, a | b << 1 AS x, b >> 1 & a AS y, a <=> b = true AS z FROM ab",
    "SELECT a, TIMESTAMP'2020-01-10 00:00:00' - INTERVAL 1 DAY 2 HOURS AS t, "
    "TIMESTAMP'2020-01-10 00:00:00' + -INTERVAL '1' DAY '2' HOURS * b AS u FROM ab",
    "SELECT a, DATE'2020-01-10' + INTERVAL '60 DAYS' AS d, "
    "DATE'2020-01-10' + INTERVAL -1 DAY + b AS e FROM ab",
    "SELECT ab.a, cd.b FROM ab JOIN cd ON ab.a = cd.a IN (true)",
    "SELECT a, a = b IN (true) AS x, a < b NOT IN (false) AS y, a = b IS NULL AS z FROM ab",
]
GROUPINGS = [
    "SELECT a, b, count(*) AS n FROM ab GROUP BY a, b GROUPING SETS ((a))",
    "SELECT string(a) AS s, b, grouping_id() AS g, max(a) AS m FROM ab "
    "GROUP BY string(a), b GROUPING SETS ((b), ())",
    "SELECT x.s, x.b, cd.a FROM (SELECT struct(a) AS s, b, count(*) AS n FROM ab "
    "GROUP BY struct(a), b GROUPING SETS ((b))) x LEFT JOIN cd ON x.n = cd.a",
    "SELECT /*+ BROADCAST(cd) */ ab.a, .5 * ab.b AS h FROM ab "
    "WHERE EXISTS (SELECT 1 FROM cd WHERE cd.a = ab.a LIMIT 1)",
]
ANEW = [
    "SELECT ab.a, cd.b FROM ab LEFT JOIN cd ON ab.a = cd.a AND ab.b NOT IN (SELECT a FROM three)",
    "SELECT a, b FROM ab ORDER BY ALL LIMIT 2",
    "SELECT b FROM ab GROUP BY b HAVING EXISTS (SELECT 1 FROM one WHERE one.a < sum(ab.a))",
    "SELECT a, (WITH w AS (SELECT b FROM ab WHERE ab.a = one.a) SELECT max(b) FROM w) AS m "
    "FROM one",
    "SELECT a, sum(b) OVER w1 AS s FROM ab WINDOW w1 AS w2, w2 AS (PARTITION BY a)",
    "SELECT a, grouping__id AS g, count(*) AS n FROM ab GROUP BY a, b GROUPING SETS ((a), (b))",
    "SELECT * EXCEPT (d.g) FROM names",
    "SELECT x AS y FROM (VALUES (1) AS v(x)) UNION ALL TABLE one",
    "SELECT * FROM ab PIVOT (sum(b) * 2 AS d FOR a IN (1 AS one, 2 AS two))",
    "SELECT a FROM ab WHERE string(a) COLLATE UTF8_LCASE IN (SELECT string(b) FROM cd)",
    "SELECT a, row_number() OVER (PARTITION BY string(a) COLLATE UTF8_LCASE ORDER BY b, a) AS r "
    "FROM (SELECT DISTINCT a, b FROM ab)",
    "SELECT count(*) AS n FROM (SELECT DISTINCT a, NULL AS nothing FROM ab)",
    "SELECT arrays_zip(x, y) AS z FROM (SELECT array(a) AS x, array(a) AS y FROM one)",
]

STEPS: list[Callable[[Transaction], object]] = [
    lambda tx: tx.delete("two", where="true"),
    lambda tx: (
        tx.append("three", numbers(None, 2)),
        tx.append("two", numbers(1, 3, None, 3)),
        tx.append("cd", pairs((2, 3), (3, None), (None, 2))),
    ),
    lambda tx: (
        tx.append("ab", pairs((4, 5), (4, None), (None, None))),
        tx.delete("ab", where="b = 2"),
        tx.update("cd", {"b": "b + 1"}, where="a = 4"),
        tx.append("names", TABLES["names"][1]),
        tx.delete("three", where="a IS NULL"),
    ),
    lambda tx: [tx.delete(name, where="true") for name in TABLES],
    lambda tx: [tx.append(name, rows) for name, (_, rows) in TABLES.items()],
]


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, spark=spark) as lake:
        with lake.transaction("filled from the beginning") as tx:
            for name, (columns, rows) in TABLES.items():
                tx.create_table(name, columns)
                tx.append(name, rows)
        yield lake


def walk_through(lake: Lake, action: str) -> None:
    refreshed = lake.refresh()
    assert {one.action for one in refreshed} == {"full"}
    check(lake)
    for step in STEPS:
        lake.run(step)
        for one in lake.refresh():
            assert one.action in (action, "none"), f"{one.table}: {one.reason}"
        check(lake)


@pytest.mark.parametrize(
    "queries",
    [JOINS, SUBQUERIES, ANSWERS, SIDES, NAMES, BINDING, GROUPINGS],
    ids=["joins", "subqueries", "answers", "sides", "names", "binding", "groupings"],
)
def test_views_over_filled_tables_are_kept_by_delta(lake: Lake, queries: list[str]) -> None:
    for number, query in enumerate(queries):
        lake.create_stream_table(f"v{number}", query, refresh_mode="incremental_strict")
    walk_through(lake, "incremental")


def test_what_is_not_understood_is_computed_anew_and_says_so(lake: Lake) -> None:
    for number, query in enumerate(ANEW):
        lake.create_stream_table(f"v{number}", query)
        assert not lake.explain(f"v{number}").incremental
    walk_through(lake, "full")


@pytest.mark.parametrize(
    "query", ["SELECT * FROM one, LATERAL (SELECT a)", "SELECT a, rand() AS A FROM one"]
)
def test_two_columns_of_one_name_are_refused_also_where_a_view_is_computed_anew(
    lake: Lake, query: str
) -> None:
    with pytest.raises(InvalidExpression, match=r"Two columns are named .*Rename one"):
        lake.create_stream_table("v", query)


def test_what_the_engine_refuses_is_refused_in_both_words(lake: Lake) -> None:
    with pytest.raises(tidelock.errors.TidelockError) as refused:
        lake.create_stream_table("v", "SELECT nosuch FROM one")
    assert "There is no column 'nosuch'" in str(refused.value)
    assert "UNRESOLVED_COLUMN" in str(refused.value)


def test_a_delta_that_fails_is_made_up_for_by_a_full_refresh(lake: Lake) -> None:
    query = "SELECT one.a, 10 / ab.b AS x FROM one JOIN ab ON one.a = ab.a"
    lake.create_stream_table("v", query, refresh_mode="incremental")
    lake.refresh()
    # The new row of the one meets the old row of the other, which no snapshot ever shows.
    lake.run(lambda tx: tx.append("ab", pairs((9, 0))))
    lake.refresh()
    lake.run(lambda tx: (tx.append("one", numbers(9)), tx.update("ab", {"b": "5"}, where="a = 9")))
    (attempt,) = lake.refresh()
    assert attempt.action == "full"
    assert "by delta it failed" in attempt.reason
    assert "DIVIDE_BY_ZERO" in attempt.reason
    check(lake)
    lake.run(lambda tx: tx.append("one", numbers(9)))
    assert [one.action for one in lake.refresh()] == ["incremental"]
    check(lake)
