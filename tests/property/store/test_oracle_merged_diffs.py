"""`lake.diff` through merges: what it tells leads from one state to the other, row by row.

Branches are written, altered, compacted and merged into each other; then any two states are
compared. Laws, for tables with a key and without:

    rows(after) = rows(before) - rows that went or were otherwise + rows that came or are otherwise
    a row that both have, by a tag that nobody changes, is never told as one that went and one
    that came, whatever ids merges gave it

The seed is printed when a run fails; `TIDELOCK_SEED` replays it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.lakes import fault_seconds, seed_of

import tidelock
from tidelock import Lake, errors

TABLES = ("keyed", "plain")
BRANCHES = ("main", "a", "b")
STEPS = 24
COMPARED = 10
RUNS_MIN = 4
Rows = Counter[tuple[Any, ...]]


class Merges:
    """A lake of a few branches that are merged again and again."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.chance = random.Random(seed)
        self.tags = 0
        self.merged = 0
        self.told = 0
        self.names = 0
        with lake.transaction() as tx:
            tx.create_table("keyed", "tag BIGINT NOT NULL, v INT", key="tag")
            tx.create_table("plain", "tag BIGINT NOT NULL, v INT")
        self.append("main")
        for branch in BRANCHES[1:]:
            lake.create_branch(branch)

    def step(self) -> None:
        steps: dict[Callable[[str], None], int] = {
            self.append: 4,
            self.update: 4,
            self.delete: 2,
            self.merge: 4,
            self.compact: 1,
            self.alter: 1,
        }
        self.chance.choices(list(steps), list(steps.values()))[0](self.chance.choice(BRANCHES))

    def append(self, branch: str) -> None:
        with self.lake.transaction(branch=branch) as tx:
            for table in TABLES:
                fresh = range(self.tags, self.tags + self.chance.randint(1, 4))
                self.tags = fresh.stop
                tx.append(table, [{"tag": tag, "v": 0} for tag in fresh])

    def _some(self) -> str:
        tags = self.chance.sample(range(self.tags), min(3, self.tags))
        return f"tag IN ({', '.join(map(str, tags))})"

    def update(self, branch: str) -> None:
        with self.lake.transaction(branch=branch) as tx:
            for table in TABLES:
                tx.update(table, {"v": str(self.chance.randrange(4))}, where=self._some())

    def delete(self, branch: str) -> None:
        with self.lake.transaction(branch=branch) as tx:
            tx.delete(self.chance.choice(TABLES), where=self._some())

    def merge(self, branch: str) -> None:
        source = self.chance.choice([one for one in BRANCHES if one != branch])
        side = self.chance.choice(["source", "target"])
        try:
            done = self.lake.merge(source, branch, on_conflict=side)  # type: ignore[arg-type]
        except errors.MergeConflict:
            return
        self.merged += done.outcome == "merged"

    def compact(self, branch: str) -> None:
        self.lake.optimize(branch=branch)

    def alter(self, branch: str) -> None:
        self.names += 1
        self.lake.alter_table(
            self.chance.choice(TABLES), f"ADD COLUMN n{self.names} INT", branch=branch
        )

    # Comparing

    def compare(self) -> None:
        before, after = (self._point() for _ in range(2))
        diff = self.lake.diff(before, after, examples=0)
        for name in TABLES:
            found = next((one for one in diff.tables if one.name == name), None)
            rows = [] if found is None else found.rows().read_all().to_pylist()
            came = Counter(_row(row["after"]) for row in rows if row["after"] is not None)
            went = Counter(_row(row["before"]) for row in rows if row["before"] is not None)
            old, new = (self._rows(point, name) for point in (before, after))
            assert new == old - went + came, (name, before, after)
            assert old >= went, (name, before, after)
            tags = [
                {row[side]["tag"] for row in rows if row["what"] == what}
                for side, what in (("after", "inserted"), ("before", "deleted"))
            ]
            assert not tags[0] & tags[1], (name, before, after)
            self.told += len(rows)

    def _point(self) -> str:
        branch = self.chance.choice(BRANCHES)
        version = self.chance.randint(2, self.lake.snapshot(branch).version)
        commit = self.lake.snapshot(branch, version=version).commit
        assert commit is not None
        return commit

    def _rows(self, point: str, name: str) -> Rows:
        found = self.lake.snapshot(commit=point).table(name).to_arrow(columns=["tag", "v"])
        return Counter(_row(row) for row in found.to_pylist())


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["tag"], row["v"]


def run(seed: int) -> tuple[int, int]:
    with tidelock.open(f"memory://merged-diffs-{seed}", create=True) as lake:
        merges = Merges(lake, seed)
        for _ in range(STEPS):
            merges.step()
        for _ in range(COMPARED):
            merges.compare()
        return merges.merged, merges.told


def test_a_diff_leads_from_one_state_to_the_other_whatever_was_merged() -> None:
    deadline = time.monotonic() + fault_seconds(4)
    seen, runs = [0, 0], 0
    while runs < RUNS_MIN or time.monotonic() < deadline:
        runs += 1
        with seed_of() as seed:
            seen = [one + other for one, other in zip(seen, run(seed), strict=True)]
    assert all(seen), "nothing was merged, or nothing differed"
