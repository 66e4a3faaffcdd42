"""A lake that was put back to an earlier state, or copied, and a destination that knows more.

It numbers its plans and its rows as the other did: what is written must not pass for what is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.sinks import deliverers
from tests.support.sinks.destinations import check_inserts, files_at, manifest_at, rows_of_lake
from tests.support.sinks.receivers import receiving
from tests.support.sinks.table_destinations import Tables, check, tables

import tidelock
from tidelock import Lake
from tidelock.errors import SinkStopped

__all__ = ["tables"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return deliverers.make(str(tmp_path / "lake"))


def copy(lake: Lake, to: Path) -> Path:
    shutil.copytree(lake.uri, to)
    return to


def put_back(lake: Lake, saved: Path) -> Lake:
    lake.close()
    shutil.rmtree(lake.uri)
    shutil.copytree(saved, lake.uri)
    return tidelock.open(lake.uri)


MOMENTS = ["before the first", "after the first", "after the second"]


def live(lake: Lake, saved: Path, moment: str) -> None:
    """Deliver three times, and save the lake at some moment."""
    for number, now in enumerate(MOMENTS):
        if now == moment:
            copy(lake, saved)
        deliverers.add(lake, range(10 * number + 10, 10 * number + 20))
        assert lake.deliver("w").action == "delivered"


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("partition_by", [None, "g"])
def test_files_of_a_later_lake_are_not_overwritten(
    lake: Lake, tmp_path: Path, moment: str, partition_by: str | None
) -> None:
    to = str(tmp_path / "files")
    lake.create_sink("w", table="o", kind="jsonl", to=to, partition_by=partition_by)
    live(lake, tmp_path / "saved", moment)
    lake = put_back(lake, tmp_path / "saved")
    there = files_at(lake, "w")
    # As many rows, with the sequences that others had.
    deliverers.add(lake, range(900, 910))
    for _ in range(2):
        report = lake.deliver("w")
        assert report.action == "failed"
        assert "this lake did not deliver" in report.reason
        assert files_at(lake, "w") == there
    assert lake.sink_status("w").state == "failing"
    lake.replay("w", since=lake.sink_status("w").watermark, lose_rows=True)
    deliverers.add(lake, range(920, 925))
    lake.deliver("w")
    check_inserts(lake, "w")


@pytest.mark.parametrize("moment", MOMENTS)
def test_rows_of_a_lake_that_was_put_back_do_not_pass_for_those_of_a_later_one(
    lake: Lake, tables: Tables, tmp_path: Path, moment: str
) -> None:
    tables.attach(lake)
    live(lake, tmp_path / "saved", moment)
    lake = put_back(lake, tmp_path / "saved")
    there = tables.rows()
    missing = {"before the first": 30, "after the first": 20, "after the second": 10}[moment]
    deliverers.add(lake, range(900, 900 + missing))
    report = lake.deliver("w")
    assert report.action == "failed"
    assert "put back" in report.reason
    assert tables.rows() == there
    lake.replay("w", since=lake.sink_status("w").watermark, lose_rows=True)
    lake.deliver("w")
    check(lake, tables)


def test_a_lake_that_was_put_back_goes_on_if_what_it_delivers_is_what_was_delivered(
    lake: Lake, tables: Tables, tmp_path: Path
) -> None:
    tables.attach(lake)
    lake.create_sink("f", table="o", kind="jsonl", to=str(tmp_path / "files"))
    deliverers.add(lake, range(10, 20))
    saved = copy(lake, tmp_path / "saved")
    lake.deliver()
    lake = put_back(lake, saved)
    assert {report.action for report in lake.deliver()} == {"delivered"}
    deliverers.add(lake, range(30, 40))
    lake.deliver()
    check(lake, tables)
    check_inserts(lake, "f")


def test_of_two_copies_that_deliver_to_one_place_only_the_first_goes_on(
    lake: Lake, tmp_path: Path
) -> None:
    to = str(tmp_path / "files")
    lake.create_sink("w", table="o", kind="jsonl", to=to)
    deliverers.add(lake, range(10, 20))
    lake.deliver("w")
    other = tidelock.open(str(copy(lake, tmp_path / "copy")))
    for one in (lake, other):
        deliverers.add(one, range(30, 40))
    lake.deliver("w")
    assert other.deliver("w").action == "failed"
    deliverers.add(lake, range(40, 50))
    lake.deliver("w")
    check_inserts(lake, "w")


@pytest.mark.parametrize("commits", [1, 2])
def test_a_sink_whose_state_is_later_than_its_tables_stops(
    lake: Lake, tmp_path: Path, commits: int
) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=str(tmp_path / "files"))
    live(lake, tmp_path / "saved", "after the second")
    sinks = shutil.copytree(Path(lake.uri, "_tidelock", "sinks"), tmp_path / "sinks")
    lake = put_back(lake, tmp_path / "saved")
    shutil.copytree(sinks, Path(lake.uri, "_tidelock", "sinks"), dirs_exist_ok=True)
    there = files_at(lake, "w")
    for number in range(commits):
        deliverers.add(lake, range(900 + 5 * number, 905 + 5 * number))
    if commits == 1:
        # Nothing tells them apart yet, and nothing is passed over.
        assert lake.deliver("w").action == "idle"
        deliverers.add(lake, range(950, 955))
    with pytest.raises(SinkStopped, match="not in this lake"):
        lake.deliver("w")
    assert files_at(lake, "w") == there


def test_a_receiver_takes_the_rows_of_a_lake_that_was_put_back_for_new_ones(
    lake: Lake, tmp_path: Path
) -> None:
    with receiving() as receiver:
        lake.create_sink("w", table="o", kind="http", to=receiver.url)
        live(lake, tmp_path / "saved", "after the second")
        lake = put_back(lake, tmp_path / "saved")
        deliverers.add(lake, range(900, 910))
        lake.deliver("w")
        taken = {row["id"] for row in receiver.rows()}
    assert {row["id"] for row in rows_of_lake(lake, "o")} <= taken


def empty(folder: Path) -> None:
    shutil.rmtree(folder)


def lose_manifest(folder: Path) -> None:
    manifest_at(folder).unlink()


@pytest.mark.parametrize("damage", [empty, lose_manifest])
def test_files_without_their_manifest_are_delivered_anew_when_somebody_says_so(
    lake: Lake, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    to = tmp_path / "files"
    lake.create_sink("w", table="o", kind="jsonl", to=str(to))
    for begin in (100, 110):
        deliverers.add(lake, range(begin, begin + 10))
        lake.deliver("w")
    damage(to)
    deliverers.add(lake, range(200, 210))
    report = lake.deliver("w")
    assert report.action == "failed"
    assert "is gone" in report.reason
    lake.replay("w")
    lake.deliver("w")
    check_inserts(lake, "w")
