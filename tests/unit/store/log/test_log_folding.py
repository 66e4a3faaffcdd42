"""Folding the log: every version stays what it was, and nobody is deceived by a free number."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from test_log import MAIN, commits_on, fill

from tidelock import errors
from tidelock.model.history.commit import BranchRef
from tidelock.store.log import checkpoint_writer
from tidelock.store.log import log as logs
from tidelock.store.log.checkpoint_writer import LogFolder, due, held_records
from tidelock.store.log.checkpoints import LAG, SPANS, Checkpoint, Piece, pieces_of
from tidelock.store.log.log import GROUP_MAX, Head, Log
from tidelock.store.log.operation_index import Published
from tidelock.store.objects import layout
from tidelock.store.objects.kinds.location import locate
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import encode
from tidelock.testing.faulty_store import FaultyStore

SMALL, LARGE = SPANS
SHAPES = [(1,) * 200, (5,) * 60, (GROUP_MAX,) * 5, (3, 1, 7, 40, 2) * 6, (31, 1, 1, 33, 64) * 3]


@pytest.fixture
def objects(request: pytest.FixtureRequest) -> Iterator[FaultyStore]:
    inner = locate(f"memory://folding {request.node.name}").objects()
    yield FaultyStore(inner, 1)
    for info in inner.list(""):
        inner.delete(info.key)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are removed as soon as their checkpoint was seen once more."""
    monkeypatch.setattr(checkpoint_writer, "REMOVE_AFTER_SECONDS", 0.0)


def folder_of(objects: Objects) -> LogFolder:
    log = Log(objects)
    return LogFolder(objects, log, Published(objects, log, Together()))


def fold(objects: Objects, branch: BranchRef = MAIN) -> None:
    """Fold all that is due, and remove what is not needed, as somebody who knows nothing yet."""
    folder = folder_of(objects)
    for _ in range(3):
        folder.fold(branch)


def check(objects: Objects, branch: BranchRef, total: int, log: Log | None = None) -> None:
    """All versions are there, once each, and each with the tables that it had."""
    log = log or Log(objects)
    assert log.head(branch).version == total
    assert [one.version for one in log.walk(branch, total)] == list(range(total, 0, -1))
    for version in range(1, total + 1):
        assert log.commit_at(branch, version).version == version
        assert log.tables_at(branch, version)["t"].rows == version
    for version in (0, total + 1):
        with pytest.raises(errors.VersionNotFound):
            log.record_at(branch, version)


def records(objects: Objects, branch: BranchRef = MAIN) -> list[int]:
    return Log(objects).numbers(branch)


def checkpoints(objects: Objects, branch: BranchRef = MAIN) -> list[Checkpoint]:
    return Log(objects).past.list(branch.id)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
def test_every_version_stays_what_it_was(
    objects: FaultyStore, shape: tuple[int, ...], far: bool
) -> None:
    total = fill(Log(objects), MAIN, *shape).version
    fold(objects)
    check(objects, MAIN, total, Log(objects, together=Together(far)))
    assert records(objects)[0] > total - LAG - SMALL - GROUP_MAX
    assert len(checkpoints(objects)) <= total / SMALL
    assert [one.version for one in Log(objects).walk(MAIN, 70, 31)] == list(range(70, 30, -1))


def test_the_log_of_thousands_of_commits_is_a_few_objects(objects: FaultyStore) -> None:
    log, folder = Log(objects), folder_of(objects)
    for _ in range(70):
        fill(log, MAIN, *(1,) * SMALL)
        folder.fold(MAIN)
    total = 70 * SMALL
    fold(objects)
    assert len(records(objects)) <= LAG + 2 * SMALL
    spans = [one.span for one in checkpoints(objects)]
    assert spans.count(LARGE) == total // LARGE
    assert spans.count(SMALL) <= 2 * SMALL
    check(objects, MAIN, total)
    objects.forget()
    assert Log(objects).head(MAIN).version == total
    assert objects.count() == 2
    log = Log(objects)
    for version in (1, LARGE, LARGE + 1, total - LAG, total):
        objects.forget()
        assert Log(objects).commit_at(MAIN, version).version == version
        assert objects.count() <= 3
    objects.forget()
    assert len(list(log.walk(MAIN, total))) == total
    assert objects.count("get") < 2 * (LAG + 2 * SMALL) + 3 * SMALL + 10


