"""The bank: while money moves and stream tables follow, no snapshot shows any of it missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support import bank
from tests.support.histories import check_groups
from tests.support.lakes import end, fault_seconds, seed_of, start

import tidelock

SECONDS = fault_seconds(5.0)


def test_every_snapshot_of_a_busy_bank_has_all_the_money(tmp_path: Path) -> None:
    uri = str(tmp_path / "bank.lake")
    bank.make(uri)
    with seed_of() as seed:
        office = start(bank.branch_office, uri, seed + 1, SECONDS)
        works: list[Callable[[], None]] = [
            lambda: bank.move_money(uri, seed + 2, SECONDS),
            lambda: bank.move_money(uri, seed + 3, SECONDS),
            lambda: bank.keep_refreshing(uri, SECONDS),
            lambda: read_on(uri, seen),
            lambda: read_on(uri, seen),
        ]
        seen: list[tuple[int, int]] = []
        run_all(works)
        office.join(timeout=60)
        assert office.exitcode == 0, "the second process failed, or hangs"
        end(office)
        check_afterwards(uri, seen)


def read_on(uri: str, seen: list[tuple[int, int]]) -> None:
    """Check snapshot after snapshot; `seen` gets the version and the epoch of each."""
    stop = time.monotonic() + SECONDS
    with tidelock.open(uri, read_only=True) as lake:
        auditor = bank.Auditor(lake)
        while time.monotonic() < stop:
            snapshot = lake.snapshot()
            if seen and seen[-1][0] == snapshot.version:
                time.sleep(0.002)
            seen.append((snapshot.version, auditor.check(snapshot)))


def run_all(works: list[Callable[[], None]]) -> None:
    """Run everything at once; the first failure is raised once all have ended."""
    failed: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def check_afterwards(uri: str, seen: list[tuple[int, int]]) -> None:
    with tidelock.open(uri, engine="sail") as lake:
        lake.refresh(["balances", "total"])
        lake.refresh(["total"])
        auditor = bank.Auditor(lake)
        last = lake.snapshot()
        epochs = [
            auditor.check(lake.snapshot(version=version))
            for version in range(1, last.version + 1)
            if "total" in lake.snapshot(version=version).states()
        ]
        assert auditor.entered(last.version) == auditor.entered(
            lake.groups()[0].frontier["balances"]
        ), "the last refresh has not seen all transfers"
        assert check_groups(lake) == {"balances": epochs[-1]}
        # It was a busy bank: many refreshes between many commits, by both processes, and watched.
        actors = {commit.actor for commit in lake.log(limit=None)}
        assert sum(actor.startswith("teller") for actor in actors) == 3
        assert epochs[-1] >= 3
        assert len({version for version, _ in seen}) > 20
        assert len({epoch for _, epoch in seen}) >= 2
