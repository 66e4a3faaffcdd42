"""Oracle: a query, the operators it becomes, and the core they are lowered to give the same rows.

The query itself runs on Spark as it was written. Its operators are rendered back to SQL, and the
core is too; all three answers are compared as multisets.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.property.models.oracle_tables import Answers, answer, fast_session

QUERIES = Path(__file__).parents[1] / "models" / "oracle_queries.sql"


def queries() -> list[str]:
    lines = [line for line in QUERIES.read_text("utf-8").splitlines() if line[:2] != "--"]
    return [one.strip() for one in "\n".join([*lines, ""]).split(";\n") if one.strip()]


@pytest.fixture(scope="module")
def answers(spark: Any) -> Iterator[dict[str, Future[Answers | Exception]]]:
    """All answers are begun at once, and each test waits for its own."""
    session = fast_session(spark)
    with ThreadPoolExecutor(4) as pool:
        yield {query: pool.submit(answer, session, query) for query in queries()}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("query", queries())
def test_operators_and_core_give_what_the_query_gives(
    answers: dict[str, Future[Answers | Exception]], query: str
) -> None:
    found = answers[query].result()
    if isinstance(found, Exception):
        raise found
    assert found.operators == found.written
    assert found.core == found.written
