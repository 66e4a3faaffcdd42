"""Spark streams for tests: a folder of JSON files, read one file a batch, written into a lake."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tidelock

_ORDER = itertools.count()
SCHEMA = "id BIGINT, v BIGINT"
DDL = "id BIGINT NOT NULL, v BIGINT"


def put(folder: Path, name: str, rows: Iterable[tuple[int, int]]) -> None:
    """Put a file where streams look, whole."""
    place = folder / "in"
    place.mkdir(exist_ok=True)
    hidden = place / f".{name}"
    hidden.write_text("".join(json.dumps({"id": a, "v": b}) + "\n" for a, b in rows))
    # Spark takes files by their time, which two in one moment would share.
    moment = time.time() - 3600 + next(_ORDER)
    os.utime(hidden, (moment, moment))
    hidden.rename(place / f"{name}.json")


def frame(spark: Any, folder: Path, **options: Any) -> Any:
    given = {"maxFilesPerTrigger": 1, "latestFirst": False, **options}
    return spark.readStream.schema(SCHEMA).options(**given).json(str(folder / "in"))


def drain(lake: tidelock.Lake, spark: Any, folder: Path, **options: Any) -> Any:
    """Write what there is by now, and wait for its end; the query."""
    per_trigger = options.pop("files", 1)
    given = {"table": "t", "checkpoint": folder / "checkpoint", "trigger": "available_now"}
    frame_ = frame(spark, folder, maxFilesPerTrigger=per_trigger)
    query = lake.write_stream(frame_, **{**given, **options})
    assert query.awaitTermination(120)
    return query


def drain_in_process(folder: str) -> None:
    """The same as a process of its own, with a Spark of its own."""
    place = Path(folder)
    conf = {"spark.sql.shuffle.partitions": "1"}
    with tidelock.open(place / "lake", master="local[1]", memory="512m", conf=conf) as lake:
        drain(lake, lake.spark, place)
