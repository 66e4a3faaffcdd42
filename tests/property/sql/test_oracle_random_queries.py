"""Oracle: random queries give the same rows as written, by their operators, and by the core."""

from __future__ import annotations

import os
from typing import Any

from tests.property.models.oracle_tables import Answers, answer_all, fast_session
from tests.property.models.random_queries import Queries

SEED = int(os.environ.get("TIDELOCK_SEED", "20240229"))
COUNT = 25


def test_random_queries_give_the_same_rows_by_operators_and_core(spark: Any) -> None:
    queries = [Queries(SEED + number).query(depth=2).sql for number in range(COUNT)]
    wrong: list[str] = []
    empty = 0
    for query, found in answer_all(fast_session(spark), queries).items():
        if not isinstance(found, Answers):
            wrong.append(f"{query}\n  {found}")
            continue
        empty += not found.written
        for by, rows in (("operators", found.operators), ("core", found.core)):
            if rows != found.written:
                missing, extra = found.written - rows, rows - found.written
                wrong.append(f"{query}\n  by the {by}: missing {missing}, extra {extra}")
    assert not wrong, f"TIDELOCK_SEED={SEED}\n" + "\n".join(wrong)
    assert empty < COUNT * 0.6, "too many queries give no rows to be worth asking"
