"""Stream tables: refreshing by delta against recomputation, and how it grows."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import numpy as np
import pyarrow as pa

from bench.measure import Claim, folder, middle, seconds
from bench.outside import measure_outside
from bench.shop import CHANGED, MILLION, SAIL, SPARK, Refreshes, shop


def refresh_against_recomputation() -> Iterator[Claim]:
    with folder() as path:
        tenth = Refreshes(shop(path / "1", MILLION, **SPARK), MILLION)
        ten = Refreshes(shop(path / "10", 10 * MILLION, **SPARK), 10 * MILLION)
        ten.recompute()
        rounds = [(ten.measure(), ten.recompute(), tenth.measure()) for _ in range(9)]
        delta, full, small = (middle(list(one)) for one in zip(*rounds, strict=True))
        outside = measure_outside(ten.lake, path / "outside", 10 * MILLION)
        yield Claim(
            "join + aggregate, 10 million orders, 1,000 changed: recomputation against refresh",
            full / delta,
            6,
            at_least=True,
            detail=f"{full:.2f} s against {delta:.2f} s, with its commit. {outside}",
        )
        yield Claim(
            "the same refresh at 10 million orders against 1 million",
            delta / small,
            1.3,
            detail=f"{delta:.2f} s against {small:.2f} s",
        )
        tenth.lake.close()
        ten.lake.close()
        sail = Refreshes(shop(path / "10", 10 * MILLION, **SAIL), 10 * MILLION)
        parts = [(sail.measure(), naive(sail)) for _ in range(9)]
        through, sums = (middle(list(one)) for one in zip(*parts, strict=True))
        yield Claim(
            "the same refresh on Sail against the naive sum of its parts",
            through / sums,
            1.5,
            detail=f"{through * 1e3:.0f} ms against {sums * 1e3:.0f} ms",
        )
        yield Claim(
            "the same refresh through Spark against through Sail",
            delta / through,
            3,
            at_least=True,
            detail=f"{delta * 1e3:.0f} ms against {through * 1e3:.0f} ms",
        )
        sail.lake.close()


def naive(refreshes: Refreshes) -> float:
    """The parts of a refresh, each done by hand: read the delta, look keys up, query, write."""
    refreshes.prepare()
    lake = refreshes.lake
    before = lake.snapshot(version=lake.snapshot().version - 1)
    now, spark = lake.snapshot(), lake.spark
    (commit,) = lake.log(limit=1)
    assert commit.table("orders").updated == CHANGED
    keys = refreshes.number
    ids = np.sort(np.random.default_rng(keys).choice(refreshes.rows, CHANGED, replace=False))

    def parts() -> None:
        listed = f"id IN ({', '.join(map(str, ids))})"
        columns = ["customer_id", "amount"]
        gone = before.table("orders").dataset.scanner(columns=columns, filter=listed).to_table()
        came = now.table("orders").dataset.scanner(columns=columns, filter=listed).to_table()
        weights = [pa.array(np.full(rows.num_rows, w)) for rows, w in ((gone, -1), (came, 1))]
        delta = pa.concat_tables(
            [gone.append_column("w", weights[0]), came.append_column("w", weights[1])]
        )
        wanted = delta.column("customer_id").unique().to_pylist()
        found = f"id IN ({', '.join(map(str, wanted))})"
        customers = now.table("customers").dataset.to_table(filter=found)
        rows = spark.sql(
            "SELECT c.region, SUM(IF(w > 0, d.amount, -d.amount)) AS total, SUM(w) AS orders "
            "FROM {d} d JOIN {c} c ON d.customer_id = c.id GROUP BY c.region",
            d=spark.createDataFrame(delta),
            c=spark.createDataFrame(customers),
        ).toArrow()
        dataset = now.table("revenue").dataset
        written = lance.fragment.write_fragments(
            dataset.to_table().slice(0, rows.num_rows), dataset, mode="append"
        )
        append = lance.LanceOperation.Append(written)
        lance.LanceDataset.commit(dataset, append, read_version=dataset.version, detached=True)
        lake._store.objects.put_new(f"bench/{keys}", b"x" * 1000)

    took = seconds(parts)
    lake.refresh()
    return took


def refresh_against_recomputation_of_more() -> Iterator[Claim]:
    with folder() as path:
        fifty = Refreshes(shop(path / "50", 50 * MILLION, **SPARK), 50 * MILLION)
        fifty.recompute()
        rounds = [(fifty.measure(), fifty.recompute()) for _ in range(5)]
        delta, full = (middle(list(one)) for one in zip(*rounds, strict=True))
        yield Claim(
            "join + aggregate, 50 million orders, 1,000 changed: recomputation against refresh",
            full / delta,
            20,
            at_least=True,
            detail=f"{full:.2f} s against {delta:.2f} s, with its commit",
        )
        fifty.lake.close()


CLAIMS = [refresh_against_recomputation, refresh_against_recomputation_of_more]