def test_a_fork_reads_through_what_was_folded_of_its_origin(objects: FaultyStore) -> None:
    log = Log(objects)
    fill(log, MAIN, *(3,) * 50)
    for fork in (1, SMALL - 1, SMALL, SMALL + 1, 100, 149, 150):
        name = f"at {fork}"
        branch = BranchRef(name, f"b-{fork}", 1, (("main", fork),), datetime.now(UTC), "ada")
        objects.put_new(layout.branch(name, 1), encode(branch))
        total = fill(log, branch, *(1,) * 90).version
        fold(objects)
        fold(objects, branch)
        check(objects, branch, total)
        assert len(records(objects, branch)) < 90
        homes = {one.id.rpartition("-")[0] for one in Log(objects).walk(branch, total, fork + 1)}
        assert homes == {branch.id}


def test_a_handle_that_slept_finds_the_newest_although_its_next_number_is_free(
    objects: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, sleeper = Log(objects), Log(objects)
    fill(log, MAIN, *(1,) * 10)
    known = sleeper.head(MAIN)
    total = fill(log, MAIN, *(1,) * 200).version
    fold(objects)
    assert known.version + 1 not in records(objects)
    monkeypatch.setattr(logs, "LOOK_SECONDS", -1.0)
    with pytest.raises(errors.ObjectExists):
        sleeper.append(known, commits_on(known, 1))
    assert sleeper.head(MAIN).version == total
    check(objects, MAIN, total)


class Gate:
    """A store in which the next create-only put waits until it is let through."""

    def __init__(self, inner: Objects) -> None:
        self._inner = inner
        self.reached, self.opened = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def put_new(self, key: str, data: bytes) -> None:
        self.reached.set()
        assert self.opened.wait(30)
        self._inner.put_new(key, data)


def late(objects: Objects, head: Head, meanwhile: Sequence[object]) -> BaseException | Head:
    """What a writer is told whose put lands when others have done something."""
    gate = Gate(objects)
    log = Log(gate)  # type: ignore[arg-type]
    told: list[BaseException | Head] = []

    def write() -> None:
        try:
            (commit,) = commits_on(head, 1)
            ours = replace(commit, operation_id="ours")
            told.append(log.append(log.head(head.branch), (ours,)))
        except errors.TidelockError as error:
            told.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    assert gate.reached.wait(30)
    for act in meanwhile:
        act()  # type: ignore[operator]
    gate.opened.set()
    writer.join(30)
    return told[0]


def test_a_put_that_lands_on_a_number_that_became_free_is_withdrawn(
    objects: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = fill(Log(objects), MAIN, *(1,) * 10)
    # Whatever is done at the gate takes as long as being suspended would.
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.2)
    others = lambda: fill(Log(objects), MAIN, *(1,) * 200)  # noqa: E731
    pause = lambda: threading.Event().wait(0.3)  # noqa: E731
    told = late(objects, head, [others, lambda: fold(objects), pause])
    assert isinstance(told, errors.ObjectExists)
    assert 11 not in records(objects)
    check(objects, MAIN, 210)


def test_a_late_put_that_was_first_stands(
    objects: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = fill(Log(objects), MAIN, *(1,) * 10)
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0.2)
    told = late(objects, head, [lambda: threading.Event().wait(0.3)])
    assert isinstance(told, Head)
    check(objects, MAIN, 11)


def test_a_put_that_was_applied_and_folded_before_its_answer_came_is_ours(
    objects: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(objects)
    head = fill(log, MAIN, *(1,) * 10)
    ours = commits_on(head, 1)
    Log(objects).append(Log(objects).head(MAIN), ours)  # the answer to this was lost
    fill(Log(objects), MAIN, *(1,) * 200)
    fold(objects)
    monkeypatch.setattr(logs, "LOOK_SECONDS", -1.0)
    with pytest.raises(errors.ObjectExists):
        log.append(head, ours)
    found = log.record_if_ours(head, ours)
    assert found is not None
    assert found[1] == ours
    assert found[0].version == 11
    check(objects, MAIN, 211)


def test_a_record_that_is_left_beside_its_checkpoint_is_not_read(objects: FaultyStore) -> None:
    total = fill(Log(objects), MAIN, *(1,) * 200).version
    fold(objects)
    stray = layout.record("main", 11)
    objects.put_new(stray, b"whatever a writer that came too late had to say")
    check(objects, MAIN, total)
    fold(objects)
    assert 11 not in records(objects)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_at_any_step_of_folding_loses_nothing(objects: FaultyStore, when: str) -> None:
    inner = objects.inner
    total = fill(Log(inner), MAIN, *(5,) * 40).version
    for number in itertools.count():
        faulty = FaultyStore(inner, 1)
        faulty.fail_next(when=when, skip=number)  # type: ignore[arg-type]
        with suppress(errors.StoreUnavailable):
            fold(faulty)
        check(inner, MAIN, total)
        if faulty.count() <= number:
            break
    assert number > 10
    assert len(records(inner)) <= LAG + 2 * SMALL


def test_those_who_fold_at_once_lose_nothing(objects: FaultyStore) -> None:
    total = fill(Log(objects), MAIN, *(5,) * 60).version
    threads = [threading.Thread(target=fold, args=(objects,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    check(objects, MAIN, total)
    assert len(records(objects)) <= LAG + 2 * SMALL


def test_a_record_that_cannot_be_read_stays_and_the_others_are_folded(
    objects: FaultyStore,
) -> None:
    total = fill(Log(objects), MAIN, *(1,) * 200).version
    key = layout.record("main", 40)
    objects.put(key, b"{")
    fold(objects)
    assert objects.get(key) == b"{"
    log = Log(objects)
    assert log.head(MAIN).version == total
    for version in (1, 32, 65, 100, total):
        assert log.commit_at(MAIN, version).version == version
    with pytest.raises(errors.CorruptObject):
        list(log.walk(MAIN, total))


def test_nothing_is_removed_before_its_time(
    objects: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(Log(objects), MAIN, *(1,) * 100)
    monkeypatch.setattr(checkpoint_writer, "REMOVE_AFTER_SECONDS", 100.0)
    folder = folder_of(objects)
    for _ in range(3):
        assert folder.fold(MAIN) == 100.0
    assert len(records(objects)) == 100
    assert len(checkpoints(objects)) == 2
    monkeypatch.setattr(checkpoint_writer, "REMOVE_AFTER_SECONDS", 0.0)
    folder.fold(MAIN)
    assert folder.fold(MAIN) is None
    assert len(records(objects)) == 36


def test_the_log_of_a_lake_that_was_removed_is_not_begun_anew(
    objects: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(objects)
    head = fill(log, MAIN, 3)
    for info in objects.list(""):
        objects.delete(info.key)
    monkeypatch.setattr(logs, "LOOK_SECONDS", -1.0)
    with pytest.raises(errors.CorruptObject, match="is gone"):
        log.append(head, commits_on(head, 1))


def test_pieces_prefer_the_largest_checkpoint_and_stop_where_there_is_nothing() -> None:
    small = [Checkpoint(last, 32) for last in (1024, 1056)]
    numbers = [1, 33, 1050, 1090, 1100]
    assert pieces_of([*small, Checkpoint(1024, 1024)], numbers, 1, 1105) == [
        Piece(1100),
        Piece(1090),
        Piece(1050),
        Piece(1025, 32),
        Piece(1, 1024),
    ]
    assert pieces_of(small, [], 900, 1056) == [Piece(1025, 32), Piece(993, 32)]
    assert pieces_of([], [], 1, 5) == []


def test_only_records_that_are_held_to_their_end_are_removed() -> None:
    held = {Checkpoint(32, 32), Checkpoint(64, 32), Checkpoint(128, 32)}
    assert held_records([1, 20, 60, 70, 97, 129], held) == [1, 20, 97]
    assert held_records([1, 20, 60, 65, 97], held) == [1, 20, 60]
    assert held_records([5], held) == []
    assert held_records([], held) == []


def test_only_what_is_behind_the_newest_is_due() -> None:
    assert due(1, 128, SMALL) == [Checkpoint(last, 32) for last in (32, 64, 96)]
    assert due(33, 127, SMALL) == [Checkpoint(64, 32)]
    assert due(1, 1055, LARGE) == []
    assert due(1, 1056, LARGE) == [Checkpoint(1024, LARGE)]
