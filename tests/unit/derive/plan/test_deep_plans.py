"""Plans of nested queries grow with their text, and so does the time that planning takes."""

from __future__ import annotations

import pytest

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.operators import scans, walk_once
from tidelock.derive.plan.segments import cut
from tidelock.derive.sql.query import parse_view
from tidelock.model.ddl import parse_schema

SCHEMAS = {"t": parse_schema("a INT, b INT")}
FORMS = {
    "join": "SELECT x.a, y.b FROM {0} x JOIN {0} y ON x.a = y.a",
    "left join": "SELECT x.a, y.b FROM {0} x LEFT JOIN {0} y ON x.a = y.a",
    "full join": "SELECT x.a, y.b FROM {0} x FULL JOIN {0} y ON x.a = y.b",
    "not in": "SELECT a, b FROM {0} WHERE a NOT IN (SELECT b FROM {0} WHERE b > 1)",
    "union": "SELECT a, b FROM {0} UNION ALL SELECT b, a FROM {0}",
    "aggregate": "SELECT x.a, y.n AS b FROM {0} x JOIN "
    "(SELECT a, count(*) AS n FROM {0} GROUP BY a) y ON x.a = y.a",
}


@pytest.mark.parametrize("form", FORMS)
def test_queries_that_read_the_one_before_twice_are_planned_by_their_number(form: str) -> None:
    operators, tables = {}, {}
    for depth in (4, 8):
        steps = [f"c{n} AS ({FORMS[form].format(f'c{n - 1}')})" for n in range(1, depth + 1)]
        query = f"WITH c0 AS (SELECT a, b FROM t), {', '.join(steps)} SELECT a, b FROM c{depth}"
        root = parse_view(query, SCHEMAS).root
        assert root is not None
        lowered = lower(root)
        operators[depth] = sum(1 for _ in walk_once(lowered))
        tables[depth] = sum(len(scans(one.body)) for one in cut(lowered))
    assert operators[8] <= 2.5 * operators[4]
    assert tables[8] <= 2.5 * tables[4]
