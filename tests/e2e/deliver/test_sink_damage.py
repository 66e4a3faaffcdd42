"""What was delivered and is not there any more: noticed by whoever asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fault.test_sink_crashes import s3_place
from tests.support.s3_server import S3Server, s3_bucket, s3_server
from tests.support.sinks import deliverers
from tests.support.sinks.destinations import file_sink, manifest_at
from tests.support.sinks.receivers import receiving
from tests.support.sinks.table_destinations import Tables, check, tables

from tidelock import Lake
from tidelock.errors import DestinationFailed, InvalidOption, SinkStopped

__all__ = ["s3_bucket", "s3_server", "tables"]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with deliverers.make(str(tmp_path / "lake"), rows=20) as lake:
        yield lake


def damage_of(lake: Lake) -> tuple[str, tuple[str, ...]]:
    found = lake.sink_status("w", verify=True)
    return found.state, found.damage


def test_a_file_that_was_removed_cut_short_or_added_is_told(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lake.create_sink("w", table="o", kind="jsonl", to=str(out), rows_per_file=5)
    assert damage_of(lake) == ("behind", ())
    lake.deliver("w")
    assert damage_of(lake) == ("current", ())
    first, second, *_ = sorted(out.glob("*.jsonl"))
    first.unlink()
    size = second.stat().st_size
    os.truncate(second, 10)
    stray = out / "0000000000000000050-0000000000000000054.jsonl"
    stray.write_text("{}\n")
    (out / "README").write_text("not of the sink")
    state, told = damage_of(lake)
    assert state == "damaged"
    assert told == (
        f"{first.name} with 5 rows is gone.",
        f"{second.name} has 10 bytes, and was delivered with {size}.",
        f"{stray.name} is in no manifest.",
    )
    assert lake.sink_status("w").state == "current"
    with pytest.raises(InvalidOption, match=r"^1 row that sink 'w' delivered"):
        lake.replay("w")
    stray.unlink()
    lake.replay("w")
    lake.deliver("w")
    assert damage_of(lake) == ("current", ())
    manifest_at(out).write_text("{")
    state, told = damage_of(lake)
    assert (state, "tidelock sink repair w" in told[0]) == ("damaged", True)


def test_a_file_that_was_removed_from_a_bucket_is_told(
    lake: Lake, tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    s3_place(s3_server, s3_bucket, tmp_path).attach(lake)
    lake.deliver("w")
    sink = file_sink(lake, "w")
    key = sink.inventory.listed()[0].path
    sink.folder.remove([key])
    assert damage_of(lake) == ("damaged", (f"{key} with 4 rows is gone.",))


def test_data_files_that_a_table_lacks_are_told(lake: Lake, tables: Tables) -> None:
    tables.attach(lake)
    assert damage_of(lake) == ("behind", ())
    lake.deliver("w")
    assert damage_of(lake) == ("current", ())
    file = next(Path(tables.place()).rglob("*.parquet"))
    file.unlink()
    state, told = damage_of(lake)
    assert (state, len(told)) == ("damaged", 1)
    assert file.name in told[0]
    tables.drop()
    assert damage_of(lake)[1][0].endswith("is gone.")


def test_a_receiver_cannot_be_asked(lake: Lake) -> None:
    with receiving() as receiver:
        lake.create_sink("w", table="o", kind="http", to=receiver.url)
        with pytest.raises(InvalidOption, match="cannot be asked what it has"):
            lake.sink_status("w", verify=True)


def test_a_destination_that_does_not_answer_is_not_taken_for_damaged(
    lake: Lake, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    lake.create_sink("w", table="o", kind="jsonl", to=str(out))
    lake.deliver("w")
    own = manifest_at(out).parent
    own.rename(own.with_name("aside"))
    own.write_text("in the way")
    with pytest.raises(DestinationFailed):
        lake.sink_status("w", verify=True)


def test_rows_that_went_after_a_replay_was_asked_for_stay_in_the_table(
    lake: Lake, tables: Tables
) -> None:
    """What a replay takes back is counted again when it is taken back."""
    tables.attach(lake)
    lake.deliver("w")
    lake.replay("w")
    lake.run(lambda tx: tx.delete("o", where="id < 3"))
    with pytest.raises(SinkStopped, match=r"^Nothing was taken back: 3 rows"):
        lake.deliver("w")
    assert len(tables.rows()) == 20
    lake.replay("w", lose_rows=True)
    lake.deliver("w")
    check(lake, tables)
