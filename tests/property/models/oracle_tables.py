"""Small tables full of what goes wrong, and answers to queries over them as multisets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.spark_sql import render
from tidelock.derive.sql.query import parse_view
from tidelock.derive.sql.view import View
from tidelock.model.ddl import parse_schema
from tidelock.model.names import quote
from tidelock.model.schema.schema import TableSchema
from tidelock.model.types import spell_type

# The queries are many and tiny: compiling them would take longer than running them, and so would
# moving rows that are all in one place.
FAST = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.analyzer.maxIterations": "1000",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
}

TABLES = {
    "t": (
        "a INT, b INT, s STRING",
        None,
        "(1, 10, 'x'), (1, 10, 'x'), (1, 20, 'y'), (2, 20, NULL), (2, NULL, 'x'), (3, 5, 'z'),"
        " (NULL, 10, 'x'), (NULL, NULL, NULL), (4, -1, 'y'), (4, 7, 'y')",
    ),
    "u": (
        "a INT, c INT, s STRING",
        None,
        "(1, 10, 'x'), (1, 15, 'y'), (2, 20, 'x'), (2, 20, 'x'), (NULL, 3, 'x'), (5, NULL, NULL),"
        " (3, NULL, 'z'), (4, 8, 'q')",
    ),
    "k": (
        "id BIGINT NOT NULL, a INT, v DECIMAL(10,2), d DATE",
        "id",
        "(1, 1, 1.50, DATE'2024-01-01'), (2, 1, 2.25, DATE'2024-02-29'), (3, 2, NULL, NULL),"
        " (4, NULL, 7.00, DATE'2023-12-31'), (5, 9, 0.00, DATE'2024-01-31')",
    ),
    "n": ("id INT NOT NULL, g STRING NOT NULL", "id", "(1, 'p'), (2, 'q'), (3, 'p'), (9, 'r')"),
    "w": ("k STRING, v INT", None, "('1', 1), ('01', 2), ('2', 3), (' 2', 4), (NULL, 5), ('1', 1)"),
    "x": (
        "id INT, arr ARRAY<INT>, m MAP<STRING, INT>, st STRUCT<p: INT, q: STRING>",
        None,
        "(1, array(1, 2, 2), map('k', 1), named_struct('p', 1, 'q', 'x')),"
        " (2, array(), map(), named_struct('p', CAST(NULL AS INT), 'q', 'y')),"
        " (3, NULL, NULL, NULL), (1, array(1, NULL), map('j', 2, 'k', NULL),"
        " named_struct('p', 2, 'q', CAST(NULL AS STRING)))",
    ),
    "e": ("a INT, b INT", None, "(1, 1)"),
}


def schemas() -> Mapping[str, TableSchema]:
    return {name: parse_schema(columns, key) for name, (columns, key, _) in TABLES.items()}


def fast_session(spark: Any) -> Any:
    """A session of the same Spark that has the tables, and settings for tiny queries."""
    session = spark.newSession()
    for name, value in FAST.items():
        session.conf.set(name, value)
    for name, (columns, _, rows) in TABLES.items():
        schema = parse_schema(columns)
        frame = session.sql(f"SELECT * FROM VALUES {rows} AS v({', '.join(schema.names)})")
        types = ((quote(one.name), spell_type(one.type, for_spark=True)) for one in schema.columns)
        typed = frame.selectExpr(*(f"CAST({one} AS {type_}) AS {one}" for one, type_ in types))
        kept = typed.where("a IS NULL" if name == "e" else "true").coalesce(1)
        kept.createOrReplaceTempView(name)
    return session


@dataclass(frozen=True)
class Answers:
    """What one query gives: as it was written, by its operators, and by the core."""

    view: View
    written: Counter[str]
    operators: Counter[str]
    core: Counter[str]


def texts_of(query: str, view: View) -> list[str]:
    assert view.root is not None, [str(one) for one in view.obstacles]
    chosen = ", ".join(f"{quote(name)} AS {quote(visible)}" for visible, name in view.columns)
    core = f"SELECT {chosen} FROM ({render(lower(view.root))})"
    return [query, render(view.root, view.columns), core]


def answer(session: Any, query: str) -> Answers | Exception:
    """All three answers by one job of Spark; an error is an answer, too."""
    try:
        view = parse_view(query, schemas())
        parts = [
            f"SELECT {number} AS tag, to_json(struct(*)) AS row FROM ({text})"
            for number, text in enumerate(texts_of(query, view))
        ]
        found: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
        for one in session.sql(" UNION ALL ".join(parts)).toArrow().to_pylist():
            found[one["tag"]][one["row"]] += 1
        return Answers(view, *found)
    except Exception as error:  # noqa: BLE001
        return error


def answer_all(session: Any, queries: Iterable[str]) -> dict[str, Answers | Exception]:
    listed = list(queries)
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(listed, pool.map(lambda one: answer(session, one), listed), strict=True))
