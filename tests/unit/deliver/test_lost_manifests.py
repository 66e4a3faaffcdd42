"""A manifest that is gone or cannot be read: nothing is lost, and there is a way to go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.sinks.destinations import (
    check_inserts,
    check_manifest,
    files_at,
    manifest_at,
    rows_at,
)
from tests.support.sinks.ledger_damage import state_of

import tidelock
from tidelock.deliver.destinations.files import destination as files
from tidelock.errors import InvalidOption, NewerFormat
from tidelock.run.lake import Lake

ALL = range(20)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("o", "id BIGINT, g STRING", key="id")
        add(lake, ALL)
        yield lake


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def add(lake: Lake, ids: range) -> None:
    rows = [{"id": one, "g": f'{"ab"[one % 2]}\n"ü'} for one in ids]
    lake.run(lambda tx: tx.append("o", rows))


def gone(manifest: Path) -> None:
    manifest.unlink()


def empty(manifest: Path) -> None:
    manifest.write_bytes(b"")


def truncated(manifest: Path) -> None:
    manifest.write_bytes(manifest.read_bytes()[:50])


def foreign(manifest: Path) -> None:
    manifest.write_bytes(b"\x28\xb5\x2f\xfd\xff")


DAMAGES = [gone, empty, truncated, foreign]


def ids_at(lake: Lake) -> list[int]:
    return sorted(row["id"] for row in rows_at(lake, "w"))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("partition_by", [None, "g"])
def test_a_replay_without_the_manifest_takes_no_row_that_the_lake_has_lost(
    lake: Lake, out: Path, damage: Callable[[Path], None], partition_by: str | None
) -> None:
    lake.create_sink("w", table="o", kind="parquet", to=str(out), partition_by=partition_by)
    lake.deliver("w")
    lake.prune("o", "id < 18")
    damage(manifest_at(out))
    add(lake, range(100, 102))
    report = lake.deliver("w")
    assert report.action == "failed"
    assert "tidelock sink repair w" in report.reason
    with pytest.raises(InvalidOption, match=r"^18 rows that sink 'w' .* would lose them"):
        lake.replay("w")
    assert ids_at(lake) == [*ALL]
    assert lake.repair_sink("w").rows == 20
    assert lake.deliver("w").rows == 2
    assert ids_at(lake) == [*ALL, 100, 101]
    check_manifest(lake, "w")
    lake.replay("w", lose_rows=True)
    lake.deliver("w")
    assert ids_at(lake) == [18, 19, 100, 101]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("partition_by", [None, "g"])
def test_the_word_replaces_everything_whatever_became_of_the_manifest(
    lake: Lake, out: Path, damage: Callable[[Path], None], partition_by: str | None
) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=str(out), partition_by=partition_by)
    lake.deliver("w")
    lake.prune("o", "id < 18")
    damage(manifest_at(out))
    lake.replay("w", lose_rows=True)
    assert lake.deliver("w").rows == 2
    check_inserts(lake, "w")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_a_manifest_is_written_anew_from_the_names_of_the_files(
    lake: Lake, out: Path, damage: Callable[[Path], None], kind: str
) -> None:
    lake.create_sink("w", table="o", kind=kind, to=str(out), partition_by="g", rows_per_file=3)
    lake.deliver("w")
    add(lake, range(50, 60))
    lake.deliver("w")
    before, files_before = manifest_at(out).read_bytes(), files_at(lake, "w")
    damage(manifest_at(out))
    rebuilt = lake.repair_sink("w")
    assert (rebuilt.rows, rebuilt.missing) == (30, ())
    assert files_at(lake, "w") == files_before
    told, earlier = (json.loads(data) for data in (manifest_at(out).read_bytes(), before))
    for one in (told, earlier):
        one.pop("written")
        for file in one["files"]:
            file.pop("plan")
    assert told == earlier
    add(lake, range(70, 73))
    assert lake.deliver("w").rows == 3
    if kind != "csv":
        check_inserts(lake, "w")


def test_a_partition_with_a_shortened_name_is_told_by_its_rows(lake: Lake, out: Path) -> None:
    for kind in ("parquet", "jsonl", "csv"):
        lake.create_table(kind, "id BIGINT, g STRING, h INT")
        rows = [{"id": n, "g": 'x,\n"' * 100 + str(n % 2), "h": n % 3} for n in range(12)]
        lake.run(lambda tx, kind=kind, rows=rows: tx.append(kind, rows))
        to = out / kind
        lake.create_sink(kind, table=kind, kind=kind, to=str(to), partition_by=["g", "h"])
        lake.deliver(kind)
        before = json.loads(manifest_at(to).read_text())["files"]
        manifest_at(to).unlink()
        lake.repair_sink(kind)
        assert json.loads(manifest_at(to).read_text())["files"] == before


def test_files_of_a_plan_that_is_open_are_written_again_and_nothing_else_is_taken_in(
    lake: Lake, out: Path
) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=str(out), rows_per_file=5)
    lake.deliver("w")
    add(lake, range(50, 60))
    manifest_at(out).unlink()
    assert lake.deliver("w").action == "failed"
    # As if its first chunk had been written before the manifest was lost.
    stray = out / "0000000000000000020-0000000000000000024.jsonl"
    stray.write_text('{"id": 1}\n')
    assert lake.repair_sink("w").files == 4
    lake.deliver("w")
    check_inserts(lake, "w")
    unknown = out / "0000000000000000090-0000000000000000094.jsonl"
    unknown.write_text('{"id": 1}\n')
    manifest_at(out).unlink()
    with pytest.raises(InvalidOption, match=f"knows nothing of 1 of the files.*{unknown.name}"):
        lake.repair_sink("w")
    unknown.rename(out / "0000000000000000007-0000000000000000008.jsonl")
    with pytest.raises(InvalidOption, match="hold the same positions"):
        lake.repair_sink("w")
    assert not manifest_at(out).exists()


def test_what_no_file_holds_any_more_is_told(lake: Lake, out: Path) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=str(out), rows_per_file=5)
    lake.deliver("w")
    sorted(out.glob("*.jsonl"))[1].unlink()
    manifest_at(out).unlink()
    rebuilt = lake.repair_sink("w")
    assert (rebuilt.files, rebuilt.rows, rebuilt.missing) == (3, 15, ((5, 9),))


def test_a_manifest_that_can_be_read_is_left_as_it_is(lake: Lake, out: Path) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=str(out))
    lake.deliver("w")
    before = manifest_at(out).read_bytes()
    with pytest.raises(InvalidOption, match=r"nothing was changed\. lake\.sink_status"):
        lake.repair_sink("w")
    manifest_at(out).write_bytes(before.replace(b'"format":1', b'"format":2'))
    for attempt in (lake.repair_sink, lake.replay):
        with pytest.raises(NewerFormat):
            attempt("w")
    manifest_at(out).write_bytes(before)
    lake.create_table("t", "id BIGINT")
    lake.create_sink("h", table="t", kind="http", to="http://127.0.0.1:9/")
    with pytest.raises(InvalidOption, match="has no manifest"):
        lake.repair_sink("h")


def test_earlier_entries_that_are_lost_are_found_again(
    lake: Lake, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LISTED_MAX", 3)
    lake.create_sink("w", table="o", kind="jsonl", to=str(out), rows_per_file=2)
    for begin in (100, 110, 120):
        lake.deliver("w")
        add(lake, range(begin, begin + 2))
    earlier = sorted(manifest_at(out).parent.glob("manifest-*.json"))
    assert earlier
    earlier[0].unlink()
    # New rows do not need them.
    assert lake.deliver("w").rows == 2
    assert lake.repair_sink("w").files == 13
    check_inserts(lake, "w")


def test_when_the_lake_has_forgotten_too_only_a_word_lets_files_go(lake: Lake, out: Path) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=str(out))
    lake.deliver("w")
    lake.prune("o", "id < 18")
    state = state_of(lake)
    state.unlink()
    for plan in state.parent.glob("plans/*.json"):
        plan.unlink()
    manifest_at(out).unlink()
    with pytest.raises(InvalidOption, match=r"Neither the lake .* nor the manifest"):
        lake.replay("w")
    assert ids_at(lake) == [*ALL]
    lake.replay("w", lose_rows=True)
    lake.deliver("w")
    assert ids_at(lake) == [18, 19]
    check_manifest(lake, "w")


def test_a_manifest_of_any_size_is_plain_json(lake: Lake, out: Path) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=str(out), rows_per_file=1)
    add(lake, range(1000, 1400))
    lake.deliver("w")
    data = manifest_at(out).read_bytes()
    assert len(data) > 16 * 1024
    told = json.loads(data)
    assert len(told["files"]) == 420
    assert {one["path"] for one in told["files"]} == set(files_at(lake, "w"))


def test_files_that_nobody_lists_are_set_aside_and_not_removed(lake: Lake, out: Path) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=str(out))
    lake.deliver("w")
    # Of a plan that was begun by a lake that has forgotten it.
    stray = out / "0000000000000000020-0000000000000000024.jsonl"
    stray.write_text('{"id": 1}\n')
    with pytest.raises(InvalidOption, match=r"^1 row that sink 'w' .* would lose"):
        lake.replay("w")
    assert stray.exists()
    add(lake, range(20, 25))
    beside = [out / "notes.txt", out / "g=a" / stray.name, out / f"{stray.name}.bak"]
    for one in beside:
        one.parent.mkdir(exist_ok=True)
        one.write_text("somebody's")
    lake.replay("w")
    assert not stray.exists()
    (aside,) = (manifest_at(out).parent / "aside").rglob("*.jsonl")
    assert aside.name == stray.name
    assert all(one.read_text() == "somebody's" for one in beside)
    assert lake.deliver("w").rows == 25


def test_files_without_a_manifest_are_not_overwritten_by_a_new_sink(lake: Lake, out: Path) -> None:
    out.mkdir()
    (out / "0000000000000000000-0000000000000000019.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(InvalidOption, match="no manifest that tells whose they are"):
        lake.create_sink("w", table="o", kind="jsonl", to=str(out))
    # Other names are nobody's business.
    lake.create_sink("w", table="o", kind="parquet", to=str(out))
    assert lake.deliver("w").rows == 20
