"""A transaction that lost goes first: slow ones among fast ones are published too."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import tidelock
from tidelock.model.isolation import Isolation
from tidelock.store.log import precedence as module
from tidelock.store.log.precedence import Precedence
from tidelock.store.log.turns import Turns
from tidelock.store.objects.kinds.location import locate

LEVEL: Isolation = "serializable"


def test_serializable_deletes_are_published_while_others_append_all_the_time(
    tmp_path: Path,
) -> None:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "a BIGINT, b BIGINT")
    ended = threading.Event()

    def append() -> None:
        number = 0
        while not ended.is_set():
            with lake.transaction() as tx:
                tx.append("t", [{"a": number, "b": number % 5}])
            number += 1

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            # Slower than any append, so that rows which it would delete always come before it.
            lake.run(lambda tx: (tx.delete("t", "b = 3"), time.sleep(0.02)), isolation=LEVEL)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert lake.snapshot().table("t").count() > 0


@pytest.fixture
def precedence(tmp_path: Path) -> Precedence:
    return Precedence(Turns(locate(tmp_path)))


def waited(precedence: Precedence) -> float:
    """How long another thread gives way."""
    began = time.monotonic()
    thread = threading.Thread(target=precedence.give_way, args=("main",))
    thread.start()
    thread.join()
    return time.monotonic() - began


def test_others_wait_for_who_goes_first_but_not_for_ever(
    precedence: Precedence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS_MAX", 0.3)
    with precedence.taken("main"):
        precedence.give_way("main")
        assert 0.1 < waited(precedence) < 5
        # Its moment has passed.
        assert waited(precedence) < 0.1
    assert waited(precedence) < 0.1


def test_who_failed_first_is_out_of_the_way(precedence: Precedence) -> None:
    with pytest.raises(ZeroDivisionError), precedence.taken("main"):
        raise ZeroDivisionError
    assert waited(precedence) < 0.1


def test_those_that_go_first_do_so_one_after_the_other(precedence: Precedence) -> None:
    inside: list[int] = []
    most: list[int] = []

    def go_first() -> None:
        with precedence.taken("main"):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=go_first) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5
