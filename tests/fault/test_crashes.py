"""A real SIGKILL at every step of every kind of work: the lake is before or after, never between.

The steps are recorded from a run that nobody disturbs, so a step that is added to the store is
killed at without a word here.
"""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pytest
from tests.support import writers
from tests.support.lakes import (
    age,
    check_log,
    collect_all,
    contents,
    copy_lake,
    end,
    files_of,
    run,
    start,
    wait_until,
)
from tests.support.writers import ACTOR, AFTER, BEFORE, OPERATION

import tidelock
from tidelock.store.objects.failpoints import recorded

Step = tuple[str, int]
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("template") / "lake")
    writers.make(uri)
    return uri


@pytest.fixture
def copies(template: str, tmp_path: Path) -> Iterator[str]:
    """Fresh copies of the template."""
    return (copy_lake(template, tmp_path / str(number)) for number in itertools.count())


def steps_of(work: Callable[..., None], *arguments: object) -> list[Step]:
    """Every step of some work, each with how often it came before: what a kill can be aimed at."""
    seen: Counter[str] = Counter()
    with recorded() as names:
        work(*arguments)
    steps = []
    for name in names:
        seen[name] += 1
        steps.append((name, seen[name]))
    return steps


def kill_at(step: Step, work: Callable[..., None], *arguments: object) -> None:
    code = run(work, *arguments, failpoints=f"{step[0]}=kill@{step[1]}")
    assert code == KILLED, f"{step} was not reached (exit code {code})"


def expected(steps: list[Step], step: Step) -> dict[str, Counter[tuple[int, ...]]]:
    """What the lake must hold after a crash at a step, and after recovery."""
    point = steps.index(step)
    decided = [("intent.after_seal", 1), ("publish.after_put", 1)]
    done = any(one in steps and steps.index(one) <= point for one in decided)
    return AFTER if done else BEFORE


@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
def test_a_writer_killed_at_any_step_leaves_the_lake_before_or_after(
    copies: Iterator[str], streaming: bool
) -> None:
    steps = steps_of(writers.write, next(copies), streaming)
    assert len(steps) > 40
    for step in steps:
        uri = next(copies)
        kill_at(step, writers.write, uri, streaming)
        with tidelock.open(uri, read_only=True) as reader:
            assert contents(reader) in (BEFORE, AFTER), step
        age(uri)
        with tidelock.open(uri, actor="the healer") as lake:
            check_recovered(lake, steps, step)
        with tidelock.open(uri) as lake:
            check_recovered(lake, steps, step)
            # Whatever happened, trying again with the same id ends in the one commit.
            writers.write_with(lake, streaming)
            assert contents(lake) == AFTER
            collect_all(lake)
            assert contents(lake) == AFTER
            assert collect_all(lake).files == 0
            check_log(lake)


def check_recovered(lake: tidelock.Lake, steps: list[Step], step: Step) -> None:
    assert contents(lake) == expected(steps, step), step
    ours = [commit for commit in check_log(lake) if commit.operation_id == OPERATION]
    assert len(ours) == (expected(steps, step) is AFTER)
    assert all(commit.actor == ACTOR and commit.message == "everything" for commit in ours)
    assert not lake.intents()
    point = steps.index(step)
    held = [("intent.after_put", 1), ("intent.after_remove", 1)]
    left = held[0] in steps and steps.index(held[0]) <= point < steps.index(held[1])
    outcomes = [(row.operation_id, row.outcome, row.actor) for row in lake.recoveries()]
    outcome = "rolled_forward" if ours else "discarded"
    assert outcomes == ([(OPERATION, outcome, ACTOR)] if left else []), step


def test_the_intent_of_a_writer_that_may_live_is_not_touched(copies: Iterator[str]) -> None:
    uri = next(copies)
    kill_at(("publish.before_put", 1), writers.write, uri, True)
    with tidelock.open(uri) as lake:
        assert len(lake.intents()) == 1
        assert not lake.recoveries()
        assert contents(lake) == BEFORE
        lake.collect_garbage(older_than=0)
        age(uri)
        assert [row.outcome for row in lake.repair().recovered] == ["rolled_forward"]
        assert contents(lake) == AFTER


CRASHES = {
    "unsealed": ("intent.before_seal", 1),
    "sealed": ("publish.before_put", 1),
    "published": ("publish.after_put", 1),
}


