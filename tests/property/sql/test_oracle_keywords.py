"""Oracle: words of the grammar that are names, without quotes, are read as Spark reads them.

A table has a column that is named like a keyword, and queries use that name in every place where a
name may stand. What Spark refuses is of no interest. What it runs is either computed in full, where
we do not read it, or Spark sees other columns in it, or refuses what we made of it; or its
operators give the same rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.property.models.oracle_tables import FAST
from tests.support.lakes import SETTINGS, seed_of

from tidelock.derive.algebra.spark_sql import render
from tidelock.derive.sql.query import parse_view
from tidelock.errors import TidelockError
from tidelock.model.ddl import parse_schema
from tidelock.model.names import quote

FORMS = """
SELECT {w} FROM t
SELECT {w}, x FROM t
SELECT x, {w} FROM t
SELECT t.{w}, x FROM t
SELECT {w} z FROM t
SELECT x, {w} z FROM t
SELECT x {w} FROM t
SELECT x AS {w} FROM t
SELECT {w} AS {w} FROM t
SELECT ({w}) AS q FROM t
SELECT -{w} AS q, {w} + 1 AS r FROM t
SELECT DISTINCT {w} FROM t
SELECT t.* EXCEPT ({w}) FROM t
SELECT {w}.x FROM t {w}
SELECT {w}.{w} AS q FROM t AS {w}
SELECT s.{w} AS q FROM (SELECT x AS {w} FROM t) s
WITH {w} AS (SELECT x FROM t) SELECT x FROM {w}
SELECT x FROM t WHERE {w} > 1
SELECT x FROM t WHERE x > 1 AND {w} IN (1, 2)
SELECT x FROM t WHERE x IN (SELECT {w} FROM t)
SELECT CASE WHEN x > 1 THEN {w} ELSE x END AS q FROM t
SELECT struct({w}).{w} AS q FROM t
SELECT sum({w}) AS n, sum(x + {w}) AS m FROM t
SELECT count(*) AS n FROM t GROUP BY {w}
SELECT {w}, count(*) AS n FROM t GROUP BY {w}
SELECT {w}, x, count(*) AS n FROM t GROUP BY x, {w}
SELECT x, {w} FROM t ORDER BY {w}, x LIMIT 2
SELECT x FROM t ORDER BY {w} LIMIT 2
SELECT rank() OVER (PARTITION BY x ORDER BY {w}) AS r FROM t
SELECT rank() OVER (PARTITION BY {w} ORDER BY x) AS r FROM t
SELECT a.x FROM t a JOIN t b ON a.{w} = b.x
SELECT {w}, a.x FROM t a JOIN t b USING ({w})
SELECT x FROM t UNION ALL SELECT {w} FROM t
SELECT x AS {w} FROM s ORDER BY {w} LIMIT 2
SELECT x AS {w}, {w} AS q FROM s
SELECT x AS {w}, count(*) AS n FROM s GROUP BY {w}
SELECT x AS {w}, count(*) AS n FROM s GROUP BY x HAVING {w} > 1
SELECT x FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.x = {w})
SELECT x FROM t WHERE x IN (SELECT x FROM s WHERE s.y > {w})
"""
ROWS = "(3L, 1L, 7L), (1L, 2L, 8L), (2L, 3L, 9L), (2L, NULL, 9L), (NULL, 4L, 9L)"
# Not columns wherever they stand: with ORDER BY and LIMIT, any rows would be right.
LITERALS = ("true", "false", "null")
# Each takes a second or two; the others come with other seeds, and all of them in a long run.
SAMPLE = 6


def known_words(session: Any) -> list[str]:
    found = session.sql("SELECT lower(keyword) AS word FROM sql_keywords()").toArrow()
    return sorted(set(found.column("word").to_pylist()))


def questions(session: Any, word: str) -> Iterator[tuple[str, str, int]]:
    """What Spark runs and we read: the query, its operators as SQL, and how many columns it has."""
    schemas = {
        "t": parse_schema(f"{quote(word)} BIGINT, x BIGINT, y BIGINT"),
        "s": parse_schema("x BIGINT, y BIGINT"),
    }
    for form in FORMS.strip().splitlines():
        if "LIMIT" in form and word in LITERALS:
            continue
        query = form.format(w=word)
        if not is_known(session, query):
            continue
        columns = session.sql(query).columns
        try:
            view = parse_view(query, schemas)
        except TidelockError:
            continue
        if view.root is None or view.obstacles:
            continue
        read = render(view.root, view.columns)
        if [name for name, _ in view.columns] == columns and is_known(session, read):
            yield query, read, len(columns)


def is_known(session: Any, query: str) -> bool:
    try:
        session.sql(query)
    except Exception:  # noqa: BLE001
        return False
    return True


def check_word(session: Any, word: str) -> int:
    frame = session.sql(f"SELECT * FROM VALUES {ROWS} AS v({quote(word)}, x, y)")
    frame.coalesce(1).createOrReplaceTempView("t")
    frame.select("x", "y").createOrReplaceTempView("s")
    asked = list(questions(session, word))
    if not asked:
        return 0
    parts = []
    for number, (query, read, count) in enumerate(asked):
        names = ", ".join(f"c{place}" for place in range(count))
        for tag, text in enumerate((query, read)):
            row = f"SELECT {number} AS n, {tag} AS tag, to_json(struct({names})) AS row"
            parts.append(f"{row} FROM ({text}) AS q({names})")
    found: Counter[tuple[int, int, str]] = Counter()
    for one in session.sql(" UNION ALL ".join(parts)).toArrow().to_pylist():
        found[one["n"], one["tag"], one["row"]] += 1
    for number, (query, read, _) in enumerate(asked):
        written, ours = (
            {row: count for (n, tag, row), count in found.items() if (n, tag) == (number, which)}
            for which in (0, 1)
        )
        assert ours == written, f"{query}\n{read}"
    return len(asked)


def test_keywords_that_are_names_are_read_as_spark_reads_them(spark: Any) -> None:
    session = spark.newSession()
    for name, value in FAST.items():
        session.conf.set(name, value)
    with seed_of() as seed:
        words = known_words(session)
        if "TIDELOCK_FAULT_SECONDS" not in SETTINGS:
            words = random.Random(seed).sample(words, SAMPLE)
        assert sum(check_word(session, word) for word in words) > len(words) * 5
