"""Partitions that are behind while rows move between partitions: each row arrives once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.lakes import fresh_seed
from tests.support.sinks.destinations import FussySink, refuse

import tidelock
from tidelock.run.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("o", "id BIGINT NOT NULL, g STRING", key="id")
        lake.create_sink(
            "p",
            table="o",
            kind="tests.support.sinks.destinations:open_fussy",
            to=str(tmp_path / "out"),
            partition_by="g",
        )
        yield lake


def add(lake: Lake, *rows: tuple[int, str]) -> None:
    lake.run(lambda tx: tx.append("o", [{"id": number, "g": group} for number, group in rows]))


def move(lake: Lake, number: int, group: str) -> None:
    lake.run(lambda tx: tx.update("o", {"g": f"'{group}'"}, where=f"id = {number}"))


def delivered(tmp_path: Path) -> list[tuple[str, int]]:
    return sorted((path, row["id"]) for path, row in FussySink(tmp_path / "out").rows())


def test_a_row_that_moves_while_its_partition_is_behind_is_delivered_where_it_was(
    lake: Lake, tmp_path: Path
) -> None:
    add(lake, (1, "EU"), (2, "US"))
    refuse(tmp_path / "out", "g=EU")
    lake.deliver("p")
    add(lake, (3, "EU"), (4, "US"))
    lake.deliver("p")
    move(lake, 3, "US")
    move(lake, 4, "EU")
    refuse(tmp_path / "out")
    assert lake.deliver("p").action == "delivered"
    assert delivered(tmp_path) == [("g=EU", 1), ("g=EU", 3), ("g=US", 2), ("g=US", 4)]
    assert lake.sink_status("p").lagging == ()


def test_what_was_skipped_survives_failures_restarts_and_compaction(
    lake: Lake, tmp_path: Path
) -> None:
    refuse(tmp_path / "out", "g=EU")
    add(lake, (0, "EU"), (1, "US"))
    lake.deliver("p")
    for number in range(2, 12, 2):
        add(lake, (number, "EU"), (number + 1, "US"))
        lake.deliver("p")
    for number in range(2, 12):
        move(lake, number, "US" if number % 2 == 0 else "EU")
    lake.run(lambda tx: tx.delete("o", "id = 4"))
    lake.optimize()
    lake.collect_garbage(older_than=0)
    refuse(tmp_path / "out", "g=EU@2")
    assert lake.deliver("p").action == "failed"
    with tidelock.open(tmp_path / "lake") as again:
        refuse(tmp_path / "out", "g=EU@1")
        again.deliver("p")
        refuse(tmp_path / "out")
        again.deliver("p")
    even = [("g=EU", number) for number in (0, 2, 6, 8, 10)]
    assert delivered(tmp_path) == even + [("g=US", number) for number in range(1, 12, 2)]
    left = [key for key in Path(tmp_path / "lake").rglob("*.arrow") if "skipped" in key.parts]
    assert left == []


def test_rows_that_move_at_random_arrive_once(lake: Lake, tmp_path: Path) -> None:
    seed = fresh_seed()
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    groups = ["a", "b", "c"]
    count = 0
    for _ in range(25):
        for _ in range(chance.randint(0, 4)):
            add(lake, (count, chance.choice(groups)))
            count += 1
        if count and chance.random() < 0.5:
            move(lake, chance.randrange(count), chance.choice(groups))
        stopped = [f"g={group}" for group in groups if chance.random() < 0.3]
        refuse(tmp_path / "out", *stopped)
        lake.deliver("p")
    refuse(tmp_path / "out")
    lake.deliver("p")
    assert lake.deliver("p").action == "idle"
    arrived = Counter(number for _, number in delivered(tmp_path))
    assert arrived == Counter(range(count))
