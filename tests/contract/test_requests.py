"""What each operation asks of a remote store: how many requests, and how many one after the other.

Counted by a server that takes a while for every answer, over a lake of a few commits and over the
same with a thousand more: nothing that is asked may grow with the history, but the log itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.counted_s3 import Asked, CountedServer
from tests.support.lakes import numbers, settle_chores

import tidelock
from tidelock import Lake
from tidelock.store.log import checkpoint_writer, log, operation_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW, MANY = 10, 1000
DELAYS_SECONDS = (0.03, 0.03, 0.06, 0.06, 0.12)
TABLES = 50
COLLECTED = 200
FOLDED_COMMITS = 8
"""Of so many commits of a row each to one table, one fills a tier and leaves a fold to be done."""
DDL = "id BIGINT NOT NULL, v BIGINT"
VIEWS = {
    "counts": "SELECT v, COUNT(*) AS n FROM t GROUP BY v",
    "larger": "SELECT id, v + 1 AS w FROM t WHERE v > 3",
}


@dataclass(frozen=True)
class Bound:
    """The most that an operation may ask, in all and one after the other."""

    requests: int
    chain: int

    def holds(self, asked: Asked) -> bool:
        return asked.chain <= self.chain and len(asked) <= self.requests


BOUNDS = {
    "open": Bound(2, 2),
    "fresh snapshot": Bound(4, 3),
    "newest snapshot": Bound(1, 1),
    "old snapshot": Bound(6, 4),
    "commit to one table": Bound(8, 6),
    "commit to two tables": Bound(13, 6),
    "commit to many tables": Bound(5 * TABLES + 3, 6),
    "commit that leaves a fold": Bound(16, 6),
    "creation of many tables": Bound(4 * TABLES + 3, 6),
    "keyed append": Bound(16, 6),
    "upsert": Bound(20, 6),
    "claimed commit": Bound(12, 6),
    "idle tick": Bound(2, 2),
    "sink tick": Bound(28, 12),
    "refresh of nothing": Bound(3, 2),
    "refresh of a delta": Bound(36, 11),
    "unknown operation": Bound(4, 3),
    "last commits": Bound(30, 4),
    "whole log": Bound(200, 10),
    "garbage collection": Bound(6 * COLLECTED, 60),
}


def build(path: Path, commits: int, spark: SparkSession) -> None:
    """A lake with a history, two stream tables and a sink, all up to date."""
    with tidelock.open(path, create=True, actor="ada", spark=spark) as lake:
        with lake.transaction("create") as tx:
            tx.create_table("t", DDL)
            tx.create_table("k", DDL, key="id")
        add(lake, -1)
        for name, query in VIEWS.items():
            lake.create_stream_table(name, query, refresh_mode="incremental")
        lake.create_sink("archive", table="t", kind="jsonl", to=str(path.parent / "archive"))
        for number in range(commits):
            if number % 10 == 0:
                add(lake, number)
            else:
                with lake.transaction(properties={"number": number}):
                    pass
        # After the history, whose every commit would tell of them.
        with lake.transaction("many tables") as tx:
            for number in range(TABLES):
                tx.create_table(f"many{number}", DDL)
                tx.append(f"many{number}", numbers((1, 1)))
            for number in range(COLLECTED):
                tx.create_table(f"garbage{number}", DDL)
                tx.append(f"garbage{number}", numbers((1, 1)))
        with lake.transaction("garbage") as tx:
            for number in range(COLLECTED):
                tx.overwrite(f"garbage{number}", numbers((2, 2)))
        lake.refresh()
        lake.deliver("archive")


def add(lake: Lake, number: int) -> None:
    with lake.transaction(f"row {number}") as tx:
        tx.append("t", numbers((number, number % 5)))
        tx.append("k", numbers((number, number)))


@dataclass
class Remote:
    """A lake on the counting server, through a handle that has been at work for a while."""

    server: CountedServer
    uri: str
    lake: Lake
    number: int = 100_000

    def open(self) -> Lake:
        return tidelock.open(self.uri, actor="ada", storage_options=self.server.storage_options)

    def new(self) -> int:
        self.number += 1
        return self.number

    def count(self, name: str, work: Callable[[], object], before: Callable[[], object]) -> Asked:
        """What some work asks. Chains are told by when requests came: on a busy machine those that
        were meant to come together come apart, so that it is looked at again with longer delays."""
        found: list[Asked] = []
        for delay_seconds in DELAYS_SECONDS:
            before()
            settle_chores(self.lake)
            self.server.delay(delay_seconds)
            with self.server.counted() as asked:
                work()
            self.server.delay(0)
            found.append(asked.about(self.uri.removeprefix("s3:/")))
            if BOUNDS[name].holds(found[-1]):
                break
        settle_chores(self.lake)
        return min(found, key=lambda one: (one.chain, len(one)))


@pytest.fixture(scope="module")
def remotes(
    counted_s3: CountedServer, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Iterator[dict[int, Remote]]:
    found = {}
    for commits in (FEW, MANY):
        path = tmp_path_factory.mktemp(f"history-{commits}") / "lake"
        with pytest.MonkeyPatch.context() as patch:
            # What takes seconds here takes minutes where it is written from afar.
            patch.setattr(checkpoint_writer, "REMOVE_AFTER_SECONDS", 0.0)
            build(path, commits, spark)
        bucket = f"counted-{os.getpid()}-{commits}"
        counted_s3.create_bucket(bucket)
        counted_s3.load(path, bucket, "lake")
        uri = f"s3://{bucket}/lake"
        options = counted_s3.storage_options
        lake = tidelock.open(uri, actor="ada", spark=spark, storage_options=options)
        remote = found[commits] = Remote(counted_s3, uri, lake)
        # Whatever is read once is read before anything is counted.
        for work in (commit_many, upsert_one, claim_one, deliver_one, refresh_one):
            work(remote)
    with pytest.MonkeyPatch.context() as patch:
        for module in (log, operation_ids):
            # On a busy machine a commit takes so long that the log is looked at once more.
            patch.setattr(module, "LOOK_SECONDS", 60.0)
        yield found
    counted_s3.delay(0)
    for remote in found.values():
        remote.lake.close()


def commit_one(remote: Remote) -> None:
    with remote.lake.transaction() as tx:
        tx.append("t", numbers((remote.new(), 1)))


def commit_many(remote: Remote, count: int = TABLES) -> None:
    with remote.lake.transaction() as tx:
        for number in range(count):
            tx.append(f"many{number}", numbers((remote.new(), 1)))


def create_many(remote: Remote) -> None:
    with remote.lake.transaction() as tx:
        for _ in range(TABLES):
            tx.create_table(f"new{remote.new()}", DDL)


def append_keyed(remote: Remote) -> None:
    with remote.lake.transaction() as tx:
        tx.append("k", numbers((remote.new(), 1)))


def upsert_one(remote: Remote) -> None:
    with remote.lake.transaction() as tx:
        tx.upsert("k", numbers((3, remote.new())))


def claim_one(remote: Remote) -> None:
    with remote.lake.transaction(operation_id=f"job {remote.new()}") as tx:
        tx.append("t", numbers((1, 1)))


def deliver_one(remote: Remote) -> None:
    assert remote.lake.deliver("archive").action == "delivered"


def refresh_one(remote: Remote) -> None:
    assert [one.action for one in remote.lake.refresh()] == ["incremental"] * 2


def measure(remote: Remote) -> dict[str, Asked]:
    lake = remote.lake
    kept: list[Lake] = []
    found: dict[str, Asked] = {}

    def opened() -> Lake:
        kept.append(remote.open())
        return kept[-1]

    def count(
        name: str, work: Callable[[], object], before: Callable[[], object] = lambda: None
    ) -> None:
        found[name] = remote.count(name, work, before)

    count("open", opened)
    count("newest snapshot", lake.snapshot)
    count("commit to one table", lambda: commit_one(remote))
    count("commit to two tables", lambda: commit_many(remote, 2))
    count("commit to many tables", lambda: commit_many(remote))
    name = "commit that leaves a fold"
    asked = [
        remote.count(name, lambda: commit_one(remote), lambda: None) for _ in range(FOLDED_COMMITS)
    ]
    assert any(commit.message.startswith("fold") for commit in lake.log(limit=2 * FOLDED_COMMITS))
    found[name] = max(asked, key=lambda one: (one.chain, len(one)))
    count("creation of many tables", lambda: create_many(remote))
    count("keyed append", lambda: append_keyed(remote))
    count("upsert", lambda: upsert_one(remote))
    count("claimed commit", lambda: claim_one(remote))
    count("sink tick", lambda: deliver_one(remote), lambda: commit_one(remote))
    count("idle tick", lambda: lake.deliver("archive"))
    count("refresh of a delta", lambda: refresh_one(remote), lambda: commit_one(remote))
    count("refresh of nothing", lake.refresh)
    count("unknown operation", lambda: lake.find_operation("nobody knows it"))
    count("old snapshot", lambda: lake.snapshot(version=5))
    count("fresh snapshot", lambda: kept[-1].snapshot(), opened)
    count("last commits", lambda: kept[-1].log(limit=20), opened)
    count("whole log", lambda: lake.log(limit=None))
    count("garbage collection", lambda: lake.collect_garbage(older_than=0))
    for one in kept:
        one.close()
    return found


def test_no_operation_asks_more_than_its_bound_nor_more_with_a_long_history(
    remotes: dict[int, Remote],
) -> None:
    few, many = (measure(remotes[commits]) for commits in (FEW, MANY))
    print("requests and chain of each operation after", FEW, "and", MANY, "commits")  # noqa: T201
    for name in BOUNDS:
        figures = [(len(one), one.chain) for one in (few[name], many[name])]
        print(f"{name:26}", *(f"{asked:5} {chain:3}  " for asked, chain in figures))  # noqa: T201
    wrong = [
        f"{name}: {bound}\n{asked.told()}"
        for name, bound in BOUNDS.items()
        for asked in (few[name], many[name])
        if not bound.holds(asked)
    ]
    assert not wrong, "\n\n".join(wrong)
