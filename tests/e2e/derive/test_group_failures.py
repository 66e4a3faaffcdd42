"""Whatever fails at whichever member of a group, however it is refreshed: nothing is published.

a  ->  b, c  ->  d  ->  after       b, c and d are one group
o  ->  other                        which no failure of the group may touch
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.support.histories import check_groups
from tests.support.lakes import copy_lake, wait_until
from tests.support.streams import check, multiset

import tidelock
from tidelock import Lake
from tidelock.cli.show.refresh_view import RefreshView
from tidelock.derive.attempts.attempts import Attempt
from tidelock.derive.graph.groups import Unit
from tidelock.run.scheduler import Watcher
from tidelock.store.objects.failpoints import armed

MEMBERS = ("b", "c", "d")
STREAMS = {
    "b": "SELECT id, 100 / x AS p, z FROM a",
    "c": "SELECT id, 100 / y AS q FROM a",
    "d": "SELECT b.id, b.p, c.q, 100 / b.z AS r FROM b JOIN c ON b.id = c.id",
    "after": "SELECT COUNT(*) AS n FROM d",
    "other": "SELECT v, COUNT(*) AS n FROM o GROUP BY v",
}
# A zero in this column is a division by zero in that member.
DIVISORS = {"b": "x", "c": "y", "d": "z"}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("template") / "lake")
    with tidelock.open(uri, create=True, engine="sail") as lake:
        lake.create_table("a", "id INT NOT NULL, x INT, y INT, z INT", key="id")
        lake.create_table("o", "id INT NOT NULL, v INT", key="id")
        add(lake, 1)
        for name, query in STREAMS.items():
            lake.create_stream_table(name, query, refresh_mode="incremental")
        lake.refresh()
    return uri


@pytest.fixture
def lake(template: str, tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(copy_lake(template, tmp_path / "lake"), engine="sail") as lake:
        yield lake


def add(lake: Lake, one: int, **values: int) -> None:
    row = {"id": one, "x": 1, "y": 1, "z": 1, **values}
    lake.run(lambda tx: tx.upsert("a", [row]), retries=50)


# Ways to refresh: each returns once the group was tried ---------------------------------------


def serial(lake: Lake) -> None:
    lake.refresh(due=True, parallel=False)


def parallel(lake: Lake) -> None:
    lake.refresh(due=True, parallel=True)


def scheduled(lake: Lake) -> None:
    """As `tidelock run` does, until it has said what became of the group."""
    stop = threading.Event()

    def tried(attempt: Any) -> None:
        if attempt.table in MEMBERS:
            stop.set()

    is_due = lake.groups()[0].not_due_because is None
    ringer = threading.Timer(30.0 if is_due else 1.2, stop.set)
    ringer.start()
    lake.serve_schedule(stop=stop, watcher=Watcher(attempted=tried))
    ringer.cancel()


WAYS = (serial, parallel, scheduled)


@contextlib.contextmanager
def commits_between_members(lake: Lake) -> Iterator[None]:
    """Somebody commits to the group's source all the time, also between two members."""
    stop = threading.Event()
    made: list[int] = []

    def commit() -> None:
        while not stop.is_set():
            made.append(1000 + len(made))
            add(lake, made[-1])
            time.sleep(0.02)

    writer = threading.Thread(target=commit)
    with armed("refresh.after_member", "sleep:0.05"):
        writer.start()
        try:
            wait_until(lambda: len(made) > 1)
            yield
        finally:
            stop.set()
            writer.join()


def standing(lake: Lake, *names: str) -> dict[str, Any]:
    """What a reader sees of stream tables."""
    snapshot = lake.snapshot()
    found = {}
    for name in names or MEMBERS:
        state = snapshot.states()[name].stream
        assert state is not None
        rows = multiset(snapshot.table(name).to_arrow().to_pylist())
        found[name] = (state.epoch, state.as_of, state.refreshed, rows)
    return found


def check_that_all_advance(lake: Lake, refresh: Callable[[Lake], None]) -> None:
    before = check_groups(lake)["d"]
    refresh(lake)
    assert check_groups(lake)["d"] == before + 1
    assert {one.epoch for one in lake.stream_tables() if one.name in MEMBERS} == {before + 1}
    lake.refresh(list(STREAMS))
    check(lake)


@pytest.mark.parametrize("refresh", WAYS)
@pytest.mark.parametrize("member", MEMBERS)
def test_a_member_that_fails_on_its_data_publishes_nothing_of_its_group(
    lake: Lake, member: str, refresh: Callable[[Lake], None]
) -> None:
    before = standing(lake)
    add(lake, 2, **{DIVISORS[member]: 0})
    lake.run(lambda tx: tx.upsert("o", [{"id": 1, "v": 5}]))
    with commits_between_members(lake):
        refresh(lake)
    assert standing(lake) == before
    # Who is not of the group went on.
    assert lake.table("other").to_arrow().to_pylist() == [{"v": 5, "n": 1}]
    with tidelock.open(lake.uri, read_only=True) as fresh:
        failed = fresh.history(member)[0]
        assert (failed.action, failed.epoch) == ("failed", 1)
        assert "ZERO" in failed.reason.upper()
        assert standing(fresh) == before
        (group,) = fresh.groups()
        assert f"{member!r} is suspended" in str(group.not_due_because)
        assert member in group.last_result
        for healthy in set(MEMBERS) - {member}:
            assert [one.action for one in fresh.history(healthy)] == ["full"]
    refresh(lake)
    assert standing(lake) == before, "it was tried again though one member is suspended"
    lake.run(lambda tx: tx.delete("a", where="id = 2"))
    lake.resume(member)
    check_that_all_advance(lake, refresh)


