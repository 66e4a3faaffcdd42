"""Loads, refreshes and deliveries beside schema changes, under kills: nothing is lost or doubled,
every version is readable under the schema that it had, and everybody follows to the end.

`TIDELOCK_SEED` replays who is killed when; `TIDELOCK_FAULT_SECONDS` makes it longer.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support import altering
from tests.support.lakes import age, check_log, end, fault_seconds, seed_of, start
from tests.support.sinks.destinations import age_posts, rows_at

import tidelock
from tidelock import Lake

LEASE_SECONDS = 1.0


class Storm:
    """Who is at work, and who is begun in the place of the dead."""

    def __init__(self, uri: str, folder: Path, chance: random.Random) -> None:
        self.uri, self.folder, self.chance = uri, folder, chance
        self.journals: list[Path] = []
        self.workers: list[Any] = [
            self.loader(),
            self.loader(),
            self.begin(altering.alter_on),
            self.begin(altering.alter_on),
            self.begin(altering.refresh_on),
        ]

    def loader(self) -> Any:
        number = len(self.journals)
        self.journals.append(self.folder / f"journal {number}")
        return self.begin(altering.load_on, number, str(self.journals[-1]))

    def begin(self, function: Any, *arguments: Any) -> Any:
        given = arguments or (self.chance.randrange(1_000_000),)
        return start(function, self.uri, *given, lease_seconds=LEASE_SECONDS)

    def kill_somebody(self) -> None:
        victim = self.chance.randrange(len(self.workers))
        assert self.workers[victim].is_alive(), f"worker {victim} failed"
        end(self.workers[victim])
        if victim < 2:
            self.workers[victim] = self.loader()
        else:
            function = altering.alter_on if victim < 4 else altering.refresh_on
            self.workers[victim] = self.begin(function)

    def acknowledged(self) -> set[int]:
        return {int(n) for one in self.journals if one.exists() for n in one.read_text().split()}


def check_history(lake: Lake) -> None:
    for commit in check_log(lake):
        table = lake.snapshot(version=commit.version).tables()
        if any(one.name == "o" for one in table):
            shown = lake.snapshot(version=commit.version).table("o").to_arrow()
            declared = lake.schema("o", version=commit.version).schema
            assert shown.schema.equals(declared.arrow), f"version {commit.version}"


def check_rows(lake: Lake, acknowledged: set[int]) -> None:
    rows = lake.table("o").to_arrow().to_pylist()
    counts = Counter(row["id"] for row in rows)
    assert not acknowledged - counts.keys(), "rows were lost"
    assert set(counts.values()) <= {1}, "rows came twice"
    name = altering.value_of(lake.table("o").schema.names)
    for row in rows:
        # Rows of files name no value.
        assert row[name] == (None if row["id"] % 2 else row["id"] * 3), row


def check_followers(lake: Lake) -> None:
    altering.refresh_with(lake)
    name = altering.value_of(lake.table("o").schema.names)
    values = lake.table("o").to_arrow([name]).column(0).to_pylist()
    (sums,) = lake.table("sums").to_arrow().to_pylist()
    assert (sums["n"], sums["total"] or 0) == (len(values), sum(filter(None, values)))
    assert sorted(lake.table("same").to_arrow(["id"]).column(0).to_pylist()) == sorted(
        lake.table("o").to_arrow(["id"]).column(0).to_pylist()
    )
    assert lake.deliver("w").action in ("delivered", "idle")
    sent = rows_at(lake, "w")
    assert Counter(row["id"] for row in sent) == Counter(
        lake.table("o").to_arrow(["id"]).column(0).to_pylist()
    )
    for row in sent:
        told = [row[one] for one in altering.NAMES if one in row]
        assert told == [None if row["id"] % 2 else row["id"] * 3], row


@pytest.mark.timeout(7200)
def test_everybody_follows_a_schema_that_changes_under_them(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    altering.make(uri, str(tmp_path))
    with seed_of() as seed:
        storm = Storm(uri, tmp_path, random.Random(seed))
        deadline = time.monotonic() + fault_seconds(12)
        try:
            while time.monotonic() < deadline:
                time.sleep(storm.chance.uniform(0.5, 2.5))
                storm.kill_somebody()
        finally:
            end(*storm.workers)
        age(uri)
        age_posts(uri)
        with tidelock.open(uri, engine="sail") as lake:
            assert not lake.intents()
            check_rows(lake, storm.acknowledged())
            check_history(lake)
            check_followers(lake)
            assert lake.verify().ok
            done = Counter(commit.message for commit in lake.log(limit=None))
            assert done["alter table o"] > 3, done
        assert storm.acknowledged()
