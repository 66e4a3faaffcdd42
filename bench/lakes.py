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


def commit_row(lake: tidelock.Lake, names: list[str], number: int) -> None:
    row = rows(number, number + 1)
    with lake.transaction() as tx:
        for name in names:
            tx.append(name, row)
