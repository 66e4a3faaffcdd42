"""Sinks against an oracle: random histories, random ticks, faults at random steps.

    changes    applied in order to nothing, what was delivered is the table at the watermark, and
               every version's operations are those between the two states around it
    inserts    every row that a tick could see is there once, with a value that it had

The seed is printed when a run fails; `TIDELOCK_SEED` replays it.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import collect_all, seed_of
from tests.support.sinks.destinations import (
    Row,
    age_posts,
    check_manifest,
    files_at,
    rows_at,
    rows_in,
    rows_of_lake,
)

import tidelock
from tidelock import Lake, Transaction
from tidelock.deliver.delivery.plan import plan as sink_plan
from tidelock.errors import StoreUnavailable
from tidelock.store.lookup.by_sequence import find_stretches, read_rows
from tidelock.store.objects.failpoints import armed

DDL = "id BIGINT NOT NULL, g STRING, x BIGINT"
GROUPS = ["a", "b", None, "c/d"]
FEEDS = ("inserts", "changes")
ADDED = ("_op", "_version", "_sequence")
POINTS = [
    "before_intent",
    "after_intent",
    "mid_chunk",
    "after_chunk",
    "before_watermark",
    "after_watermark",
    "before_clear",
    "after_clear",
]
Table = dict[int, Row]


def rows_at_version(lake: Lake, version: int) -> Table:
    """The rows of a version by their sequence."""
    view = lake.snapshot(version=version).table("o")
    if not view.dataset.count_rows():
        return {}
    stretches = find_stretches(view.dataset)
    batches = read_rows(view.dataset, stretches, -1, stretches[-1].last, ["id", "g", "x"])
    return {row["_sequence"]: without(row) for batch in batches for row in batch.to_pylist()}


def without(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ADDED}


class History:
    """A table that changes at random, and what each of its versions was."""

    def __init__(self, uri: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lake = tidelock.open(uri, create=True)
        self.lake.create_table("o", DDL, key="id")
        self.versions: dict[int, Table] = {1: {}}

    def rows(self, count: int, known: bool = False) -> list[Row]:
        ids = self.chance.sample(range(60 if known else 10_000_000), count)
        return [
            {"id": one, "g": self.chance.choice(GROUPS), "x": self.chance.randrange(5)}
            for one in ids
        ]

    def step(self) -> None:
        operation = self.chance.choice(
            ["append", "append", "upsert", "update", "delete", "mix", "overwrite", "maintain"]
        )
        if operation == "maintain":
            self.lake.optimize()
        else:
            self.lake.run(getattr(self, operation))
        for version in range(max(self.versions) + 1, self.lake.snapshot().version + 1):
            self.versions[version] = rows_at_version(self.lake, version)

    def append(self, tx: Transaction) -> None:
        tx.append("o", self.rows(self.chance.randint(1, 25)))

    def upsert(self, tx: Transaction) -> None:
        tx.upsert("o", self.rows(self.chance.randint(1, 10), known=True))

    def update(self, tx: Transaction) -> None:
        tx.update("o", {"x": "x + 1", "g": f"'{self.chance.choice('abe')}'"}, where=self.some())

    def delete(self, tx: Transaction) -> None:
        tx.delete("o", where=self.some())

    def mix(self, tx: Transaction) -> None:
        for operation in self.chance.sample(
            [self.append, self.upsert, self.update, self.delete], 3
        ):
            operation(tx)

    def overwrite(self, tx: Transaction) -> None:
        tx.overwrite("o", self.rows(self.chance.randint(0, 8)))

    def some(self) -> str:
        if self.chance.random() < 0.5:
            return f"x = {self.chance.randrange(6)}"
        first = self.chance.randrange(10_000_000)
        return f"id < 20 OR (id >= {first} AND id < {first + 2_000_000})"


def tick(lake: Lake, name: str, chance: random.Random) -> None:
    """One tick; at times it fails at some step, as if its process had died there."""
    if chance.random() < 0.4:
        point, hit = chance.choice(POINTS), chance.randint(1, 3)
        with (
            armed(f"deliver.{point}", f"error@{hit}"),
            contextlib.suppress(StoreUnavailable),
        ):
            lake.deliver(name)
        age_posts(lake.uri)
    else:
        lake.deliver(name)


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize("run", range(3))
def test_changes_that_were_delivered_make_the_table_again(
    tmp_path: Path, run: int, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_plan, "CHUNKS_PER_PLAN", 3)
    monkeypatch.setattr(sink_plan, "WINDOW_ROWS", 20)
    with seed_of() as seed:
        history = History(tmp_path / "lake", seed + run)
        lake, chance = history.lake, history.chance
        for _ in range(chance.randint(0, 3)):
            history.step()
        lake.create_sink(
            "c",
            table="o",
            kind=chance.choice(["parquet", "jsonl"]),
            to=str(tmp_path / "out"),
            feed="changes",
            rows_per_file=chance.randint(1, 9),
            partition_by=["g"] if partitioned else None,
        )
        first = lake.snapshot().version
        for _ in range(25):
            history.step()
            if chance.random() < 0.4:
                tick(lake, "c", chance)
            if chance.random() < 0.1:
                collect_all(lake)
        lake.deliver("c")
        check_changes(history, first)
        if not partitioned:
            rows = rows_at(lake, "c")
            assert rows == sorted(rows, key=place_of)
        assert lake.deliver("c").action == "idle"
        lake.close()


def place_of(row: Row) -> tuple[int, int, bool]:
    return row["_version"], row["_sequence"], row["_op"] == "update_after"


def check_changes(history: History, first: int) -> None:
    by_version: defaultdict[int, list[Row]] = defaultdict(list)
    for row in rows_at(history.lake, "c"):
        by_version[row["_version"]].append(row)
    table: Table = {}
    for version in range(first, max(history.versions) + 1):
        before = {} if version == first else history.versions[version - 1]
        now = history.versions[version]
        check_operations(by_version[version], before, now)
        for row in sorted(by_version[version], key=place_of):
            apply(table, row)
        assert table == now, f"version {version}"
    assert not set(by_version) - set(range(first, max(history.versions) + 1))


def check_operations(rows: list[Row], before: Table, now: Table) -> None:
    counted = Counter(row["_op"] for row in rows)
    both = before.keys() & now.keys()
    assert counted["insert"] == len(now) - len(both)
    assert counted["delete"] == len(before) - len(both)
    assert counted["update_before"] == counted["update_after"]
    updated = [row["_sequence"] for row in rows if row["_op"] == "update_after"]
    assert len(set(updated)) == len(updated)
    # A row may be written again as it was.
    assert {one for one in both if before[one] != now[one]} <= set(updated) <= both


def apply(table: Table, row: Row) -> None:
    """A change is applied where it fits and nowhere else."""
    match row["_op"]:
        case "insert":
            assert row["_sequence"] not in table
            table[row["_sequence"]] = without(row)
        case "delete":
            assert table.pop(row["_sequence"]) == without(row)
        case "update_before":
            assert table[row["_sequence"]] == without(row)
        case "update_after":
            table[row["_sequence"]] = without(row)


def test_maintenance_delivers_nothing(tmp_path: Path) -> None:
    history = History(tmp_path / "lake", 5)
    lake = history.lake
    for feed in FEEDS:
        lake.create_sink(
            feed, table="o", kind="jsonl", to=str(tmp_path / feed), feed=feed, rows_per_file=10
        )
    for _ in range(6):
        lake.run(history.append)
    lake.run(history.delete)
    lake.deliver()
    before = {name: (files_at(lake, name), lake.sink_status(name).watermark) for name in FEEDS}
    version = lake.snapshot().version
    lake.optimize()
    assert lake.snapshot().version > version
    collect_all(lake)
    assert [(one.action, one.rows) for one in lake.deliver()] == [("idle", 0)] * 2
    after = {name: (files_at(lake, name), lake.sink_status(name).watermark) for name in FEEDS}
    assert after == before
    lake.close()


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize("run", range(3))
def test_inserts_that_were_delivered_are_each_row_once(
    tmp_path: Path, run: int, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_plan, "CHUNKS_PER_PLAN", 3)
    monkeypatch.setattr(sink_plan, "WINDOW_ROWS", 20)
    with seed_of() as seed:
        history = History(tmp_path / "lake", seed + 100 + run)
        lake, chance = history.lake, history.chance
        options: dict[str, Any] = {"partition_by": ["g"]} if partitioned else {}
        options["rows_per_file"] = chance.randint(1, 9)
        lake.create_sink("i", table="o", kind="parquet", to=str(tmp_path / "out"), **options)
        kept: dict[str, bytes] = {}
        for _ in range(25):
            history.step()
            if chance.random() < 0.4:
                tick(lake, "i", chance)
                for key, data in kept.items():
                    assert files_at(lake, "i")[key] == data, "a file was written otherwise"
                kept = files_at(lake, "i")
            if chance.random() < 0.1:
                collect_all(lake)
        history.lake.run(history.append)
        lake.deliver("i")
        history.versions[lake.snapshot().version] = rows_at_version(lake, lake.snapshot().version)
        sequences = []
        for one in check_manifest(lake, "i"):
            mine = [r["_sequence"] for r in rows_in(one.path, files_at(lake, "i")[one.path])]
            assert mine == sorted(mine)
            assert all(one.after < sequence <= one.until for sequence in mine)
            sequences += mine
        assert len(set(sequences)) == len(sequences)
        assert {row["_sequence"] for row in rows_of_lake(lake, "o")} <= set(sequences)
        for row in rows_at(lake, "i"):
            had = [table.get(row["_sequence"]) for table in history.versions.values()]
            assert without(row) in had, "a value that the row never had"
        lake.close()
