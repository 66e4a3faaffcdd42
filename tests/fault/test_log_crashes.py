"""A real SIGKILL at every step of folding and sweeping a log, and writers that meet it.

Whatever step it was: every version is what it was, every operation id still leads to its commit,
and the next collection finishes what was begun.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import (
    NUMBERS_DDL,
    check_log,
    contents,
    copy_lake,
    end,
    numbers,
    pipe,
    run,
    start,
    wait_until,
)

import tidelock
from tidelock import Lake, errors
from tidelock.store import parts
from tidelock.store.log import checkpoint_writer, checkpoints, log, operation_ids, operation_index
from tidelock.store.objects import layout
from tidelock.store.objects.failpoints import recorded
from tidelock.store.upkeep.garbage import sweep

KILLED = -signal.SIGKILL
COMMITS = 110


SMALL = {
    **{(module, "SPANS"): (8, 64) for module in (checkpoints, log, checkpoint_writer, parts)},
    **{(module, "STEP"): 64 for module in (operation_index, operation_ids, checkpoint_writer)},
}
"""Checkpoints of fewer versions, so that a short history is enough."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for (module, name), value in SMALL.items():
        monkeypatch.setattr(module, name, value)


def hurry() -> None:
    """The same in a process of its own, which removes at once what is replaced."""
    for (module, name), value in SMALL.items():
        setattr(module, name, value)
    for module in (checkpoint_writer, sweep):
        module.REMOVE_AFTER_SECONDS = 0.0  # type: ignore[attr-defined]


def make(uri: str) -> None:
    """A lake whose log was never folded, with claims, a fork, and a branch that was deleted."""
    checkpoint_writer.LogFolder.fold = lambda self, branch: None  # type: ignore[method-assign]
    with tidelock.open(uri, create=True, actor="ada") as lake:
        lake.create_table("t", NUMBERS_DDL)
        for number in range(COMMITS):
            write(lake, number)
            if number == 40:
                lake.create_branch("early")
        for name in ("early", "gone"):
            if name == "gone":
                lake.create_branch(name)
            for number in range(20):
                write(lake, 1000 + number, name)
        lake.delete_branch("gone")


def write(lake: Lake, number: int, branch: str = "main") -> None:
    properties = {"number": number}
    with lake.transaction(operation_id=f"job {number}", branch=branch, properties=properties) as tx:
        if number % 10 == 0:
            tx.append("t", numbers((number, number)))


def collect(uri: str) -> None:
    hurry()
    with tidelock.open(uri, actor="the keeper") as lake:
        for _ in range(2):
            lake.collect_garbage(older_than=3600)


def collect_swiftly(uri: str) -> None:
    """Collect with nothing retained, so that the deleted branch and the claims go too."""
    hurry()
    with tidelock.open(uri, actor="the keeper") as lake:
        for _ in range(2):
            time.sleep(0.02)
            lake.collect_garbage(older_than=0)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("template") / "lake")
    assert run(make, uri) == 0
    return uri


@pytest.fixture
def copies(template: str, tmp_path: Path) -> Iterator[str]:
    return (copy_lake(template, tmp_path / str(number)) for number in itertools.count())


def steps_of(uri: str, told: Any) -> None:
    with recorded() as names:
        collect_swiftly(uri)
    seen: Counter[str] = Counter()
    steps = []
    for name in names:
        seen[name] += 1
        if name.startswith(("fold_log", "sweep")):
            steps.append((name, seen[name]))
    told.send(steps)


def check(uri: str) -> None:
    """The histories, and the operations in them, are what they were."""
    with tidelock.open(uri, read_only=True) as lake:
        commits = [one for one in check_log(lake) if one.kind == "data"]
        assert [one.operation_id for one in commits] == [f"job {n}" for n in range(COMMITS)]
        early = [one for one in check_log(lake, "early") if one.kind == "data"]
        expected = [*(f"job {n}" for n in range(41)), *(f"job {n}" for n in range(1000, 1020))]
        assert [one.operation_id for one in early] == expected
        assert contents(lake)["t"] == Counter((n, n) for n in range(0, COMMITS, 10))
        for one in (commits[0], commits[7], commits[64], commits[-1]):
            assert lake.find_operation(one.operation_id) == one
        assert lake.find_operation("job 5", branch="early") == early[5]
        assert lake.find_operation("job 60", branch="early") is None
        assert lake.find_operation("no job") is None


def log_objects(uri: str) -> list[str]:
    folders = (layout.LOG, layout.PAST, layout.PUBLISHED, layout.OPERATIONS, layout.BRANCHES)
    return sorted(str(p) for one in folders for p in Path(uri, one).rglob("*") if p.is_file())


