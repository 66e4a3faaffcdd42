"""Several processes on one lake, with no coordinator; one of them killed for real.

The same on files and on S3.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import (
    NUMBERS_DDL,
    check_log,
    contents,
    end,
    numbers,
    pipe,
    rows_of,
    start,
    streamed,
)
from tests.support.s3_server import S3Server, s3_bucket, s3_server  # noqa: F401

import tidelock
from tidelock import Lake

Place = tuple[str, Mapping[str, str] | None]


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a lake with one keyed and one plain table is, and how to reach it."""
    where: Place = (str(tmp_path / "lake"), None)
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        bucket = request.getfixturevalue("s3_bucket")
        where = (f"s3://{bucket}/a lake", server.storage_options)
    lake = tidelock.open(where[0], create=True, storage_options=where[1])
    with lake, lake.transaction() as tx:
        tx.create_table("plain", NUMBERS_DDL)
        tx.create_table("keyed", NUMBERS_DDL, key="id")
    return where


def open_at(place: Place, **options: Any) -> Lake:
    return tidelock.open(place[0], storage_options=place[1], **options)


def together(count: int, function: Callable[..., None], *arguments: Any) -> list[Any]:
    """Run a function in as many processes, begun at once; what each of them told."""
    ends = [(pipe(), pipe()) for _ in range(count)]
    processes = [
        start(_when_told, function, arguments, number, told[1], go[0])
        for number, (told, go) in enumerate(ends)
    ]
    try:
        for told, _ in ends:
            assert told[0].poll(60)
            assert told[0].recv() == "ready"
        for _, go in ends:
            go[1].send("go")
        for process in processes:
            process.join(timeout=120)
        assert [process.exitcode for process in processes] == [0] * count
        return [told[0].recv() for told, _ in ends]
    finally:
        end(*processes)


def _when_told(
    function: Callable[..., Any], arguments: tuple[Any, ...], number: int, told: Any, go: Any
) -> None:
    told.send("ready")
    go.recv()
    told.send(function(number, *arguments))


def append(number: int, place: Place, rounds: int) -> list[int]:
    versions = []
    with open_at(place, actor=f"process {number}") as lake:
        for round in range(rounds):
            with lake.transaction() as tx:
                tx.append("plain", numbers((number, round)))
            assert tx.commit is not None
            versions.append(tx.commit.version)
    return versions


def test_processes_that_append_to_one_table_all_succeed(place: Place) -> None:
    count, rounds = (8, 10) if place[1] is None else (3, 5)
    versions = together(count, append, place, rounds)
    with open_at(place, read_only=True) as lake:
        expected = Counter((n, r) for n in range(count) for r in range(rounds))
        assert rows_of(lake.table("plain")) == expected
        commits = {commit.version: commit for commit in check_log(lake)}
        for number, told in enumerate(versions):
            assert told == sorted(told)
            assert {commits[version].actor for version in told} == {f"process {number}"}


def upsert(number: int, place: Place, rounds: int) -> None:
    with open_at(place) as lake:
        for round in range(rounds):
            with lake.transaction(message=f"{number} {round}") as tx:
                tx.upsert("keyed", numbers((0, number * 100 + round), (number + 1, round)))


def test_processes_that_upsert_one_table_make_one_line_of_history(place: Place) -> None:
    count, rounds = (4, 10) if place[1] is None else (3, 4)
    together(count, upsert, place, rounds)
    with open_at(place, read_only=True) as lake:
        commits = [commit for commit in check_log(lake) if commit.kind == "data"]
        assert len(commits) == count * rounds
        last, round = map(int, commits[-1].message.split())
        rows = [(0, last * 100 + round), *((n + 1, rounds - 1) for n in range(count))]
        assert rows_of(lake.table("keyed")) == Counter(rows)


def count_up(_: int, place: Place, rounds: int) -> None:
    with open_at(place) as lake:
        for _ in range(rounds):
            lake.run(lambda tx: tx.update("keyed", {"v": "v + 1"}), retries=10_000)


def test_processes_that_update_one_row_lose_no_update(place: Place) -> None:
    count, rounds = (4, 5) if place[1] is None else (2, 4)
    with open_at(place) as lake, lake.transaction() as tx:
        tx.append("keyed", numbers((1, 0)))
    together(count, count_up, place, rounds)
    with open_at(place, read_only=True) as lake:
        assert rows_of(lake.table("keyed")) == Counter([(1, count * rounds)])


def change_rows(number: int, place: Place, rounds: int) -> None:
    with open_at(place) as lake:
        for round in range(rounds):
            own = 100 * (number + 1) + round
            with lake.transaction() as tx:
                assert tx.update("keyed", {"v": "v + 1"}, where=f"id = {number}") == 1
                tx.append("keyed", numbers((own, 0)))
                assert tx.update("keyed", {"v": "v + 1"}, where=f"id = {own}") == 1
            with lake.transaction() as tx:
                assert tx.delete("keyed", where=f"id = {own}") == 1


