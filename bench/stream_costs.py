"""Stream tables: what a refresh costs beside its rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import tidelock
from bench.measure import Claim, folder, in_turns, middle, seconds
from bench.shop import MILLION, SAIL, SPARK, fill, shop


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


def refresh_anew() -> Iterator[Claim]:
    """A view that is computed anew: what whoever follows it sees, and what comparing costs."""
    with folder() as path:
        lake = tidelock.open(path / "lake", create=True, **SPARK)
        fill(lake, MILLION)
        query = "SELECT id, customer_id, amount * 2 AS twice FROM orders"
        lake.create_stream_table("doubled", query, refresh_mode="full")
        lake.refresh()
        lake.create_table("copy", "id BIGINT, customer_id BIGINT, twice DECIMAL(23,2)")

        def change(number: int) -> None:
            where = f"id >= {10 * number} AND id < {10 * number + 10}"
            lake.run(lambda tx: tx.update("orders", {"amount": "amount + 1"}, where=where))

        def replace() -> None:
            lake.run(lambda tx: tx.overwrite("copy", lake.sql(query)))

        anew, plain, seen = [], [], []
        for number in range(4):
            change(number)
            version = lake.snapshot().version
            anew.append(seconds(lambda: lake.refresh("doubled", full=True)))
            plain.append(seconds(replace))
            seen.append(lake.changes("doubled", since=version).read_all().num_rows)
        yield Claim(
            "a view of 1 million rows computed anew, 10 of them changed: changes that are seen",
            max(seen),
            20,
            detail="10 rows before, and 10 after",
        )
        yield Claim(
            "the same, with comparing, against replacing a table of these rows",
            middle(anew[1:]) / middle(plain[1:]),
            6,
            detail=f"{middle(anew[1:]):.2f} s against {middle(plain[1:]):.2f} s",
        )
        lake.close()


CLAIMS = [refresh_of_nothing, many_stream_tables, refresh_anew]
