"""One pipeline on a given engine: every operation from frames, then a query over the result.

Run as a program it is the driver of an engine of its own: arguments are the lake's folder and the
settings of the engine as JSON, and the result is printed as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tidelock

ORDERS = (
    "SELECT id, CAST(id % 7 AS INT) AS Customer_ID, CAST(id * 0.25 AS DECIMAL(12, 2)) AS amount,"
    " timestamp_micros(id * 3600000000) AS at FROM range({begin}, {end})"
)
CUSTOMERS = (
    "SELECT CAST(id AS INT) AS id, concat('ü', CAST(id AS STRING)) AS name FROM range({count})"
)
QUERY = """
WITH recent AS (SELECT * FROM orders WHERE id >= 1000 AND amount > 300)
SELECT c.name, count(*) AS n, sum(o.amount) AS total, max(o.at) AS last
FROM recent o LEFT JOIN customers c ON o.customer_id = c.id
GROUP BY c.name ORDER BY n DESC, total
"""


def run(folder: Path, **engine: Any) -> dict[str, Any]:
    """What the lake holds in the end, as text."""
    with tidelock.open(folder / "shop.lake", create=True, actor="pipeline", **engine) as lake:
        spark = lake.spark
        lake.create_table(
            "orders",
            "id BIGINT NOT NULL, customer_id INT, amount DECIMAL(12,2), at TIMESTAMP",
            key="id",
        )
        lake.create_table("customers", "id INT NOT NULL, name STRING", key="id")
        with lake.transaction("load") as tx:
            tx.append("orders", spark.sql(ORDERS.format(begin=0, end=5000)))
            tx.overwrite("customers", spark.sql(CUSTOMERS.format(count=5)))
        raised = "SELECT id, amount + 1 AS amount FROM orders WHERE id BETWEEN 4990 AND 5009"
        with lake.transaction("change") as tx:
            tx.append("orders", spark.sql(ORDERS.format(begin=5000, end=5010)))
            tx.upsert("orders", tx.sql(raised))
            tx.update("orders", {"amount": "round(amount / 2, 1)"}, where="pmod(id, 100) = 7")
            tx.delete("orders", where="hour(at) = 13 AND id < 2000")
        lake.optimize(on_spark=True)
        snapshot = lake.snapshot()
        return {
            "commits": [
                [c.kind, *[[t.inserted, t.updated, t.deleted] for t in c.tables]]
                for c in lake.log()
                if c.kind != "maintenance"  # engines differ in how many fragments they write
            ],
            "orders": _rows(snapshot.sql("SELECT * FROM orders ORDER BY id").toArrow()),
            "query": _rows(snapshot.sql(QUERY).toArrow()),
        }


def _rows(table: Any) -> list[list[str]]:
    return [[_text(value) for value in row.values()] for row in table.to_pylist()]


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def main() -> None:
    folder, settings = sys.argv[1:]
    sys.stdout.write(json.dumps(run(Path(folder), **json.loads(settings))))


if __name__ == "__main__":
    main()
