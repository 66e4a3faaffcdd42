"""Oracle: TPC-H gives the same rows as written, by its operators, and by the core."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.property.models.oracle_tables import texts_of
from tests.tpch.data import tables
from tests.tpch.tables import schemas

from tidelock.derive.sql.query import parse_view
from tidelock.run.engine.session import Engine

QUERIES = sorted((Path(__file__).parents[2] / "tpch" / "queries").glob("q*.sql"))


def test_the_benchmark_gives_the_same_rows_by_operators_and_core() -> None:
    wrong = []
    with Engine(engine="sail") as engine:
        session = engine.get()
        for name, table in tables().items():
            session.createDataFrame(table).createOrReplaceTempView(name)
        for path in QUERIES:
            query = path.read_text("utf-8")
            texts = texts_of(query, parse_view(query, schemas()))
            written, operators, core = (rows_of(session, text) for text in texts)
            assert written, f"{path.stem} finds nothing, and shows nothing"
            if not written == operators == core:
                wrong.append(path.stem)
    assert wrong == []


def rows_of(session: Any, text: str) -> Counter[str]:
    rows = session.sql(text).toArrow().to_pylist()
    return Counter(str(list(row.values())) for row in rows)
