"""A source of files: what it takes, what it leaves for later, what stops it, what it remembers."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelock
from tidelock import Lake
from tidelock.errors import (
    InvalidOption,
    RuleBroken,
    SourceDenied,
    SourceStopped,
    SourceUnavailable,
)
from tidelock.ingest.landing import discovery
from tidelock.ingest.ledger import Ledger
from tidelock.ingest.protocol import Source

DDL = "id BIGINT, v STRING"
LONG_AGO = time.time_ns() - 3600 * 10**9


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, actor="tests") as lake:
        yield lake


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


def put(folder: Path, name: str, *rows: Any, modified: int = LONG_AGO) -> Path:
    """A file of JSON lines that landed long ago; text is put as it is."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    os.utime(path, ns=(modified, modified))
    return path


def follow(lake: Lake, landing: Path, **options: Any) -> None:
    given = {"path": f"{landing}/**/*.json", "table": "events", "schema": DDL}
    lake.create_source("events", kind="files", **{**given, **options})


def ids(lake: Lake, table: str = "events") -> list[int]:
    return sorted(row["id"] for row in lake.table(table).to_arrow().to_pylist())


def ledger(lake: Lake) -> dict[str, dict[str, Any]]:
    definition = lake._sources.registry.definition("events")
    found = Ledger(lake._store, definition, lake._store.branches.head("main")).entries()
    return {entry.item: dict(entry.told or {}) for entry in found}


def test_each_file_is_taken_once_by_a_commit_that_remembers_it(lake: Lake, landing: Path) -> None:
    put(landing, "a.json", {"id": 1}, {"id": 2})
    put(landing, "day/b.json", {"id": 3})
    follow(lake, landing)
    report = lake.ingest("events")
    assert (report.action, report.rows, report.transactions, report.commits) == (
        "ingested",
        3,
        2,
        1,
    )
    assert lake.ingest("events").action == "idle"
    put(landing, "c.json", {"id": 4})
    assert lake.ingest("events").rows == 1
    assert ids(lake) == [1, 2, 3, 4]
    entries = ledger(lake)
    assert {name: entry["rows"] for name, entry in entries.items()} == {
        "a.json": 2,
        "day/b.json": 1,
        "c.json": 1,
    }
    assert lake.source_status("events").position == "2"
    assert lake.log()[0].properties["source"]["files"] == 1


def test_hidden_files_and_others_are_passed_over(lake: Lake, landing: Path) -> None:
    for name in (".a.json", "_b.json", "_tmp/c.json", "d.txt", "x/.y/e.json"):
        put(landing, name, {"id": 1})
    put(landing, "f.json", {"id": 2})
    follow(lake, landing)
    lake.ingest()
    assert ids(lake) == [2]


def test_commits_are_bounded_and_follow_the_order_that_was_asked_for(
    lake: Lake, landing: Path
) -> None:
    for number, age in enumerate([5, 1, 3]):
        put(landing, f"{number}.json", {"id": number}, modified=LONG_AGO - age * 10**9)
    follow(lake, landing, order="time", files_per_commit=1)
    assert lake.ingest("events").commits == 3
    assert [commit.message for commit in lake.log(limit=3)][::-1] == [
        "events: 0.json",
        "events: 2.json",
        "events: 1.json",
    ]


def test_a_young_file_is_left_for_later(lake: Lake, landing: Path) -> None:
    put(landing, "old.json", {"id": 1})
    put(landing, "young.json", {"id": 2}, modified=time.time_ns())
    follow(lake, landing, settle="60s")
    assert lake.ingest("events").rows == 1
    assert "1 not settled yet" in lake.source_status("events").notes
    os.utime(landing / "young.json", ns=(LONG_AGO, LONG_AGO))
    assert lake.ingest("events").rows == 1


def test_a_file_from_the_future_is_taken_once_it_was_seen_to_settle(
    lake: Lake, landing: Path
) -> None:
    put(landing, "a.json", {"id": 1}, modified=time.time_ns() + 3600 * 10**9)
    follow(lake, landing, settle="0.2s")
    assert lake.ingest("events").rows == 0
    time.sleep(0.25)
    assert lake.ingest("events").rows == 1


