"""Spark streams: what a micro-batch costs over a transaction of the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tidelock
from bench.measure import Claim, folder, middle, seconds

DDL = "id BIGINT, k INT, s STRING"
BATCHES, WARM, TURNS = 10, 3, 3


def written_files(place: Path, rows: int) -> list[Path]:
    """Files of so many rows, one for each batch."""
    place.mkdir()
    files = []
    for number in range(BATCHES + WARM):
        ids = range(number * rows, (number + 1) * rows)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "k": pa.array([one % 1000 for one in ids], pa.int32()),
                "s": pa.array([f"name-{one % 5000}" for one in ids]),
            }
        )
        files.append(place / f"{number:03d}.parquet")
        pq.write_table(table, files[-1])
    return files


def batch_seconds(query: Any) -> tuple[list[float], list[float]]:
    """How long each batch of a query took: in the function that writes it, and in all, with what
    Spark itself does for any stream, which is to find files and to keep its checkpoint."""
    query.awaitTermination()
    told = [one["durationMs"] for one in query.recentProgress if one["numInputRows"]][WARM:]
    return [one["addBatch"] / 1000 for one in told], [
        one["triggerExecution"] / 1000 for one in told
    ]


def write_streams() -> Iterator[Claim]:
    with folder(steady=True) as path:
        lake = tidelock.open(path / "lake", create=True, actor="bench", master="local[2]")
        for rows in (1_000, 200_000):
            yield from compared(lake, path, rows)
        lake.close()


def compared(lake: tidelock.Lake, path: Path, rows: int) -> Iterator[Claim]:
    spark, place = lake.spark, path / f"in-{rows}"
    files = written_files(place, rows)
    streamed, by_hand, plain = f"streamed_{rows}", f"by_hand_{rows}", f"plain_{rows}"
    for table in (streamed, by_hand, plain):
        lake.create_table(table, DDL)

    def stream() -> Any:
        return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(place))

    def append(frame: Any, table: str) -> None:
        lake.run(lambda tx: tx.append(table, frame))

    sinks: list[float] = []
    wholes: list[float] = []
    bare: list[float] = []
    runs: list[float] = []
    for turn in range(TURNS):
        ours = lake.write_stream(
            stream(),
            table=streamed,
            checkpoint=path / f"ours-{rows}-{turn}",
            trigger="available_now",
        )
        in_function, whole = batch_seconds(ours)
        sinks += in_function
        wholes += whole
        theirs = (
            stream()
            .writeStream.foreachBatch(lambda frame, batch: append(frame, by_hand))
            .option("checkpointLocation", str(path / f"by-hand-{rows}-{turn}"))
            .trigger(availableNow=True)
            .start()
        )
        bare += batch_seconds(theirs)[1]
        for number, file in enumerate(files):
            frame = spark.read.schema(DDL).parquet(str(file))
            spent = seconds(lambda frame=frame: append(frame, plain))
            runs += [spent] if number >= WARM else []
    yield Claim(
        f"write_stream's part of a micro-batch of {rows:,} rows against lake.run of the same rows "
        "(medians)",
        middle(sinks) / middle(runs),
        1.5,
        detail=f"{middle(sinks) * 1000:.0f} ms against {middle(runs) * 1000:.0f} ms",
    )
    yield Claim(
        f"a micro-batch of {rows:,} rows in all against foreachBatch with lake.run, which is not "
        "exactly once (medians)",
        middle(wholes) / middle(bare),
        1.5,
        detail=f"{middle(wholes) * 1000:.0f} ms against {middle(bare) * 1000:.0f} ms",
    )


CLAIMS = [write_streams]
