"""A real SIGKILL of whoever delivers, at every step: each row is in the destination exactly once.

Between the death and the next process, the lake goes on: rows come, change and go, tables are
compacted and collected, the lake is moved. What was planned is sent again to the byte.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.lakes import collect_all, end, fault_seconds, run, seed_of, start, wait_until
from tests.support.s3_server import LossyS3, S3Server, s3_bucket, s3_server
from tests.support.sinks import deliverers
from tests.support.sinks.deliverers import LEASE_SECONDS, ROWS_PER_FILE
from tests.support.sinks.destinations import (
    age_posts,
    check_inserts,
    check_manifest,
    check_same,
    file_sink,
    files_at,
    manifest_at,
    rows_at,
    rows_of_lake,
)
from tests.support.sinks.ledger_damage import delete, put_back, state_of, truncate

import tidelock
from tidelock import Lake
from tidelock.errors import SinkStopped
from tidelock.model.sinks import DeliveryPlan
from tidelock.store.lookup.by_sequence import find_stretches, sequences_in

__all__ = ["s3_bucket", "s3_server"]

KILLED = -signal.SIGKILL
POINTS = {
    "before_intent": 1,
    "after_intent": 1,
    "mid_chunk": 2,
    "after_chunk": 2,
    "before_watermark": 1,
    "after_watermark": 1,
    "before_clear": 1,
    "after_clear": 1,
}


@dataclass(frozen=True)
class Place:
    """Where a sink delivers to."""

    to: str
    options: dict[str, Any]

    def attach(self, lake: Lake, name: str = "w", **options: Any) -> None:
        given = {"kind": "parquet", "table": "o", "rows_per_file": ROWS_PER_FILE}
        lake.create_sink(name, to=f"{self.to}/{name}", **given | self.options | options)


def s3_place(server: S3Server, bucket: str, folder: Path) -> Place:
    secret = folder / "secret"
    secret.write_text("test\n")
    options = {
        name: f"file:{secret}" if "access_key" in name else value
        for name, value in server.storage_options.items()
    }
    return Place(f"s3://{bucket}/out", {"storage_options": options})


@pytest.fixture(params=["files", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "files":
        return Place(str(tmp_path / "out"), {})
    bucket = request.getfixturevalue("s3_bucket")
    return s3_place(request.getfixturevalue("s3_server"), bucket, tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with deliverers.make(str(tmp_path / "lake")) as lake:
        yield lake


def kill_at(lake: Lake, point: str, name: str = "w", hit: int | None = None) -> dict[str, bytes]:
    """Let a process die while it delivers; what it left at the destination."""
    hit = POINTS[point] if hit is None else hit
    code = run(deliverers.deliver, lake.uri, name, failpoints=f"deliver.{point}=kill@{hit}")
    assert code == KILLED, f"{point} was not reached (exit code {code})"
    age_posts(lake.uri)
    return files_at(lake, name)


def open_plan(lake: Lake, name: str = "w") -> DeliveryPlan | None:
    return lake._sinks.ledger.standing(lake._sinks.ledger.definition(name)).open


def deliver_elsewhere(lake: Lake, name: str = "w") -> None:
    assert run(deliverers.deliver, lake.uri, name) == 0


@pytest.mark.parametrize("point", POINTS)
def test_a_deliverer_killed_at_any_step_is_followed_by_one_that_goes_on(
    lake: Lake, place: Place, point: str
) -> None:
    place.attach(lake)
    lake.deliver("w")
    deliverers.add(lake, range(10, 20))
    left = kill_at(lake, point)
    plan = open_plan(lake)
    assert (plan is not None) == (point in list(POINTS)[1:5])
    deliverers.add(lake, range(30, 35))
    deliver_elsewhere(lake)
    after = files_at(lake, "w")
    for key, data in left.items():
        assert after[key] == data, f"{key} was written again with other content"
    if plan is not None:
        ranges = {
            (one.after, one.until, one.rows) for one in file_sink(lake, "w").inventory.listed()
        }
        (part,) = plan.parts
        assert len(part.chunks) == 3
        assert ranges >= {(one.after, one.until, one.rows) for one in part.chunks}
    check_inserts(lake, "w")
    assert lake.deliver("w").action == "idle"


@pytest.mark.parametrize("point", ["after_intent", "mid_chunk", "after_chunk", "before_watermark"])
@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
def test_what_a_killed_deliverer_had_planned_is_what_an_undisturbed_one_delivers(
    lake: Lake, tmp_path: Path, point: str, partitioned: bool
) -> None:
    """The planned files, byte for byte, whichever process wrote which of them."""
    place, twin = Place(str(tmp_path / "out"), {}), Place(str(tmp_path / "twin"), {})
    options = {"partition_by": ["g"], "rows_per_file": 2} if partitioned else {}
    for one in (place, twin):
        one.attach(lake, name=Path(one.to).name, **options)
    deliverers.add(lake, range(100, 140))
    lake.deliver("twin")
    expected = files_at(lake, "twin")
    left = kill_at(lake, point, "out")
    assert len(left) < len(expected) or point == "before_watermark"
    deliver_elsewhere(lake, "out")
    assert files_at(lake, "out") == expected
    check_inserts(lake, "out")


def test_a_process_killed_again_and_again_still_delivers_everything_once(
    lake: Lake, tmp_path: Path
) -> None:
    place = Place(str(tmp_path / "out"), {})
    place.attach(lake, partition_by=["g"])
    with seed_of() as seed:
        chance = random.Random(seed)
        kept: dict[str, bytes] = {}
        for number in range(12):
            deliverers.add(
                lake, range(100 + number * 30, 100 + number * 30 + chance.randint(1, 30))
            )
            point = chance.choice(list(POINTS))
            left = kill_at(lake, point, hit=1)
            for key, data in kept.items():
                assert left[key] == data
            kept = left
        deliver_elsewhere(lake)
        deliverers.add(lake, range(1000, 1001))
        deliver_elsewhere(lake)
        check_inserts(lake, "w")
        litter = list(manifest_at(Path(place.to, "w")).parent.glob("unfinished-*"))
        assert litter == []


def test_a_partition_that_catches_up_is_killed_at_any_step_too(lake: Lake, tmp_path: Path) -> None:
    place = Place(str(tmp_path / "out"), {})
    place.attach(lake, partition_by=["g"], kind="jsonl")
    lake.deliver("w")
    for number, point in enumerate(POINTS):
        with blocked(Path(place.to, "w", "g=US")):
            begin = 100 * (number + 1)
            for ids in (range(begin, begin + 20), range(begin + 50, begin + 60)):
                deliverers.add(lake, ids)
                report = lake.deliver("w")
                assert report.action == "failed"
                assert [one.path for one in report.partitions if one.trouble] == ["g=US"]
            assert [one.path for one in lake.sink_status("w").lagging] == ["g=US"]
        kill_at(lake, point, hit=1)
    deliver_elsewhere(lake)
    check_inserts(lake, "w")


@contextmanager
def blocked(folder: Path) -> Iterator[None]:
    """A file stands where the folder should be: nothing can be written into it."""
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("in the way")
    yield
    folder.unlink()
    aside.rename(folder)


# Answers that are lost


@pytest.mark.parametrize("lost_put", range(6))
def test_a_put_whose_answer_is_lost_is_repeated_without_doubling(
    lake: Lake, tmp_path: Path, s3_server: S3Server, s3_bucket: str, lost_put: int
) -> None:
    proxy = LossyS3(s3_server)
    with proxy as server:
        place = s3_place(server, s3_bucket, tmp_path)
        slow = {"client_max_retries": "0", "client_retry_timeout": "1"}
        options = place.options["storage_options"] | slow
        place.attach(lake, storage_options=options)
        deliverers.add(lake, range(10, 20))
        # The first puts pass; one is applied and its answer lost.
        proxy.faults = ["none"] * lost_put + ["lost"]
        reports = [lake.deliver("w") for _ in range(2)]
        assert not proxy.faults
        assert [one.action for one in reports] in (["failed", "delivered"], ["delivered", "idle"])
        deliverers.add(lake, range(30, 33))
        lake.deliver("w")
        check_inserts(lake, "w")


# The lake goes on between a death and the retry


def grow(lake: Lake) -> None:
    deliverers.add(lake, range(500, 520))


def compact(lake: Lake) -> None:
    lake.optimize()


def delete_at_the_front(lake: Lake) -> None:
    lake.run(lambda tx: tx.delete("o", where="id < 6"))


def delete_what_is_planned(lake: Lake) -> None:
    lake.run(lambda tx: tx.delete("o", where="id IN (11, 17, 25)"))


def update_what_is_planned(lake: Lake) -> None:
    lake.run(lambda tx: tx.update("o", {"x": "x + 1", "g": "'moved'"}, where="id >= 12"))
    lake.run(
        lambda tx: tx.upsert("o", [{"id": 13, "g": "new", "x": 0}, {"id": 99, "g": "n", "x": 1}])
    )


def overwrite(lake: Lake) -> None:
    lake.run(lambda tx: tx.overwrite("o", [{"id": 1, "g": "EU", "x": 1}]))


def work_on_a_branch(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.transaction(branch="dev") as tx:
        tx.append("o", [{"id": 900, "g": "EU", "x": 1}])
        tx.delete("o", where="id = 12")
    lake.delete_branch("dev")


def collect(lake: Lake) -> None:
    for _ in range(3):
        grow_a_little(lake)
        lake.optimize()
    lake.run(lambda tx: tx.delete("o", where="id < 15"))
    lake.optimize()
    assert collect_all(lake).files > 0


def grow_a_little(lake: Lake) -> None:
    first = max(row["id"] for row in rows_of_lake(lake, "o")) + 1
    deliverers.add(lake, range(first, first + 3))


TURNS: list[Callable[[Lake], None]] = [
    grow,
    compact,
    delete_at_the_front,
    delete_what_is_planned,
    update_what_is_planned,
    overwrite,
    work_on_a_branch,
    collect,
]


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
@pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn.__name__.replace("_", " "))
def test_a_retry_delivers_the_snapshot_of_its_plan_whatever_the_lake_has_become(
    lake: Lake, tmp_path: Path, turn: Callable[[Lake], None], partitioned: bool
) -> None:
    place = Place(str(tmp_path / "out"), {})
    place.attach(lake, **({"partition_by": "g", "rows_per_file": 2} if partitioned else {}))
    lake.deliver("w")
    earlier = rows_at(lake, "w")
    deliverers.add(lake, range(10, 30))
    planned = rows_of_lake(lake, "o", max(row["_sequence"] for row in earlier))
    assert len(planned) == 20
    left = kill_at(lake, "after_chunk")
    plan = open_plan(lake)
    assert plan is not None
    turn(lake)
    deliver_elsewhere(lake)
    after = files_at(lake, "w")
    for key, data in left.items():
        assert after[key] == data
    later = rows_of_lake(lake, "o", plan.until)
    check_same(lake, "w", [*earlier, *planned, *later])
    check_manifest(lake, "w")
    collect_all(lake)
    assert lake.deliver("w").action == "idle"


def test_a_lake_that_was_moved_repeats_the_plan(lake: Lake, tmp_path: Path) -> None:
    place = Place(str(tmp_path / "out"), {})
    place.attach(lake)
    deliverers.add(lake, range(10, 30))
    left = kill_at(lake, "after_chunk")
    moved = str(tmp_path / "moved")
    shutil.copytree(lake.uri, moved)
    lake.close()
    shutil.rmtree(lake.uri)
    with tidelock.open(moved) as there:
        age_posts(moved)
        deliverers.add(there, range(40, 44))
        there.deliver("w")
        assert {key: files_at(there, "w")[key] for key in left} == left
        check_inserts(there, "w")


# The ledger, damaged between a death and the retry


@pytest.mark.parametrize("damage", [delete, truncate, put_back], ids=lambda one: one.__name__)
@pytest.mark.parametrize("crash", [None, "after_chunk", "before_clear"])
def test_a_state_that_was_lost_or_put_back_doubles_nothing(
    lake: Lake, tmp_path: Path, damage: Callable[[Path, bytes], None], crash: str | None
) -> None:
    Place(str(tmp_path / "out"), {}).attach(lake)
    older = state_of(lake).read_bytes()
    lake.deliver("w")
    for begin in (10, 30):
        deliverers.add(lake, range(begin, begin + 10))
        lake.deliver("w")
    deliverers.add(lake, range(50, 60))
    if crash is not None:
        kill_at(lake, crash)
    damage(state_of(lake), older)
    deliverers.add(lake, range(70, 75))
    deliver_elsewhere(lake)
    check_inserts(lake, "w")


def test_corrupt_progress_repeats_chunks_without_doubling(lake: Lake, tmp_path: Path) -> None:
    Place(str(tmp_path / "out"), {}).attach(lake)
    deliverers.add(lake, range(10, 30))
    kill_at(lake, "after_chunk", hit=4)
    (progress,) = state_of(lake).parent.glob("progress/*.json")
    progress.write_text("{")
    deliver_elsewhere(lake)
    check_inserts(lake, "w")


def test_a_corrupt_plan_that_is_closed_changes_nothing(lake: Lake, tmp_path: Path) -> None:
    Place(str(tmp_path / "out"), {}).attach(lake)
    lake.deliver("w")
    (plan,) = state_of(lake).parent.glob("plans/*.json")
    plan.write_text("{")
    deliverers.add(lake, range(10, 30))
    deliver_elsewhere(lake)
    check_inserts(lake, "w")


@pytest.mark.parametrize("point", ["after_intent", "after_chunk", "before_watermark"])
@pytest.mark.parametrize("replayed", [False, True])
def test_a_corrupt_plan_that_is_open_is_made_good_from_what_the_destination_has(
    lake: Lake, tmp_path: Path, point: str, replayed: bool
) -> None:
    Place(str(tmp_path / "out"), {}).attach(lake)
    lake.deliver("w")
    reached = lake.sink_status("w").watermark
    deliverers.add(lake, range(10, 30))
    kill_at(lake, point)
    max(state_of(lake).parent.glob("plans/*.json")).write_text("{")
    # What is cut next ends elsewhere.
    lake.run(lambda tx: tx.delete("o", where="id = 12"))
    deliverers.add(lake, range(40, 43))
    assert lake.sink_status("w").state == "stopped"
    if replayed:
        lake.replay("w", since=reached, lose_rows=True)
    deliver_elsewhere(lake)
    gone = [row for row in rows_at(lake, "w") if row["id"] == 12]
    assert len(gone) == (point == "before_watermark" and not replayed)
    check_same(lake, "w", [*rows_of_lake(lake, "o"), *gone])
    check_manifest(lake, "w")


def test_a_corrupt_plan_of_which_the_destination_knows_nothing_stops_the_sink(
    lake: Lake, tmp_path: Path
) -> None:
    Place(str(tmp_path / "out"), {}).attach(lake)
    assert kill_at(lake, "after_intent") == {}
    max(state_of(lake).parent.glob("plans/*.json")).write_text("{")
    for _ in range(2):
        with pytest.raises(SinkStopped, match="since=POSITION"):
            lake.deliver("w")
    assert files_at(lake, "w") == {}
    lake.replay("w", since=-1)
    deliver_elsewhere(lake)
    check_inserts(lake, "w")


# Several at once


def test_of_two_that_deliver_to_one_sink_one_wins_and_the_other_is_told(
    lake: Lake, tmp_path: Path
) -> None:
    Place(str(tmp_path / "out"), {}).attach(lake)
    gate, answers = tmp_path / "gate", [tmp_path / "first", tmp_path / "second"]
    first = start(
        deliverers.deliver_or_be_refused,
        lake.uri,
        "w",
        str(answers[0]),
        failpoints=f"deliver.after_chunk=pause:{gate}",
    )
    wait_until(lambda: Path(f"{gate}.reached").exists())
    run(deliverers.deliver_or_be_refused, lake.uri, "w", str(answers[1]))
    assert answers[1].read_text() == "busy w"
    gate.touch()
    first.join(timeout=30)
    end(first)
    assert answers[0].read_text() == "delivered"
    check_inserts(lake, "w")


def test_a_deliverer_that_was_suspended_does_not_undo_its_successor(
    lake: Lake, tmp_path: Path
) -> None:
    """Its lease ran out in the middle of a plan; another one went on, and ended more than that."""
    Place(str(tmp_path / "out"), {}).attach(lake)
    gate = tmp_path / "gate"
    deliverers.add(lake, range(10, 20))
    late = start(
        deliverers.deliver_or_be_refused,
        lake.uri,
        "w",
        str(tmp_path / "late"),
        failpoints=f"deliver.after_chunk=pause:{gate}",
        lease_seconds=3600,
    )
    wait_until(lambda: Path(f"{gate}.reached").exists())
    age_posts(lake.uri, 7200)
    deliver_elsewhere(lake)
    deliverers.add(lake, range(30, 40))
    deliver_elsewhere(lake)
    gate.touch()
    late.join(timeout=30)
    end(late)
    deliverers.add(lake, range(50, 55))
    age_posts(lake.uri, 7200)
    deliver_elsewhere(lake)
    check_inserts(lake, "w")


SECONDS = 7.0
WRITERS = 8


def test_writers_and_deliverers_killed_at_any_time_lose_and_double_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "lake")
    place = Place(str(tmp_path / "out"), {})
    with deliverers.make(uri) as lake:
        lake.create_table("stream", deliverers.DDL)
        place.attach(lake, "whole", table="stream", rows_per_file=50)
        place.attach(lake, "parts", table="stream", partition_by=["g"], rows_per_file=20)
    with seed_of() as seed:
        chance = random.Random(seed)
        storm(uri, chance)
        with tidelock.open(uri, actor="the last") as lake:
            for name in ("whole", "parts"):
                deliverers.deliver_once_free(uri, name)
            # A real delivery of each, which lets go of what the dead held.
            last = lake.table("stream").to_arrow(limit=1)
            lake.run(lambda tx: tx.append("stream", last))
            for name in ("whole", "parts"):
                assert lake.deliver(name).rows == 1
            for name in ("whole", "parts"):
                check_inserts(lake, name, "stream")
            check_order(lake)


def storm(uri: str, chance: random.Random) -> None:
    """Eight writers and two deliverers, of which one dies every moment, and more than write."""
    works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        *((deliverers.ingest_on, (uri, number)) for number in range(WRITERS)),
        (deliverers.deliver_on, (uri, "whole")),
        (deliverers.deliver_on, (uri, "parts")),
    ]
    seeds = iter(chance.sample(range(1000), 900))

    def begin(number: int) -> Any:
        work, arguments = works[number]
        more = (next(seeds),) if work is deliverers.ingest_on else ()
        return start(work, *arguments, *more, lease_seconds=LEASE_SECONDS)

    processes = [begin(number) for number in range(len(works))]
    deadline = time.monotonic() + fault_seconds(SECONDS)
    deaths = 0
    try:
        while time.monotonic() < deadline or deaths <= WRITERS:
            time.sleep(chance.uniform(0.1, 0.5))
            number = chance.choice([*range(len(works)), WRITERS, WRITERS + 1])
            assert processes[number].is_alive(), f"process {number} failed"
            end(processes[number])
            processes[number] = begin(number)
            deaths += 1
    finally:
        end(*processes)


def check_order(lake: Lake) -> None:
    """Rows of a later commit have later sequences."""
    last = -1
    seen = 0
    for commit in list(lake.log(limit=None))[::-1]:
        if commit.kind == "maintenance" or not any(t.table == "stream" for t in commit.tables):
            continue
        rows = rows_of_lake_at(lake, commit.version, last)
        if rows:
            last = rows[-1]
            seen += len(rows)
    assert seen == lake.table("stream").count()


def rows_of_lake_at(lake: Lake, version: int, after: int) -> list[int]:
    dataset = lake.snapshot(version=version).table("stream").dataset
    stretches = find_stretches(dataset, after)
    return [int(one) for s in stretches for one in sequences_in(dataset, s, after, s.last)]
