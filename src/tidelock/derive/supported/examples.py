"""Forms of SQL, each with a query that has it: what docs/supported-sql.md is made from.

Owns: the tables that the queries read, and the queries. How each is kept is not written here: it is
asked of the parser.
"""

from __future__ import annotations

from dataclasses import dataclass

TABLES = {
    "orders": (
        "id BIGINT NOT NULL, customer_id BIGINT, amount DECIMAL(12,2), weight DOUBLE, "
        "quantity INT, paid BOOLEAN, status STRING, placed TIMESTAMP, tags ARRAY<STRING>",
        "id",
    ),
    "customers": ("id BIGINT NOT NULL, name STRING, region STRING, since DATE", "id"),
    "returns": ("order_id BIGINT, amount DECIMAL(12,2)", None),
}
"""Name: columns and key."""


@dataclass(frozen=True)
class Example:
    """A form of SQL and a query over TABLES that has it."""

    form: str
    query: str


def _examples(*pairs: tuple[str, str]) -> tuple[Example, ...]:
    return tuple(Example(form, query) for form, query in pairs)


FORMS = _examples(
    ("projections, expressions", "SELECT id, upper(status) AS s, amount * 2 AS twice FROM orders"),
    ("`WHERE`", "SELECT id FROM orders WHERE amount > 100 AND status LIKE 'o%'"),
    ("`WITH`, subqueries in `FROM`", "WITH o AS (SELECT id FROM orders) SELECT id FROM o"),
    (
        "inner joins on equal columns",
        "SELECT o.id, c.region FROM orders o JOIN customers c ON o.customer_id = c.id",
    ),
    (
        "inner joins on other conditions, `CROSS JOIN`",
        "SELECT o.id FROM orders o JOIN returns r ON o.amount < r.amount",
    ),
    (
        "`USING`, `NATURAL`",
        "SELECT id, region FROM orders JOIN customers USING (id)",
    ),
    (
        "`LEFT`, `RIGHT` and `FULL JOIN`",
        "SELECT o.id, r.amount AS back FROM orders o LEFT JOIN returns r ON o.id = r.order_id",
    ),
    (
        "`SEMI` and `ANTI JOIN`",
        "SELECT id FROM orders LEFT ANTI JOIN returns ON orders.id = returns.order_id",
    ),
    (
        "`EXISTS`, `NOT EXISTS`",
        "SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM returns r WHERE r.order_id = o.id)",
    ),
    ("`IN`", "SELECT id FROM orders WHERE id IN (SELECT order_id FROM returns)"),
    ("`NOT IN`", "SELECT id FROM orders WHERE id NOT IN (SELECT order_id FROM returns)"),
    (
        "subqueries that give one value",
        "SELECT id, amount - (SELECT AVG(amount) FROM orders) AS above FROM orders",
    ),
    (
        "correlated subqueries of an aggregate",
        "SELECT id, (SELECT SUM(r.amount) FROM returns r WHERE r.order_id = o.id) AS back "
        "FROM orders o",
    ),
    ("`UNION ALL`", "SELECT id FROM orders UNION ALL SELECT order_id FROM returns"),
    (
        "`UNION`, `INTERSECT`, `EXCEPT`, also with `ALL`",
        "SELECT id FROM orders EXCEPT SELECT order_id FROM returns",
    ),
    ("`SELECT DISTINCT`", "SELECT DISTINCT status FROM orders"),
    ("`explode` and its kin", "SELECT id, explode(tags) AS tag FROM orders"),
    ("`LATERAL VIEW`", "SELECT id, tag FROM orders LATERAL VIEW OUTER explode(tags) t AS tag"),
    (
        "`GROUP BY`, `HAVING`, `GROUP BY ALL`",
        "SELECT status, COUNT(*) AS n FROM orders GROUP BY status HAVING COUNT(*) > 1",
    ),
    ("aggregates of the whole table", "SELECT SUM(amount) AS total FROM orders"),
    (
        "`ROLLUP`, `CUBE`, `GROUPING SETS`",
        "SELECT status, paid, SUM(amount) AS total FROM orders GROUP BY ROLLUP (status, paid)",
    ),
    (
        "`FILTER (WHERE …)` of an aggregate",
        "SELECT status, SUM(amount) FILTER (WHERE paid) AS total FROM orders GROUP BY status",
    ),
    (
        "`SUM`, `AVG` of integers and decimals",
        "SELECT status, SUM(amount) AS total, AVG(quantity) AS mean FROM orders GROUP BY status",
    ),
    (
        "`SUM`, `AVG` of floating-point numbers",
        "SELECT status, SUM(weight) AS total FROM orders GROUP BY status",
    ),
    (
        "`DISTINCT` inside of an aggregate",
        "SELECT status, COUNT(DISTINCT customer_id) AS n FROM orders GROUP BY status",
    ),
    (
        "windows with `PARTITION BY`",
        "SELECT id, RANK() OVER (PARTITION BY customer_id ORDER BY amount) AS r FROM orders",
    ),
    (
        "`QUALIFY`",
        "SELECT id FROM orders QUALIFY "
        "ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY placed) = 1",
    ),
    ("`ORDER BY` with `LIMIT`, `OFFSET`", "SELECT id FROM orders ORDER BY amount DESC LIMIT 10"),
    ("`ORDER BY` without `LIMIT`, which is left out", "SELECT id FROM orders ORDER BY amount"),
    (
        "windows without `PARTITION BY`",
        "SELECT id, RANK() OVER (ORDER BY amount) AS r FROM orders",
    ),
    (
        "`WITH RECURSIVE`",
        "WITH RECURSIVE r AS (SELECT id FROM orders UNION ALL SELECT id + 1 FROM r WHERE id < 9) "
        "SELECT id FROM r",
    ),
    (
        "lateral subqueries",
        "SELECT o.id, r.amount FROM orders o, "
        "LATERAL (SELECT amount FROM returns WHERE order_id = o.id) r",
    ),
    (
        "subqueries that may give several rows where one is needed",
        "SELECT id, (SELECT r.amount FROM returns r WHERE r.order_id = o.id) AS back FROM orders o",
    ),
    (
        "`PIVOT`",
        "SELECT * FROM (SELECT status, amount FROM orders) "
        "PIVOT (SUM(amount) FOR status IN ('open', 'done'))",
    ),
    ("`TABLESAMPLE`", "SELECT id FROM orders TABLESAMPLE (10 PERCENT)"),
    ("`VALUES`, `range` and other rows that come from no table", "VALUES (1), (2)"),
    ("pipe syntax", "FROM orders |> SELECT id"),
)

CALLS = {
    "approx_top_k_combine": "approx_top_k_combine(quantity, 3)",
    "corr": "corr(quantity, weight)",
    "count_min_sketch": "count_min_sketch(quantity, 0.5, 0.5, 1)",
    "listagg": "listagg(status)",
    "string_agg": "string_agg(status)",
    "max_by": "max_by(id, amount)",
    "min_by": "min_by(id, amount)",
    "percentile": "percentile(quantity, 0.5)",
    "percentile_cont": "percentile_cont(0.5) WITHIN GROUP (ORDER BY amount)",
    "percentile_disc": "percentile_disc(0.5) WITHIN GROUP (ORDER BY amount)",
}
"""How aggregates are called that take something else than one column of numbers."""

UNNAMED = _examples(
    ("a column without a name", "SELECT id, amount * 2 FROM orders"),
    ("two columns of one name", "SELECT id, customer_id AS ID FROM orders"),
)
"""Queries whose columns cannot be those of a table."""
UNTYPED = {
    "VOID": "SELECT id, NULL AS nothing FROM orders",
    "INTERVAL": "SELECT id, INTERVAL 1 DAY AS time_left FROM orders",
}
"""Types that no column of a table has, and a query that gives one."""
