"""Stream tables: refreshing by delta against recomputation, and how it grows."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tidelock
from bench.measure import Claim, folder, in_turns, middle, seconds

MILLION = 1_000_000
REGIONS = 1000
CHANGED = 1000
QUERY = (
    "SELECT c.region, SUM(o.amount) AS total, COUNT(*) AS orders "
    "FROM orders o JOIN customers c ON o.customer_id = c.id GROUP BY c.region"
)
SPARK: dict[str, Any] = {"master": "local[2]"}
SAIL: dict[str, Any] = {"engine": "sail"}


def orders(ids: np.ndarray[Any, Any], rows: int, seed: int) -> pa.Table:
    chance = np.random.default_rng(seed)
    cents = pa.array(chance.integers(0, 100_000, len(ids))).cast(pa.decimal128(19, 0))
    hundred = pa.scalar(Decimal(100), pa.decimal128(3, 0))
    return pa.table(
        {
            "id": ids,
            "customer_id": chance.integers(0, rows // 100, len(ids)),
            "amount": pc.divide(cents, hundred).cast(pa.decimal128(12, 2), safe=False),
        }
    )


def shop(path: Path, rows: int, **engine: Any) -> tidelock.Lake:
    """A lake of so many orders, and a stream table of their sums by region."""
    lake = tidelock.open(path, create=not path.exists(), actor="bench", **engine)
    if "orders" in lake.tables():
        return lake
    lake.create_table("orders", "id BIGINT, customer_id BIGINT, amount DECIMAL(12,2)", key="id")
    lake.create_table("customers", "id BIGINT, region STRING", key="id")
    customers = rows // 100
    regions = pa.array([f"region {number % REGIONS}" for number in range(customers)])
    table = pa.table({"id": np.arange(customers), "region": regions})
    lake.run(lambda tx: tx.append("customers", table))
    for begin in range(0, rows, MILLION):
        some = orders(np.arange(begin, min(rows, begin + MILLION)), rows, begin)
        lake.run(lambda tx, some=some: tx.append("orders", some))
    lake.optimize()
    lake.create_stream_table("revenue", QUERY, refresh_mode="incremental")
    lake.refresh()
    return lake


def change(lake: tidelock.Lake, rows: int, number: int) -> None:
    """Give other amounts and customers to a thousand orders."""
    ids = np.random.default_rng(number).choice(rows, CHANGED, replace=False)
    lake.run(lambda tx: tx.upsert("orders", orders(np.sort(ids), rows, number)))


class Refreshes:
    """Refreshes of one lake, each after a change that is not measured."""

    def __init__(self, lake: tidelock.Lake, rows: int) -> None:
        self.lake = lake
        self.rows = rows
        self.number = 0
        for _ in range(3):
            self.prepare()
            self.refresh()

    def prepare(self) -> None:
        self.number += 1
        change(self.lake, self.rows, self.number)

    def refresh(self) -> None:
        (attempt,) = self.lake.refresh()
        assert attempt.action == "incremental", attempt

    def measure(self) -> float:
        self.prepare()
        return seconds(self.refresh)

    def recompute(self) -> float:
        return seconds(lambda: self.lake.snapshot().sql(QUERY).toArrow())


def refresh_against_recomputation() -> Iterator[Claim]:
    with folder() as path:
        tenth = Refreshes(shop(path / "1", MILLION, **SPARK), MILLION)
        ten = Refreshes(shop(path / "10", 10 * MILLION, **SPARK), 10 * MILLION)
        ten.recompute()
        rounds = [(ten.measure(), ten.recompute(), tenth.measure()) for _ in range(9)]
        delta, full, small = (middle(list(one)) for one in zip(*rounds, strict=True))
        yield Claim(
            "join + aggregate, 10 million orders, 1,000 changed: recomputation against refresh",
            full / delta,
            6,
            at_least=True,
            detail=f"{full:.2f} s against {delta:.2f} s, with its commit",
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


def refresh_of_nothing() -> Iterator[Claim]:
    with folder() as path:
        lake = shop(path / "lake", 100_000, **SAIL)

        def empty_commit(number: int) -> None:
            with lake.transaction(properties={"number": number}):
                pass

        nothing, commit = in_turns(lambda _: lake.refresh(), empty_commit, 100)
        yield Claim(
            "refresh with no change against an empty commit (medians)",
            middle(nothing) / middle(commit),
            2,
            detail=f"{middle(nothing) * 1e3:.2f} ms against {middle(commit) * 1e3:.2f} ms",
        )
        lake.close()


def many_stream_tables() -> Iterator[Claim]:
    with folder() as path:
        lake = tidelock.open(path / "lake", create=True, **SPARK)
        lake.create_table("source", "id BIGINT, g INT, x INT", key="id")
        ids = np.arange(10_000)
        rows = pa.table({"id": ids, "g": ids % 50, "x": ids % 1})
        rows = rows.cast(lake.table("source").schema.arrow)
        lake.run(lambda tx: tx.append("source", rows))
        names: list[str] = []
        for level in range(10):
            above = names[-10:] or ["source"] * 10
            for number in range(10):
                name = f"v{level}_{number}"
                query = f"SELECT id, g, x + 1 AS x FROM {above[number]} WHERE x < {1000 + number}"
                lake.create_stream_table(name, query, refresh_mode="incremental")
                names.append(name)
        lake.create_table("alone", "id BIGINT, g INT, x INT", key="id")
        lake.run(lambda tx: tx.append("alone", rows))
        single = "SELECT id, g, x + 1 AS x FROM alone WHERE x < 1000"
        lake.create_stream_table("single", single, refresh_mode="incremental")
        lake.refresh()

        def touch(table: str, number: int) -> None:
            row = [{"id": number, "g": 1, "x": 500 + number}]
            lake.run(lambda tx: tx.upsert(table, row))

        ones, alls = [], []
        for number in range(4):
            touch("alone", number)
            ones.append(seconds(lambda: lake.refresh(["single"])))
            touch("source", number)
            alls.append(seconds(lambda: lake.refresh(names)))
        yield Claim(
            "100 stream tables in 10 levels, one row changed: time per table against one refresh",
            middle(alls[1:]) / 100 / middle(ones[1:]),
            0.5,
            detail=f"{middle(alls[1:]):.2f} s for 100 against {middle(ones[1:]):.3f} s for one",
        )
        lake.close()


CLAIMS = [refresh_against_recomputation, refresh_of_nothing, many_stream_tables]
