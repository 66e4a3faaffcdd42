"""Clocks that are wrong, of a writer's machine or of the store itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.lakes import check_log, collect_all, contents, numbers, rows_of

import tidelock
from tidelock import Lake, errors
from tidelock.store.log.clock import LakeClock
from tidelock.store.objects.kinds.location import locate

YEAR = timedelta(days=365)
HOUR = timedelta(hours=1)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "lake")
    with tidelock.open(uri, create=True) as lake:
        lake.create_table("events", "id BIGINT, v BIGINT")
        write(lake, 1)
    return uri


def write(lake: Lake, value: int) -> None:
    lake.run(lambda tx: tx.overwrite("events", numbers((value, value))))


def off_by(difference: timedelta) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) + difference


def misdate(lake: Lake, difference: timedelta) -> None:
    """Let a handle date its commits as if the store's own clock were wrong."""
    lake._store.publisher._moment = lambda before: max(before, datetime.now(UTC) + difference)


@pytest.mark.parametrize("difference", [YEAR, -YEAR], ids=["ahead", "behind"])
def test_a_writer_whose_clock_is_wrong_dates_commits_by_the_stores(
    uri: str, monkeypatch: pytest.MonkeyPatch, difference: timedelta
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("tidelock.store.log.clock.own_time", off_by(difference))
        with tidelock.open(uri) as wrong:
            write(wrong, 2)
            assert abs(wrong.log()[0].time - datetime.now(UTC)) < timedelta(seconds=5)
    with tidelock.open(uri) as lake:
        write(lake, 3)
        assert abs(lake.log()[0].time - datetime.now(UTC)) < timedelta(seconds=5)
        check_log(lake)


def test_on_a_store_far_away_the_clock_is_asked_for_once(uri: str) -> None:
    asked: list[str] = []
    objects = locate(uri).objects()

    class Counted:
        def info(self, key: str) -> object:
            asked.append(key)
            return objects.info(key)

    clock = LakeClock(Counted(), off_by(YEAR))  # type: ignore[arg-type]
    objects.put("_tidelock/clock.json", b"{}")
    clock.wrote("_tidelock/clock.json")
    now = datetime.now(UTC)
    for _ in range(3):
        assert abs(clock.moment(now - HOUR) - now) < timedelta(seconds=5)
    assert len(asked) == 1


def test_who_agrees_with_the_commit_before_asks_nobody() -> None:
    clock = LakeClock(_Unasked())
    clock.wrote("something")
    before = datetime.now(UTC) - timedelta(seconds=3)
    assert before < clock.moment(before) <= datetime.now(UTC)


class _Unasked:
    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked for")


@pytest.fixture
def spoiled(uri: str) -> Iterator[tuple[Lake, list[datetime]]]:
    """A lake in which one commit, of version 3, is dated a year ahead; and moments between later
    ones."""
    with tidelock.open(uri) as wrong:
        misdate(wrong, YEAR)
        write(wrong, 2)
    moments = []
    with tidelock.open(uri) as lake:
        for value in (3, 4, 5):
            time.sleep(0.02)
            moments.append(datetime.now(UTC))
            time.sleep(0.02)
            write(lake, value)
        moments.append(datetime.now(UTC) + timedelta(seconds=1))
        yield lake, moments


def test_a_time_finds_its_version_although_a_commit_is_of_next_year(
    spoiled: tuple[Lake, list[datetime]],
) -> None:
    lake, moments = spoiled
    check_log(lake)
    for value, moment in enumerate(moments, start=2):
        assert rows_of(lake.snapshot(at=moment).table("events")) == {(value, value): 1}
    assert lake.snapshot(at=moments[0] + 2 * YEAR).version == lake.snapshot().version
    with pytest.raises(errors.VersionNotFound):
        lake.snapshot(at=moments[0] - HOUR)


def test_what_is_old_is_collected_although_a_commit_is_of_next_year(
    spoiled: tuple[Lake, list[datetime]],
) -> None:
    lake, _ = spoiled
    assert collect_all(lake).files
    with pytest.raises(errors.SnapshotExpired):
        lake.snapshot(version=3).table("events").to_arrow()
    assert contents(lake)["events"] == {(5, 5): 1}


def test_what_is_young_is_kept_although_a_commit_is_of_next_year(
    spoiled: tuple[Lake, list[datetime]],
) -> None:
    lake, _ = spoiled
    lake.collect_garbage(older_than="1h")
    for version, value in ((2, 1), (3, 2), (4, 3)):
        table = lake.snapshot(version=version).table("events")
        assert rows_of(table) == {(value, value): 1}


def test_when_something_was_published_is_known_although_a_commit_is_of_next_year(
    spoiled: tuple[Lake, list[datetime]],
) -> None:
    lake, moments = spoiled
    head = lake._store.branches.head("main")
    found = [lake._store.published_at(head, version) for version in range(2, head.version + 1)]
    assert all(one is not None and one <= moments[-1] for one in found)
    assert found == sorted(found, key=lambda one: one or moments[-1])


def test_what_every_clock_dated_ahead_is_of_no_known_time(uri: str) -> None:
    with tidelock.open(uri) as lake:
        misdate(lake, YEAR)
        write(lake, 2)
        next_year = time.time() + YEAR.total_seconds()
        newest = max(Path(uri, "_tidelock", "log", "main").iterdir())
        os.utime(newest, (next_year, next_year))
        head = lake._store.branches.head("main")
        assert lake._store.published_at(head, head.version) is None
        assert lake._store.published_at(head, head.version - 1) is not None


@pytest.mark.parametrize("difference", [YEAR, -YEAR], ids=["ahead", "behind"])
def test_branches_and_tags_are_dated_by_the_stores_clock(
    uri: str, monkeypatch: pytest.MonkeyPatch, difference: timedelta
) -> None:
    monkeypatch.setattr("tidelock.store.log.clock.own_time", off_by(difference))
    with tidelock.open(uri) as wrong:
        write(wrong, 2)
        for created in (wrong.create_branch("dev").created, wrong.tag("q1").created):
            assert abs(created - datetime.now(UTC)) < timedelta(seconds=5)


def staged_files(uri: str) -> list[Path]:
    return [path for path in Path(uri, "tables").rglob("*") if path.is_file()]


def test_files_from_before_the_clock_went_forward_are_kept_for_their_writer(uri: str) -> None:
    with tidelock.open(uri) as lake:
        lake.snapshot()
        clock = lake._store.clock
        clock._own = off_by(-HOUR)
        clock.compare = lambda: None  # type: ignore[method-assign]
        clock._ahead = None
        known = set(staged_files(uri))
        tx = lake.transaction()
        tx.append("events", numbers((7, 7)))
        assert tx.table("events").count() == 2
        an_hour_ago = time.time() - HOUR.total_seconds()
        for path in set(staged_files(uri)) - known:
            os.utime(path, (an_hour_ago, an_hour_ago))
        clock._own = off_by(timedelta())  # the clock takes a step
        lake._store.keeper.renew_all()
        with tidelock.open(uri) as other:
            collect_all(other)
        collect_all(lake)
        tx.publish()
        assert contents(lake)["events"] == {(1, 1): 1, (7, 7): 1}


def test_files_from_after_the_clock_went_back_are_kept_for_their_writer(uri: str) -> None:
    with tidelock.open(uri) as lake:
        lake.snapshot()
        in_an_hour = time.time() + HOUR.total_seconds()
        for path in Path(uri, "_tidelock", "leases").iterdir():
            os.utime(path, (in_an_hour, in_an_hour))
        tx = lake.transaction()
        tx.append("events", numbers((7, 7)))
        assert tx.table("events").count() == 2
        time.sleep(0.05)
        with tidelock.open(uri) as other:
            collect_all(other)
        tx.publish()
        assert contents(lake)["events"] == {(1, 1): 1, (7, 7): 1}


def test_a_handle_that_was_given_up_by_mistake_protects_what_it_begins_next(uri: str) -> None:
    with tidelock.open(uri) as lake:
        write(lake, 2)
        an_hour_ago = time.time() - HOUR.total_seconds()
        for path in Path(uri, "_tidelock", "leases").iterdir():
            os.utime(path, (an_hour_ago, an_hour_ago))
        with tidelock.open(uri) as other:
            collect_all(other)
            with lake.transaction() as tx:
                tx.append("events", numbers((7, 7)))
                assert tx.table("events").count() == 2
                collect_all(other)
        assert contents(lake)["events"] == {(2, 2): 1, (7, 7): 1}
