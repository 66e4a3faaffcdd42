"""A partition that is behind: what follows from a step that it takes, decided without I/O."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.sinks.receivers import define

from tidelock.deliver.delivery.plan.lagging import Step, after_step, goal_of
from tidelock.model.sinks import Chunk, Feed, Lag, SinkState

CHUNK = Chunk(3, 5, 2)


def state(**lagging: Lag) -> SinkState:
    return SinkState(7, 100, dict(lagging))


def step(until: int, of: int = 0) -> Step:
    return Step("a", (CHUNK,), until, version=9, of=of)


@pytest.mark.parametrize(("feed", "goal"), [("inserts", 40), ("changes", 100)])
def test_rows_are_sent_again_up_to_where_they_were_and_changes_up_to_the_others(
    feed: Feed, goal: int
) -> None:
    definition = replace(define("s", "own:sink", "somewhere"), feed=feed)
    assert goal_of(definition, state(), Lag(3, again=40)) == goal


def test_a_partition_that_has_everything_lags_no_more() -> None:
    definition = define("s", "own:sink", "somewhere")
    after = after_step(definition, state(a=Lag(3, (CHUNK,)), b=Lag(1)), step(5))
    assert (after.plan, after.watermark, after.lagging) == (8, 100, {"b": Lag(1)})


def test_one_that_is_sent_again_lags_until_it_has_come_so_far() -> None:
    definition = define("s", "own:sink", "somewhere")
    before = state(a=Lag(3, (CHUNK,), again=40))
    assert after_step(definition, before, step(5)).lagging == {"a": Lag(5, again=40)}
    assert after_step(definition, before, step(40)).lagging == {}


def test_one_whose_rows_were_noted_lags_until_every_note_is_sent() -> None:
    definition = define("s", "own:sink", "somewhere")
    before = state(a=Lag(3, skipped=(5, 6)))
    after = after_step(definition, before, step(20, of=5))
    assert after.lagging == {"a": Lag(20, skipped=(6,))}
    assert after_step(definition, after, step(30, of=6)).lagging == {}


def test_a_step_without_chunks_has_no_part() -> None:
    assert step(5).parts[0].chunks == (CHUNK,)
    assert Step("a", (), 5, 9).parts == ()
