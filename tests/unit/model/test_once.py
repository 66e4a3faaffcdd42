"""What is made once is one, whoever asks first."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidelock.model.once import once

THREADS = 8


class Maker:
    def __init__(self) -> None:
        self.made = 0
        self.waiting = threading.Barrier(THREADS)

    @once
    def part(self) -> object:
        self.made += 1
        time.sleep(0.01)
        return object()

    @once
    def whole(self) -> tuple[object, ...]:
        """Made of another."""
        return (self.part,)

    def ask(self, _: int) -> object:
        self.waiting.wait(10)
        return self.part


def test_threads_that_ask_at_the_same_time_get_the_same() -> None:
    maker = Maker()
    with ThreadPoolExecutor(THREADS) as pool:
        assert len(set(pool.map(maker.ask, range(THREADS)))) == 1
    assert maker.made == 1


def test_each_has_its_own() -> None:
    one, other = Maker(), Maker()
    assert one.whole == (one.part,)
    assert one.part is not other.part


def test_what_could_not_be_made_is_made_when_it_is_asked_for_again() -> None:
    class Late:
        def __init__(self) -> None:
            self.asked = 0

        @once
        def part(self) -> int:
            self.asked += 1
            return 1 // (self.asked - 1)

    late = Late()
    with pytest.raises(ZeroDivisionError):
        _ = late.part
    assert late.part == 1


def test_the_class_tells_what_it_is() -> None:
    assert Maker.whole.__doc__ == "Made of another."
