"""Deliveries by schedule: nothing is read while nothing happens, and nobody waits for another."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import wait_until
from tests.support.sinks.destinations import files_at, rows_at
from tests.support.sinks.receivers import Do, Receiver, receiving

import tidelock
from tidelock import Lake
from tidelock.deliver import deliveries
from tidelock.deliver.reports import DeliveryReport
from tidelock.errors import SinkBusy
from tidelock.model.sinks import SinkDefinition
from tidelock.run import scheduler
from tidelock.run.scheduler import Scheduler, Watcher
from tidelock.store.objects.kinds.local import LocalObjects

HANGING = Do(seconds=120)
SOON_SECONDS = 30.0
"""Much less than a destination hangs, and enough for a machine that has other things to do."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", "id BIGINT, place STRING")
        yield lake


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def add(lake: Lake, *ids: int) -> None:
    lake.run(lambda tx: tx.append("t", [{"id": one, "place": "a"} for one in ids]))


def attach(lake: Lake, folder: Path, name: str, **options: Any) -> None:
    lake.create_sink(name, table="t", kind="jsonl", to=str(folder / name), **options)


def count_at(lake: Lake, name: str) -> int:
    return len(rows_at(lake, name))


@contextmanager
def scheduled(
    lake: Lake, look_seconds: float = 0.02, **watched: Callable[..., None]
) -> Iterator[threading.Event]:
    """The scheduler of a lake, while the block runs; it must end in seconds."""
    stop, failures = threading.Event(), []
    found = Scheduler(lake._store, lake._refreshes, lake._sinks, "main", look_seconds=look_seconds)

    def run() -> None:
        try:
            found.run(stop, Watcher(**watched))
        except BaseException as error:  # noqa: BLE001 - the test is told
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive(), "it did not end"
        assert failures == []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every request to a store on files, from now on."""
    found: list[tuple[str, str]] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(LocalObjects, name)

        def ask(self: LocalObjects, key: str, *rest: Any) -> Any:
            found.append((name, key))
            return real(self, key, *rest)

        return ask

    for name in ("get", "info", "put", "put_new", "delete", "list", "list_folders"):
        monkeypatch.setattr(LocalObjects, name, counted(name))
    return found


HEAD = "the head"


def looks_of(lake: Lake, asked: list[tuple[str, str]], seconds: float = 0.5) -> Counter[str]:
    """What is asked for in a while, the record after the newest being the look at the head."""
    head = f"_tidelock/log/main/{lake._store.branches.head('main').version + 1:020d}.json"
    asked.clear()
    time.sleep(seconds)
    return Counter(HEAD if one == ("get", head) else " ".join(one) for one in list(asked))


def test_a_look_that_finds_nothing_to_do_asks_for_the_head_once_and_reads_nothing_else(
    lake: Lake, tmp_path: Path, asked: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LEDGER_SECONDS", 0.2)
    add(lake, 1, 2)
    for number in range(5):
        attach(lake, tmp_path, f"s{number}", schedule="upstream" if number % 2 else "1h")
    with scheduled(lake):
        wait_until(lambda: all(count_at(lake, f"s{n}") == 2 for n in (1, 3)))
        # What was delivered leaves traces, which are seen once.
        time.sleep(0.5)
        monkeypatch.setattr(deliveries, "LEDGER_SECONDS", 3600)
        wait_until(lambda: len(looks_of(lake, asked)) == 1)
        done = looks_of(lake, asked)
    assert done == {HEAD: done[HEAD]}
    assert done[HEAD] > 5


def test_a_change_is_followed_by_the_sinks_of_its_table_alone(
    lake: Lake, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    lake.create_table("other", "id BIGINT")
    attach(lake, tmp_path, "mine")
    lake.create_sink("theirs", table="other", kind="jsonl", to=str(tmp_path / "theirs"))
    theirs = lake.sink_status("theirs").id

    def is_quiet() -> bool:
        asked.clear()
        time.sleep(0.2)
        return not any(theirs in key for _, key in asked)

    with scheduled(lake):
        lake.run(lambda tx: tx.append("other", [{"id": 1}]))
        add(lake, 1)
        wait_until(lambda: count_at(lake, "mine") == count_at(lake, "theirs") == 1)
        wait_until(is_quiet)
        add(lake, 2)
        wait_until(lambda: count_at(lake, "mine") == 2)
        touched = [key for _, key in asked if theirs in key]
    assert touched == []


def test_five_destinations_that_hang_cost_only_themselves(
    lake: Lake, tmp_path: Path, receiver: Receiver
) -> None:
    """Twelve of them, for that matter; and what hangs does not keep it from ending."""
    receiver.rule = lambda request: HANGING
    for number in range(12):
        lake.create_sink(f"hook{number}", table="t", kind="http", to=receiver.url)
    attach(lake, tmp_path, "files")
    add(lake, 1)
    with scheduled(lake):
        wait_until(lambda: count_at(lake, "files") == 1, SOON_SECONDS)
        wait_until(lambda: len(receiver.requests) == 12, SOON_SECONDS)
        add(lake, 2)
        wait_until(lambda: count_at(lake, "files") == 2, SOON_SECONDS)
        ended = time.monotonic()
    assert time.monotonic() - ended < SOON_SECONDS
    # What was sent and not answered is sent again under the same key, once its lease is over.
    assert lake.sink_status("hook0").in_flight


def test_all_sinks_are_delivered_to_side_by_side(
    lake: Lake, tmp_path: Path, receiver: Receiver
) -> None:
    receiver.rule = lambda request: HANGING
    for number in range(5):
        lake.create_sink(f"hook{number}", table="t", kind="http", to=receiver.url, timeout=3)
    attach(lake, tmp_path, "files")
    add(lake, 1)
    began = time.monotonic()
    reports = lake.deliver()
    assert time.monotonic() - began < 12, "one after the other"
    assert [(one.sink, one.action) for one in reports] == [
        ("files", "delivered"),
        *((f"hook{number}", "failed") for number in range(5)),
    ]


def test_a_delivery_by_hand_ends_when_it_is_told_to(lake: Lake, receiver: Receiver) -> None:
    receiver.rule = lambda request: HANGING
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 1)
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    assert lake.deliver("hook", stop=stop).action == "interrupted"
    assert time.monotonic() - began < SOON_SECONDS


def test_what_changes_while_a_sink_is_delivered_to_is_delivered_afterwards(
    lake: Lake, receiver: Receiver
) -> None:
    receiver.then(Do(seconds=0.5))
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 1)
    with scheduled(lake):
        wait_until(lambda: len(receiver.requests) == 1)
        add(lake, 2)
        wait_until(lambda: sorted(row["id"] for row in receiver.rows()) == [1, 2], SOON_SECONDS)


def test_a_destination_that_fails_is_tried_again_though_nobody_commits(
    lake: Lake, receiver: Receiver
) -> None:
    receiver.then(Do(500))
    lake.create_sink("hook", table="t", kind="http", to=receiver.url)
    add(lake, 1)
    told: list[DeliveryReport] = []
    with scheduled(lake, delivered=told.append):
        wait_until(lambda: len(told) == 2, SOON_SECONDS)
    assert [one.action for one in told] == ["failed", "delivered"]


def replayed(lake: Lake, name: str) -> bool:
    """Replay a sink, unless somebody delivers to it right now."""
    try:
        lake.replay(name)
    except SinkBusy:
        return False
    return True


def test_what_others_do_about_sinks_is_noticed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LEDGER_SECONDS", 0.1)
    add(lake, 1)
    with scheduled(lake), tidelock.open(lake.uri) as other:
        attach(other, tmp_path, "late")
        wait_until(lambda: count_at(lake, "late") == 1)
        other.suspend_sink("late")
        time.sleep(0.3)
        add(lake, 2)
        time.sleep(0.5)
        assert count_at(lake, "late") == 1
        other.resume_sink("late")
        wait_until(lambda: count_at(lake, "late") == 2)
        (file, *_) = sorted(files_at(lake, "late"))
        (tmp_path / "late" / file).unlink()
        wait_until(lambda: replayed(other, "late"))
        wait_until(lambda: count_at(lake, "late") == 2)
        other.drop_sink("late")
        attach(other, tmp_path / "again", "late")
        wait_until(lambda: count_at(lake, "late") == 2)


def test_a_failure_of_a_kind_of_ones_own_is_told_and_stops_no_other(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attach(lake, tmp_path, "files")
    attach(lake, tmp_path, "wrong")
    real = lake._sinks.deliver_due

    def deliver(definition: SinkDefinition, stopped: Callable[[], bool]) -> DeliveryReport:
        if definition.name == "wrong":
            raise ZeroDivisionError("a bug")
        return real(definition, stopped)

    monkeypatch.setattr(lake._sinks, "deliver_due", deliver)
    told: list[DeliveryReport] = []
    add(lake, 1)
    with scheduled(lake, delivered=told.append):
        wait_until(lambda: count_at(lake, "files") == 1)
        wait_until(lambda: any(one.sink == "wrong" for one in told))
    assert {one.reason for one in told if one.sink == "wrong"} == {"ZeroDivisionError: a bug"}
    assert "could not be delivered to" in caplog.text


@pytest.mark.parametrize("name", ["broken.json", ".DS_Store"])
def test_a_definition_that_cannot_be_read_stops_no_other(
    lake: Lake, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    attach(lake, tmp_path, "files")
    Path(lake.uri, "_tidelock", "sinks", "names", name).write_bytes(b"")
    add(lake, 1)
    assert [one.name for one in lake.sinks()] == ["files"]
    with scheduled(lake):
        wait_until(lambda: count_at(lake, "files") == 1)
    add(lake, 2)
    assert [one.action for one in lake.deliver()] == ["delivered"]
    assert ("a sink is passed over" in caplog.text) == name.endswith(".json")


def test_the_loop_asks_as_often_as_it_is_told(lake: Lake) -> None:
    assert scheduler.LOOK_SECONDS <= 0.5
    assert deliveries.LEDGER_SECONDS <= 10
