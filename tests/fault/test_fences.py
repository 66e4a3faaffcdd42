"""Writers that were given up by mistake or for good: what was discarded stays discarded.

A writer may be suspended at any instruction, and a clock may step at any moment. Whoever was given
up publishes nothing afterwards, by its own hand or by a healer's, and whatever is visible can be
read to the last row.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from tests.support import writers
from tests.support.gates import GatedStore
from tests.support.lakes import (
    age,
    check_log,
    collect_all,
    contents,
    end,
    numbers,
    pipe,
    run,
    start,
    streamed,
    wait_until,
)
from tests.support.writers import BEFORE

import tidelock
from tidelock import errors

LEASE_SECONDS = 0.4
ROWS = numbers((100, 1), (101, 1))
ADDED = Counter({(100, 1): 1, (101, 1): 1})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "lake")
    writers.make(uri)
    return uri


@pytest.fixture
def processes() -> Iterator[list[BaseProcess]]:
    made: list[BaseProcess] = []
    yield made
    end(*made)


def is_seal(key: str, data: bytes) -> bool:
    return "/intents/" in key and b'"sealed":[' in data


def seal_late(uri: str, gate: str, told: Any) -> None:
    """Stage under an intent; the put that seals it waits at the gate. Tell how it ended."""
    lake = tidelock.open(
        uri, actor=writers.ACTOR, objects=lambda inner: GatedStore(inner, Path(gate), is_seal)
    )
    try:
        with lake.transaction("late") as tx:
            tx.append("events", streamed(ROWS))
    except errors.TidelockError as error:
        told.send(type(error).__name__)
    else:
        told.send("committed")


def settle(uri: str) -> None:
    """Heal and collect, as another process does."""
    with tidelock.open(uri, actor="the keeper") as lake:
        assert not collect_all(lake).errors


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "lives on"])
def test_a_seal_that_lands_after_its_operation_was_discarded_publishes_nothing(
    uri: str, tmp_path: Path, processes: list[BaseProcess], dies: bool
) -> None:
    gate = tmp_path / "gate"
    heard, told = pipe()
    failpoints = "intent.after_seal=kill" if dies else ""
    writer = start(
        seal_late, uri, str(gate), told, failpoints=failpoints, lease_seconds=LEASE_SECONDS
    )
    processes.append(writer)
    wait_until(Path(f"{gate}.reached").exists)
    os.kill(writer.pid, signal.SIGSTOP)
    time.sleep(2 * LEASE_SECONDS)
    settle(uri)
    gate.touch()
    os.kill(writer.pid, signal.SIGCONT)
    if dies:
        writer.join(30)
        assert writer.exitcode == -signal.SIGKILL
    else:
        assert heard.poll(30)
        assert heard.recv() == "LeaseLost"
    age(uri)
    settle(uri)
    with tidelock.open(uri) as lake:
        assert contents(lake) == BEFORE
        assert [(one.outcome, one.version) for one in lake.recoveries()] == [("discarded", None)]
        assert not lake.intents()
        check_log(lake)


def seal_and_die(uri: str) -> None:
    with tidelock.open(uri, actor=writers.ACTOR).transaction("never") as tx:
        tx.append("events", streamed(ROWS))


@pytest.mark.parametrize("damage", ["gone", "empty", "cut"])
def test_what_was_sealed_is_published_only_if_its_pins_can_be_opened(uri: str, damage: str) -> None:
    known = set(Path(uri, "tables").rglob("*.manifest"))
    assert run(seal_and_die, uri, failpoints="intent.after_seal=kill") == -signal.SIGKILL
    (staged,) = set(Path(uri, "tables").rglob("*.manifest")) - known
    whole = staged.read_bytes()
    staged.write_bytes(b"" if damage == "empty" else whole[: len(whole) // 2])
    if damage == "gone":
        staged.unlink()
    age(uri)
    with tidelock.open(uri) as lake:
        assert [one.outcome for one in lake.recoveries()] == ["discarded"]
        assert contents(lake) == BEFORE
        writers.write_on(lake, "main")
        assert not collect_all(lake).errors
        assert lake.verify().ok


@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle handle", "busy handle"])
def test_a_step_of_the_clock_lets_nobody_publish_what_was_collected(
    uri: str, streaming: bool, busy: bool
) -> None:
    with tidelock.open(uri) as lake:
        tx = lake.transaction("a live writer")
        tx.append("events", streamed(ROWS) if streaming else ROWS)
        assert tx.table("events").count() == 6
        age(uri)  # to others, its lease was renewed an hour ago
        settle(uri)
        if busy:
            # The handle has seen the newest head: no put of its loses.
            lake.snapshot()
        with pytest.raises(errors.LeaseLost):
            tx.publish()
        assert contents(lake) == BEFORE
        writers.write_on(lake, "main")
        assert contents(lake)["events"] == BEFORE["events"] + Counter([(50, 50)])
    with tidelock.open(uri) as lake:
        assert contents(lake)["events"] == BEFORE["events"] + Counter([(50, 50)])
        assert all(one.outcome == "discarded" for one in lake.recoveries())
