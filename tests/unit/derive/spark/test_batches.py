"""Questions that wait together are asked together, and nobody pays for another's error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelock.derive.spark.batches import TOGETHER_MAX, Batches


class Engine:
    """Doubles numbers; the first question waits until it is let go."""

    def __init__(self, bad: Callable[[int], bool] = lambda one: False) -> None:
        self.asked: list[list[int]] = []
        self.held = threading.Event()
        self.go = threading.Event()
        self._bad = bad

    def ask(self, questions: Sequence[int]) -> list[int]:
        self.asked.append(list(questions))
        if len(self.asked) == 1:
            self.held.set()
            assert self.go.wait(10)
        for one in questions:
            if self._bad(one):
                raise ValueError(f"{one} of {len(questions)}")
        return [2 * one for one in questions]


def ask_while_held(engine: Engine, questions: Sequence[int]) -> list[int | str]:
    """The first question alone, and all others while it is being answered."""
    batches = Batches(engine.ask)
    arrived = threading.Semaphore(0)

    def answer(one: int) -> int | str:
        arrived.release()
        try:
            return batches.answer(one)
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(len(questions)) as pool:
        first = pool.submit(answer, questions[0])
        assert engine.held.wait(10)
        rest = [pool.submit(answer, one) for one in questions[1:]]
        for _ in questions:
            assert arrived.acquire(timeout=10)
        while len(batches.followers) < len(rest):
            threading.Event().wait(0.001)
        engine.go.set()
        return [first.result(10), *(one.result(10) for one in rest)]


def test_who_waits_is_asked_together() -> None:
    engine = Engine()
    assert ask_while_held(engine, range(8)) == [2 * one for one in range(8)]
    assert [len(asked) for asked in engine.asked] == [1, 7]


def test_a_batch_has_a_limit() -> None:
    engine = Engine()
    count = 2 * TOGETHER_MAX + 3
    assert ask_while_held(engine, range(count)) == [2 * one for one in range(count)]
    assert [len(asked) for asked in engine.asked] == [1, TOGETHER_MAX, TOGETHER_MAX, 2]


def test_an_error_is_that_of_its_question() -> None:
    engine = Engine(bad=lambda one: one in (3, 5))
    answers = ask_while_held(engine, range(7))
    assert answers == [0, 2, 4, "3 of 1", 8, "5 of 1", 12]


def test_others_go_on_when_the_leader_is_interrupted() -> None:
    held, go = threading.Event(), threading.Event()
    asked: list[list[int]] = []

    def ask(questions: Sequence[int]) -> list[int]:
        asked.append(list(questions))
        if len(asked) == 1:
            held.set()
            assert go.wait(10)
            raise KeyboardInterrupt
        return list(questions)

    batches = Batches(ask)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(batches.answer, 0)
        assert held.wait(10)
        rest = [pool.submit(batches.answer, one) for one in (1, 2, 3)]
        while len(batches.followers) < 3:
            threading.Event().wait(0.001)
        go.set()
        with pytest.raises(KeyboardInterrupt):
            first.result(10)
        assert [one.result(10) for one in rest] == [1, 2, 3]
    assert batches.answer(9) == 9


def test_a_leader_that_is_interrupted_before_it_asks_leads_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches: Batches[int, int] = Batches(list)

    def interrupted() -> bool:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(batches, "_all_are_here", interrupted)
    with pytest.raises(KeyboardInterrupt):
        batches.answer(1)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(batches.answer, 2).result(10) == 2


def test_who_is_known_to_come_is_waited_for() -> None:
    asked: list[int] = []

    def ask(questions: Sequence[int]) -> list[int]:
        asked.append(len(questions))
        return list(questions)

    batches = Batches(ask)
    begun = threading.Barrier(4)

    def work(one: int) -> int:
        with batches.taking_part():
            begun.wait(10)
            return batches.answer(one)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(work, range(4))) == [0, 1, 2, 3]
    assert len(asked) < 4
    # Nobody else takes part any more, so that nobody is waited for.
    assert batches.answer(7) == 7
