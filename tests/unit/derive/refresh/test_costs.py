"""The choice between a delta and a full refresh, from what the last ones took."""

from __future__ import annotations

from tidelock.derive.refresh.costs import TRUST, Way, after_delta, after_full, estimate
from tidelock.model.streams import Spent


def choose(spent: Spent, reads: int = 0) -> Way:
    return estimate("auto", changes=10, rows=1_000, segments=1, reads=reads, spent=spent)


def test_a_small_delta_is_taken_without_experience() -> None:
    assert not choose(Spent()).full


def test_terms_over_many_tables_cost_more() -> None:
    assert choose(Spent(), reads=20 * 20).full


def test_one_slow_delta_may_be_the_start_of_a_process() -> None:
    spent = after_delta(Spent(full_seconds=0.5), 288.0, 10)
    assert (
        choose(spent).incremental_seconds
        == TRUST
        * estimate("auto", changes=10, rows=1_000, segments=1, spent=Spent()).incremental_seconds
    )  # type: ignore[operator]
    assert not choose(spent).full


def test_what_was_slow_twice_is_slow() -> None:
    spent = Spent(full_seconds=0.5)
    for _ in range(2):
        spent = after_delta(spent, 288.0, 10)
    assert choose(spent).full


def test_of_two_deltas_the_quicker_counts() -> None:
    spent = after_delta(after_delta(Spent(full_seconds=0.5), 288.0, 10), 0.1, 10)
    assert not choose(spent).full


def test_a_slow_delta_is_tried_again_in_time() -> None:
    spent = Spent()
    for _ in range(2):
        spent = after_delta(spent, 1.5, 10)
    refreshes = 0
    while choose(spent).full:
        spent = after_full(spent, 0.75)
        refreshes += 1
    assert 10 < refreshes < 60


def test_a_mode_that_asks_for_deltas_gets_them() -> None:
    spent = Spent(full_seconds=0.1, delta_seconds=288.0, delta_seconds_before=288.0)
    way = estimate("incremental", changes=10, rows=1_000, segments=1, spent=spent)
    assert not way.full
