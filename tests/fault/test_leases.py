"""Writers that live, sleep and wake: nobody takes from the living, and nobody rises from the dead.

Processes are stopped with SIGSTOP, as a machine that is suspended stops them: all threads at once,
the one that renews leases too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support import writers
from tests.support.lakes import (
    NUMBERS,
    check_log,
    contents,
    end,
    numbers,
    pipe,
    rows_of,
    start,
    streamed,
    wait_until,
)
from tests.support.writers import BEFORE

import tidelock
from tidelock import errors
from tidelock.store.log import clock
from tidelock.store.objects.failpoints import armed
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore

LEASE_SECONDS = 0.4


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "lake")
    writers.make(uri)
    return uri


def write_in_two_steps(uri: str, streaming: bool, told: Any, heard: Any) -> None:
    """Stage, say so, wait for the word, publish, and tell how it ended."""
    lake = tidelock.open(uri, actor=writers.ACTOR)
    with lake.transaction("two steps") as tx:
        rows = numbers((100, 1), (101, 1))
        tx.append("events", streamed(rows) if streaming else rows)
        assert tx.table("events").count() == 6
        told.send(tx.operation_id)
        heard.recv()
        try:
            tx.publish()
        except errors.TidelockError as error:
            told.send(type(error).__name__)
        else:
            told.send("committed")


class Writer:
    """A process that has staged rows and waits."""

    def __init__(self, uri: str, streaming: bool, failpoints: str = "") -> None:
        self.told, send = pipe()
        receive, self.say = pipe()
        self.process = start(
            write_in_two_steps,
            uri,
            streaming,
            send,
            receive,
            failpoints=failpoints,
            lease_seconds=LEASE_SECONDS,
        )
        assert self.told.poll(30)
        self.operation_id = self.told.recv()

    def go_on(self) -> None:
        self.say.send("go on")

    def outcome(self) -> str:
        assert self.told.poll(30), "the writer does not end"
        return str(self.told.recv())

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)


@pytest.fixture
def writer_of(uri: str) -> Iterator[Callable[..., Writer]]:
    made: list[Writer] = []

    def make(streaming: bool, failpoints: str = "") -> Writer:
        made.append(Writer(uri, streaming, failpoints))
        return made[-1]

    yield make
    end(*(writer.process for writer in made))


def collect(uri: str) -> None:
    with tidelock.open(uri, actor="the keeper") as lake:
        assert not lake.collect_garbage(older_than=0).errors


def check_outcome(uri: str, writer: Writer, outcome: str, allowed: set[str]) -> None:
    """What was told is so, and whatever is visible can be read to the last row."""
    assert outcome in allowed
    with tidelock.open(uri) as lake:
        published = [c for c in check_log(lake) if c.operation_id == writer.operation_id]
        assert len(published) <= 1
        if outcome == "committed":
            assert published
        if outcome == "LeaseLost":
            assert not published, "it was told that nothing was written"
        added = {(100, 1): 1, (101, 1): 1} if published else {}
        assert contents(lake)["events"] == BEFORE["events"] + type(BEFORE["events"])(added)


@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
def test_a_writer_that_slept_past_its_lease_never_publishes_what_was_collected(
    uri: str, writer_of: Callable[..., Writer], streaming: bool
) -> None:
    writer = writer_of(streaming)
    writer.stop()
    time.sleep(LEASE_SECONDS * 2)
    collect(uri)
    writer.wake()
    time.sleep(LEASE_SECONDS)  # its lease is renewed before it goes on
    writer.go_on()
    check_outcome(uri, writer, writer.outcome(), {"LeaseLost"})


@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
@pytest.mark.parametrize("collecting", [False, True], ids=["healed", "collected"])
def test_a_writer_that_slept_right_before_its_put_is_told_the_truth(
    uri: str,
    writer_of: Callable[..., Writer],
    tmp_path: Path,
    streaming: bool,
    collecting: bool,
) -> None:
    gate = tmp_path / "gate"
    writer = writer_of(streaming, f"publish.before_put=pause:{gate}@1")
    writer.go_on()
    wait_until(Path(f"{gate}.reached").exists)
    writer.stop()
    time.sleep(LEASE_SECONDS * 2)
    if collecting:
        collect(uri)
    else:
        tidelock.open(uri).close()
    gate.touch()
    writer.wake()
    # What was sealed is published by whoever heals, and the writer finds its own commit.
    allowed = {"committed"} if streaming or not collecting else {"LeaseLost"}
    check_outcome(uri, writer, writer.outcome(), allowed)


@pytest.mark.parametrize("healed", [False, True], ids=["not yet healed", "healed"])
def test_a_writer_that_slept_after_sealing_is_not_told_that_nothing_was_written(
    uri: str, writer_of: Callable[..., Writer], tmp_path: Path, healed: bool
) -> None:
    gate = tmp_path / "gate"
    writer = writer_of(True, f"intent.after_seal=pause:{gate}@1")
    writer.go_on()
    wait_until(Path(f"{gate}.reached").exists)
    writer.stop()
    time.sleep(LEASE_SECONDS * 2)
    if healed:
        tidelock.open(uri).close()
    gate.touch()
    writer.wake()
    # Whoever heals may publish it, now or when it is too late to tell.
    check_outcome(uri, writer, writer.outcome(), {"committed"} if healed else {"OutcomeUnknown"})


def test_a_put_that_comes_right_before_the_fence_is_seen_by_the_collection(
    uri: str, writer_of: Callable[..., Writer], tmp_path: Path
) -> None:
    gate, fence = tmp_path / "gate", tmp_path / "fence"
    writer = writer_of(False, f"publish.before_put=pause:{gate}@1")
    writer.go_on()
    wait_until(Path(f"{gate}.reached").exists)
    writer.stop()
    time.sleep(LEASE_SECONDS * 2)
    collector = start(collect, uri, failpoints=f"garbage.before_fence=pause:{fence}@1")
    wait_until(Path(f"{fence}.reached").exists)
    gate.touch()
    writer.wake()
    outcome = writer.outcome()
    fence.touch()
    collector.join(timeout=60)
    assert collector.exitcode == 0
    end(collector)
    check_outcome(uri, writer, outcome, {"committed", "LeaseLost"})


@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
def test_a_writer_that_lives_is_neither_healed_away_nor_collected(
    uri: str, writer_of: Callable[..., Writer], streaming: bool
) -> None:
    writer = writer_of(streaming)
    deadline = time.monotonic() + 4 * LEASE_SECONDS
    while time.monotonic() < deadline:
        collect(uri)
        with tidelock.open(uri) as lake:
            with lake.transaction() as tx:
                tx.append("rates", numbers((1, 1)))
            assert not lake.recoveries()
            assert len(lake.intents()) == streaming
    writer.go_on()
    check_outcome(uri, writer, writer.outcome(), {"committed"})


def test_a_handle_that_slept_begins_anew_without_an_error(uri: str) -> None:
    lake = tidelock.open(uri, lease_seconds=0.2)
    with lake.transaction() as tx:
        tx.append("events", numbers((5, 5)))
    lake._store.keeper._beat.stop()  # nothing is renewed, as while the machine sleeps
    time.sleep(0.4)
    tx = lake.transaction()
    tx.append("events", numbers((6, 6)))
    time.sleep(0.4)
    with pytest.raises(errors.LeaseLost):
        tx.publish()
    with lake.transaction() as tx:
        tx.append("events", numbers((7, 7)))
    assert (7, 7) in rows_of(lake.table("events"))
    lake.close()


def test_a_lease_that_is_slow_to_become_visible_still_covers_what_was_staged_meanwhile(
    uri: str,
) -> None:
    stores: list[FaultyStore] = []

    def wrap(inner: Objects) -> Objects:
        stores.append(FaultyStore(inner, 1, slow_seconds=1.0))
        return stores[0]

    lake = tidelock.open(uri, objects=wrap, lease_seconds=5)
    with lake.transaction() as tx:
        stores[0].fail_next("put", key_contains="/leases/", when="slow")
        renewal = threading.Thread(target=lake._store.keeper.renew_all)
        renewal.start()
        time.sleep(0.2)
        tx.append("events", numbers((5, 5)))
        tx.table("events")
        renewal.join()
        collect(uri)
    assert rows_of(lake.table("events")).total() == 5
    assert contents(lake)["events"].total() == 5
    lake.close()


def test_a_healer_whose_clock_is_ahead_leaves_the_living_alone(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tidelock.open(uri)
    with lake.transaction() as tx:
        tx.append("events", streamed(numbers((5, 5))))
        monkeypatch.setattr(clock, "own_time", lambda: datetime.now(UTC) + timedelta(hours=1))
        with tidelock.open(uri) as other:
            assert not other.recoveries()
            assert len(other.intents()) == 1
    assert tx.commit is not None
    lake.close()


def test_leases_are_renewed_while_threads_begin_and_end(uri: str) -> None:
    lake = tidelock.open(uri)
    stop = threading.Event()

    def begin_and_end() -> None:
        held = []
        while not stop.is_set():
            held.append(lake.snapshot())
            with lake.transaction():
                held = held[-50:]

    threads = [threading.Thread(target=begin_and_end) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    try:
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            lake._store.keeper.renew_all()
            lake._store.lease.snapshots()
    finally:
        stop.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    lake.close()


def test_a_transaction_of_a_handle_that_was_closed_is_refused(uri: str) -> None:
    lake = tidelock.open(uri)
    tx = lake.transaction()
    tx.append("events", numbers((5, 5)))
    lake.close()
    with pytest.raises(errors.LakeClosed):
        tx.publish()
    with tidelock.open(uri) as other:
        assert contents(other) == BEFORE


def compact(uri: str) -> None:
    with tidelock.open(uri) as lake:
        lake.optimize()


@pytest.mark.parametrize("same_handle", [True, False], ids=["same handle", "another process"])
def test_what_maintenance_staged_is_kept_until_it_is_published(
    uri: str, tmp_path: Path, same_handle: bool
) -> None:
    gate = tmp_path / "gate"
    failpoint = f"pause:{gate}@1"
    if same_handle:
        lake = tidelock.open(uri)
        with armed("maintenance.before_publish", failpoint):
            thread = threading.Thread(target=lake.optimize)
            thread.start()
            wait_until(Path(f"{gate}.reached").exists)
            time.sleep(0.05)
            lake.collect_garbage(older_than=0)
            gate.touch()
            thread.join()
        lake.close()
    else:
        process = start(
            compact,
            uri,
            failpoints=f"maintenance.before_publish={failpoint}",
            lease_seconds=LEASE_SECONDS,
        )
        wait_until(Path(f"{gate}.reached").exists)
        time.sleep(LEASE_SECONDS * 3)
        collect(uri)
        gate.touch()
        process.join(timeout=60)
        assert process.exitcode == 0
        end(process)
    with tidelock.open(uri) as lake:
        assert lake.log()[0].kind == "maintenance"
        assert contents(lake) == BEFORE


def test_maintenance_that_slept_past_its_lease_publishes_nothing_that_was_collected(
    uri: str, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    process = start(
        compact,
        uri,
        failpoints=f"maintenance.before_publish=pause:{gate}@1",
        lease_seconds=LEASE_SECONDS,
    )
    wait_until(Path(f"{gate}.reached").exists)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(LEASE_SECONDS * 2)
    collect(uri)
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(LEASE_SECONDS)
    gate.touch()
    process.join(timeout=60)
    end(process)
    with tidelock.open(uri) as lake:
        assert contents(lake) == BEFORE


def hold_snapshot(uri: str, version: int, told: Any, heard: Any) -> None:
    lake = tidelock.open(uri)
    table = lake.snapshot(version=version).table("events")
    told.send("taken")
    heard.recv()
    told.send(table.to_arrow().num_rows)


def test_a_snapshot_in_use_by_another_process_is_kept(uri: str) -> None:
    with tidelock.open(uri) as lake:
        for number in range(3):
            with lake.transaction() as tx:
                tx.overwrite("events", numbers(*[(number, number)] * (number + 10)))
    told, send = pipe()
    receive, say = pipe()
    reader = start(hold_snapshot, uri, 4, send, receive, lease_seconds=LEASE_SECONDS)
    assert told.poll(30)
    assert told.recv() == "taken"
    time.sleep(2 * LEASE_SECONDS)
    collect(uri)
    say.send("read")
    assert told.poll(30)
    assert told.recv() == 10
    reader.join(timeout=30)
    end(reader)
    time.sleep(LEASE_SECONDS * 1.5)
    collect(uri)
    with tidelock.open(uri) as lake:
        assert lake.snapshot().table("events").count() == 12
        with pytest.raises(errors.SnapshotExpired):
            lake.snapshot(version=4).table("events")


def stream_slowly(uri: str, seconds: float) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            time.sleep(seconds / 20)
            yield pa.RecordBatch.from_pylist(numbers((number, 1)), schema=NUMBERS)

    lake = tidelock.open(uri, actor="slow")
    with lake.transaction() as tx:
        tx.append("events", pa.RecordBatchReader.from_batches(NUMBERS, batches()))


def test_a_stream_that_outlives_many_leases_is_committed_whole(uri: str) -> None:
    process = start(stream_slowly, uri, 2.0, lease_seconds=0.3)
    while process.is_alive():
        collect(uri)
        time.sleep(0.1)
    assert process.exitcode == 0
    end(process)
    with tidelock.open(uri) as lake:
        assert lake.table("events").count() == 24
        assert contents(lake)["events"].total() == 24
        assert not lake.recoveries()
