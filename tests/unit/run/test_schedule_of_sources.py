"""Sources by schedule: read all the time or in rounds, each on its own, and told of as it is."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import wait_until
from tests.support.line_source import KIND, KIND_ANEW, mood, rows, say, times
from tests.unit.run.test_schedule_of_sinks import asked

import tidelock
from tidelock import Lake
from tidelock.errors import InvalidOption, SourceBusy, SourceNotFound
from tidelock.ingest import post, troubles
from tidelock.ingest.reports import IngestReport
from tidelock.ingest.schedule import readings, shift
from tidelock.run.scheduler import Scheduler, Watcher

__all__ = ["asked"]

SOON_SECONDS = 30.0


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        yield lake


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """All waits are short here."""
    monkeypatch.setattr(readings, "LIST_SECONDS", 0.1)
    monkeypatch.setattr(readings, "TELL_SECONDS", 0.05)
    monkeypatch.setattr(readings, "END_SECONDS", 1.0)
    monkeypatch.setattr(shift, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(shift, "PAUSE_SECONDS_MAX", 0.2)
    monkeypatch.setattr(troubles, "wait_seconds", lambda failures, chance: 0.2)
    monkeypatch.setattr(troubles, "WAITING_SECONDS", 0.1)
    monkeypatch.setattr(post, "LOOK_SECONDS", 0.02)


def attach(lake: Lake, folder: Path, name: str = "a", **options: Any) -> Path:
    path = folder / f"{name}.jsonl"
    lake.create_source(name, **{"kind": KIND, "into": f"{name}_rows", "path": str(path), **options})
    return path


def ids(lake: Lake, name: str = "a") -> list[int]:
    found: list[int] = lake.table(f"{name}_rows").to_arrow()["id"].to_pylist()
    return sorted(found)


@contextmanager
def scheduled(lake: Lake, **watched: Callable[..., None]) -> Iterator[threading.Event]:
    """The scheduler of a lake, while the block runs; it must end in seconds."""
    stop, failures = threading.Event(), []
    found = Scheduler(
        lake._store, lake._refreshes, lake._sinks, "main", sources=lake._sources, look_seconds=0.02
    )

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


def state(lake: Lake, name: str = "a") -> str:
    return lake.source_status(name).state


def test_a_live_source_is_read_as_it_goes_on_and_each_transaction_is_a_commit(
    lake: Lake, tmp_path: Path
) -> None:
    path = attach(lake, tmp_path)
    said: list[IngestReport] = []
    with scheduled(lake, ingested=said.append):
        say(path, rows(1), rows(2, 3))
        wait_until(lambda: ids(lake) == [1, 2, 3])
        say(path, {"gone": [2]})
        wait_until(lambda: ids(lake) == [1, 3])
        assert state(lake) == "streaming"
        assert lake.source_status("a").reader
    wait_until(lambda: sum(one.commits for one in said) == 3)
    assert sum(one.rows for one in said) == 4
    assert {table.table for one in said for table in one.tables} == {"a_rows"}
    assert path.with_suffix(".told").read_text() == "3"
    assert state(lake) == "idle"
    assert times(path, "opened") == 2, "once when it was created, once to be read"


def test_sources_in_rounds_are_read_when_a_moment_has_come_and_those_without_are_not(
    lake: Lake, tmp_path: Path
) -> None:
    often = attach(lake, tmp_path, "often", schedule="1s")
    seldom = attach(lake, tmp_path, "seldom", schedule="1h")
    never = attach(lake, tmp_path, "never", schedule=None)
    for path in (often, seldom, never):
        say(path, rows(1))
    with scheduled(lake):
        wait_until(lambda: ids(lake, "often") == [1] and ids(lake, "seldom") == [1])
        for path in (often, seldom):
            say(path, rows(2))
        wait_until(lambda: ids(lake, "often") == [1, 2])
        assert ids(lake, "seldom") == [1]
    assert ids(lake, "never") == []
    # Whoever comes next knows when it was read last.
    with scheduled(lake):
        wait_until(lambda: times(often, "polled") > 3)
    assert ids(lake, "seldom") == [1]


@pytest.mark.parametrize(
    ("word", "shown", "reason"),
    [
        ("unreachable", "unreachable", "nobody is at home."),
        ("stopped", "stopped", "the slot is gone."),
        ("denied", "stopped", "the door is locked."),
        ("bug", "failing", "ZeroDivisionError: a bug"),
    ],
)
def test_one_that_fails_says_why_stops_nobody_else_and_goes_on_when_it_can(
    lake: Lake, tmp_path: Path, word: str, shown: str, reason: str
) -> None:
    wrong, right = attach(lake, tmp_path), attach(lake, tmp_path, "b")
    mood(wrong, word)
    said: list[IngestReport] = []
    with scheduled(lake, ingested=said.append), tidelock.open(lake.uri) as other:
        wait_until(lambda: state(other) == shown)
        found = other.source_status("a")
        assert (found.reason, found.retry_at is not None) == (reason, True)
        say(right, rows(1))
        wait_until(lambda: ids(lake, "b") == [1])
        time.sleep(0.6)
        tried = times(wrong, "polled")
        assert (tried == 1) == (shown == "stopped"), "what is stopped is tried again seldom"
        mood(wrong)
        say(wrong, rows(1))
        if shown == "stopped":
            other.resume_source("a")
        wait_until(lambda: ids(lake) == [1])
        wait_until(lambda: state(other) == "streaming")
        assert other.source_status("a").reason == ""
    told = [one for one in said if one.source == "a" and one.action == "failed"]
    assert [(one.state, one.reason) for one in told] == [(shown, reason)], "told once"


def test_what_others_do_about_sources_is_noticed(lake: Lake, tmp_path: Path) -> None:
    with scheduled(lake), tidelock.open(lake.uri) as other:
        path = attach(other, tmp_path)
        say(path, rows(1))
        wait_until(lambda: ids(lake) == [1])
        other.suspend_source("a", "a pause")
        wait_until(lambda: not other.source_status("a").reader)
        found = other.source_status("a")
        assert (found.state, found.reason) == ("suspended", "a pause")
        say(path, rows(2))
        time.sleep(0.4)
        assert ids(lake) == [1]
        other.resume_source("a")
        wait_until(lambda: ids(lake) == [1, 2])
        other.drop_source("a")
        assert times(path, "dropped") == 1
        with pytest.raises(SourceNotFound):
            other.source_status("a")
        again = attach(other, tmp_path / "..", "a", into="again", path=str(path))
        wait_until(lambda: other.table("again").count() == 2)
    assert again


def test_one_that_another_process_reads_is_waited_for(lake: Lake, tmp_path: Path) -> None:
    path = attach(lake, tmp_path)
    say(path, rows(1))
    definition = lake._sources.registry.definition("a")
    said: list[IngestReport] = []
    with scheduled(lake, ingested=said.append):
        wait_until(lambda: ids(lake) == [1])
    with post.held(lake._store, definition), scheduled(lake, ingested=said.append):
        wait_until(lambda: any(one.action == "waiting" for one in said))
        say(path, rows(2))
        time.sleep(0.3)
        assert ids(lake) == [1]
        assert sum(one.action == "waiting" for one in said) == 1
    with scheduled(lake):
        wait_until(lambda: ids(lake) == [1, 2])
        with pytest.raises(SourceBusy), tidelock.open(lake.uri) as other:
            other.ingest("a")


def test_it_ends_in_seconds_though_a_source_hangs(lake: Lake, tmp_path: Path) -> None:
    hanging, right = attach(lake, tmp_path), attach(lake, tmp_path, "b")
    mood(hanging, "hang")
    with scheduled(lake):
        wait_until(lambda: times(hanging, "polled") == 1)
        say(right, rows(1))
        wait_until(lambda: ids(lake, "b") == [1])
        began = time.monotonic()
    assert time.monotonic() - began < 10


def test_nothing_is_written_while_nothing_changes(
    lake: Lake, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    paths = [attach(lake, tmp_path, f"s{number}") for number in range(5)]
    attach(lake, tmp_path, "hourly", schedule="1h")
    for path in paths:
        say(path, rows(1))
    with scheduled(lake):
        wait_until(lambda: all(state(lake, f"s{number}") == "streaming" for number in range(5)))
        wait_until(lambda: all(ids(lake, f"s{number}") == [1] for number in range(5)))
        # Rates are of the last seconds, and are nothing after these.
        wait_until(lambda: all(one.rows_per_second for one in lake.sources() if one.position))
        wait_until(lambda: not any(one.rows_per_second for one in lake.sources()))
        time.sleep(0.3)
        polled = times(paths[0], "polled")
        asked.clear()
        time.sleep(1)
        done = Counter(name for name, key in asked if not _is_lease(key))
    assert times(paths[0], "polled") > polled
    assert set(done) <= {"get", "list"}, done
    read = {key for name, key in asked if name == "get" and not _is_lease(key)}
    assert all("/log/" in key for key in read), read


def _is_lease(key: str) -> bool:
    return any(one in key for one in ("/posts/", "/leases/", "/notices/"))


def test_rates_lag_and_open_transactions_are_seen_by_another_process(
    lake: Lake, tmp_path: Path
) -> None:
    path = attach(lake, tmp_path)
    mood(path, "open")
    with scheduled(lake), tidelock.open(lake.uri) as other:
        for number in itertools.count():
            say(path, rows(number))
            found = other.source_status("a")
            if found.rows_per_second and found.open:
                break
            assert number < 2000, "waited in vain"
            time.sleep(0.02)
        assert (found.lag_bytes, found.lag_seconds, found.newest) == (5, 1.0, "99")
        assert found.transactions_per_second > 0
        assert (found.open[0].rows, found.open[0].size_bytes) == (10, 2048)
    assert lake.source_status("a").open == ()
    assert lake.source_status("a").rows_per_second == 0


def test_tables_are_loaded_anew_where_the_kind_can_and_who_reads_steps_aside(
    lake: Lake, tmp_path: Path
) -> None:
    plain, path = attach(lake, tmp_path), attach(lake, tmp_path, "b", kind=KIND_ANEW)
    say(path, rows(1, 2))
    with pytest.raises(InvalidOption, match="cannot load its tables anew"):
        lake.resnapshot("a")
    assert plain
    with scheduled(lake), tidelock.open(lake.uri) as other:
        wait_until(lambda: ids(lake, "b") == [1, 2])
        with other.transaction() as tx:
            tx.delete("b_rows", "id = 1")
        assert ids(lake, "b") == [2]
        with pytest.raises(InvalidOption, match="no table 'nope'"):
            other.resnapshot("b", tables=["nope"])
        report = other.resnapshot("b", tables=["b_rows"])
        assert (report.action, report.rows) == ("ingested", 2)
        assert ids(lake, "b") == [1, 2]
        say(path, rows(3))
        wait_until(lambda: ids(lake, "b") == [1, 2, 3])