def test_a_file_that_changed_stops_the_source_and_names_it(lake: Lake, landing: Path) -> None:
    put(landing, "a.json", {"id": 1})
    follow(lake, landing)
    lake.ingest("events")
    put(landing, "a.json", {"id": 1}, modified=LONG_AGO + 1)
    put(landing, "b.json", {"id": 2})
    with pytest.raises(SourceStopped, match=r"a\.json changed after it was taken") as stopped:
        lake.ingest("events")
    assert (stopped.value.state, stopped.value.file) == ("file_changed", f"{landing}/a.json")
    assert lake.source_status("events").state == "stopped"
    assert ids(lake) == [1]
    lake.alter_source("events", on_change="ignore")
    assert lake.ingest("events").rows == 1
    assert "1 changed after they were taken" in lake.source_status("events").notes


def test_a_file_that_changed_is_taken_again_into_a_table_with_a_key(
    lake: Lake, landing: Path
) -> None:
    put(landing, "a.json", {"id": 1, "v": "x"})
    follow(lake, landing, key="id", on_change="again")
    lake.ingest("events")
    put(landing, "a.json", {"id": 1, "v": "y"}, {"id": 2}, modified=LONG_AGO + 1)
    lake.ingest("events")
    assert ids(lake) == [1, 2]
    assert lake.table("events").to_arrow().to_pylist()[0]["v"] == "y"
    assert lake.ingest("events").action == "idle"


def test_a_change_within_the_grain_of_a_clock_is_seen_by_its_checksum(
    lake: Lake, landing: Path
) -> None:
    now = time.time_ns()
    put(landing, "a.json", {"id": 1}, modified=now)
    follow(lake, landing, settle="0s")
    lake.ingest("events")
    assert lake.ingest("events").action == "idle"
    put(landing, "a.json", {"id": 2}, modified=now)
    discovery._memories.clear()
    with pytest.raises(SourceStopped, match="changed after it was taken"):
        lake.ingest("events")


def test_a_bad_record_stops_the_source_with_file_and_line_and_publishes_nothing(
    lake: Lake, landing: Path
) -> None:
    put(landing, "a.json", {"id": 1})
    put(landing, "b.json", {"id": 2}, {"id": "x"})
    follow(lake, landing)
    with pytest.raises(SourceStopped, match=r"b\.json, line 2: .* Nothing of this commit") as said:
        lake.ingest("events")
    assert (said.value.state, said.value.line, said.value.source) == ("bad_record", 2, "events")
    assert ids(lake) == []
    assert lake.source_status("events").position == ""
    put(landing, "b.json", {"id": 2})
    assert lake.ingest("events").rows == 2


def test_bad_records_are_put_aside_in_the_commit_of_the_others(lake: Lake, landing: Path) -> None:
    put(landing, "a.json", {"id": 1}, "nonsense", {"id": "x"}, "", {"id": 2}, {"id": 3, "w": 1})
    (landing / "b.json").write_bytes(b'{"id": 4, "v": "\xff"}\n{"id": 5}\n')
    os.utime(landing / "b.json", ns=(LONG_AGO, LONG_AGO))
    follow(lake, landing, on_error="quarantine")
    report = lake.ingest("events")
    assert (ids(lake), report.rows, report.commits) == ([1, 2, 5], 3, 1)
    aside = lake.source_quarantine("events")
    assert [(Path(one.file).name, one.line, one.record) for one in aside] == [
        ("a.json", 2, "nonsense"),
        ("a.json", 3, '{"id": "x"}'),
        ("a.json", 6, '{"id": 3, "w": 1}'),
        ("b.json", 1, '{"id": 4, "v": "\ufffd"}'),
    ]
    assert "does not fit: it is a string" in aside[1].reason
    changed = {change.state.name: change.inserted for change in lake.log()[0].tables}
    assert (changed["events"], changed["events_quarantine"]) == (3, 4)
    assert ledger(lake)["a.json"]["bad"] == 3


