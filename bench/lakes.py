"""Lakes and rows that the benchmarks share."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import tidelock

DDL = "id BIGINT NOT NULL, v DOUBLE, s STRING"
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.float64()), ("s", pa.string())]
)


def rows(start: int, stop: int) -> pa.Table:
    count = stop - start
    return pa.table(
        {"id": pa.array(range(start, stop), pa.int64()), "v": [1.5] * count, "s": ["x"] * count},
        schema=SCHEMA,
    )


def new_lake(path: Path, tables: list[str], key: str | None = None) -> tidelock.Lake:
    lake = tidelock.open(path, create=True, actor="bench")
    with lake.transaction("create") as tx:
        for name in tables:
            tx.create_table(name, DDL, key=key)
    return lake


def equal_rows(ids: object, v: float) -> pa.Table:
    """Rows of these ids that are alike in everything else."""
    keys = pa.array(ids, pa.int64())
    columns = {"id": keys, "v": pa.repeat(v, len(keys)), "s": pa.repeat("x", len(keys))}
    return pa.table(columns, schema=SCHEMA)


def filled_lake(path: Path, count: int) -> tidelock.Lake:
    """A lake with so many rows in a table with a key, compacted and indexed."""
    lake = new_lake(path, ["a"], key="id")
    with lake.transaction() as tx:
        for start in range(0, count, 1_000_000):
            tx.append("a", equal_rows(range(start, min(start + 1_000_000, count)), 1.5))
    lake.optimize()
    assert lake._store.chores.finish(300)
    return lake


def commit_row(lake: tidelock.Lake, names: list[str], number: int) -> None:
    row = rows(number, number + 1)
    with lake.transaction() as tx:
        for name in names:
            tx.append(name, row)
