from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelock.errors import InvalidOption, ObjectExists, ObjectMissing, StoreUnavailable
from tidelock.store.objects import failpoints
from tidelock.store.objects.failpoints import armed, hit, recorded
from tidelock.store.objects.kinds.location import locate
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import Call, FaultyStore


@pytest.fixture
def inner(request: pytest.FixtureRequest) -> Iterator[Objects]:
    objects = locate(f"memory://{request.node.name}").objects()
    yield objects
    for info in objects.list(""):
        objects.delete(info.key)


def test_a_planned_error_before_the_effect_has_none(inner: Objects) -> None:
    store = FaultyStore(inner, seed=1)
    store.fail_next("put_new", key_contains="log/")
    store.put_new("other", b"")
    with pytest.raises(StoreUnavailable) as caught:
        store.put_new("log/1", b"")
    assert caught.value.seed == 1
    assert inner.info("log/1") is None
    store.put_new("log/1", b"")


def test_a_planned_error_after_the_effect_keeps_it(inner: Objects) -> None:
    store = FaultyStore(inner, seed=1)
    store.fail_next("put_new", key_contains="log/", when="after", times=2)
    for _ in range(2):  # the second finds the object there, and its answer is lost as well
        with pytest.raises(StoreUnavailable):
            store.put_new("log/1", b"mine")
    assert inner.get("log/1") == b"mine"
    with pytest.raises(ObjectExists):
        store.put_new("log/1", b"")


def test_a_plan_may_let_calls_pass_and_may_be_for_any_operation(inner: Objects) -> None:
    store = FaultyStore(inner, seed=1)
    store.fail_next(skip=2)
    store.put("a", b"")
    store.list("")
    with pytest.raises(StoreUnavailable):
        store.get("a")
    assert store.get("a") == b""


def test_calls_are_recorded_and_counted(inner: Objects) -> None:
    store = FaultyStore(inner, seed=1)
    store.fail_next("get")
    store.put("log/1", b"")
    with pytest.raises(StoreUnavailable):
        store.get("log/1")
    store.list("log")
    assert store.calls == [
        Call("put", "log/1", None),
        Call("get", "log/1", "before"),
        Call("list", "log", None),
    ]
    assert store.count() == 3
    assert store.count("get", key_contains="log/") == 1
    store.forget()
    assert store.count() == 0


def faults_of(inner: Objects, seed: int) -> list[str | None]:
    store = FaultyStore(inner, seed, rate=0.5, slow_seconds=0)
    for number in range(50):
        with contextlib.suppress(StoreUnavailable, ObjectExists):
            store.put_new(f"{number}", b"")
    return [call.fault for call in store.calls]


def test_a_seed_gives_the_same_faults_again(inner: Objects) -> None:
    first = faults_of(inner, 3)
    assert faults_of(inner, 3) == first
    assert faults_of(inner, 4) != first
    assert set(first) == {None, "before", "after", "timeout", "slow"}


@pytest.mark.parametrize("seed", range(5))
def test_under_faults_what_was_acknowledged_is_there_and_what_is_there_was_asked_for(
    inner: Objects, seed: int
) -> None:
    store = FaultyStore(inner, seed, rate=0.4, slow_seconds=0)
    acknowledged = set()
    for number in range(100):
        key = f"k{number}"
        try:
            store.put_new(key, key.encode())
            acknowledged.add(key)
        except StoreUnavailable:
            pass
        try:
            assert store.get(key) == key.encode()
        except ObjectMissing:
            assert key not in acknowledged
        except StoreUnavailable:
            pass
    assert acknowledged <= {info.key for info in inner.list("")}
    by_fault = {call.key: call.fault for call in store.calls if call.operation == "put_new"}
    assert all(inner.info(key) is None for key, fault in by_fault.items() if fault == "before")
    assert all(inner.info(key) for key, fault in by_fault.items() if fault == "after")
    timeouts = [inner.info(key) for key, fault in by_fault.items() if fault == "timeout"]
    assert None in timeouts or len(timeouts) < 5