def test_a_file_that_cannot_be_read_at_all_is_put_aside_as_one(lake: Lake, landing: Path) -> None:
    whole = gzip.compress(b"".join(b'{"id": %d, "v": "%d"}\n' % (n, n**7) for n in range(50_000)))
    (landing / "a.json.gz").write_bytes(whole[: len(whole) // 2])
    (landing / "b.json.gz").write_bytes(gzip.compress(b'{"id": 1}\n'))
    follow(lake, landing, path=f"{landing}/*.json.gz", on_error="quarantine", settle="0s")
    lake.ingest("events")
    assert ids(lake) == [1]
    (one,) = lake.source_quarantine("events")
    assert (one.file, one.line, one.record) == (f"{landing}/a.json.gz", None, None)


def test_csv_and_parquet_are_sifted_too(lake: Lake, landing: Path) -> None:
    (landing / "a.csv").write_text('id,v\n1,x\ntwo,"a\nb"\n3,x,y\n4,"q\nr"\n')
    (landing / "b.csv").write_text("id,w\n9,x\n")
    follow(lake, landing, path=f"{landing}/*.csv", on_error="quarantine", settle="0s")
    lake.ingest("events")
    assert ids(lake) == [1, 4]
    assert [(one.line, one.record) for one in lake.source_quarantine("events")] == [
        (3, 'two,"a\nb"'),
        (5, "3,x,y"),
        (None, None),
    ]
    pq.write_table(pa.table({"n": pa.array([1, 300, 2], pa.int64())}), landing / "c.parquet")
    (landing / "d.parquet").write_text("no Parquet")
    lake.create_source(
        "small", kind="files", path=f"{landing}/*.parquet", table="small", schema="n TINYINT",
        on_error="quarantine", settle="0s",
    )  # fmt: skip
    lake.ingest("small")
    assert [row["n"] for row in lake.table("small").to_arrow().to_pylist()] == [1, 2]
    assert [(one.line, one.record) for one in lake.source_quarantine("small")] == [
        (2, '{"n":300}'),
        (None, None),
    ]


def test_columns_are_inferred_when_the_table_is_created(lake: Lake, landing: Path) -> None:
    put(landing, "a.json", {"id": 1, "mixed": 1})
    put(landing, "b.json", {"id": 2.5, "mixed": "x", "inside": {"a": [1]}})
    lake.create_source("s", kind="files", path=f"{landing}/*.json", table="t")
    lake.ingest("s")
    assert sorted(map(str, lake.table("t").to_arrow().to_pylist())) == [
        "{'id': 1.0, 'mixed': '1', 'inside': None}",
        "{'id': 2.5, 'mixed': 'x', 'inside': {'a': [1]}}",
    ]


def test_columns_that_come_are_refused_by_name_or_added(lake: Lake, landing: Path) -> None:
    put(landing, "a.json", {"id": 1})
    follow(lake, landing)
    put(landing, "b.json", {"id": 2}, {"id": 3, "n": 1, "m": [1]})
    with pytest.raises(SourceStopped, match="has no column 'n', 'm'") as stopped:
        lake.ingest("events")
    assert "evolve=True" in str(stopped.value)
    lake.alter_source("events", evolve=True)
    report = lake.ingest("events")
    assert (report.rows, ids(lake)) == (3, [1, 2, 3])
    assert lake.table("events").to_arrow().column_names == ["id", "v", "n", "m"]


@pytest.mark.parametrize("name", ["_rowid", "__tidelock_x", "a.b", ""])
def test_what_can_be_no_column_stops_the_source(lake: Lake, landing: Path, name: str) -> None:
    put(landing, "a.json", {"id": 1, name: 1})
    follow(lake, landing, evolve=True)
    with pytest.raises(SourceStopped, match=r"a\.json: .*column"):
        lake.ingest("events")


def test_a_large_file_is_written_in_fragments_and_is_a_commit_of_its_own(
    lake: Lake, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "fragment_bytes", 1000)
    put(landing, "a.json", {"id": -1})
    put(landing, "b.json", *({"id": n, "v": "x" * 200} for n in range(60_000)))
    follow(lake, landing, bytes_per_commit=1_000_000, on_error="quarantine", evolve=True)
    assert lake.ingest("events").commits == 2
    assert ids(lake) == list(range(-1, 60_000))
    # What is undone was written to storage already.
    put(landing, "c.json", *({"id": n} for n in range(70_000, 80_000)), {"id": 80_000, "new": 1})
    assert lake.ingest("events").rows == 10_001
    assert len(ids(lake)) == 70_002


def test_a_stop_is_honoured_between_files(lake: Lake, landing: Path) -> None:
    for number in range(5):
        put(landing, f"{number}.json", {"id": number})
    follow(lake, landing)
    stop = threading.Event()
    stop.set()
    assert lake.ingest("events", stop=stop).rows == 0
    assert lake.ingest("events").rows == 5


def test_where_names_ascend_nothing_before_the_last_is_looked_at(lake: Lake, landing: Path) -> None:
    put(landing, "1.json", {"id": 1})
    put(landing, "2.json", {"id": 2})
    follow(lake, landing, names="ascending")
    lake.ingest("events")
    assert lake.source_status("events").position == "1 2.json"
    put(landing, "0.json", {"id": 0})
    put(landing, "3.json", {"id": 3})
    put(landing, "4.json", {"id": 4}, modified=time.time_ns() + 60 * 10**9)
    put(landing, "5.json", {"id": 5})
    lake.ingest("events")
    assert ids(lake) == [1, 2, 3]


def test_empty_files_are_taken_as_what_they_are(lake: Lake, landing: Path) -> None:
    put(landing, "a.json")
    put(landing, "b.json", {"id": 1})
    follow(lake, landing)
    lake.ingest("events")
    assert (ids(lake), ledger(lake)["a.json"]["rows"]) == ([1], 0)


def test_a_folder_that_is_not_there_is_said_and_is_found_again(lake: Lake, landing: Path) -> None:
    follow(lake, landing)
    landing.rename(landing.with_name("away"))
    with pytest.raises(SourceUnavailable, match="there is no such folder"):
        lake.ingest("events")
    assert lake.source_status("events").state == "unreachable"
    landing.with_name("away").rename(landing)
    put(landing, "a.json", {"id": 1})
    assert lake.ingest("events").rows == 1
    assert lake.source_status("events").state == "idle"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_said(lake: Lake, landing: Path) -> None:
    follow(lake, landing)
    landing.chmod(0)
    with pytest.raises(SourceDenied):
        lake.ingest("events")
    landing.chmod(0o700)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"table": None}, "table='events'"),
    ({"path": "/in/**"}, "The format of the files cannot be told"),
    ({"format": "xml"}, "There is no format 'xml'"),
    ({"mode": "append", "key": "id"}, "a table without a key"),
    ({"mode": "upsert"}, "has no key to upsert by"),
    ({"on_change": "again"}, "would append the rows again"),
    ({"names": "ascending", "order": "time"}, "order='name'"),
    ({"order": "size"}, "is none of: 'name', 'time'"),
    ({"evolve": "yes"}, "evolve is True or False"),
    ({"files_per_commit": 0}, "a whole number from 1 on"),
    ({"settle": "soon"}, "cannot be read as settle"),
    ({"schema": None}, "no file yet that would tell the columns"),
    ({"frmat": "csv"}, "Did you mean 'format'"),
    ({"storage_options": {"aws_secret_access_key": "x"}}, "is a secret"),
]