def test_processes_that_change_different_rows_of_one_table_never_conflict(place: Place) -> None:
    count, rounds = (4, 8) if place[1] is None else (3, 4)
    with open_at(place) as lake, lake.transaction() as tx:
        tx.append("keyed", numbers(*[(number, 0) for number in range(count)]))
    together(count, change_rows, place, rounds)
    with open_at(place, read_only=True) as lake:
        check_log(lake)
        assert rows_of(lake.table("keyed")) == Counter((n, rounds) for n in range(count))


def leave_one(number: int, place: Place, rounds: int) -> None:
    """Take one from a row, if there is enough left in all of them."""

    def take(tx: tidelock.Transaction) -> None:
        if sum(tx.table("keyed").to_arrow(["v"])["v"].to_pylist()) > 1:
            tx.update("keyed", {"v": "v - 1"}, where=f"id = {number}")

    with open_at(place) as lake:
        for _ in range(rounds):
            lake.run(take, retries=10_000, isolation="serializable")


def test_processes_that_are_serializable_keep_what_each_of_them_checks(place: Place) -> None:
    count, rounds = (3, 5) if place[1] is None else (2, 4)
    with open_at(place) as lake, lake.transaction() as tx:
        tx.append("keyed", numbers(*[(number, rounds - 1) for number in range(count)]))
    together(count, leave_one, place, rounds)
    with open_at(place, read_only=True) as lake:
        assert sum(value for _, value in rows_of(lake.table("keyed")).elements()) == 1


def append_once(number: int, place: Place, streaming: bool) -> tuple[int, Any]:
    with open_at(place) as lake:
        rows = numbers((1, 1))
        with lake.transaction(operation_id="once") as tx:
            tx.append("plain", streamed(rows) if streaming else rows)
        assert tx.commit is not None
        return tx.commit.version, tx.commit.tables


@pytest.mark.parametrize("streaming", [False, True], ids=["in memory", "under an intent"])
def test_one_operation_id_in_many_processes_is_one_commit(place: Place, streaming: bool) -> None:
    outcomes = together(4, append_once, place, streaming)
    assert all(outcome == outcomes[0] for outcome in outcomes)
    with open_at(place) as lake:
        assert rows_of(lake.table("plain")) == Counter([(1, 1)])
        commits = [commit for commit in check_log(lake) if commit.operation_id == "once"]
        assert [(commit.version, commit.tables) for commit in commits] == outcomes[:1]
        assert not lake.intents()


def test_a_long_lived_handle_sees_what_other_processes_commit(place: Place) -> None:
    with open_at(place) as lake:
        old = lake.snapshot()
        for round in range(3):
            together(1, append, place, 1)
            assert lake.table("plain").count() == round + 1
            with lake.transaction() as tx:
                tx.upsert("keyed", numbers((round, round)))
                assert tx.table("plain").count() == round + 1
        assert contents(old) == {"plain": Counter(), "keyed": Counter()}


SCRIPT = """
import sys
import pyarrow as pa
import tidelock
schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
rows = [pa.RecordBatch.from_pylist([{"id": 1, "v": 1}], schema=schema)]
with tidelock.open(sys.argv[1], actor="victim") as lake:
    with lake.transaction("never finished") as tx:
        tx.append("plain", pa.RecordBatchReader.from_batches(schema, rows))
        tx.upsert("keyed", [{"id": 1, "v": 1}])
"""


def test_a_process_killed_between_seal_and_put_is_finished_for_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    with tidelock.open(uri, create=True) as lake:
        lake.create_table("plain", NUMBERS_DDL)
        lake.create_table("keyed", NUMBERS_DDL, key="id")
    environment = {
        **os.environ,
        "TIDELOCK_FAILPOINTS": "publish.before_put=kill",
        "TIDELOCK_LEASE_SECONDS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, uri], env=environment, capture_output=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with tidelock.open(uri) as lake:
        (intent,) = lake.intents()
        assert (intent.actor, intent.message) == ("victim", "never finished")
        assert contents(lake) == {"plain": Counter(), "keyed": Counter()}
    time.sleep(1.1)
    with tidelock.open(uri, actor="healer") as lake:
        assert contents(lake) == {"plain": Counter([(1, 1)]), "keyed": Counter([(1, 1)])}
        newest = lake.log()[0]
        assert (newest.actor, newest.message) == ("victim", "never finished")
        assert [row.outcome for row in lake.recoveries()] == ["rolled_forward"]
