"""A sink whose lake has forgotten how far it had come: the destination is asked, or it stops."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.lakes import run
from tests.support.sinks import deliverers
from tests.support.sinks.destinations import age_posts, check_inserts
from tests.support.sinks.ledger_damage import delete, put_back, state_of, truncate
from tests.support.sinks.own_sink import lines_at
from tests.support.sinks.table_destinations import Tables, as_multiset, check, tables

from tidelock import Lake
from tidelock.errors import SinkStopped

__all__ = ["tables"]

KILLED = -signal.SIGKILL


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return deliverers.make(str(tmp_path / "lake"))


def lose_plans(path: Path, older: bytes) -> None:
    for plan in path.parent.glob("plans/*.json"):
        plan.unlink()


def lose_all(path: Path, older: bytes) -> None:
    path.unlink()
    lose_plans(path, older)


def put_all_back(path: Path, older: bytes) -> None:
    path.write_bytes(older)
    lose_plans(path, older)


def corrupt_plan(path: Path, older: bytes) -> None:
    max(path.parent.glob("plans/*.json")).write_text("{")


DAMAGES = [delete, truncate, put_back, lose_plans, lose_all, put_all_back, corrupt_plan]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("crash", ["", "after_intent", "after_chunk", "before_clear"])
def test_what_the_lake_has_forgotten_the_destination_tells(
    lake: Lake, tables: Tables, damage: Callable[[Path, bytes], None], crash: str
) -> None:
    tables.attach(lake)
    lake.deliver("w")
    older = state_of(lake).read_bytes()
    deliverers.add(lake, range(10, 20))
    lake.deliver("w")
    deliverers.add(lake, range(30, 40))
    if crash:
        code = run(deliverers.deliver, lake.uri, "w", failpoints=f"deliver.{crash}=kill@1")
        assert code == KILLED
        age_posts(lake.uri)
    damage(state_of(lake), older)
    deliverers.add(lake, range(50, 53))
    lake.deliver("w")
    check(lake, tables)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("crash", ["", "after_chunk", "before_watermark"])
def test_what_the_lake_has_forgotten_the_manifest_of_files_tells(
    lake: Lake, tmp_path: Path, damage: Callable[[Path, bytes], None], crash: str
) -> None:
    to = str(tmp_path / "files")
    lake.create_sink("w", table="o", kind="parquet", to=to, partition_by=["g"], rows_per_file=2)
    lake.deliver("w")
    older = state_of(lake).read_bytes()
    deliverers.add(lake, range(10, 30))
    lake.deliver("w")
    deliverers.add(lake, range(30, 40))
    if crash:
        code = run(deliverers.deliver, lake.uri, "w", failpoints=f"deliver.{crash}=kill@1")
        assert code == KILLED
        age_posts(lake.uri)
    damage(state_of(lake), older)
    deliverers.add(lake, range(50, 53))
    lake.deliver("w")
    check_inserts(lake, "w")


def test_files_that_are_written_again_are_not_doubled_when_the_lake_forgets_that_they_are(
    lake: Lake, tmp_path: Path
) -> None:
    to = str(tmp_path / "files")
    lake.create_sink("w", table="o", kind="jsonl", to=to, partition_by=["g"], rows_per_file=2)
    deliverers.add(lake, range(10, 30))
    lake.deliver("w")
    lake.replay("w")
    # Some partitions are written again by then, and the others are behind.
    code = run(deliverers.deliver, lake.uri, "w", failpoints="deliver.before_watermark=kill@2")
    assert code == KILLED
    age_posts(lake.uri)
    lose_all(state_of(lake), b"")
    deliverers.add(lake, range(50, 53))
    lake.deliver("w")
    check_inserts(lake, "w")


@pytest.mark.parametrize("damage", [lose_plans, lose_all, put_all_back])
def test_a_destination_that_cannot_tell_stops_until_somebody_says_where_to_go_on(
    lake: Lake, tmp_path: Path, damage: Callable[[Path, bytes], None]
) -> None:
    place = str(tmp_path / "rows.db")
    lake.create_sink("w", table="o", kind="tests.support.sinks.own_sink:open_sqlite", to=place)
    older = state_of(lake).read_bytes()
    lake.deliver("w")
    reached = lake.sink_status("w").watermark
    deliverers.add(lake, range(10, 20))
    if damage is put_all_back:
        # Without its plan, a state that was never delivered from is as good as new.
        lake.deliver("w")
        older = state_of(lake).read_bytes()
        reached = lake.sink_status("w").watermark
        deliverers.add(lake, range(20, 30))
    damage(state_of(lake), older)
    with pytest.raises(SinkStopped, match=r"lake.replay\('w', since=POSITION\)"):
        lake.deliver("w")
    lake.replay("w", since=reached)
    lake.deliver("w")
    wanted = lake.read_since("o", limit=1000).rows.to_pylist()
    assert as_multiset(lines_at(place)) == as_multiset(wanted)
