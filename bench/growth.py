"""What a table costs that was written one row at a time, and upserts into large tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import tidelock
from bench.lakes import DDL, SCHEMA, commit_row, new_lake
from bench.measure import Claim, folder, folder_bytes, in_turns, middle


def one_row_commits() -> Iterator[Claim]:
    with folder(steady=True) as path:
        lakes: dict[int, tidelock.Lake] = {}
        bytes_per_commit = {}
        for commits in (30, 3000):
            place = path / str(commits)
            lake = new_lake(place, ["a"])
            before = folder_bytes(place)
            for number in range(commits):
                commit_row(lake, ["a"], number)
            bytes_per_commit[commits] = (folder_bytes(place) - before) / commits
            lakes[commits] = lake

        def scan(commits: int) -> None:
            table = lakes[commits].snapshot().table("a").to_arrow()
            assert table.num_rows == commits

        longs, shorts = in_turns(lambda _: scan(3000), lambda _: scan(30), 50)
        yield Claim(
            "scan of a table written by 3,000 one-row commits against 30 (medians)",
            middle(longs) / middle(shorts),
            3.0,
            detail=f"{middle(longs) * 1e3:.2f} ms against {middle(shorts) * 1e3:.2f} ms",
        )
        longs, shorts = in_turns(
            lambda n: commit_row(lakes[3000], ["a"], 10_000 + n),
            lambda n: commit_row(lakes[30], ["a"], 10_000 + n),
            96,
        )
        yield Claim(
            "commit to it (medians)",
            middle(longs) / middle(shorts),
            1.2,
            detail=f"{middle(longs) * 1e3:.2f} ms against {middle(shorts) * 1e3:.2f} ms; "
            f"means {statistics.mean(longs) / statistics.mean(shorts):.2f} times",
        )
        yield Claim(
            "bytes on disk per commit",
            bytes_per_commit[3000] / bytes_per_commit[30],
            1.5,
            detail=f"{bytes_per_commit[3000]:.0f} against {bytes_per_commit[30]:.0f}",
        )
        for lake in lakes.values():
            lake.close()


def upserts() -> Iterator[Claim]:
    with folder(steady=True) as path:
        lakes = {count: _filled(path / str(count), count) for count in (1_000_000, 10_000_000)}

        def upsert(count: int, number: int) -> None:
            step = count // 1000
            ids = pa.array(range(number, count, step), pa.int64()).slice(0, 900)
            new = pa.array(range(count + number * 100, count + number * 100 + 100), pa.int64())
            keys = pa.concat_arrays([ids, new])
            data = pa.table(
                {"id": keys, "v": [2.0] * len(keys), "s": ["y"] * len(keys)}, schema=SCHEMA
            )
            with lakes[count].transaction() as tx:
                tx.upsert("a", data)

        for count in lakes:
            upsert(count, 0)
        longs, shorts = in_turns(
            lambda n: upsert(10_000_000, n + 1), lambda n: upsert(1_000_000, n + 1), 15
        )
        yield Claim(
            "upsert of 1,000 rows into 10 million against 1 million (medians)",
            middle(longs) / middle(shorts),
            2.0,
            detail=f"{middle(longs) * 1e3:.0f} ms against {middle(shorts) * 1e3:.0f} ms",
        )
        for lake in lakes.values():
            lake.close()


def _filled(path: Path, count: int) -> tidelock.Lake:
    lake = tidelock.open(path, create=True, actor="bench")
    lake.create_table("a", DDL, key="id")
    with lake.transaction() as tx:
        for start in range(0, count, 1_000_000):
            ids = pa.array(range(start, min(start + 1_000_000, count)), pa.int64())
            size = len(ids)
            columns = {"id": ids, "v": pa.repeat(1.5, size), "s": pa.repeat("x", size)}
            tx.append("a", pa.table(columns, schema=SCHEMA))
    lake.optimize()
    return lake


CLAIMS = [one_row_commits, upserts]
