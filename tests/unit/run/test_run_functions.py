"""What lake.run runs: functions that have done their work when they return."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import NUMBERS_DDL, numbers

import tidelock
from tidelock import Lake, Transaction, errors


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", NUMBERS_DDL)
        yield lake


async def coroutine(tx: Transaction) -> None:
    tx.append("t", numbers((1, 1)))


def generator(tx: Transaction) -> Iterator[int]:
    tx.append("t", numbers((1, 1)))
    yield 1


async def async_generator(tx: Transaction) -> AsyncIterator[int]:
    tx.append("t", numbers((1, 1)))
    yield 1


class Called:
    async def __call__(self, tx: Transaction) -> None:
        tx.append("t", numbers((1, 1)))


class Awaited:
    def __await__(self) -> Iterator[None]:
        yield


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "coroutine": coroutine,
    "partial": functools.partial(coroutine),
    "lambda": lambda tx: coroutine(tx),
    "object": Called(),
    "generator": generator,
    "lambda of a generator": lambda tx: generator(tx),
    "async generator": async_generator,
    "lambda of an async generator": lambda tx: async_generator(tx),
    "awaitable": lambda tx: tx.append("t", numbers((1, 1))) or Awaited(),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_what_would_work_after_its_transaction_is_refused(lake: Lake, kind: str) -> None:
    with pytest.raises(errors.InvalidOption, match="after the transaction has ended"):
        lake.run(FUNCTIONS[kind])
    assert lake.snapshot().version == 1
    assert lake.run(lambda tx: tx.append("t", numbers((1, 1)))) is None
    assert lake.table("t").count() == 1
