"""A real SIGSTOP of whoever delivers, right before an act at the destination, for longer than its
lease. Another goes on meanwhile; the first one is woken, and must not touch what it finds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fault.test_sink_crashes import Place, s3_place
from tests.support.lakes import end, run, start, wait_until
from tests.support.s3_server import S3Server, s3_bucket, s3_server
from tests.support.sinks import deliverers
from tests.support.sinks.destinations import (
    age_posts,
    check_inserts,
    file_sink,
    files_at,
    manifest_at,
)
from tests.support.sinks.ledger_damage import state_of
from tests.support.sinks.receivers import receiving
from tests.support.sinks.table_destinations import Tables, check, tables

from tidelock import Lake
from tidelock.errors import DestinationFailed

__all__ = ["s3_bucket", "s3_server", "tables"]

LEASE_SECONDS = 0.6


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with deliverers.make(str(tmp_path / "lake")) as lake:
        yield lake


@pytest.fixture(params=["files", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "files":
        return Place(str(tmp_path / "out"), {})
    bucket = request.getfixturevalue("s3_bucket")
    return s3_place(request.getfixturevalue("s3_server"), bucket, tmp_path)


@contextmanager
def suspended(
    lake: Lake,
    folder: Path,
    point: str,
    work: Callable[..., None] = deliverers.deliver_or_be_refused,
) -> Iterator[Path]:
    """While the block runs, a process is suspended at a point, and its lease has run out.

    Afterwards it is woken and ends; the path that is given then has what became of it.
    """
    gate, answer = folder / "gate", folder / "answer"
    late = start(
        work,
        lake.uri,
        "w",
        str(answer),
        failpoints=f"{point}=pause:{gate}",
        lease_seconds=LEASE_SECONDS,
    )
    try:
        wait_until(Path(f"{gate}.reached").exists)
        assert late.pid is not None
        os.kill(late.pid, signal.SIGSTOP)
        # One thread takes the signal, and the others go on until it has.
        wait_until(lambda: set(thread_states(late.pid)) == {"T"})
        gate.touch()
        time.sleep(LEASE_SECONDS * 1.5)
        yield answer
        os.kill(late.pid, signal.SIGCONT)
        late.join(timeout=30)
        assert late.exitcode == 0
    finally:
        end(late)


def thread_states(pid: int | None) -> list[str]:
    """The state of every thread of a process, as the system names them."""
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return [one.read_text().rpartition(")")[2].split()[0] for one in stats]


def lose_state(lake: Lake) -> None:
    state = state_of(lake)
    state.unlink()
    for plan in state.parent.glob("plans/*.json"):
        plan.unlink()


def test_files_of_a_successor_are_not_taken_for_leftovers(
    lake: Lake, tmp_path: Path, place: Place
) -> None:
    """The state is gone, files of a plan that nobody knows are there, and are being set aside."""
    place.attach(lake)
    lake.deliver("w")
    deliverers.add(lake, range(10, 20))
    assert run(deliverers.deliver, lake.uri, "w", failpoints="deliver.after_chunk=kill@2") == -9
    age_posts(lake.uri)
    lose_state(lake)
    with suspended(lake, tmp_path, "files.before_removal") as answer:
        assert lake.deliver("w").action == "delivered"
        deliverers.add(lake, range(30, 40))
        lake.deliver("w")
        there = files_at(lake, "w")
    assert answer.read_text() == "busy w"
    assert files_at(lake, "w") == there
    check_inserts(lake, "w")


def test_a_replay_that_was_suspended_removes_nothing_of_what_was_delivered_since(
    lake: Lake, tmp_path: Path, place: Place
) -> None:
    place.attach(lake)
    lake.deliver("w")
    # Without it, nobody knows what is there: the replay begins by removing all of it.
    there_is = file_sink(lake, "w").folder
    there_is._objects.delete(f"{there_is._own}/manifest.json")
    work = deliverers.replay_or_be_refused
    with suspended(lake, tmp_path, "files.before_removal", work) as answer:
        lake.replay("w", lose_rows=True)
        lake.deliver("w")
        deliverers.add(lake, range(10, 20))
        lake.deliver("w")
        there = files_at(lake, "w")
    assert answer.read_text() == "busy w"
    assert files_at(lake, "w") == there
    check_inserts(lake, "w")


@pytest.mark.parametrize("point", ["files.before_put", "files.before_manifest"])
def test_nothing_is_written_over_what_a_successor_wrote(
    lake: Lake, tmp_path: Path, place: Place, point: str
) -> None:
    place.attach(lake)
    lake.deliver("w")
    deliverers.add(lake, range(10, 20))
    with suspended(lake, tmp_path, point) as answer:
        lake.deliver("w")
        lake.run(lambda tx: tx.update("o", {"x": "-1"}, where="id >= 0"))
        lake.replay("w")
        lake.deliver("w")
        deliverers.add(lake, range(30, 40))
        lake.deliver("w")
        there = files_at(lake, "w")
    assert answer.read_text() == "busy w"
    assert files_at(lake, "w") == there
    check_inserts(lake, "w")


def test_a_bucket_refuses_a_manifest_that_comes_late(
    lake: Lake, tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    """The act itself is conditional: also whoever asked a moment too early writes nothing."""
    s3_place(s3_server, s3_bucket, tmp_path).attach(lake)
    lake.deliver("w")
    seen = file_sink(lake, "w").folder.read_manifest()
    deliverers.add(lake, range(10, 20))
    lake.deliver("w")
    late = file_sink(lake, "w")
    assert seen.manifest is not None
    with pytest.raises(DestinationFailed, match="was replaced by somebody else"):
        late.inventory.replace(seen, seen.manifest)
    check_inserts(lake, "w")


def test_rows_are_not_taken_back_from_a_table_that_went_on(
    lake: Lake, tmp_path: Path, tables: Tables
) -> None:
    tables.attach(lake)
    lake.deliver("w")
    lake.replay("w")
    with suspended(lake, tmp_path, "tables.before_rewind") as answer:
        lake.deliver("w")
        deliverers.add(lake, range(10, 20))
        lake.deliver("w")
    assert answer.read_text() == "busy w"
    check(lake, tables)


def test_no_request_is_sent_by_whoever_was_replaced(lake: Lake, tmp_path: Path) -> None:
    with receiving() as receiver:
        lake.create_sink("w", table="o", kind="http", to=receiver.url, rows_per_chunk=2)
        with suspended(lake, tmp_path, "http.before_request") as answer:
            lake.deliver("w")
            sent = len(receiver.requests)
        assert answer.read_text() == "busy w"
        assert len(receiver.requests) == sent


def test_a_post_whose_lease_ran_out_is_not_taken_up_again(lake: Lake, tmp_path: Path) -> None:
    """Nobody has taken over, and somebody may be about to: the work is left to the next."""
    place = Place(str(tmp_path / "out"), {})
    place.attach(lake)
    with suspended(lake, tmp_path, "files.before_put") as answer:
        pass
    assert answer.read_text() == "busy w"
    assert files_at(lake, "w") == {}
    assert list(manifest_at(f"{place.to}/w").parent.glob("unfinished-*")) == []
    lake.deliver("w")
    check_inserts(lake, "w")
