"""The ledger: whatever of it is lost or put back, it tells where a sink stands, or stops it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tidelock.deliver.delivery.ledger import Ledger, Progress, settle
from tidelock.errors import SinkExists, SinkNotFound, SinkStopped
from tidelock.model.sinks import Chunk, DeliveryPlan, Lag, Part, SinkDefinition, SinkState
from tidelock.store.objects.kinds.location import locate
from tidelock.store.objects.protocol import Objects

NOW = datetime(2026, 1, 2, tzinfo=UTC)
DEFINITION = SinkDefinition(
    name="lager",
    id="lager-1",
    table="t",
    table_id="t-1",
    branch="main",
    branch_id="main-1",
    kind="parquet",
    to="nowhere",
    feed="inserts",
    partition_by=(),
    schedule=None,
    start=-1,
    snapshot=None,
    hold_seconds=1.0,
    options={},
    actor="somebody",
    created=NOW,
)
FIRST = SinkState(0, -1)
SECOND = SinkState(1, 9, seen=3)
THIRD = SinkState(2, 19, {"g=a": Lag(9, (Chunk(9, 19, 4),), 5)}, seen=5)


def plan_between(before: SinkState, after: SinkState) -> DeliveryPlan:
    part = Part("", (Chunk(before.watermark, after.watermark, 10),))
    return DeliveryPlan(
        after.plan, "lager-1", 7, before.watermark, after.watermark, (part,), before, after
    )


OPEN = plan_between(SECOND, THIRD)
CLOSED = replace(OPEN, parts=(), closed=True)


@pytest.mark.parametrize(
    ("state", "newest", "stands", "resumes", "mends"),
    [
        (SECOND, OPEN, SECOND, True, False),
        (THIRD, OPEN, THIRD, False, False),
        (THIRD, CLOSED, THIRD, False, False),
        (None, OPEN, SECOND, True, True),
        (None, CLOSED, THIRD, False, True),
        (FIRST, OPEN, SECOND, True, True),
        (FIRST, CLOSED, THIRD, False, True),
        (SECOND, CLOSED, THIRD, False, True),
    ],
)
def test_state_and_newest_plan_together_tell_where_a_sink_stands(
    state: SinkState | None, newest: DeliveryPlan, stands: SinkState, resumes: bool, mends: bool
) -> None:
    found = settle(DEFINITION, state, newest)
    assert found.state == stands
    assert found.open == (newest if resumes else None)
    assert (found.mended is not None) == mends


@pytest.mark.parametrize("newest", [OPEN, CLOSED])
def test_a_state_that_is_ahead_of_every_plan_stops_the_sink(newest: DeliveryPlan) -> None:
    with pytest.raises(SinkStopped, match="plan 7"):
        settle(DEFINITION, SinkState(7, 80), newest)


@pytest.fixture
def objects() -> Objects:
    return locate("memory://ledger-of-a-test").objects()


@pytest.fixture
def ledger(objects: Objects) -> Ledger:
    for info in objects.list("_tidelock"):
        objects.delete(info.key)
    ledger = Ledger(objects)
    ledger.create(DEFINITION, FIRST)
    return ledger


def state_key() -> str:
    return "_tidelock/sinks/lager-1/state.json"


def plan_key(number: int) -> str:
    return f"_tidelock/sinks/lager-1/plans/{number:012d}.json"


def test_a_plan_is_open_until_the_watermark_has_moved(ledger: Ledger) -> None:
    assert ledger.standing(DEFINITION).state == FIRST
    ledger.begin(plan_between(FIRST, SECOND))
    assert ledger.standing(DEFINITION).open == plan_between(FIRST, SECOND)
    ledger.note(plan_between(FIRST, SECOND), Progress({"": 1}))
    ledger.advance(plan_between(FIRST, SECOND), SECOND)
    assert (ledger.standing(DEFINITION).state, ledger.standing(DEFINITION).open) == (SECOND, None)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "of another kind": lambda data: b'{"format": 1}',
    "no text": lambda data: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("harm", DAMAGES)
def test_a_damaged_state_is_taken_from_the_newest_plan(
    ledger: Ledger, objects: Objects, harm: str
) -> None:
    ledger.begin(plan_between(FIRST, SECOND))
    ledger.advance(plan_between(FIRST, SECOND), SECOND)
    objects.put(state_key(), DAMAGES[harm](objects.get(state_key())))
    found = ledger.standing(DEFINITION)
    assert found.state == SECOND
    assert found.mended
    ledger.correct(DEFINITION, found.state)
    assert ledger.standing(DEFINITION).mended is None


@pytest.mark.parametrize("harm", DAMAGES)
def test_a_damaged_plan_that_is_closed_is_not_needed(
    ledger: Ledger, objects: Objects, harm: str
) -> None:
    ledger.begin(plan_between(FIRST, SECOND))
    ledger.advance(plan_between(FIRST, SECOND), SECOND)
    objects.put(plan_key(1), DAMAGES[harm](objects.get(plan_key(1))))
    assert ledger.standing(DEFINITION).state == SECOND


@pytest.mark.parametrize("harm", DAMAGES)
def test_a_damaged_plan_that_is_open_stops_the_sink_and_says_how_to_go_on(
    ledger: Ledger, objects: Objects, harm: str
) -> None:
    ledger.begin(plan_between(FIRST, SECOND))
    objects.put(plan_key(1), DAMAGES[harm](objects.get(plan_key(1))))
    with pytest.raises(SinkStopped, match=r"lake.replay\('lager', since=POSITION\)"):
        ledger.standing(DEFINITION)
    ledger.restart(DEFINITION, SinkState(0, 4))
    assert ledger.standing(DEFINITION).state == SinkState(2, 4)


def test_nothing_left_of_state_and_plans_stops_the_sink(ledger: Ledger, objects: Objects) -> None:
    objects.delete(state_key())
    with pytest.raises(SinkStopped, match="state is gone"):
        ledger.standing(DEFINITION)


@pytest.mark.parametrize("harm", DAMAGES)
def test_damaged_progress_counts_as_none(ledger: Ledger, objects: Objects, harm: str) -> None:
    plan = plan_between(FIRST, SECOND)
    ledger.begin(plan)
    ledger.note(plan, Progress({"": 3}))
    assert ledger.progress(plan).sent == {"": 3}
    key = "_tidelock/sinks/lager-1/progress/000000000001.json"
    objects.put(key, DAMAGES[harm](objects.get(key)))
    assert ledger.progress(plan).sent == {}


def test_old_plans_and_their_progress_are_removed(ledger: Ledger, objects: Objects) -> None:
    state = FIRST
    for number in range(1, 6):
        following = SinkState(number, number * 10)
        plan = plan_between(state, following)
        ledger.begin(plan)
        ledger.note(plan, Progress({"": 1}))
        ledger.advance(plan, following)
        state = following
    keys = [info.key for info in objects.list("_tidelock/sinks/lager-1")]
    assert keys == [plan_key(5), state_key()]


def test_a_name_is_given_once_and_forgotten_when_dropped(ledger: Ledger, objects: Objects) -> None:
    with pytest.raises(SinkExists):
        ledger.create(replace(DEFINITION, id="lager-2"), FIRST)
    assert ledger.definition("lager") == DEFINITION
    assert ledger.standing(DEFINITION).state == FIRST
    ledger.drop(DEFINITION)
    with pytest.raises(SinkNotFound):
        ledger.definition("lager")
    assert objects.list("_tidelock/sinks") == []
