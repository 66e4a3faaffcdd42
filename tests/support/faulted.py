"""One piece of work, with a fault at every call of the store: what is told of it is so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tidelock
from tidelock import Lake, errors
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore


def open_faulty(uri: str, actor: str, **options: Any) -> tuple[Lake, FaultyStore]:
    stores: list[FaultyStore] = []

    def wrap(inner: Objects) -> Objects:
        stores.append(FaultyStore(inner, seed=1, slow_seconds=0.001))
        return stores[0]

    return tidelock.open(uri, actor=actor, objects=wrap, **options), stores[0]


def check_every_call(
    copies: Iterator[str],
    actor: str,
    work: Callable[[Lake], None],
    look: Callable[[Lake], Any],
    outcomes: tuple[Any, Any],
    when: str,
) -> list[str]:
    """Each call of `work` fails once: the lake is as before or after, as the error says, and the
    same handle goes on. Gives the keys that it called."""
    before, after = outcomes
    lake, store = open_faulty(next(copies), actor)
    store.forget()
    work(lake)
    calls = list(store.calls)
    lake.close()
    for number, call in enumerate(calls):
        where = f"{when} {call.operation} {call.key}"
        lake, store = open_faulty(next(copies), actor)
        store.forget()
        store.fail_next(when=when, skip=number)  # type: ignore[arg-type]
        error: errors.TidelockError | None = None
        try:
            work(lake)
        except errors.TidelockError as caught:
            error = caught
        store.forget()
        expected = after if error is None else before
        if isinstance(error, errors.OutcomeUnknown):
            found = lake.find_operation(error.operation_id)
            expected = after if found is not None else before
        elif error is not None:
            assert isinstance(error, errors.StoreUnavailable), where
        assert look(lake) == expected, where
        # The same handle goes on, whatever it believes to be durable.
        work(lake)
        assert look(lake) == after, where
        lake.close()
    return [call.key for call in calls]
