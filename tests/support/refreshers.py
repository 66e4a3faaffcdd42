"""A diamond with a chain at its end, and processes that change it, refresh it, and die doing so.

    a  ->  b, c  ->  d  ->  e  ->  f            b, c and d are one group; e and f follow

Every query has a twin in Python, by which every version is checked without an engine.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter

from tests.support.histories import Compute, Rows

import tidelock
from tidelock import Lake, Transaction
from tidelock.store.objects.failpoints import armed

IDS = 40
# Short, so that what a dead process left is settled while others work.
LEASE_SECONDS = 2.0


def doubled(a: Rows) -> Rows:
    return [(i, x * 2) for i, x in a]


def counted(a: Rows) -> Rows:
    return list(Counter(x for _, x in a).items())


def matched(b: Rows, c: Rows) -> Rows:
    often = {x: n for x, n in c if n > 1}
    return [(i, y, often.get(y // 2)) for i, y in b]


def summed(d: Rows) -> Rows:
    found: dict[int | None, int] = {}
    for _, y, n in d:
        found[n] = found.get(n, 0) + y
    return list(found.items())


def whole(e: Rows) -> Rows:
    return [(len(e), sum(y for _, y in e) if e else None)]


STREAMS: dict[str, tuple[str, Compute]] = {
    "b": ("SELECT id, x * 2 AS y FROM a", doubled),
    "c": ("SELECT x, COUNT(*) AS n FROM a GROUP BY x", counted),
    "d": ("SELECT b.id, b.y, c.n FROM b LEFT JOIN c ON b.y = c.x * 2 AND c.n > 1", matched),
    "e": ("SELECT n, SUM(y) AS y FROM d GROUP BY n", summed),
    "f": ("SELECT COUNT(*) AS n, SUM(y) AS y FROM e", whole),
}
TWINS = {name: twin for name, (_, twin) in STREAMS.items()}


def make(uri: str) -> None:
    with tidelock.open(uri, create=True, engine="sail") as lake:
        lake.create_table("a", "id INT NOT NULL, x BIGINT NOT NULL", key="id")
        for name, (query, _) in STREAMS.items():
            lake.create_stream_table(name, query, refresh_mode="incremental")
        change(lake, random.Random(1))
        lake.refresh()
        change(lake, random.Random(2))


def change(lake: Lake, chance: random.Random) -> None:
    ids = chance.sample(range(IDS), chance.randint(1, 6))
    rows = [{"id": one, "x": chance.randrange(6)} for one in ids]
    gone = chance.randrange(IDS)

    def write(tx: Transaction) -> None:
        tx.upsert("a", rows)
        tx.delete("a", where=f"id = {gone}")

    lake.run(write, message="change", retries=100)


def commit_on(uri: str, seed: int) -> None:
    """Commit changes until killed."""
    chance = random.Random(seed)
    lake = tidelock.open(uri, actor="writer")
    while True:
        change(lake, chance)
        time.sleep(chance.uniform(0.02, 0.08))


def refresh(uri: str, full: bool) -> None:
    with tidelock.open(uri, engine="sail") as lake:
        refresh_with(lake, full)


def refresh_with(lake: Lake, full: bool = False) -> None:
    """Refresh everything, group after table; a failure of one is a failure of this."""
    report = lake.refresh(list(STREAMS), full=full, parallel=False)
    failed = [
        attempt for attempt in report if attempt.action not in ("full", "incremental", "none")
    ]
    assert not failed, failed


def recover_and_die(uri: str, seed: int, step: tuple[str, int], full: bool, journal: str) -> None:
    """Take up what the last one left; then change something, refresh again, and die at a step."""
    lake = tidelock.open(uri, engine="sail", actor=f"refresher {seed}")
    refresh_with(lake)
    note(journal, lake)
    change(lake, random.Random(seed))
    with armed(step[0], f"kill@{step[1]}"):
        refresh_with(lake, full)


def refresh_on(uri: str, seed: int, journal: str) -> None:
    """Refresh until killed."""
    chance = random.Random(seed)
    lake = tidelock.open(uri, engine="sail", actor=f"refresher {seed}")
    while True:
        refresh_with(lake, full=chance.random() < 0.2)
        note(journal, lake)


def note(journal: str, lake: Lake) -> None:
    """What is told here was published: whatever dies later, it is not lost."""
    told = " ".join(f"{one.name}={one.epoch}" for one in lake.stream_tables())
    log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, f"{lake.snapshot().version} {told}\n".encode())
    os.close(log)