@pytest.mark.parametrize(("options", "told"), REFUSED)
def test_options_that_mean_nothing_are_refused(
    lake: Lake, landing: Path, options: dict[str, Any], told: str
) -> None:
    version = lake.snapshot().version
    with pytest.raises(InvalidOption, match=told):
        follow(lake, landing, **options)
    assert (len(lake.sources()), lake.snapshot().version) == (0, version)


def test_a_table_that_is_there_must_be_one_that_can_be_fed(lake: Lake, landing: Path) -> None:
    lake.create_table("events", DDL, key="id")
    with pytest.raises(InvalidOption, match="mode='upsert'"):
        follow(lake, landing, schema=None)
    with pytest.raises(InvalidOption, match=r"has the key \(id\), not \(v\)"):
        follow(lake, landing, key="v")
    follow(lake, landing, schema=None, mode="upsert")
    put(landing, "a.json", {"id": 1, "v": "x"}, {"id": 1, "v": "y"})
    lake.ingest("events")
    assert lake.table("events").to_arrow().to_pylist() == [{"id": 1, "v": "y"}]


def test_what_a_source_is_cannot_be_altered(lake: Lake, landing: Path) -> None:
    follow(lake, landing)
    with pytest.raises(InvalidOption, match="'path' of a source of kind 'files' stays"):
        lake.alter_source("events", path="elsewhere/*.json")
    lake.alter_source("events", order="time", settle="5m")
    assert lake.source_status("events").options["settle"] == "5m"
    lake.alter_source("events", order=None)
    assert "order" not in lake.source_status("events").options


def test_a_source_that_is_dropped_leaves_its_table(lake: Lake, landing: Path) -> None:
    put(landing, "a.json", {"id": 1})
    follow(lake, landing)
    lake.ingest("events")
    lake.drop_source("events")
    assert (ids(lake), len(lake.sources())) == ([1], 0)
    follow(lake, landing)
    assert lake.ingest("events").rows == 1


def test_rows_that_a_rule_does_not_allow_stop_the_source(lake: Lake, landing: Path) -> None:
    lake.create_table("events", f"{DDL}, CHECK (id > 0)")
    follow(lake, landing, on_error="quarantine")
    put(landing, "a.json", {"id": 1}, {"id": -1})
    with pytest.raises(RuleBroken):
        lake.ingest("events")
    status = lake.source_status("events")
    assert (status.state, ids(lake), status.position) == ("stopped", [], "")
    put(landing, "a.json", {"id": 1})
    lake.ingest("events")
    assert (lake.source_status("events").state, ids(lake)) == ("idle", [1])
