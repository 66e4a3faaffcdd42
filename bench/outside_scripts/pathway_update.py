"""Keep the query of the first row in Pathway: `pathway_update.py folder rows times changed`.

Pathway reads orders as (customer_id, cents, w); a changed order is a row with weight -1 and one
with weight 1. Prints as JSON the seconds from handing the rows of one change over until the output
has all of them, for each of so many changes, and the seconds that loading took.
"""

import json
import random
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path

import pathway as pw
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

folder, rows, times, changed = Path(sys.argv[1]), *map(int, sys.argv[2:5])
customers_count = rows // 100
LOAD_SECONDS_MAX = 540
CHANGE_SECONDS_MAX = 60


def convert(name, change):
    """The Parquet files of a table as CSV, which Pathway reads by itself."""
    (folder / f"{name}_csv").mkdir()
    with pq.ParquetFile(folder / name / "rows.parquet") as file:
        for number, batch in enumerate(file.iter_batches(1_000_000)):
            rows = change(pa.Table.from_batches([batch]))
            pa.csv.write_csv(rows, folder / f"{name}_csv" / f"{number}.csv")


def weighted(orders):
    hundred = pa.scalar(Decimal(100), pa.decimal128(3, 0))
    cents = pc.multiply(orders["amount"], hundred).cast(pa.decimal128(18, 0), safe=False)
    ones = pa.array([1]).take(pa.array([0] * orders.num_rows))
    columns = [orders["customer_id"], cents.cast(pa.int64()), ones]
    return pa.table(columns, names=["customer_id", "cents", "w"])


class Order(pw.Schema):
    customer_id: int
    cents: int
    w: int


class Customer(pw.Schema):
    customer: int
    region: str


class Output:
    """The sums by region as the output has them, and waiting for what they must add up to."""

    def __init__(self):
        self.regions = {}
        self.turned = threading.Condition()
        self.total = self.orders = 0

    def on_change(self, key, row, time, is_addition):
        if is_addition:
            self.regions[row["region"]] = (row["total"], row["orders"])

    def on_time_end(self, time):
        with self.turned:
            self.total = sum(total for total, _ in self.regions.values())
            self.orders = sum(orders for _, orders in self.regions.values())
            self.turned.notify_all()

    def wait(self, reached, seconds_max):
        with self.turned:
            if not self.turned.wait_for(reached, seconds_max):
                raise TimeoutError(f"{self.orders} of {rows} orders after {seconds_max} s")


class Changes(pw.io.python.ConnectorSubject):
    """Changes, each handed over when the output has the one before."""

    def run(self):
        began = time.perf_counter()
        output.wait(lambda: output.orders == rows, LOAD_SECONDS_MAX)
        loaded = time.perf_counter() - began
        chance = random.Random(7)
        took = []
        for _ in range(times):
            some = [
                (chance.randrange(customers_count), chance.randrange(100_000), weight)
                for weight in (-1, 1)
                for _ in range(changed)
            ]
            expected = output.total + sum(cents * weight for _, cents, weight in some)
            began = time.perf_counter()
            for customer_id, cents, weight in some:
                self.next(customer_id=customer_id, cents=cents, w=weight)
            self.commit()
            output.wait(lambda sum_then=expected: output.total == sum_then, CHANGE_SECONDS_MAX)
            took.append(time.perf_counter() - began)
        print(json.dumps({"took": took, "loaded": loaded}), flush=True)


convert("orders", weighted)
convert("customers", lambda rows: rows.rename_columns({"id": "customer", "region": "region"}))
output = Output()
base = pw.io.csv.read(folder / "orders_csv", schema=Order, mode="static")
later = pw.io.python.read(Changes(), schema=Order, autocommit_duration_ms=1000)
customers = pw.io.csv.read(folder / "customers_csv", schema=Customer, mode="static")
orders = pw.Table.concat_reindex(base, later)
joined = orders.join(customers, orders.customer_id == customers.customer).select(
    customers.region, orders.w, amount=orders.cents * orders.w
)
sums = joined.groupby(pw.this.region).reduce(
    pw.this.region, total=pw.reducers.sum(pw.this.amount), orders=pw.reducers.sum(pw.this.w)
)
pw.io.subscribe(sums, on_change=output.on_change, on_time_end=output.on_time_end)
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
