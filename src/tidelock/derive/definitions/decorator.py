"""`@tidelock.stream_table`: a stream table defined by a Python function that returns SQL.

    @tidelock.stream_table(schedule="5m")
    def totals():
        return "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"

Owns: the decorator and what it leaves behind. It touches no lake: `tidelock apply` executes the
file, calls the function and does the rest.
Invariant: while a file is being read, every function that is decorated is noted, in order, also
those whose name in the file is taken over by another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, overload

from tidelock.model.streams import UPSTREAM, Consistency, RefreshMode, SchedulePolicy


@dataclass(frozen=True, slots=True)
class StreamTableFunction:
    """A function that returns the query of a stream table."""

    function: Callable[[], str]
    name: str
    options: Mapping[str, Any]
    file: str
    line: int


_noted: ContextVar[list[StreamTableFunction] | None] = ContextVar("noted", default=None)


@overload
def stream_table(function: Callable[[], str], /) -> StreamTableFunction: ...


@overload
def stream_table(
    *,
    name: str | None = None,
    schedule: str | None = UPSTREAM,
    refresh_mode: RefreshMode = "auto",
    consistency: Consistency = "atomic",
    schedule_policy: SchedulePolicy = "fastest",
) -> Callable[[Callable[[], str]], StreamTableFunction]: ...


def stream_table(
    function: Callable[[], str] | None = None,
    /,
    *,
    name: str | None = None,
    schedule: str | None = UPSTREAM,
    refresh_mode: RefreshMode = "auto",
    consistency: Consistency = "atomic",
    schedule_policy: SchedulePolicy = "fastest",
) -> StreamTableFunction | Callable[[Callable[[], str]], StreamTableFunction]:
    """Define a stream table by a function that takes nothing and returns a Spark SQL query.

    `name` is the function's own unless it is given. `schedule` is a duration, a cron expression,
    "upstream" (whenever an input changed), or None to refresh by hand.
    """
    options = {
        "schedule": schedule,
        "refresh_mode": refresh_mode,
        "consistency": consistency,
        "schedule_policy": schedule_policy,
    }

    def define(function: Callable[[], str]) -> StreamTableFunction:
        if not inspect.isfunction(function):
            raise TypeError(
                f"@tidelock.stream_table() decorates a function, not {type(function).__name__}."
            )
        code = inspect.unwrap(function).__code__
        chosen = function.__name__ if name is None else name
        made = StreamTableFunction(function, chosen, options, code.co_filename, code.co_firstlineno)
        noted = _noted.get()
        if noted is not None:
            noted.append(made)
        return made

    return define if function is None else define(function)


@contextmanager
def noting() -> Iterator[list[StreamTableFunction]]:
    """A list to which every function that is decorated meanwhile is added."""
    noted: list[StreamTableFunction] = []
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)
