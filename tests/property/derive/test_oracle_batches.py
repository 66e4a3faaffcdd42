"""Oracle: changes that are refreshed at once give what they give refreshed one by one.

Two lakes live through the same changes of the same random tables. In one every change is a commit
that is followed by a refresh, in the other all of them are one commit and one refresh. The stream
tables, which have random queries over the tables and over each other, end with the same rows, and
with those of their queries.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.property.models.typed_queries import Relation, TypedQueries, random_row, random_tables
from tests.support.lakes import SETTINGS
from tests.support.streams import multiset

import tidelock
from tidelock import Lake, Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same queries every time, as an engine's own mistakes are among what others find.
SEED = int(SETTINGS.get("TIDELOCK_SEED", "20240229"))
LAKES = 3
VIEWS_ON_VIEWS = 3


def change(tx: Transaction, chance: random.Random, tables: dict[str, Relation]) -> None:
    for table in chance.sample(list(tables.values()), chance.randint(1, len(tables))):
        ids = chance.sample(range(9), chance.randint(1, 5))
        rows = [random_row(chance, table, one) for one in ids]
        if table.key is None:
            tx.append(table.sql, rows + chance.sample(rows, len(rows) // 2))
        else:
            tx.upsert(table.sql, rows)
        roll = chance.random()
        if roll < 0.4:
            tx.delete(table.sql, where=f"g = {chance.randint(-1, 2)}")
        elif roll < 0.5:
            tx.update(table.sql, {"g": "g + 1"}, where="g < 2")
        elif roll < 0.55:
            tx.delete(table.sql, where="true")


def fill(lake: Lake, seed: str, tables: dict[str, Relation], queries: dict[str, Relation]) -> None:
    with lake.transaction("create") as tx:
        for table in tables.values():
            tx.create_table(table.sql, table.ddl, key=table.key)
        change(tx, random.Random(f"{seed} begin"), tables)
    for name, query in queries.items():
        lake.create_stream_table(name, query.sql, refresh_mode="incremental")
    refresh(lake)


def refresh(lake: Lake) -> None:
    failed = [attempt for attempt in lake.refresh() if attempt.action == "failed"]
    assert not failed, failed


def in_batches(lake: Lake, seed: str, tables: dict[str, Relation], batches: int) -> None:
    for number in range(batches):
        with lake.transaction("one change") as tx:
            change(tx, random.Random(f"{seed} {number}"), tables)
        refresh(lake)


def at_once(lake: Lake, seed: str, tables: dict[str, Relation], batches: int) -> None:
    with lake.transaction("all changes") as tx:
        for number in range(batches):
            change(tx, random.Random(f"{seed} {number}"), tables)
    refresh(lake)


def rows_of(lake: Lake, name: str) -> Any:
    return multiset(lake.table(name).to_arrow().to_pylist())


def compare(one: Lake, other: Lake, tables: Any, queries: dict[str, Relation], sail: bool) -> None:
    for name in tables:
        assert rows_of(one, name) == rows_of(other, name), f"{name} was changed otherwise"
    wrong = []
    for name, query in queries.items():
        by_batch, by_once = rows_of(one, name), rows_of(other, name)
        if by_batch != by_once:
            wrong.append(f"{name}: {query.sql}\n  batches {by_batch}\n  at once {by_once}")
        if query.only_spark and sail:
            continue
        written = multiset(one.snapshot().sql(query.sql).toArrow().to_pylist())
        if by_batch != written:
            extra, missing = by_batch - written, written - by_batch
            wrong.append(f"{name}: {query.sql}\n  too many {extra}\n  missing {missing}")
    assert not wrong, "\n".join(wrong)


def live(
    one: Lake,
    other: Lake,
    seed: str,
    queries: dict[str, Relation],
    tables: dict[str, Relation],
    batches: int = 4,
) -> None:
    for lake in (one, other):
        fill(lake, seed, tables, queries)
    in_batches(one, seed, tables, batches)
    at_once(other, seed, tables, batches)


def views_on_views(chance: random.Random, queries: dict[str, Relation]) -> dict[str, Relation]:
    """More queries, over the stream tables of these."""
    views = {
        name: Relation(name, query.columns, None, query.only_spark)
        for name, query in queries.items()
    }
    generator = TypedQueries(chance, views)
    return {f"w{number}": generator.query(0) for number in range(VIEWS_ON_VIEWS)}


@pytest.mark.parametrize("number", range(LAKES))
def test_changes_in_batches_and_at_once_give_the_rows_of_the_query(
    tmp_path: Path, number: int
) -> None:
    print(f"TIDELOCK_SEED={SEED}")  # noqa: T201
    with (
        tidelock.open(tmp_path / "batches", create=True, engine="sail") as one,
        tidelock.open(tmp_path / "once", create=True, engine="sail") as other,
    ):
        seed = f"{SEED} {number}"
        chance = random.Random(seed)
        tables = random_tables(chance)
        generator = TypedQueries(chance, tables)
        # Every form once, and what is nested in it at random.
        queries = {f"v{i}": form(1) for i, form in enumerate(generator.forms.values())}
        queries |= views_on_views(chance, queries)
        live(one, other, seed, queries, tables)
        compare(one, other, tables, queries, sail=True)


def test_what_only_spark_answers_is_the_same_at_once_and_in_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    print(f"TIDELOCK_SEED={SEED}")  # noqa: T201
    with (
        tidelock.open(tmp_path / "batches", create=True, spark=spark) as one,
        tidelock.open(tmp_path / "once", create=True, spark=spark) as other,
    ):
        seed = f"{SEED} spark"
        chance = random.Random(seed)
        tables = random_tables(chance)
        generator = TypedQueries(chance, tables)
        queries: dict[str, Relation] = {}
        while len(queries) < 2:
            form = chance.choice((generator.grouping_sets, generator.set_operation))
            if (query := form(0)).only_spark:
                queries[f"v{len(queries)}"] = query
        live(one, other, seed, queries, tables, batches=2)
        compare(one, other, tables, queries, sail=False)
