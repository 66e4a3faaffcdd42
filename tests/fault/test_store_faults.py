"""Every object operation of a commit fails once, in every way: what was told is what happened.

A commit that was reported exists; an error other than OutcomeUnknown means that nothing happened
and nothing will; and trying again with the same operation id ends in exactly one commit.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import faulted, writers
from tests.support.lakes import age, check_log, contents, copy_lake, numbers, streamed
from tests.support.writers import ACTOR, AFTER, BEFORE, OPERATION

import tidelock
from tidelock import Lake, errors
from tidelock.store.log import log
from tidelock.store.objects import layout
from tidelock.store.objects.failpoints import armed
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("template") / "lake")
    writers.make(uri)
    return uri


@pytest.fixture
def copies(template: str, tmp_path: Path) -> Iterator[str]:
    return (copy_lake(template, tmp_path / str(number)) for number in itertools.count())


def open_faulty(uri: str, **options: object) -> tuple[Lake, FaultyStore]:
    return faulted.open_faulty(uri, ACTOR, **options)


def settle(uri: str) -> Lake:
    """The lake as another process finds it when all that was left has run out."""
    age(uri)
    return tidelock.open(uri, actor="the healer")


def told(lake: Lake, streaming: bool, operation_id: str | None) -> errors.TidelockError | None:
    try:
        writers.write_with(lake, streaming, operation_id)
    except errors.TidelockError as error:
        return error
    return None


@pytest.mark.parametrize("when", ["before", "after", "timeout"])
@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
@pytest.mark.parametrize("chosen", [False, True], ids=["own id", "chosen id"])
def test_a_fault_at_any_object_operation_is_told_as_it_is(
    copies: Iterator[str], streaming: bool, when: str, chosen: bool
) -> None:
    operation_id = OPERATION if chosen else None
    lake, store = open_faulty(next(copies))
    store.forget()
    assert told(lake, streaming, operation_id) is None
    calls = list(store.calls)
    assert len(calls) >= 4
    lake.close()
    for number, call in enumerate(calls):
        where = f"{when} {call.operation} {call.key}"
        uri = next(copies)
        lake, store = open_faulty(uri)
        store.forget()
        store.fail_next(when=when, skip=number)  # type: ignore[arg-type]
        error = told(lake, streaming, operation_id)
        store.forget()
        check_told(lake, uri, error, where)
        if chosen:
            writers.write_with(lake, streaming)  # the same handle works on
            assert contents(lake) == AFTER, where
        lake.close()
        if chosen:
            with settle(uri) as other:
                writers.write_with(other, streaming)
                assert contents(other) == AFTER, where
                check_log(other)


def check_told(lake: Lake, uri: str, error: errors.TidelockError | None, where: str) -> None:
    if error is None:
        assert contents(lake) == AFTER, where
    elif isinstance(error, errors.OutcomeUnknown):
        found = lake.find_operation(error.operation_id)
        assert contents(lake) == (AFTER if found else BEFORE), where
    else:
        assert isinstance(error, errors.StoreUnavailable), where
        assert contents(lake) == BEFORE, where
        with settle(uri) as other:
            assert contents(other) == BEFORE, f"{where}: healing published what had failed"


@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
def test_two_faults_in_a_row_are_told_as_they_are(copies: Iterator[str], streaming: bool) -> None:
    lake, store = open_faulty(next(copies))
    store.forget()
    assert told(lake, streaming, None) is None
    calls = list(store.calls)
    lake.close()
    for number in range(len(calls)):
        for first, second in itertools.product(("before", "after"), repeat=2):
            uri = next(copies)
            lake, store = open_faulty(uri)
            store.forget()
            store.fail_next(when=first, skip=number)  # type: ignore[arg-type]
            store.fail_next(when=second, skip=number)  # type: ignore[arg-type]
            error = told(lake, streaming, None)
            store.forget()
            check_told(lake, uri, error, f"{first}, {second} from {calls[number]} on")
            lake.close()


def test_an_answer_that_is_lost_is_looked_up(copies: Iterator[str]) -> None:
    lake, store = open_faulty(next(copies))
    store.fail_next("put_new", key_contains="/log/", when="after")
    writers.write_with(lake, False)
    assert contents(lake) == AFTER
    assert len(check_log(lake)) == 4


def test_an_answer_that_is_lost_and_cannot_be_looked_up_is_an_unknown_outcome(
    copies: Iterator[str],
) -> None:
    lake, store = open_faulty(next(copies))
    with lake.transaction("everything") as tx:
        writers.change_everything(tx, False)
        store.fail_next("put_new", key_contains="/log/", when="after")
        store.fail_next("get", key_contains="/log/", times=100)
        with pytest.raises(errors.OutcomeUnknown):
            tx.publish()
    store.forget()
    assert contents(lake) == AFTER


def test_an_unknown_outcome_is_its_own_error_and_a_retry_finds_the_first_commit(
    copies: Iterator[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # After a while it would look again, and find that it was written.
    monkeypatch.setattr(log, "LOOK_SECONDS", 60.0)
    lake, store = open_faulty(next(copies))
    store.fail_next("put_new", key_contains="/log/", when="after")
    store.fail_next("put_new", key_contains="/log/", when="before", times=100)
    error = told(lake, False, OPERATION)
    assert isinstance(error, errors.OutcomeUnknown)
    assert (error.operation_id, error.branch) == (OPERATION, "main")
    assert error.action is errors.Action.LOOK_UP_OUTCOME
    store.forget()
    found = lake.find_operation(OPERATION)
    assert found is not None
    with lake.transaction("again", operation_id=OPERATION) as tx:
        writers.change_everything(tx, False)
    assert tx.commit == found
    assert contents(lake) == AFTER


def test_an_intent_that_cannot_be_put_has_no_effect_and_the_handle_works_on(
    copies: Iterator[str],
) -> None:
    lake, store = open_faulty(next(copies))
    for when in ("before", "after"):
        store.fail_next("put", key_contains="/intents/", when=when)  # type: ignore[arg-type]
        error = told(lake, True, None)
        assert isinstance(error, errors.StoreUnavailable)
        assert contents(lake) == BEFORE
    writers.write_with(lake, True)
    assert contents(lake) == AFTER


def test_an_intent_that_cannot_be_removed_does_not_undo_its_commit(copies: Iterator[str]) -> None:
    uri = next(copies)
    lake, store = open_faulty(uri)
    store.fail_next("delete", key_contains="/intents/")
    writers.write_with(lake, True)
    assert contents(lake) == AFTER
    assert len(lake.intents()) == 1
    lake.close()
    with settle(uri) as other:
        assert not other.intents()
        rows = [(row.operation_id, row.outcome, row.version) for row in other.recoveries()]
        assert rows == [(OPERATION, "rolled_forward", 4)]
        assert contents(other) == AFTER


def test_a_failure_whose_sealed_intent_stays_is_an_unknown_outcome(copies: Iterator[str]) -> None:
    uri = next(copies)
    lake, store = open_faulty(uri)
    store.fail_next("put", key_contains="/intents/", when="after", skip=1)  # sealing it
    store.fail_next("delete", key_contains="/intents/")
    error = told(lake, True, None)
    assert isinstance(error, errors.OutcomeUnknown)
    lake.close()
    with settle(uri) as other:
        assert contents(other) == AFTER
        assert other.find_operation(error.operation_id) is not None


def test_intents_that_cannot_be_listed_fail_the_open_and_the_write(copies: Iterator[str]) -> None:
    uri = next(copies)

    def wrap(inner: Objects) -> Objects:
        store = FaultyStore(inner, seed=1)
        store.fail_next("list", key_contains=layout.INTENTS)
        return store

    with pytest.raises(errors.StoreUnavailable, match="list of '_tidelock/intents'"):
        tidelock.open(uri, objects=wrap)
    tidelock.open(uri, objects=wrap, read_only=True).close()
    lake, store = open_faulty(uri, lease_seconds=0.01)
    store.fail_next("list", key_contains=layout.INTENTS)
    time.sleep(0.02)
    with pytest.raises(errors.StoreUnavailable, match="intents"):
        lake.transaction()
    lake.close()


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "CORRUPT_OBJECT"),
        (b"{", "CORRUPT_OBJECT"),
        (b'{"format": 1}', "CORRUPT_OBJECT"),
        (b'{"format": 7, "shape": "unheard of"}', "NEWER_FORMAT"),
    ],
    ids=["empty", "torn", "incomplete", "newer"],
)
def test_an_unreadable_intent_is_named_and_kept_until_it_is_discarded_by_hand(
    copies: Iterator[str], content: bytes, cause: str
) -> None:
    uri = next(copies)
    long_lived = tidelock.open(uri, lease_seconds=2)
    key = f"{layout.INTENTS}/strange.json"
    path = Path(uri, key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(errors.IntentUnreadable, match="strange") as caught:
        tidelock.open(uri)
    assert (caught.value.key, caught.value.cause) == (key, cause)
    time.sleep(2.1)
    with pytest.raises(errors.IntentUnreadable):
        long_lived.transaction()
    assert path.read_bytes() == content
    with tidelock.open(uri, read_only=True) as lake:
        assert contents(lake) == BEFORE
        assert [intent.file for intent in lake.unreadable_intents()] == ["strange.json"]
    with tidelock.open(uri, heal=False) as lake:
        for name in ("another.json", layout.LAKE, f"../{layout.LAKE}"):
            with pytest.raises(errors.InputError):
                lake.repair(discard_intent=name)
        assert lake.repair(discard_intent="strange.json").discarded == key
    writers.write_with(long_lived, True)
    long_lived.close()
    with tidelock.open(uri) as lake:
        assert contents(lake) == AFTER


def test_a_readable_intent_is_not_discarded_by_hand(copies: Iterator[str]) -> None:
    lake = tidelock.open(next(copies))
    with lake.transaction() as tx:
        tx.append("events", streamed(numbers((1, 1))))
        (intent,) = Path(lake.uri, layout.INTENTS).iterdir()
        with pytest.raises(errors.InvalidOption, match="settled without help"):
            lake.repair(discard_intent=intent.name)
    assert tx.commit is not None
    lake.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_audit_that_fails_twice_is_one_row_in_the_end(copies: Iterator[str], when: str) -> None:
    uri = next(copies)
    lake, store = open_faulty(uri)
    store.fail_next("delete", key_contains="/intents/")
    writers.write_with(lake, True)
    lake.close()
    age(uri)

    def wrap(inner: Objects) -> Objects:
        store = FaultyStore(inner, seed=1)
        store.fail_next("put_new", key_contains=layout.RECOVERIES, when=when)  # type: ignore[arg-type]
        return store

    for _ in range(2):
        with pytest.raises(errors.StoreUnavailable, match="recoveries"):
            tidelock.open(uri, objects=wrap)
    for _ in range(2):
        with tidelock.open(uri) as lake:
            assert [row.operation_id for row in lake.recoveries()] == [OPERATION]
            assert not lake.intents()


def test_healing_with_a_fault_at_any_object_operation_ends_in_one_outcome(
    copies: Iterator[str], tmp_path: Path
) -> None:
    crashed = next(copies)
    lake, store = open_faulty(crashed)
    store.fail_next("put_new", key_contains="/log/", times=100)
    store.fail_next("delete", key_contains="/intents/")
    assert isinstance(told(lake, True, OPERATION), errors.OutcomeUnknown)
    lake.close()
    numbers_of_copies = itertools.count()

    def copy() -> str:
        uri = copy_lake(crashed, tmp_path / f"healed {next(numbers_of_copies)}")
        age(uri)
        return uri

    lake, store = open_faulty(copy())
    calls = list(store.calls)
    lake.close()
    for number, when in itertools.product(range(len(calls)), ("before", "after")):
        uri = copy()

        def wrap(inner: Objects, skip: int = number, when: str = when) -> Objects:
            store = FaultyStore(inner, seed=1)
            store.fail_next(when=when, skip=skip)  # type: ignore[arg-type]
            return store

        try:
            tidelock.open(uri, objects=wrap).close()
        except errors.StoreUnavailable:
            assert when in ("before", "after")
        with settle(uri) as lake:
            assert contents(lake) == AFTER, (calls[number], when)
            assert [(r.operation_id, r.outcome) for r in lake.recoveries()] == [
                (OPERATION, "rolled_forward")
            ]
            assert [c.actor for c in check_log(lake) if c.operation_id == OPERATION] == [ACTOR]
            assert not lake.intents()


def test_an_intent_on_a_branch_that_was_deleted_is_orphaned(copies: Iterator[str]) -> None:
    uri = next(copies)
    lake, store = open_faulty(uri)
    lake.create_branch("dev")
    store.fail_next("delete", key_contains="/intents/")
    with lake.transaction("lost", branch="dev", operation_id=OPERATION) as tx:
        tx.append("events", streamed(numbers((1, 1))))
        store.fail_next("put_new", key_contains="/log/dev", times=100)
        with pytest.raises(errors.OutcomeUnknown):
            tx.publish()
    store.forget()
    lake.delete_branch("dev")
    lake.create_branch("dev")
    lake.close()
    with settle(uri) as other:
        rows = [(r.operation_id, r.outcome, r.branch) for r in other.recoveries()]
        assert rows == [(OPERATION, "orphaned_branch_discarded", "dev")]
        assert not other.intents()
        assert contents(other, branch="dev") == BEFORE
        assert contents(other) == BEFORE


def test_the_audit_of_an_operation_says_how_its_last_attempt_ended(copies: Iterator[str]) -> None:
    uri = next(copies)
    lake, store = open_faulty(uri)
    store.fail_next("put", key_contains="/intents/", skip=1)  # sealing
    store.fail_next("delete", key_contains="/intents/")
    assert told(lake, True, OPERATION) is not None
    lake.close()
    with settle(uri) as other:
        assert [r.outcome for r in other.recoveries()] == ["discarded"]
    lake, store = open_faulty(uri)
    store.fail_next("delete", key_contains="/intents/")
    writers.write_with(lake, True)
    lake.close()
    with settle(uri) as other:
        assert [r.outcome for r in other.recoveries()] == ["rolled_forward"]
        assert contents(other) == AFTER


def test_maintenance_that_fails_does_not_fail_the_commit_before_it(copies: Iterator[str]) -> None:
    lake, _ = open_faulty(next(copies))
    for number in range(20):
        with armed("maintenance.before_publish", "error"), lake.transaction() as tx:
            tx.append("events", numbers((number, number)))
        assert tx.commit is not None
    assert lake.table("events").count() == 24
    lake.close()


def test_closing_a_handle_whose_store_is_gone_does_not_fail(copies: Iterator[str]) -> None:
    lake, store = open_faulty(next(copies))
    writers.write_with(lake, False)
    store.fail_next(times=1000)
    lake.close()
