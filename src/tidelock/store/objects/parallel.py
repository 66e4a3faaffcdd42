"""Asking together what does not depend on each other, where an answer comes from afar.

A request to a remote store takes tens of milliseconds, of which it waits nearly all: N of them side
by side take as long as one. On local files an answer is there at once, and threads would cost more
than they save.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

THREADS_MAX = 64


class Together:
    """How the requests of one lake are made."""

    def __init__(self, far: bool = False) -> None:
        self.far = far

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """What the function gives for each, in order. Of several that fail, one error is raised,
        when all have ended."""
        given = list(items)
        if not self.far:
            return [function(item) for item in given]
        return side_by_side(function, given)

    def both(self, one: Callable[[], T], other: Callable[[], R]) -> tuple[T, R]:
        """What two questions give that have nothing to do with each other."""
        asks: list[Callable[[], Any]] = [one, other]
        found = self.map(lambda ask: ask(), asks)
        return found[0], found[1]

    def first(self, asks: Sequence[Callable[[], R | None]]) -> R | None:
        """The first answer that is one. Nearby, what comes after it is not asked."""
        if self.far:
            return next((one for one in self.map(lambda ask: ask(), asks) if one is not None), None)
        return next((found for ask in asks if (found := ask()) is not None), None)


def side_by_side(
    function: Callable[[T], R], items: Sequence[T], threads: int = THREADS_MAX
) -> list[R]:
    """Apply a function to several items at once: one that waits, or works outside of Python."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(len(items), threads)) as pool:
        futures = [submit(pool, function, item) for item in items]
    return [future.result() for future in futures]


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function that spends its time in Lance to several items, on all cores."""
    return side_by_side(function, items, os.cpu_count() or 1)


def submit(pool: ThreadPoolExecutor, function: Callable[..., R], *arguments: Any) -> Future[R]:
    """Let a pool call a function; here and now if the interpreter is about to end, and starts no
    more threads."""
    try:
        return pool.submit(function, *arguments)
    except RuntimeError:
        return _done(function, *arguments)


def _done(function: Callable[..., R], *arguments: Any) -> Future[R]:
    future: Future[R] = Future()
    try:
        future.set_result(function(*arguments))
    except BaseException as error:  # noqa: BLE001 - raised again where its result is asked for
        future.set_exception(error)
    return future
