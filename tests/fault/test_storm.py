"""Storms: processes that move money are killed at random, while others collect and optimize.

`TIDELOCK_SEED` replays who is killed when; `TIDELOCK_FAULT_SECONDS` makes it longer.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support import transfers
from tests.support.lakes import age, check_log, end, fault_seconds, seed_of, start
from tests.support.s3_server import S3Server, s3_bucket, s3_server  # noqa: F401

import tidelock

LEASE_SECONDS = 1.0


class Storm:
    def __init__(
        self,
        uri: str,
        options: Mapping[str, str] | None,
        folder: Path,
        *,
        workers: int,
        seconds: float,
        seed: int,
    ) -> None:
        self.uri, self.options, self.folder = uri, options, folder
        self.seconds = seconds
        self.chance = random.Random(seed)
        self.number = 0
        self.workers = [self.start_worker(None) for _ in range(workers)]
        self.keeper = self.start_keeper()
        self.snapshots = 0
        self.kills = 0

    def journal(self, number: int) -> Path:
        return self.folder / f"journal {number}"

    def acknowledged(self) -> dict[str, int]:
        return transfers.acknowledged(list(self.folder.glob("journal *")))

    def start_worker(self, repeat: str | None) -> tuple[int, object]:
        self.number += 1
        arguments = (self.uri, self.options, self.number, str(self.journal(self.number)), repeat)
        return self.number, start(transfers.work, *arguments, lease_seconds=LEASE_SECONDS)

    def start_keeper(self) -> object:
        self.number += 1
        return start(
            transfers.keep, self.uri, self.options, self.number, lease_seconds=LEASE_SECONDS
        )

    def kill_somebody(self) -> None:
        self.kills += 1
        victim = self.chance.randrange(len(self.workers) + 1)
        if victim == len(self.workers):
            assert self.keeper.is_alive(), "the keeper failed"
            end(self.keeper)
            self.keeper = self.start_keeper()
            return
        number, process = self.workers[victim]
        assert process.is_alive(), f"worker {number} failed"
        end(process)
        repeat = transfers.unanswered(self.journal(number)) if self.chance.random() < 0.5 else None
        self.workers[victim] = self.start_worker(repeat)

    def run(self) -> None:
        deadline = time.monotonic() + self.seconds
        next_kill = time.monotonic() + 0.5
        version = 0
        try:
            with tidelock.open(
                self.uri, storage_options=self.options, lease_seconds=LEASE_SECONDS
            ) as lake:
                while time.monotonic() < deadline or not self.acknowledged():
                    snapshot = lake.snapshot()
                    assert snapshot.version >= version, "a snapshot went back in time"
                    version = snapshot.version
                    transfers.check(snapshot)
                    self.snapshots += 1
                    if time.monotonic() > next_kill:
                        self.kill_somebody()
                        next_kill = time.monotonic() + self.chance.uniform(0.05, 0.8)
            for number, process in self.workers:
                assert process.is_alive(), f"worker {number} failed"
        finally:
            end(self.keeper, *(process for _, process in self.workers))

    def check_end(self) -> None:
        time.sleep(LEASE_SECONDS + 1.5)  # S3 dates objects by whole seconds
        with tidelock.open(self.uri, storage_options=self.options) as lake:
            ledger = set(transfers.check(lake.snapshot())["operation"].to_pylist())
            commits = {c.operation_id: c for c in check_log(lake) if c.kind == "data" and c.message}
            done = self.acknowledged()
            assert {o: commits[o].version for o in done} == done
            assert set(commits) == ledger
            assert not lake.intents()
            rows = [row.operation_id for row in lake.recoveries()]
            assert len(rows) == len(set(rows))
            published = {row.operation_id for row in lake.recoveries() if row.version is not None}
            assert published <= ledger
            assert not lake.collect_garbage(older_than=0).errors
            assert set(transfers.check(lake.snapshot())["operation"].to_pylist()) == ledger
            sys.stderr.write(
                f"\n{len(commits)} transfers, {len(done)} acknowledged, {self.kills} kills, "
                f"{self.snapshots} snapshots, {len(rows)} recoveries\n"
            )


@pytest.mark.timeout(7200)
def test_a_storm_on_files_loses_and_invents_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    transfers.make(uri)
    with seed_of() as seed:
        storm = Storm(uri, None, tmp_path, workers=3, seconds=fault_seconds(7), seed=seed)
        storm.run()
        age(uri)
        storm.check_end()


@pytest.mark.timeout(7200)
def test_a_storm_on_s3_loses_and_invents_nothing(
    tmp_path: Path,
    s3_server: S3Server,  # noqa: F811
    s3_bucket: str,  # noqa: F811
) -> None:
    uri, options = f"s3://{s3_bucket}/lake", s3_server.storage_options
    transfers.make(uri, options)
    with seed_of() as seed:
        storm = Storm(uri, options, tmp_path, workers=2, seconds=fault_seconds(5), seed=seed)
        storm.run()
        storm.check_end()
