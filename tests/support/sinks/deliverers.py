"""What the tests of sinks do in processes of their own: deliver, ingest, and die doing so."""

from __future__ import annotations

import random
import time
from pathlib import Path

import tidelock
from tidelock import Lake, errors

DDL = "id BIGINT NOT NULL, g STRING, x BIGINT"
GROUPS = ["EU", "US", None, "", "a/b"]
ROWS_PER_FILE = 4
LEASE_SECONDS = 0.5


def make(uri: str, rows: int = 6) -> Lake:
    lake = tidelock.open(uri, create=True, actor="the founder")
    lake.create_table("o", DDL, key="id")
    add(lake, range(rows))
    return lake


def add(lake: Lake, ids: range, table: str = "o") -> None:
    rows = [{"id": one, "g": GROUPS[one % len(GROUPS)], "x": one * 3} for one in ids]
    lake.run(lambda tx: tx.append(table, rows), retries=100)


def deliver(uri: str, name: str) -> None:
    with tidelock.open(uri, actor="the deliverer") as lake:
        report = lake.deliver(name)
        assert report.action in ("delivered", "idle"), report


def deliver_once_free(uri: str, name: str) -> None:
    """Deliver; whoever was killed doing so keeps the sink for a moment."""
    with tidelock.open(uri, actor="the deliverer") as lake:
        deadline = time.monotonic() + 30
        while True:
            try:
                lake.deliver(name)
                return
            except errors.SinkBusy:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def deliver_on(uri: str, name: str) -> None:
    """Deliver until killed."""
    lake = tidelock.open(uri, actor=f"the deliverer to {name}")
    while True:
        try:
            report = lake.deliver(name)
            assert report.action in ("delivered", "idle"), report
        except errors.SinkBusy:
            time.sleep(0.05)
        time.sleep(0.01)


def deliver_or_be_refused(uri: str, name: str, answer: str) -> None:
    """Deliver, and write down what became of it."""
    with tidelock.open(uri, actor="the deliverer") as lake:
        try:
            told = lake.deliver(name).action
        except errors.SinkBusy as error:
            told = f"busy {error.evidence['sink']}"
        Path(answer).write_text(told)


def replay_or_be_refused(uri: str, name: str, answer: str) -> None:
    """Replay everything whatever it takes away, and write down what became of it."""
    with tidelock.open(uri, actor="the replayer") as lake:
        try:
            lake.replay(name, lose_rows=True)
            told = "replayed"
        except errors.SinkBusy as error:
            told = f"busy {error.evidence['sink']}"
        Path(answer).write_text(told)


def ingest_on(uri: str, number: int, seed: int) -> None:
    """Append rows of one's own until killed."""
    chance = random.Random(seed)
    lake = tidelock.open(uri, actor=f"writer {number}")
    # Whoever had this number before may have come far.
    begin = number * 1_000_000_000 + seed % 1000 * 1_000_000
    while True:
        count = chance.randint(1, 40)
        add(lake, range(begin, begin + count), "stream")
        begin += count
        time.sleep(chance.uniform(0, 0.1))
