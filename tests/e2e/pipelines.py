"""One small pipeline over a given engine: write, commit, read, join, aggregate.

Run as a program it is the driver of an engine of its own: arguments are the lake's folder and the
settings of the engine as JSON, and the result is printed as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation

from tidelock.model.expressions import parse_filter
from tidelock.model.query import plan_query
from tidelock.model.schema import Column, TableSchema
from tidelock.run.session import Engine
from tidelock.store.frame_writes import FrameTarget, write_frame
from tidelock.store.frames import FrameSource, scan_frame
from tidelock.store.query import run_query

SCHEMAS = {
    "orders": TableSchema(
        (
            Column("id", pa.int64(), nullable=False),
            Column("customer_id", pa.int32()),
            Column("amount", pa.decimal128(12, 2)),
            Column("at", pa.timestamp("us", "UTC")),
        )
    ),
    "customers": TableSchema(
        (Column("id", pa.int32(), nullable=False), Column("name", pa.string()))
    ),
}
FRAMES = {
    "orders": "SELECT id, CAST(id % 7 AS INT) AS Customer_ID, CAST(id * 0.25 AS DECIMAL(12, 2))"
    " AS amount, timestamp_micros(id * 3600000000) AS at FROM range(5000)",
    "customers": "SELECT CAST(id AS INT) AS id, concat('ü', CAST(id AS STRING)) AS name"
    " FROM range(5)",
}
QUERY = """
WITH recent AS (SELECT * FROM orders WHERE id >= 1000 AND amount > 300)
SELECT c.name, count(*) AS n, sum(o.amount) AS total, max(o.at) AS last
FROM recent o LEFT JOIN customers c ON o.customer_id = c.id
GROUP BY c.name ORDER BY n DESC, total
"""


def run(engine: Engine, folder: Path) -> list[list[str]]:
    """The rows of the query's result, as text."""
    spark = engine.get()
    datasets = {name: _write(spark, name, folder / f"{name}.lance") for name in SCHEMAS}
    plan = plan_query(QUERY, SCHEMAS, lambda text, schema: parse_filter(text, schema).lance)
    frames = {
        read.name: scan_frame(
            spark, _source(datasets[read.name]), columns=read.columns, filter=read.filter
        )
        for read in plan.reads
    }
    rows = run_query(spark, plan, frames).toArrow().to_pylist()
    return [[_text(value) for value in row.values()] for row in rows]


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _write(spark: Any, name: str, path: Path) -> LanceDataset:
    schema = SCHEMAS[name]
    base = lance.write_dataset(schema.arrow.empty_table(), path, enable_stable_row_ids=True)
    target = FrameTarget(base.uri, base.version, None, schema, name)
    written = write_frame(spark.sql(FRAMES[name]), target)
    operation = LanceOperation.Append([fragment.metadata for fragment in written])
    return LanceDataset.commit(base, operation, read_version=base.version, detached=True)


def _source(dataset: LanceDataset) -> FrameSource:
    fragments = tuple((f.fragment_id, f.count_rows()) for f in dataset.get_fragments())
    return FrameSource(dataset.uri, dataset.version, None, fragments, dataset.schema)


def main() -> None:
    folder, settings = sys.argv[1:]
    with Engine(**json.loads(settings)) as engine:
        sys.stdout.write(json.dumps(run(engine, Path(folder))))


if __name__ == "__main__":
    main()
