"""A real SIGKILL of whoever takes files, at every step and at any time: each file exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.lakes import (
    check_log,
    collect_all,
    contents,
    copy_lake,
    end,
    fault_seconds,
    run,
    seed_of,
    start,
    wait_until,
)
from tests.support.sources import landings
from tests.support.sources.landings import LEASE_SECONDS, check, ingest, land, make

import tidelock

KILLED = -signal.SIGKILL
POINTS = {
    "ingest.after_fragment": 2,
    "ingest.after_file": 4,
    "ingest.before_publish": 2,
    "publish.before_put": 2,
    "publish.after_put": 2,
    "ingest.after_publish": 2,
    "ingest.after_acknowledge": 2,
}
SPILL_BYTES = 100


@pytest.mark.parametrize("point", POINTS)
def test_a_reader_killed_at_any_step_is_followed_by_one_that_goes_on(
    tmp_path: Path, point: str
) -> None:
    landing = tmp_path / "in"
    with make(str(tmp_path / "lake"), landing, files_per_commit=3, on_error="quarantine") as lake:
        land(landing, range(10))
        armed = f"{point}=kill@{POINTS[point]}"
        code = run(ingest, lake.uri, SPILL_BYTES, failpoints=armed, lease_seconds=LEASE_SECONDS)
        assert code == KILLED, f"{point} was not reached (exit code {code})"
        land(landing, range(10, 12))
        assert run(ingest, lake.uri, SPILL_BYTES, lease_seconds=LEASE_SECONDS) == 0
        check(lake, 12)
        before = contents(lake)
        collect_all(lake)
        assert contents(lake) == before


def test_readers_that_are_killed_at_random_take_each_file_once(tmp_path: Path) -> None:
    landing = tmp_path / "in"
    with seed_of() as seed:
        chance = random.Random(seed)
        with make(
            str(tmp_path / "lake"), landing, files_per_commit=2, on_error="quarantine"
        ) as lake:
            deadline = time.monotonic() + fault_seconds(6.0)
            landed = kills = 0
            while time.monotonic() < deadline or not kills:
                more = chance.randrange(1, 30)
                land(landing, range(landed, landed + more))
                landed += more
                process = start(
                    ingest, lake.uri, chance.choice([None, 10, 300]), lease_seconds=LEASE_SECONDS
                )
                process.join(timeout=chance.uniform(0.3, 1.5))
                kills += process.exitcode is None
                end(process)
            assert run(ingest, lake.uri, lease_seconds=LEASE_SECONDS) == 0
            check(lake, landed)
            check_log(lake)


def test_of_four_processes_one_takes_each_of_many_files(tmp_path: Path) -> None:
    landing, files = tmp_path / "in", 10_000 if fault_seconds(0) else 2_000
    with make(str(tmp_path / "lake"), landing, files_per_commit=150, on_error="quarantine") as lake:
        land(landing, range(files))
        processes = [start(ingest, lake.uri, lease_seconds=LEASE_SECONDS) for _ in range(4)]
        for process in processes:
            process.join(timeout=100)
        codes = [process.exitcode for process in processes]
        end(*processes)
        assert codes == [0] * 4
        check(lake, files)
        check_log(lake)


def test_a_reader_that_wakes_after_its_lease_publishes_nothing(tmp_path: Path) -> None:
    landing, gate = tmp_path / "in", tmp_path / "gate"
    with make(str(tmp_path / "lake"), landing, files_per_commit=5, on_error="quarantine") as lake:
        land(landing, range(10))
        frozen = start(
            landings.ingest,
            lake.uri,
            failpoints=f"publish.before_put=pause:{gate}@1",
            lease_seconds=LEASE_SECONDS,
        )
        wait_until(Path(f"{gate}.reached").exists)
        # Frozen as a whole: its lease is not renewed.
        frozen_pid = frozen.pid
        assert frozen_pid is not None
        os.kill(frozen_pid, signal.SIGSTOP)
        assert run(ingest, lake.uri, lease_seconds=LEASE_SECONDS) == 0
        check(lake, 10)
        gate.touch()
        os.kill(frozen_pid, signal.SIGCONT)
        frozen.join(timeout=60)
        code = frozen.exitcode
        end(frozen)
        assert code == 0
        check(lake, 10)


def test_a_lake_that_is_copied_takes_what_its_own_ledger_does_not_have(tmp_path: Path) -> None:
    landing = tmp_path / "in"
    with make(str(tmp_path / "lake"), landing, on_error="quarantine") as lake:
        land(landing, range(5))
        lake.ingest("events")
        copied = copy_lake(lake.uri, tmp_path / "copy")
        land(landing, range(5, 9))
        lake.ingest("events")
        check(lake, 9)
        with tidelock.open(copied) as other:
            other.ingest("events")
            check(other, 9)


def test_of_four_processes_that_load_what_is_new_one_loads_each_file(tmp_path: Path) -> None:
    landing = tmp_path / "in"
    with make(str(tmp_path / "lake"), landing) as lake:
        for begin in range(0, 60, 20):
            land(landing, range(begin + 1, begin + 21))
            processes = [start(landings.load_new, lake.uri, str(landing)) for _ in range(4)]
            for process in processes:
                process.join(timeout=100)
            codes = [process.exitcode for process in processes]
            end(*processes)
            assert codes == [0] * 4
        found = Counter(lake.table("t").to_arrow().column("id").to_pylist())
        assert found == Counter(range(3, 61 * 3))
