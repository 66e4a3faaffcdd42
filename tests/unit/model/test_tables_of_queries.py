"""Which names of a query are tables, and which the query defines itself."""

from __future__ import annotations

import pytest
import sqlglot

from tidelock.model.sql.tables import is_named, tables_in


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT * FROM a JOIN b ON a.x = b.x", ["a", "b"]),
        ("WITH a AS (SELECT * FROM b) SELECT * FROM a", ["b"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a", []),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM b", ["b"]),
        ("SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a) JOIN a", ["a"]),
        ("WITH a AS (SELECT 1) SELECT * FROM db.a", ["a"]),
        ("SELECT * FROM b WHERE EXISTS (SELECT 1 FROM c)", ["b", "c"]),
        ("SELECT /*+ BROADCAST(o) */ * FROM orders o", ["orders"]),
        ("SELECT * FROM range(3)", []),
    ],
)
def test_a_table_is_what_the_query_does_not_define(query: str, named: list[str]) -> None:
    root = sqlglot.parse_one(query, dialect="spark")
    assert [table.name for table in tables_in(root) if is_named(table)] == named
