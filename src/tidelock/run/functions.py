"""Functions that are run in a transaction: they do all their work before they return.

A coroutine or a generator returns at once and works later, when its transaction has been published
without it. So neither is taken, and what comes back is looked at too.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

from tidelock.errors import InvalidOption

T = TypeVar("T")


def refuse_deferred(function: object) -> None:
    """InvalidOption for what is no function, or one that does its work after it has returned."""
    if not callable(function):
        raise InvalidOption(
            f"lake.run takes a function of a transaction, not {function!r}. For one statement: "
            "lake.run(lambda tx: tx.delete('orders', 'id = 1')).",
        )
    for one in (function, getattr(function, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one):
            raise _deferred("an async function")
        if inspect.isgeneratorfunction(one):
            raise _deferred("a generator function")


def refuse_unfinished(result: T) -> T:
    """What a function returned; InvalidOption if its work is still to be done."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
        raise _deferred("a function that returns a coroutine or a generator")
    if inspect.isawaitable(result) or inspect.isasyncgen(result):
        raise _deferred("a function that returns an awaitable")
    return result


def _deferred(what: str) -> InvalidOption:
    return InvalidOption(
        f"lake.run cannot run {what}: its work would be done after the transaction has ended. "
        "Nothing was written. Use a plain function; from async code, call lake.run in a thread, as "
        "asyncio.to_thread does."
    )