@pytest.fixture(scope="module", params=CRASHES)
def crashed(
    request: pytest.FixtureRequest, template: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A lake whose writer died, and what becomes of it."""
    uri = copy_lake(template, tmp_path_factory.mktemp("crashed") / "lake")
    kill_at(CRASHES[request.param], writers.write, uri, True)
    age(uri)
    return uri, "discarded" if request.param == "unsealed" else "rolled_forward"


def test_a_recovery_killed_at_any_step_is_finished_by_the_next(
    crashed: tuple[str, str], tmp_path: Path
) -> None:
    uri, outcome = crashed
    numbers = itertools.count()

    def copy() -> str:
        # Copying renews what is copied.
        target = copy_lake(uri, tmp_path / str(next(numbers)))
        age(target)
        return target

    steps = steps_of(writers.reopen, copy())
    assert {"heal.before_settle", "heal.after_remove"} <= {name for name, _ in steps}
    for step in steps:
        target = copy()
        kill_at(step, writers.reopen, target)
        again = [step for step in steps if step[0] not in ("publish.before_put",)]
        run(writers.reopen, target, failpoints=f"{again[len(again) // 2][0]}=kill")
        check_settled(target, outcome)


def check_settled(uri: str, outcome: str) -> None:
    for _ in range(2):
        with tidelock.open(uri) as lake:
            assert [(row.operation_id, row.outcome) for row in lake.recoveries()] == [
                (OPERATION, outcome)
            ]
            assert not lake.intents()
            assert contents(lake) == (AFTER if outcome == "rolled_forward" else BEFORE)
            published = [c.actor for c in check_log(lake) if c.operation_id == OPERATION]
            assert published == ([ACTOR] if outcome == "rolled_forward" else [])


@pytest.mark.parametrize(
    "gate", ["heal.before_settle", "publish.before_put", "heal.before_audit", "heal.after_audit"]
)
def test_two_processes_that_recover_at_once_agree(
    crashed: tuple[str, str], tmp_path: Path, gate: str
) -> None:
    uri, outcome = crashed
    target = copy_lake(uri, tmp_path / "lake")
    age(target)
    gates = [tmp_path / "gate 0", tmp_path / "gate 1"]
    healers = [start(writers.reopen, target, failpoints=f"{gate}=pause:{path}") for path in gates]
    for path, healer in zip(gates, healers, strict=True):
        reached = Path(f"{path}.reached")
        wait_until(lambda reached=reached, healer=healer: reached.exists() or not healer.is_alive())
    for path in gates:
        path.touch()
    for healer in healers:
        healer.join(timeout=60)
    assert [healer.exitcode for healer in healers] == [0, 0]
    end(*healers)
    check_settled(target, outcome)


def test_maintenance_killed_at_any_step_changes_no_row(copies: Iterator[str]) -> None:
    for work in (writers.optimize, writers.collect):
        for step in steps_of(work, next(copies)):
            uri = next(copies)
            kill_at(step, work, uri)
            age(uri)
            with tidelock.open(uri) as lake:
                assert contents(lake) == BEFORE
                check_log(lake)
                work(uri)
                assert contents(lake) == BEFORE


def test_branch_work_killed_at_any_step_leaves_whole_branches(copies: Iterator[str]) -> None:
    after = {**BEFORE, "events": BEFORE["events"] + Counter([(50, 50)])}
    for step in steps_of(writers.branch_and_tag, next(copies)):
        uri = next(copies)
        kill_at(step, writers.branch_and_tag, uri)
        age(uri)
        with tidelock.open(uri) as lake:
            for branch in lake.branches():
                assert contents(lake, branch=branch.name) in (BEFORE, after)
                check_log(lake, branch.name)
            for tag in lake.tags():
                assert contents(lake, tag=tag.name) == after
            assert contents(lake) == BEFORE


def test_a_mirror_killed_at_any_step_is_not_taken_for_a_foreign_commit(
    copies: Iterator[str],
) -> None:
    for step in steps_of(writers.mirror, next(copies)):
        uri = next(copies)
        kill_at(step, writers.mirror, uri)
        age(uri)
        with tidelock.open(uri) as lake:
            assert not lake.repair().foreign, step
            lake.mirror("accounts")
            table = lake.table("accounts")
            assert lance.dataset(table.path).to_table().sort_by("id") == table.to_arrow().sort_by(
                "id"
            )


def test_what_a_killed_writer_staged_is_collected(copies: Iterator[str]) -> None:
    uri = next(copies)
    with tidelock.open(uri) as lake:
        collect_all(lake)
        live = files_of(uri)
    kill_at(("publish.before_put", 1), writers.write, uri, False)
    orphans = files_of(uri) - live
    assert orphans
    age(uri)
    with tidelock.open(uri) as lake:
        plan = collect_all(lake, dry_run=True)
        assert files_of(uri) - live == orphans
        done = collect_all(lake)
        assert (done.files, done.size_bytes) == (plan.files, plan.size_bytes)
        assert files_of(uri) == live
        assert contents(lake) == BEFORE
