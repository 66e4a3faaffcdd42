"""After a failure: how long to wait, and when to give up."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

import pytest

from tidelock.derive.graph.backoff import FAILURES_MAX, is_transient, judge, wait_seconds
from tidelock.errors import (
    BranchDeleted,
    BrokenInvariant,
    CommitConflict,
    CorruptObject,
    EngineUnavailable,
    InvalidExpression,
    JavaMissing,
    OutcomeUnknown,
    QueryFailed,
    StoreDenied,
    StoreUnavailable,
    WrongType,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def failed_query(cause: BaseException) -> QueryFailed:
    error = QueryFailed("Spark refused the query")
    error.__cause__ = cause
    return error


def test_waits_double_from_one_second_to_a_minute() -> None:
    for failures, ceiling in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (10**6, 60)]:
        waits = [wait_seconds(failures, Random(seed)) for seed in range(200)]
        assert ceiling / 2 <= min(waits) < ceiling * 0.6
        assert ceiling * 0.9 < max(waits) <= ceiling


def test_the_same_seed_gives_the_same_wait() -> None:
    assert wait_seconds(4, Random(7)) == wait_seconds(4, Random(7))
    assert wait_seconds(4, Random(7)) != wait_seconds(4, Random(8))


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("no answer"),
        CommitConflict("somebody was first"),
        OutcomeUnknown("no answer"),
        EngineUnavailable("the server is gone"),
        JavaMissing("no Java"),
        QueryFailed("an executor was lost", passing=True),
        failed_query(ConnectionResetError()),
        failed_query(StoreUnavailable("no answer")),
        TimeoutError(),
        ConnectionRefusedError(),
        OSError(28, "No space left on device"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
)
def test_what_may_pass_by_itself_is_tried_again(error: BaseException) -> None:
    assert is_transient(error)
    verdict = judge(error, 0, NOW, Random(1))
    assert verdict.failures == 1
    assert verdict.suspended is None
    assert verdict.retry_at is not None
    assert verdict.retry_at > NOW


@pytest.mark.parametrize(
    "error",
    [
        WrongType("not a number"),
        InvalidExpression("what"),
        StoreDenied("no"),
        BranchDeleted("gone"),
        CorruptObject("torn"),
        QueryFailed("DIVIDE_BY_ZERO"),
        failed_query(ZeroDivisionError()),
        ZeroDivisionError(),
        PermissionError(),
        FileNotFoundError(),
        BrokenInvariant("a bug"),
    ],
)
def test_what_stays_wrong_suspends_at_once(error: BaseException) -> None:
    assert not is_transient(error)
    verdict = judge(error, 0, NOW, Random(1))
    assert verdict.retry_at is None
    assert verdict.suspended is not None


def test_the_reason_of_a_suspension_says_what_failed() -> None:
    verdict = judge(WrongType("'x' is not a number."), 0, NOW, Random(1))
    assert verdict.suspended == "WRONG_TYPE: 'x' is not a number."


def test_too_many_transient_failures_in_a_row_suspend() -> None:
    error = StoreUnavailable("no answer")
    assert judge(error, FAILURES_MAX - 2, NOW, Random(1)).suspended is None
    verdict = judge(error, FAILURES_MAX - 1, NOW, Random(1))
    assert verdict.suspended == (
        "10 refreshes failed in a row, the last with STORE_UNAVAILABLE: no answer"
    )
    assert verdict.retry_at is None


def test_an_engine_that_is_away_suspends_nothing_however_often_it_is_asked() -> None:
    for error in (EngineUnavailable("the server is gone"), JavaMissing("no Java")):
        verdict = judge(error, 10 * FAILURES_MAX, NOW, Random(1))
        assert verdict.suspended is None
        assert verdict.retry_at is not None