def test_a_collector_killed_at_any_step_of_the_log_loses_nothing(copies: Iterator[str]) -> None:
    uri = next(copies)
    check(uri)
    heard, told = pipe()
    assert run(steps_of, uri, told) == 0
    steps = heard.recv()
    check(uri)
    finished = len(log_objects(uri))
    # Of each kind of step the first and the last.
    by_name: dict[str, list[tuple[str, int]]] = {}
    for step in steps:
        by_name.setdefault(step[0], []).append(step)
    assert set(by_name) == {
        "fold_log.before_put",
        "fold_log.after_put",
        "fold_log.before_index",
        "fold_log.after_index",
        "fold_log.before_remove",
        "fold_log.after_remove",
        "sweep.before_delete",
        "sweep.after_delete",
    }
    chosen = {step for same in by_name.values() for step in (same[0], same[-1])}
    for name, number in sorted(chosen):
        uri = next(copies)
        code = run(collect_swiftly, uri, failpoints=f"{name}=kill@{number}")
        assert code == KILLED, f"{name} {number} was not reached (exit code {code})"
        check(uri)
        assert run(collect_swiftly, uri) == 0
        check(uri)
        assert len(log_objects(uri)) <= finished + 2, (name, number)


def append_late(uri: str, gate: str, told: Any) -> None:
    """Begin a transaction and stop right before the put of its record."""
    hurry()
    with tidelock.open(uri, actor="the sleeper", lease_seconds=600) as lake:
        try:
            with lake.transaction("late", operation_id="late") as tx:
                tx.append("t", numbers((-1, -1)))
        except errors.TidelockError as error:
            told.send(type(error).__name__)
        else:
            assert tx.commit is not None
            told.send(tx.commit.version)


def write_many(uri: str) -> None:
    hurry()
    with tidelock.open(uri, actor="the busy one") as lake:
        for number in range(COMMITS, COMMITS + 60):
            write(lake, number)


@pytest.mark.parametrize("suspended", [False, True], ids=["waits", "is suspended"])
def test_a_writer_that_sleeps_before_its_put_is_published_once_and_for_all_to_see(
    copies: Iterator[str], tmp_path: Path, suspended: bool
) -> None:
    uri = next(copies)
    gate = tmp_path / "gate"
    heard, told = pipe()
    sleeper = start(
        append_late, uri, str(gate), told, failpoints=f"publish.before_put=pause:{gate}@1"
    )
    try:
        wait_until(Path(f"{gate}.reached").exists)
        if suspended:
            assert sleeper.pid is not None
            os.kill(sleeper.pid, signal.SIGSTOP)
        number = COMMITS + 2
        assert run(write_many, uri) == 0
        assert run(collect, uri) == 0
        assert not Path(uri, layout.record("main", number)).exists(), "the number is not free"
        # By now it was seen longer ago than it is relied on.
        time.sleep(1.0)
        gate.touch()
        if suspended:
            assert sleeper.pid is not None
            os.kill(sleeper.pid, signal.SIGCONT)
        assert heard.poll(60)
        version = heard.recv()
        sleeper.join(60)
    finally:
        end(sleeper)
    with tidelock.open(uri) as lake:
        commits = check_log(lake)
        late = [one for one in commits if one.operation_id == "late"]
        assert [one.version for one in late] == [version]
        assert version > COMMITS + 60
        assert lake.find_operation("late") == late[0]
        assert contents(lake)["t"][-1, -1] == 1
    assert not Path(uri, layout.record("main", number)).exists()


def race(uri: str, name: int, seconds: float) -> None:
    hurry()
    with tidelock.open(uri, actor=f"writer {name}") as lake:
        until = time.monotonic() + seconds
        for number in itertools.count():
            if time.monotonic() > until:
                return
            with lake.transaction(operation_id=f"{name} {number}") as tx:
                tx.append("t", numbers((name, number)))


def read_old(uri: str, seconds: float) -> None:
    """Read old versions for a while, by a new handle each time, so that nothing is at hand."""
    hurry()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with tidelock.open(uri, actor="the reader") as lake:
            for number in range(0, COMMITS, 9):
                commit = lake.find_operation(f"job {number}")
                assert commit is not None
                at = lake.snapshot(version=commit.version)
                assert at.time == commit.time
                rows = {(n, n) for n in range(0, number + 1, 10)}
                assert set(contents(at)["t"]) == rows, f"version {commit.version}"


def test_writers_readers_and_collectors_that_meet_all_the_time_lose_nothing(
    copies: Iterator[str],
) -> None:
    uri = next(copies)
    busy = [start(race, uri, 10_000 + name, 4.0) for name in range(3)]
    busy.append(start(read_old, uri, 4.0))
    try:
        while any(one.is_alive() for one in busy):
            # Two that fold and sweep the same at once.
            other = start(collect, uri)
            code = run(collect, uri)
            other.join(60)
            assert (code, other.exitcode) == (0, 0)
    finally:
        codes = [one.exitcode for one in busy]
        end(*busy)
    assert codes == [0] * len(busy)
    with tidelock.open(uri) as lake:
        commits = [one for one in check_log(lake) if one.kind == "data"]
        late = [one for one in commits if one.tables]
        assert len(late) == contents(lake)["t"].total()
        for one in commits[::17]:
            assert lake.find_operation(one.operation_id) == one
