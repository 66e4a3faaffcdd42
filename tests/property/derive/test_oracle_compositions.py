"""Oracle: an operator above another, and above that a third, is kept right.

By delta against the engine's own answer to the query, over the same rows: after a first build over
filled tables, after changes, after everything was deleted, and after it was filled again. Half of
the queries and tables have hostile names.

`make test` takes a sample of the pairs and of the triples, others each time. `make fault` goes
through all pairs in all spellings, and all triples: it prints the seed and where it stopped, and
TIDELOCK_SEED with TIDELOCK_FROM goes on there.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.property.models.composed_operators import OPERATORS
from tests.property.models.composed_runs import (
    BATCH_CASES,
    COVERED,
    Coverage,
    batches_of,
    confirm,
    on_sail,
    on_spark,
)
from tests.property.models.compositions import every, one_of_each
from tests.support.lakes import SETTINGS, fault_seconds, seed_of

SAIL = tuple(one for one in OPERATORS if one.only_spark is None)
LONG_RUN = "TIDELOCK_FAULT_SECONDS" in SETTINGS
SECONDS = fault_seconds(60)
START = int(SETTINGS.get("TIDELOCK_FROM", "0"))
PAIRS, TRIPLES = 100, 24

# What is computed anew, because no delta is known for it; anything else is to be kept by delta.
IN_FULL = (
    "the answer of IN is used where NULL counts",
    "its fields are named after columns, which have other names while they are kept",
)


def judge(coverage: Coverage, spark: Any) -> None:
    if coverage.wrong:
        confirm(coverage, spark)
    COVERED.extend(str(coverage).splitlines())
    assert not coverage.confirmed, "\n\n".join(map(str, coverage.confirmed))
    unknown = [one for one in coverage.reasons if not any(known in one for known in IN_FULL)]
    assert not unknown, f"{unknown} in the place of a delta"
    assert coverage.empty < coverage.count * 0.3, "too many queries give no rows to be worth asking"


def compose(depth: int, seed: int, count: int, spark: Any) -> None:
    """So many compositions; in a long run as many as there is time for."""
    cases = every(SAIL, depth, seed)
    batches = batches_of(cases, "long" if LONG_RUN and depth < 3 else "short", START)
    coverage = Coverage(f"{depth} operators (TIDELOCK_SEED={seed})")
    if LONG_RUN:
        end = START + on_sail(batches, coverage, SECONDS)
        coverage.what += f", TIDELOCK_FROM={START} to {end}"
    else:
        on_sail(itertools.islice(batches, -(-count // BATCH_CASES)), coverage)
    judge(coverage, spark)


@pytest.mark.timeout(SECONDS * 2 + 900)
def test_every_operator_above_every_other_is_kept_right(spark: Any) -> None:
    with seed_of() as seed:
        compose(2, seed, PAIRS, spark)


@pytest.mark.timeout(SECONDS * 2 + 900)
def test_operators_above_operators_above_operators_are_kept_right(spark: Any) -> None:
    with seed_of() as seed:
        compose(3, seed, TRIPLES, spark)


@pytest.mark.timeout(900)
def test_every_operator_is_kept_right_on_spark_above_another(spark: Any) -> None:
    with seed_of() as seed:
        coverage = Coverage(f"2 operators on Spark (TIDELOCK_SEED={seed})")
        on_spark(batches_of(one_of_each(OPERATORS, seed), "short"), spark, coverage)
        coverage.confirmed = [found for _, found in coverage.wrong]
        coverage.wrong = []
        judge(coverage, spark)