def test_a_rate_may_be_for_some_operations_and_keys_only(inner: Objects) -> None:
    store = FaultyStore(inner, 1, rate=1, operations=["put"], key_contains="log/")
    store.put("other", b"")
    store.put_new("log/1", b"")
    with pytest.raises(StoreUnavailable):
        FaultyStore(inner, 1, rate=1, faults=["before"], key_contains="log/").put("log/1", b"")


def test_latency_is_added_to_every_call(inner: Objects) -> None:
    store = FaultyStore(inner, 1, latency_seconds=0.02)
    begin = time.perf_counter()
    store.put("a", b"")
    store.get("a")
    assert time.perf_counter() - begin >= 0.04


def test_an_unarmed_failpoint_does_next_to_nothing() -> None:
    rounds = 100_000
    best = min(_seconds(rounds) for _ in range(5))
    assert best / rounds < 1e-6  # tens of nanoseconds; the slack is for a busy machine


def _seconds(rounds: int) -> float:
    begin = time.perf_counter()
    for _ in range(rounds):
        hit("nothing")
    return time.perf_counter() - begin


def test_an_armed_error_is_raised_at_its_hit_only_and_only_in_the_block() -> None:
    with armed("step", "error@2") as failpoint:
        hit("other")
        hit("step")
        with pytest.raises(StoreUnavailable, match="step"):
            hit("step")
        hit("step")
    assert failpoint.hits == 3
    with armed("step", "error"):
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                hit("step")
        with armed("step", "sleep:0"):
            hit("step")
        with pytest.raises(StoreUnavailable):
            hit("step")
    hit("step")


def test_a_pause_tells_that_it_was_reached_and_ends_when_the_file_appears(tmp_path: Path) -> None:
    gate = tmp_path / "gate@2 x"
    with armed("step", f"pause:{gate}"):
        thread = threading.Thread(target=hit, args=("step",))
        thread.start()
        reached = Path(f"{gate}.reached")
        while not reached.exists():
            time.sleep(0.001)
        assert thread.is_alive()
        gate.touch()
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_the_steps_of_a_run_can_be_recorded() -> None:
    with recorded() as steps, armed("b", "sleep:0"):
        hit("a")
        hit("b")
        hit("a")
    hit("c")
    assert steps == ["a", "b", "a"]


def run(failpoints: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tidelock.store.objects.failpoints import hit\n" + script],
        env={**os.environ, "TIDELOCK_FAILPOINTS": failpoints},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_environment_arms_a_process_to_kill_itself_at_a_step() -> None:
    done = run(
        "x=sleep:0; publish.before_put=kill@2;",
        "for n in range(3):\n hit('x')\n print(n, flush=True)\n hit('publish.before_put')",
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == ["0", "1"]


def test_a_process_with_failpoints_that_cannot_be_read_does_not_start() -> None:
    done = run("x=explode", "")
    assert done.returncode == 1
    assert "'x=explode' cannot be understood" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "=kill",
        "x=",
        "x=explode",
        "x=kill:1",
        "x=error@0",
        "x=error@y",
        "x=error@",
        "x=sleep",
        "x=sleep:",
        "x=sleep:long",
        "x=pause",
        "a=kill;b",
    ],
)
def test_a_failpoint_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="Write name=action"):
        failpoints.parse(text)


def test_failpoints_are_read_with_their_arguments() -> None:
    parsed = failpoints.parse(" a=kill ;b.c=error@3;d=sleep:0.5@1;e=pause:/tmp/x:y;")
    assert [(p.name, p.action, p.argument, p.only_hit) for p in parsed] == [
        ("a", "kill", "", None),
        ("b.c", "error", "", 3),
        ("d", "sleep", "0.5", 1),
        ("e", "pause", "/tmp/x:y", None),
    ]
