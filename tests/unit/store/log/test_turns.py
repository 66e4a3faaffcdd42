"""Turns: who publishes next on one machine, and what was published last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tidelock
from tidelock.store.log.turns import WAIT_SECONDS_MAX, WAITERS_MAX, Turns
from tidelock.store.objects import layout
from tidelock.store.objects.kinds.location import locate


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    (tmp_path / "_tidelock").mkdir()
    return Turns(locate(tmp_path))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_turn_tells_what_the_one_before_published(turns: Turns) -> None:
    assert turns.newest("main-1") == 0
    with turns.taken("main-1") as turn:
        assert turn.newest() == 0
        turn.leave(41)
    with turns.taken("main-1") as turn:
        assert (turn.waited, turn.newest(), turns.newest("main-1")) == (False, 41, 41)
        turn.leave(7)
    assert turns.newest("main-1") == 7
    assert turns.newest("dev-2") == 0


@pytest.mark.parametrize("content", [b"", b"4", b"x" * 40, b"-3", b"\xff" * 19, b"1 2"])
def test_whatever_stands_in_the_file_is_a_number_or_nothing(
    turns: Turns, tmp_path: Path, content: bytes
) -> None:
    with turns.taken("main-1"):
        pass
    Path(tmp_path, layout.TURNS, "main-1.lock").write_bytes(content)
    assert turns.newest("main-1") == (4 if content == b"4" else 0)


def test_one_waits_for_another_but_not_for_long(turns: Turns) -> None:
    waits: list[tuple[bool, float]] = []

    def take() -> None:
        began = time.monotonic()
        with turns.taken("main-1") as turn:
            waits.append((turn.waited, time.monotonic() - began))

    with turns.taken("main-1"):
        # A thread has its turn already; another has not.
        take()
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
    (mine, at_once), (waited, seconds) = waits
    assert not mine
    assert at_once < 0.1
    assert waited
    assert WAIT_SECONDS_MAX <= seconds < WAIT_SECONDS_MAX + 2


def test_a_turn_that_was_given_up_is_nobodys(turns: Turns) -> None:
    def take() -> None:
        with turns.taken("main-1"):
            pass

    with turns.taken("main-1"):
        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    until(lambda: len(turns._idle) == 3)
    with turns.taken("main-1") as turn:
        assert not turn.waited


def test_those_that_wait_for_a_suspended_holder_do_not_pile_up(turns: Turns) -> None:
    def waiting() -> int:
        return sum(one.name == "tidelock-turns" for one in threading.enumerate())

    def take() -> None:
        with turns.taken("main-1"):
            pass

    before = waiting()
    with turns.taken("main-1"):
        for _ in range(2):
            threads = [threading.Thread(target=take) for _ in range(2 * WAITERS_MAX)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert waiting() - before <= WAITERS_MAX
        began = time.monotonic()
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        assert time.monotonic() - began < WAIT_SECONDS_MAX
    until(lambda: len(turns._idle) == WAITERS_MAX)
    with turns.taken("main-1") as turn:
        assert not turn.waited


def test_threads_that_wait_go_when_nobody_needs_them(tmp_path: Path) -> None:
    turns = Turns(locate(tmp_path), idle_seconds=0.01)
    order: list[int] = []

    def take(number: int) -> None:
        for _ in range(50):
            with turns.taken("main-1"):
                order.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == sorted(list(range(4)) * 50)
    until(lambda: not turns._waiters)


def test_one_process_at_a_time_does_something_alone(turns: Turns, tmp_path: Path) -> None:
    others = Turns(locate(tmp_path))
    with turns.alone("fold-1") as mine, others.alone("fold-1") as theirs:
        assert (mine, theirs) == (True, False)
        with others.alone("fold-2") as another:
            assert another
    with others.alone("fold-1") as theirs:
        assert theirs
    with Turns(locate("memory://turns")).alone("fold-1") as anywhere:
        assert anywhere


def test_a_reader_makes_no_file_to_ask(tmp_path: Path) -> None:
    tidelock.open(tmp_path / "lake", create=True).close()
    turns = Turns(locate(tmp_path / "lake"))
    assert turns.newest("main-1") == 0
    assert not Path(tmp_path, "lake", layout.TURNS, "main-1.lock").exists()


def test_a_commit_is_published_whatever_the_last_turn_told(tmp_path: Path) -> None:
    lake = tidelock.open(tmp_path / "lake", create=True)
    lake.create_table("t", "a BIGINT")
    (file,) = Path(tmp_path, "lake", layout.TURNS).iterdir()
    for told in (b"", b"0" * 19, b"9" * 19, b"garbage"):
        file.write_bytes(told)
        with lake.transaction() as tx:
            tx.append("t", [{"a": 1}])
    assert [commit.version for commit in lake.log()] == [5, 4, 3, 2, 1]