# Where an error is put, and of whom it may be told: an error within a member is that member's, and
# b and c are staged side by side.
INJECTED = {
    "table.before_write=error@1": "bc",
    "table.before_write=error@2": "bc",
    "table.before_write=error@3": "d",
    "refresh.after_member=error@1": None,
    "refresh.after_member=error@2": None,
    "refresh.after_member=error@3": None,
    "refresh.before_publish=error@1": None,
    "stage.after_table=error@1": None,
    "stage.after_table=error@3": None,
}


@pytest.mark.parametrize(
    ("failpoint", "refresh"),
    [
        *((failpoint, serial) for failpoint in INJECTED),
        *((failpoint, scheduled) for failpoint, member in INJECTED.items() if member),
    ],
)
def test_an_error_at_any_member_publishes_nothing_and_is_tried_again_later(
    lake: Lake, failpoint: str, refresh: Callable[[Lake], None]
) -> None:
    name, _, action = failpoint.partition("=")
    before = standing(lake)
    add(lake, 2)
    with armed(name, action) as point:
        refresh(lake)
    assert point.hits >= int(action[-1]), "the error was not reached"
    assert standing(lake) == before
    with tidelock.open(lake.uri, read_only=True) as fresh:
        failed = [one for one in MEMBERS if fresh.history(one)[0].action == "failed"]
        assert len(failed) == 1, "exactly one member is told to have failed"
        members = INJECTED[failpoint]
        assert members is None or failed[0] in members
        attempt = fresh.history(failed[0])[0]
        assert (attempt.condition, attempt.epoch) == ("STORE_UNAVAILABLE", 1)
        assert attempt.retry_at is not None
        assert f"failed 1 time: {attempt.reason}" in {one.status for one in fresh.stream_tables()}
    # It backs off, and goes on by itself.
    add(lake, 3)
    report = {one.table: one for one in lake.refresh(due=True)}
    # On a busy machine its time may have come already.
    if datetime.now(UTC) < attempt.retry_at:
        assert standing(lake) == before
        assert all("backing off" in report[one].reason for one in MEMBERS)
    add(lake, 4)
    wait_until(lambda: lake.groups()[0].not_due_because is None)
    check_that_all_advance(lake, refresh)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_suspended_member_holds_its_group_back_in_every_way_to_refresh(
    lake: Lake, member: str
) -> None:
    lake.suspend(member, reason="maintenance of the source")
    before = standing(lake)
    with commits_between_members(lake):
        for refresh in WAYS:
            refresh(lake)
            assert standing(lake) == before, refresh.__name__
        report = lake.refresh([member], full=True)
    assert standing(lake) == before
    assert {one.action for one in report} == {"skipped"}
    with tidelock.open(lake.uri, engine="sail") as fresh:
        assert "maintenance of the source" in str(fresh.groups()[0].not_due_because)
        fresh.resume(member)
        check_that_all_advance(fresh, scheduled)


def test_who_watches_the_scheduler_hears_how_everything_ended_that_has_begun(lake: Lake) -> None:
    add(lake, 2, **{DIVISORS["c"]: 0})
    lake.run(lambda tx: tx.append("o", [{"id": 1, "v": 1}]))
    running: set[str] = set()
    ended: dict[str, str] = {}
    view, stop = RefreshView(), threading.Event()

    def begun(unit: Unit) -> None:
        running.update(unit.members)
        view.begun(unit)

    def attempted(attempt: Attempt) -> None:
        running.discard(attempt.table)
        ended[attempt.table] = attempt.action
        view.attempted(attempt)
        if {"other", *MEMBERS} <= set(ended):
            stop.set()

    ringer = threading.Timer(60.0, stop.set)
    ringer.start()
    lake.serve_schedule(stop=stop, watcher=Watcher(begun, attempted))
    ringer.cancel()
    assert ended == {"b": "skipped", "c": "failed", "d": "skipped", "other": "incremental"}
    assert running == set()
    # What the view shows, suspended or held back, is what the lake says.
    view.follow(lake.stream_tables())
    console = Console(width=200)
    with console.capture() as capture:
        console.print(view._draw())
    shown = capture.get()
    assert "running" not in shown
    assert shown.count("held back: 'c' of its group") == 2


@pytest.mark.parametrize("refresh", WAYS)
def test_commits_between_members_belong_to_the_next_refresh(
    lake: Lake, refresh: Callable[[Lake], None]
) -> None:
    add(lake, 2)
    with commits_between_members(lake):
        refresh(lake)
    members = standing(lake)
    ((as_of, _),) = {(one[1], one[2]) for one in members.values()}
    then = lake.snapshot(version=as_of).table("a").to_arrow().num_rows
    assert lake.table("a").to_arrow().num_rows > then, "nobody committed between members"
    assert {rows.total() for *_, rows in members.values()} == {then}
    check_that_all_advance(lake, refresh)
