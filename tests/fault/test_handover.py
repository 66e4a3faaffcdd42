"""Transactions that another process publishes: each exactly once, whoever dies or sleeps when.

One process, the host, has the turn and stops where it is told to; this one, the guest, waits for
its turn meanwhile and offers what it would publish.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lakes import (
    NUMBERS_DDL,
    check_log,
    collect_all,
    end,
    fault_seconds,
    numbers,
    rows_of,
    seed_of,
    start,
    wait_until,
)

import tidelock
from tidelock import Commit, Lake, errors
from tidelock.store.faults import FaultyStore
from tidelock.store.objects import Objects
from tidelock.store.offers import Found, Offers
from tidelock.store.publish import PUT_ATTEMPTS_MAX

HOST = [(1, 1), (2, 2)]
GUEST = (7, 7)
Work = Callable[[tidelock.Transaction], object]


class Meeting:
    """A host that has the turn, and a guest whose transaction waits for it."""

    def __init__(self, uri: Path) -> None:
        self.uri = uri
        with tidelock.open(uri, create=True, actor="founder") as lake, lake.transaction() as tx:
            tx.create_table("t", NUMBERS_DDL)
            tx.create_table("u", NUMBERS_DDL)
            tx.create_table("keyed", NUMBERS_DDL, key="id")
        self.lake = tidelock.open(uri, actor="guest")
        self.lake._store.turns.wait_seconds = 30.0
        self.gate = uri.parent / "gate"
        self.seen = Offers(f"{uri}/_tidelock/turns/offers")
        self.host: Any = None
        self.result: Commit | BaseException | None = None
        self._waiting: threading.Thread | None = None

    def begin(self, failpoints: str = "", host: Callable[..., None] | None = None) -> None:
        """Start the host, up to where it is about to take what others offer."""
        stop = f"handover.before_take=pause:{self.gate}"
        self.host = start(host or append, str(self.uri), failpoints=f"{stop};{failpoints}")
        wait_until(lambda: self.uri.joinpath("begun").exists())
        # So that the host finds that there are others.
        with self.lake.transaction() as tx:
            tx.append("u", numbers((0, 0)))
        self.uri.joinpath("go").touch()
        wait_until(Path(f"{self.gate}.reached").exists)

    def wait(self, work: Work | None = None, offers: bool = True, **options: Any) -> None:
        """Let the guest publish, which waits for its turn."""

        def publish() -> None:
            try:
                with self.lake.transaction(**options) as tx:
                    (work or _append_guest)(tx)
                self.result = tx.commit
            except BaseException as error:  # noqa: BLE001
                self.result = error

        self._waiting = threading.Thread(target=publish)
        self._waiting.start()
        if offers:
            wait_until(lambda: bool(self.offered()))
        else:
            wait_until(lambda: bool(self.lake._store.turns._waiters))
            time.sleep(0.05)

    def offered(self) -> list[Found]:
        return list(self.seen.others())

    def go_on(self) -> Commit | BaseException | None:
        """Let the host go on; what became of the guest."""
        self.gate.touch()
        return self.settled()

    def settled(self) -> Commit | BaseException | None:
        assert self._waiting is not None
        self._waiting.join(60)
        assert not self._waiting.is_alive()
        return self.result

    def exit_code(self) -> int | None:
        self.host.join(timeout=60)
        code: int | None = self.host.exitcode
        return code

    def check(self, *rows: tuple[int, int]) -> None:
        with tidelock.open(self.uri) as lake:
            assert rows_of(lake.table("t")) == Counter(rows)
            check_log(lake)
            collect_all(lake)
            assert rows_of(lake.table("t")) == Counter(rows)

    def records(self) -> list[list[int]]:
        """The versions of each record of main."""
        log = self.lake._store.log
        head = self.lake._store.branches.head("main")
        found, version = [], head.version
        while version:
            record = log.record_at(head.branch, version)
            found.append([commit.version for commit in record.commits])
            version = record.first - 1
        return found[::-1]


def append(uri: str) -> None:
    with tidelock.open(uri, actor="host") as lake:
        _host(lake, uri, lambda tx: tx.append("t", numbers(HOST[1])))


def drop(uri: str) -> None:
    with tidelock.open(uri, actor="host") as lake:
        _host(lake, uri, lambda tx: tx.drop_table("t"))


def append_without_a_store(uri: str) -> None:
    stores: list[FaultyStore] = []

    def failing(inner: Objects) -> FaultyStore:
        stores.append(FaultyStore(inner, 0))
        return stores[-1]

    def work(tx: tidelock.Transaction) -> None:
        tx.append("t", numbers(HOST[1]))
        for store in stores:
            store.fail_next("put_new", key_contains="/log/", times=PUT_ATTEMPTS_MAX)

    with tidelock.open(uri, objects=failing) as lake, pytest.raises(errors.OutcomeUnknown):
        _host(lake, uri, work)


def _host(lake: Lake, uri: str, work: Work) -> None:
    with lake.transaction() as tx:
        tx.append("t", numbers(HOST[0]))
    with lake.transaction() as tx:
        Path(uri, "begun").touch()
        wait_until(Path(uri, "go").exists)
        work(tx)


def _append_guest(tx: tidelock.Transaction) -> None:
    tx.append("t", numbers(GUEST))


@pytest.fixture
def meeting(tmp_path: Path) -> Iterator[Meeting]:
    met = Meeting(tmp_path / "lake")
    try:
        yield met
    finally:
        if met.host is not None:
            end(met.host)
        met.lake.close()


def test_the_host_publishes_for_the_guest(meeting: Meeting) -> None:
    meeting.begin()
    meeting.wait(message="by another", properties={"file": "a.csv", "ä": [1, None]})
    commit = meeting.go_on()
    assert isinstance(commit, Commit)
    assert meeting.exit_code() == 0
    assert [commit.version - 1, commit.version] in meeting.records(), "one record for both"
    assert (commit.actor, commit.message, commit.kind) == ("guest", "by another", "data")
    assert commit.properties == {"file": "a.csv", "ä": [1, None]}
    (change,) = commit.tables
    assert (change.table, change.inserted, change.updated, change.deleted) == ("t", 1, 0, 0)
    assert next(iter(meeting.lake.log(limit=1))) == commit
    assert rows_of(meeting.lake.changes("t", since=commit.version - 1).read_all()) == Counter(
        [(*GUEST, 1, commit.version)]
    )
    assert not meeting.offered()
    meeting.check(*HOST, GUEST)


def test_several_tables_are_published_together(meeting: Meeting) -> None:
    def work(tx: tidelock.Transaction) -> None:
        tx.append("t", numbers(GUEST))
        tx.append("u", numbers((8, 8), (9, 9)))
        tx.append("t", numbers(GUEST))

    meeting.begin()
    meeting.wait(work)
    commit = meeting.go_on()
    assert isinstance(commit, Commit)
    assert sorted((one.table, one.inserted) for one in commit.tables) == [("t", 2), ("u", 2)]
    assert rows_of(meeting.lake.table("u")) == Counter([(0, 0), (8, 8), (9, 9)])
    assert meeting.exit_code() == 0
    meeting.check(*HOST, GUEST, GUEST)


def test_threads_that_wait_are_published_together(meeting: Meeting) -> None:
    meeting.begin()
    meeting.wait()
    others: list[Commit | None] = []

    def work(number: int) -> None:
        with meeting.lake.transaction() as tx:
            tx.append("t", numbers((number, number)))
        others.append(tx.commit)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20, 24)]
    for thread in threads:
        thread.start()
    assert isinstance(meeting.go_on(), Commit)
    for thread in threads:
        thread.join(60)
    assert len({commit.version for commit in others if commit}) == 4
    meeting.check(*HOST, GUEST, *((number, number) for number in range(20, 24)))


@pytest.mark.parametrize("step", ["handover.after_take", "publish.before_put", "publish.after_put"])
def test_a_host_that_is_killed_leaves_each_there_once_or_not_at_all(
    meeting: Meeting, step: str
) -> None:
    count = 1 if step == "handover.after_take" else 2
    meeting.begin(f"{step}=kill@{count}")
    meeting.wait()
    commit = meeting.go_on()
    assert meeting.exit_code() == -signal.SIGKILL
    assert isinstance(commit, Commit)
    assert commit.actor == "guest"
    done = HOST if step == "publish.after_put" else HOST[:1]
    meeting.check(*done, GUEST)


def test_a_host_that_is_killed_before_it_answers_has_published(meeting: Meeting) -> None:
    meeting.begin("handover.before_answer=kill")
    meeting.wait()
    commit = meeting.go_on()
    assert meeting.exit_code() == -signal.SIGKILL
    assert isinstance(commit, Commit)
    assert [commit.version - 1, commit.version] in meeting.records()
    meeting.check(*HOST, GUEST)


@pytest.mark.parametrize("step", ["publish.before_put", "publish.after_put"])
def test_a_host_that_sleeps_holds_nobody_up_and_publishes_nothing_twice(
    meeting: Meeting, step: str
) -> None:
    asleep = meeting.uri.parent / "asleep"
    meeting.begin(f"{step}=pause:{asleep}@2")
    meeting.lake._store.turns.wait_seconds = 0.5
    meeting.wait()
    began = time.monotonic()
    commit = meeting.go_on()
    assert time.monotonic() - began < 5
    assert isinstance(commit, Commit)
    assert Path(f"{asleep}.reached").exists()
    asleep.touch()
    assert meeting.exit_code() == 0
    meeting.check(*HOST, GUEST)


def test_a_host_whose_store_fails_leaves_the_guest_to_itself(meeting: Meeting) -> None:
    meeting.begin(host=append_without_a_store)
    meeting.wait()
    commit = meeting.go_on()
    assert isinstance(commit, Commit)
    assert meeting.exit_code() == 0
    meeting.check(HOST[0], GUEST)


def test_what_the_host_cannot_publish_fails_where_it_came_from(meeting: Meeting) -> None:
    meeting.begin(host=drop)
    meeting.wait()
    error = meeting.go_on()
    assert isinstance(error, errors.CommitConflict)
    assert error.table == "t"
    assert meeting.exit_code() == 0
    check_log(meeting.lake)


REFUSED: dict[str, tuple[Work, dict[str, Any]]] = {
    "key": (lambda tx: tx.append("keyed", numbers(GUEST)), {}),
    "upsert": (lambda tx: tx.upsert("keyed", numbers(GUEST)), {}),
    "delete": (lambda tx: tx.delete("u", "id = 0"), {}),
    "delete beside": (
        lambda tx: (tx.append("t", numbers(GUEST)), tx.delete("u", "true")),
        {},
    ),
    "overwrite": (lambda tx: tx.overwrite("u", numbers(GUEST)), {}),
    "create": (lambda tx: tx.create_table("w", NUMBERS_DDL), {}),
    "drop": (lambda tx: tx.drop_table("u"), {}),
    "operation id": (_append_guest, {"operation_id": "mine"}),
    "nothing": (lambda tx: None, {"properties": {"note": "nothing"}}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_to_be_decided_is_not_offered(meeting: Meeting, what: str) -> None:
    work, options = REFUSED[what]
    meeting.begin()
    meeting.wait(work, offers=False, **options)
    assert not meeting.offered()
    assert isinstance(meeting.go_on(), Commit)
    assert meeting.exit_code() == 0
    assert [1] * len(meeting.records()) == [len(one) for one in meeting.records()]


def test_what_must_be_on_the_disk_first_is_not_offered(meeting: Meeting) -> None:
    meeting.lake.close()
    meeting.lake = tidelock.open(meeting.uri, actor="guest", durability="fsync")
    meeting.lake._store.turns.wait_seconds = 30.0
    meeting.begin()
    meeting.wait(offers=False)
    assert not meeting.offered()
    assert isinstance(meeting.go_on(), Commit)
    meeting.check(*HOST, GUEST)


def test_a_guest_that_is_killed_while_it_waits_is_not_published(meeting: Meeting) -> None:
    meeting.begin()
    guest = start(append_for_ever, str(meeting.uri), 50, None)
    wait_until(lambda: bool(meeting.offered()))
    end(guest)
    assert not meeting.offered()
    meeting.gate.touch()
    assert meeting.exit_code() == 0
    meeting.check(*HOST)


def test_a_guest_whose_lease_has_run_out_is_not_published(meeting: Meeting) -> None:
    meeting.lake.close()
    meeting.lake = tidelock.open(meeting.uri, actor="guest", lease_seconds=2)
    meeting.lake._store.turns.wait_seconds = 30.0
    meeting.begin()
    meeting.lake._store.keeper._wake.set()  # nothing is renewed, as while the machine sleeps
    meeting.wait()
    time.sleep(2.2)
    assert meeting.offered()
    assert isinstance(meeting.go_on(), errors.LeaseLost)
    assert meeting.exit_code() == 0
    meeting.check(*HOST)


# --------------------------------------------------------------------------------------------------
# At random
# --------------------------------------------------------------------------------------------------


def append_for_ever(uri: str, number: int, journal: str | None) -> None:
    """Append the same rows to two tables until killed; what was acknowledged goes to a journal."""
    log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if journal else None
    lake = tidelock.open(uri, actor=f"writer {number}")
    count = 0
    while True:
        row = (number, count)
        with lake.transaction() as tx:
            tx.append("t", numbers(row))
            tx.append("u", numbers(row))
        assert tx.commit is not None
        if log is not None:
            os.write(log, f"{number} {count} {tx.commit.version}\n".encode())
        count += 1


@pytest.mark.timeout(7200)
def test_a_storm_of_appends_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Writers are killed and suspended at random, most of them while they host or are guests."""
    uri = tmp_path / "lake"
    with tidelock.open(uri, create=True) as lake, lake.transaction() as tx:
        tx.create_table("t", NUMBERS_DDL)
        tx.create_table("u", NUMBERS_DDL)

    def writer(number: int) -> Any:
        return start(append_for_ever, str(uri), number, str(tmp_path / f"journal {number}"))

    with seed_of() as seed:
        chance = random.Random(seed)
        writers = [writer(number) for number in range(5)]
        started = len(writers)
        suspended: list[Any] = []
        deadline = time.monotonic() + fault_seconds(6)
        try:
            with tidelock.open(uri, read_only=True) as reader:
                while time.monotonic() < deadline:
                    snapshot = reader.snapshot()
                    rows = rows_of(snapshot.table("t"))
                    assert rows == rows_of(snapshot.table("u")), "half a transaction"
                    assert not [row for row, times in rows.items() if times > 1], "published twice"
                    victim = chance.randrange(len(writers))
                    assert writers[victim].is_alive()
                    if chance.random() < 0.4:
                        end(writers[victim])
                        writers[victim] = writer(started)
                        started += 1
                    elif writers[victim].pid not in suspended:
                        os.kill(writers[victim].pid, signal.SIGSTOP)
                        suspended.append(writers[victim].pid)
                    time.sleep(chance.uniform(0.0, 0.4))
                    alive = {process.pid for process in writers}
                    for pid in suspended:
                        if pid in alive:
                            os.kill(pid, signal.SIGCONT)
                    suspended.clear()
        finally:
            end(*writers)
        with tidelock.open(uri) as lake:
            commits = [commit for commit in check_log(lake) if commit.kind == "data"]
            rows = rows_of(lake.table("t"))
            assert rows == rows_of(lake.table("u"))
            assert set(rows.values()) == {1}
            assert len(commits) == len(rows)
            acknowledged = [
                tuple(map(int, line.split()))
                for path in tmp_path.glob("journal *")
                for line in path.read_text().splitlines()
            ]
            by_version = {commit.version: commit for commit in commits}
            for number, count, version in acknowledged:
                assert (number, count) in rows, "an acknowledged commit is lost"
                assert by_version[version].actor == f"writer {number}"
            assert len(rows) <= len(acknowledged) + started
            records = list(uri.glob("_tidelock/log/*/*.json"))
            assert len(records) < len(commits), "nothing was published for others"
