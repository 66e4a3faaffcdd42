"""Rules under races and kills: processes try to break each rule together, and none ever is.

`TIDELOCK_SEED` replays who does what and who is killed when; `TIDELOCK_FAULT_SECONDS` makes it
longer.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.support import rule_fights
from tests.support.lakes import age, check_log, end, fault_seconds, run, seed_of, start
from tests.support.ruled import violations

import tidelock
from tidelock import Lake

LEASE_SECONDS = 1.0
KINDS = {"add_customer", "add_orders", "remove_customer"}
"""What has to be done before a fight ends, however slow the machine is."""
KILLED = -signal.SIGKILL


def check_history(lake: Lake) -> None:
    """Every rule holds in every snapshot."""
    newest = lake.snapshot().version
    for version in range(1, newest + 1):
        snapshot = lake.snapshot(version=version)
        assert not violations(snapshot, rule_fights.CONDITIONS), f"at version {version}"
    check_log(lake)


def done(uri: str) -> set[str]:
    with tidelock.open(uri, read_only=True) as lake:
        return {commit.message for commit in lake.log(limit=None)}


def test_processes_that_are_killed_never_break_a_rule_together(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    rule_fights.make(uri)
    with seed_of() as seed:
        chance = random.Random(seed)
        deadline = time.monotonic() + fault_seconds(6)

        def begin() -> object:
            arguments = (uri, chance.randrange(1_000_000), 3600.0)
            return start(rule_fights.fight, *arguments, lease_seconds=LEASE_SECONDS)

        fighters = [begin() for _ in range(3)]
        try:
            while time.monotonic() < deadline or not done(uri) >= KINDS:
                time.sleep(chance.uniform(0.2, 1.5))
                victim = chance.randrange(len(fighters))
                assert fighters[victim].is_alive(), "a fighter failed"
                end(fighters[victim])
                fighters[victim] = begin()
        finally:
            end(*fighters)
        age(uri)
        with tidelock.open(uri) as lake:
            assert not lake.intents()
            check_history(lake)


def test_threads_of_one_process_never_break_a_rule_together(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    rule_fights.make(uri)
    with seed_of() as seed:
        threads = [
            threading.Thread(target=rule_fights.fight, args=(uri, seed + n, fault_seconds(2)))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with tidelock.open(uri) as lake:
            check_history(lake)


@pytest.fixture
def left_behind(tmp_path: Path) -> str:
    """A writer died after it sealed an order of customer 1, which is there."""
    uri = str(tmp_path / "lake")
    rule_fights.make(uri)
    with tidelock.open(uri) as lake, lake.transaction() as tx:
        tx.append("customers", [{"id": 1, "email": "a"}, {"id": 2, "email": "b"}])
    code = run(rule_fights.append_order, uri, 1, failpoints="publish.before_put=kill")
    assert code == KILLED
    return uri


@pytest.mark.parametrize(
    ("meanwhile", "outcome"),
    [
        (None, "rolled_forward"),
        (lambda tx: tx.append("customers", [{"id": 3, "email": "c"}]), "rolled_forward"),
        (lambda tx: tx.delete("customers", "id = 2"), "rolled_forward"),
        (lambda tx: tx.delete("customers", "id = 1"), "discarded"),
        (lambda tx: tx.overwrite("customers", [{"id": 2, "email": "b"}]), "discarded"),
        (lambda tx: tx.update("customers", {"id": "5"}, "id = 1"), "discarded"),
    ],
)
def test_sealed_work_is_published_for_others_only_if_its_rules_still_hold(
    left_behind: str, meanwhile: object, outcome: str
) -> None:
    with tidelock.open(left_behind, heal=False, lease_seconds=3600) as lake:
        if callable(meanwhile):
            with lake.transaction() as tx:
                meanwhile(tx)
    age(left_behind)
    with tidelock.open(left_behind) as lake:
        assert [one.outcome for one in lake.recoveries()] == [outcome]
        assert lake.table("orders").count() == (outcome == "rolled_forward")
        assert not lake.intents()
        check_history(lake)
