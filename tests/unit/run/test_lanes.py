"""Works side by side: few begin at once, and one that hangs keeps no other waiting."""

from __future__ import annotations

import threading
import time

import pytest
from tests.support.lakes import wait_until

from tidelock.deliver import lanes
from tidelock.deliver.lanes import Lanes


def test_only_so_many_begin_at_once() -> None:
    running, gate = Lanes(at_once=2, slow_seconds=60), threading.Event()
    for name in ("a", "b"):
        assert running.has_room()
        running.start(name, gate.wait)
    assert not running.has_room()
    assert not running.has_room(waits=True)
    assert running.runs("a")
    gate.set()
    assert running.join(30)
    assert running.has_room()
    assert not running.runs("a")


def test_a_work_that_hangs_gives_its_place_to_the_next() -> None:
    running, gate = Lanes(at_once=2, slow_seconds=0.05), threading.Event()
    for name in range(40):
        wait_until(lambda: running.has_room(waits=True))
        running.start(name, gate.wait, waits=True)
    wait_until(running.has_room)
    assert not running.join(0.1)
    gate.set()
    assert running.join(30)


def test_works_that_take_memory_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "WORKING_MAX", 3)
    running, gate = Lanes(at_once=8, slow_seconds=0.01), threading.Event()
    for name in range(3):
        running.start(name, gate.wait)
    time.sleep(0.05)
    assert not running.has_room()
    assert running.has_room(waits=True)
    gate.set()
    assert running.join(30)


def test_whoever_waits_is_told_when_a_work_ends() -> None:
    running = Lanes()
    running.start("a", lambda: time.sleep(0.05))
    began = time.monotonic()
    running.wait(60)
    assert time.monotonic() - began < 30
    assert running.is_idle()
