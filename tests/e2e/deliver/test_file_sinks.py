"""Sinks that deliver files, from the outside: what a user attaches, sees and finds at the end."""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.e2e.store.test_types_roundtrip import everything
from tests.support.lakes import collect_all
from tests.support.s3_server import S3Server, s3_bucket, s3_server
from tests.support.sinks.destinations import (
    CONFIRMATION,
    FussySink,
    as_multiset,
    check_inserts,
    check_manifest,
    check_same,
    file_sink,
    files_at,
    refuse,
    rows_at,
    rows_in,
    rows_of_lake,
)

import tidelock
from tidelock import Lake
from tidelock.deliver.delivery.plan import plan as sink_plan
from tidelock.errors import (
    InvalidOption,
    SinkExists,
    SinkNotFound,
    SinkStopped,
    StoreUnavailable,
)
from tidelock.store.objects.failpoints import armed
from tidelock.store.objects.protocol import Objects
from tidelock.testing.faulty_store import FaultyStore

__all__ = ["s3_bucket", "s3_server"]

DDL = "id BIGINT NOT NULL, g STRING, x BIGINT"
ODD = [
    None,
    "",
    "a/b",
    "..",
    ".",
    "'\"",
    "ü 日本",
    "%2F",
    "a=b",
    "__HIVE_DEFAULT_PARTITION__",
    "#1",
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("o", DDL, key="id")
        yield lake


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def add(lake: Lake, ids: range, groups: list[Any] | None = None, table: str = "o") -> None:
    groups = groups or ["EU", "US"]
    rows = [{"id": one, "g": groups[one % len(groups)], "x": one} for one in ids]
    lake.run(lambda tx: tx.append(table, rows))


# Ticks


def test_an_idle_tick_touches_no_destination_and_opens_no_data(tmp_path: Path, out: str) -> None:
    uri = tmp_path / "lake"
    with tidelock.open(uri, create=True) as lake:
        lake.create_table("o", DDL, key="id")
        lake.create_table("other", DDL)
        lake.create_sink("w", table="o", kind="parquet", to=out)
        lake.create_sink("c", table="o", kind="jsonl", to=f"{out}-c", feed="changes")
        add(lake, range(100))
        lake.deliver()
    stores: list[FaultyStore] = []

    def counting(inner: Objects) -> Objects:
        stores.append(FaultyStore(inner, seed=1))
        return stores[-1]

    with tidelock.open(uri, objects=counting) as lake:
        (store,) = stores
        add(lake, range(5), table="other")
        lake.optimize("other")
        before = {name: lake.sink_status(name).watermark for name in "wc"}
        there = stat_of(out)
        # A folder that nobody may look into: whoever reads or writes there fails.
        os.rename(out, f"{out}-hidden")
        lake._store.files.forget(lake._store.branches.head("main").tables["o"].id)
        opened = len(lake._store.files._open)
        for name in "wc":
            store.forget()
            report = lake.deliver(name)
            assert (report.action, report.rows, report.chunks) == ("idle", 0, 0)
            assert not [call for call in store.calls if call.operation not in ("get", "info")]
            assert store.count() <= 6, store.calls
            assert not [call for call in store.calls if "/plans" in call.key or "posts" in call.key]
        assert len(lake._store.files._open) == opened, "a dataset was opened"
        assert not os.path.exists(out)
        os.rename(f"{out}-hidden", out)
        assert stat_of(out) == there
        assert {name: lake.sink_status(name).watermark for name in "wc"} == before


def stat_of(folder: str) -> dict[str, tuple[int, int]]:
    found = {}
    for path in Path(folder).rglob("*"):
        status = path.stat()
        found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


@pytest.mark.parametrize("count", [1, 7, 2500])
def test_what_is_new_is_sent_and_nothing_else(lake: Lake, out: str, count: int) -> None:
    lake.create_sink("w", table="o", kind="parquet", to=out)
    add(lake, range(10_000))
    assert lake.deliver("w").rows == 10_000
    first = files_at(lake, "w")
    add(lake, range(20_000, 20_000 + count))
    report = lake.deliver("w")
    assert (report.action, report.rows, report.chunks) == ("delivered", count, 1)
    after = files_at(lake, "w")
    (new,) = set(after) - set(first)
    assert [row["id"] for row in rows_in(new, after[new])] == [*range(20_000, 20_000 + count)]
    assert {key: after[key] for key in first} == first
    check_inserts(lake, "w")


def test_changes_that_an_insert_feed_does_not_carry_make_one_tick_and_then_idle_ones(
    lake: Lake, out: str
) -> None:
    lake.create_sink("w", table="o", kind="parquet", to=out)
    add(lake, range(10))
    lake.deliver("w")
    delivered = rows_at(lake, "w")
    lake.run(lambda tx: tx.update("o", {"x": "x + 1"}, where="id < 5"))
    lake.run(lambda tx: tx.delete("o", where="id = 7"))
    lake.optimize()
    for _ in range(2):
        assert lake.deliver("w").action == "idle"
    check_same(lake, "w", delivered)
    add(lake, range(10, 12))
    lake.deliver("w")
    check_same(lake, "w", [*delivered, *rows_of_lake(lake, "o", 9)])


def test_small_windows_and_small_files_cover_everything_once(
    lake: Lake, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_plan, "WINDOW_ROWS", 40)
    monkeypatch.setattr(sink_plan, "CHUNKS_PER_PLAN", 3)
    options = {"table": "o", "kind": "jsonl", "rows_per_file": 7}
    lake.create_sink("w", to=f"{out}/w", **options)
    lake.create_sink("p", to=f"{out}/p", partition_by=["g"], **options)
    lake.create_sink("c", to=f"{out}/c", feed="changes", **options)
    for begin in range(0, 300, 50):
        add(lake, range(begin, begin + 50), ODD)
    lake.run(lambda tx: tx.update("o", {"x": "-x"}, where="id < 20"))
    reports = lake.deliver()
    assert [(one.sink, one.rows) for one in reports] == [("c", 340), ("p", 300), ("w", 300)]
    assert lake.sink_status("w").plan > 10
    assert lake.sink_status("p").plan > 3
    check_inserts(lake, "w")
    check_inserts(lake, "p")
    counted = Counter(row["_op"] for row in rows_at(lake, "c"))
    assert counted == {"insert": 300, "update_before": 20, "update_after": 20}


def test_a_thousand_files_are_listed_once_each_also_when_they_are_written_again(
    lake: Lake, out: str
) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=out, rows_per_file=1)
    add(lake, range(1010))
    lake.deliver("w")
    add(lake, range(2000, 2010))
    lake.deliver("w")
    manifest = file_sink(lake, "w").inventory.manifest()
    assert manifest is not None
    assert manifest.previous is not None
    check_inserts(lake, "w")
    for _ in range(2):
        lake.replay("w", since=500)
        assert lake.deliver("w").rows == 519
        check_inserts(lake, "w")


# Partitions


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_every_odd_value_gets_a_folder_of_its_own(lake: Lake, out: str, kind: str) -> None:
    lake.create_sink("p", table="o", kind=kind, to=out, partition_by="g")
    for begin in (0, 100):
        add(lake, range(begin, begin + 5 * len(ODD)), ODD)
        lake.deliver("p")
    check_inserts(lake, "p")
    by_folder: dict[str, set[Any]] = {}
    for key, data in files_at(lake, "p").items():
        folder = key.rpartition("/")[0]
        assert "/" not in folder
        by_folder.setdefault(folder, set()).update(row["g"] for row in rows_in(key, data))
    assert sorted(by_folder.values(), key=str) == sorted([{one} for one in ODD], key=str)
    assert by_folder["g=__HIVE_DEFAULT_PARTITION__"] == {None}
    # Nothing is outside of the place that was given but the manifest.
    assert {path.name for path in Path(out).parent.iterdir()} == {"lake", "out", "_tidelock"}


def test_every_odd_value_gets_a_folder_of_its_own_on_s3_and_no_file_stays_open(
    lake: Lake, tmp_path: Path, s3_server: S3Server, s3_bucket: str
) -> None:
    (tmp_path / "secret").write_text("test")
    options = {
        name: f"file:{tmp_path / 'secret'}" if "access_key" in name else value
        for name, value in s3_server.storage_options.items()
    }
    to = f"s3://{s3_bucket}/out"
    lake.create_sink("p", table="o", kind="jsonl", to=to, partition_by="g", storage_options=options)
    add(lake, range(len(ODD)), ODD)
    lake.deliver("p")
    before = len(os.listdir("/proc/self/fd"))
    for begin in (100, 200, 300):
        add(lake, range(begin, begin + 2 * len(ODD)), ODD)
        lake.deliver("p")
    # Connections may come and go; files do not stay.
    assert len(os.listdir("/proc/self/fd")) < before + len(ODD)
    check_inserts(lake, "p")


def test_two_columns_and_values_of_other_types_partition_too(lake: Lake, out: str) -> None:
    lake.create_table("t", "d DATE, b BOOLEAN, n INT, x BIGINT")
    rows = [
        {"d": dt.date(2024, 1, 1 + n % 3) if n % 4 else None, "b": n % 2 > 0, "n": n % 2, "x": n}
        for n in range(40)
    ]
    lake.run(lambda tx: tx.append("t", rows))
    lake.create_sink("p", table="t", kind="parquet", to=out, partition_by=["d", "b", "n"])
    lake.deliver("p")
    check_same(lake, "p", rows_of_lake(lake, "t"))
    assert "d=2024-01-02/b=true/n=1" in {key.rpartition("/")[0] for key in files_at(lake, "p")}


def test_a_value_that_is_too_long_for_a_folder_is_delivered_under_a_shorter_name(
    lake: Lake, out: str
) -> None:
    long, longer = "ü" * 200, "ü" * 201
    lake.create_sink("p", table="o", kind="jsonl", to=out, partition_by="g")
    add(lake, range(9), ["EU", long, longer])
    assert lake.deliver("p").rows == 9
    check_inserts(lake, "p")
    folders = {key.rpartition("/")[0]: key for key in files_at(lake, "p")}
    assert len(folders) == 3
    name = min(folders)
    assert name.startswith("g=%C3%BC%C3%BC")
    lake.replay("p", partition=name)
    assert lake.deliver("p").rows == 3
    check_inserts(lake, "p")


def test_a_folder_that_cannot_be_made_stops_its_own_partition_alone(lake: Lake, out: str) -> None:
    lake.create_sink("p", table="o", kind="jsonl", to=out, partition_by="g")
    Path(out).mkdir()
    Path(out, "g=US").write_text("in the way")
    add(lake, range(10))
    for begin in (20, 40):
        report = lake.deliver("p")
        assert (report.action, report.rows) == ("failed", 5)
        (lagging,) = lake.sink_status("p").lagging
        assert lagging.trouble is not None
        assert "g=US" in lagging.trouble.reason
        add(lake, range(begin, begin + 5), ["EU"])
    lake.deliver("p")
    Path(out, "g=US").unlink()
    check_same(lake, "p", [row for row in rows_of_lake(lake, "o") if row["g"] == "EU"])


KIND = "tests.support.sinks.destinations:open_fussy"


def test_a_partition_that_is_stopped_stops_no_other_and_catches_up_exactly_once(
    tmp_path: Path, out: str
) -> None:
    uri = str(tmp_path / "lake")
    groups = ["EU", "US", None]
    fussy = FussySink(Path(out))
    with tidelock.open(uri, create=True) as lake:
        lake.create_table("o", DDL, key="id")
        lake.create_sink("p", table="o", kind=KIND, to=out, partition_by=["g"])
        add(lake, range(30), groups)
        refuse(out, "g=EU")
        report = lake.deliver("p")
        assert (report.action, report.rows) == ("failed", 20)
    planned = [one for one in fussy.attempts() if "g=EU" in one]
    for number in range(1, 5):
        # Every time another process, more rows, other files.
        with tidelock.open(uri) as lake:
            add(lake, range(100 * number, 100 * number + 30), groups)
            lake.run(lambda tx, n=number: tx.delete("o", where=f"id = {3 * n}"))
            lake.optimize()
            collect_all(lake)
            report = lake.deliver("p")
            assert (report.action, report.rows) == ("failed", 20)
            status = lake.sink_status("p")
            assert [(one.path, one.watermark) for one in status.lagging] == [("g=EU", -1)]
            assert status.state == "failing"
            assert status.lagging[0].trouble is not None
            assert status.lagging[0].trouble.failures == number + 1
    assert {one for one in fussy.attempts() if "g=EU" in one} == set(planned)
    delivered = Counter(path for path, _ in fussy.rows())
    assert delivered == {"g=US": 50, "g=__HIVE_DEFAULT_PARTITION__": 50}
    refuse(out)
    with tidelock.open(uri) as lake:
        assert lake.deliver("p").action == "delivered"
        check_fussy(lake, fussy, gone={3, 6, 9, 12})
        add(lake, range(1000, 1010), groups)
        assert lake.deliver("p").rows == 10
        check_fussy(lake, fussy, gone={3, 6, 9, 12})
        assert lake.sink_status("p").state == "current"
        assert lake.deliver("p").action == "idle"


def check_fussy(lake: Lake, fussy: FussySink, gone: set[int]) -> None:
    """What the lake has, and what was deleted after it was planned: each once, where it belongs."""
    found = fussy.rows()
    assert max(Counter(row["_sequence"] for _, row in found).values()) == 1
    deleted = [row for _, row in found if row["id"] in gone]
    assert {row["id"] for row in deleted} == gone
    rest = [row for _, row in found if row["id"] not in gone]
    assert as_multiset(rest) == as_multiset(rows_of_lake(lake, "o"))
    names = {None: "__HIVE_DEFAULT_PARTITION__"}
    assert all(path == f"g={names.get(row['g'], row['g'])}" for path, row in found)


def test_what_a_partition_sent_to_catch_up_and_was_not_confirmed_is_sent_again(
    lake: Lake, out: str
) -> None:
    lake.create_sink("p", table="o", kind=KIND, to=out, partition_by=["g"])
    add(lake, range(30))
    refuse(out, "g=EU")
    lake.deliver("p")
    refuse(out, CONFIRMATION)
    add(lake, range(30, 40))
    for _ in range(2):
        assert lake.deliver("p").action == "failed"
    assert Counter(path for path, _ in FussySink(Path(out)).rows()) == {"g=US": 15}
    refuse(out)
    assert lake.deliver("p").action == "delivered"
    check_fussy(lake, FussySink(Path(out)), gone=set())
    assert lake.deliver("p").action == "idle"


def test_partitions_that_stop_and_go_on_at_random_get_everything_once(lake: Lake, out: str) -> None:
    chance = random.Random(11)
    groups = ["a", "b", "c", "d"]
    lake.create_sink("p", table="o", kind=KIND, to=out, partition_by=["g"])
    for number in range(15):
        add(lake, range(number * 20, number * 20 + chance.randint(1, 20)), groups)
        unwanted = [
            f"g={one}" + chance.choice(["", "@1", "@2"]) for one in groups if chance.random() < 0.5
        ]
        refuse(out, *unwanted, *([CONFIRMATION] if chance.random() < 0.3 else []))
        lake.deliver("p")
        if chance.random() < 0.3:
            lake.optimize()
            collect_all(lake)
    refuse(out)
    lake.deliver("p")
    check_fussy(lake, FussySink(Path(out)), gone=set())
    assert not lake.sink_status("p").lagging


# Rows and sources


def test_rows_that_are_the_same_to_the_byte_are_two_rows(lake: Lake, out: str) -> None:
    lake.create_table("twins", "x BIGINT")
    lake.create_sink("w", table="twins", kind="parquet", to=f"{out}/w")
    lake.create_sink("c", table="twins", kind="jsonl", to=f"{out}/c", feed="changes")
    for _ in range(2):
        lake.run(lambda tx: tx.append("twins", [{"x": 1}, {"x": 1}]))
        lake.deliver()
    assert [row["x"] for row in rows_at(lake, "w")] == [1, 1, 1, 1]
    assert [(row["x"], row["_op"]) for row in rows_at(lake, "c")] == [(1, "insert")] * 4
    check_inserts(lake, "w", "twins")


def test_every_type_comes_back_from_parquet_exactly(tmp_path: Path, out: str) -> None:
    schema, rows = everything()
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", schema)
        lake.run(lambda tx: tx.append("t", rows))
        lake.create_sink("w", table="t", kind="parquet", to=out)
        lake.deliver("w")
        (data,) = files_at(lake, "w").values()
        back = pq.read_table(pa.BufferReader(data))
        assert back.column_names == [*rows.column_names, "_sequence"]
        for name in rows.column_names:
            found, given = back.column(name), rows.column(name)
            assert found.to_pylist() == given.to_pylist(), name
            assert pa.types.is_nested(given.type) or found.type == given.type
            assert back.schema.field(name).nullable == rows.schema.field(name).nullable
        assert back.column("_sequence").to_pylist() == list(range(rows.num_rows))


def test_a_stream_table_is_followed_like_any_other(tmp_path: Path, out: str) -> None:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("o", DDL, key="id")
        add(lake, range(10), ["a", "b"])
        lake.create_stream_table("s", "SELECT g, COUNT(*) AS n, SUM(x) AS x FROM o GROUP BY g")
        lake.refresh()
        lake.create_sink("i", table="s", kind="parquet", to=f"{out}/i")
        lake.create_sink("c", table="s", kind="parquet", to=f"{out}/c", feed="changes")
        lake.deliver()
        for number in range(1, 5):
            add(lake, range(100 * number, 100 * number + 5), ["a", f"new {number}"])
            lake.run(lambda tx, n=number: tx.delete("o", where=f"id = {n}"))
            lake.refresh()
            if number % 2:
                lake.deliver()
        lake.deliver()
        columns = ("g", "n", "x")
        table: Counter[tuple[Any, ...]] = Counter()
        for row in sorted(rows_at(lake, "c"), key=lambda row: row["_version"]):
            weight = 1 if row["_op"] in ("insert", "update_after") else -1
            table[tuple(row[name] for name in columns)] += weight
        now = [tuple(row.values()) for row in lake.table("s").to_arrow().to_pylist()]
        assert +table == Counter(now)
        assert not -table
        sequences = [row["_sequence"] for row in rows_at(lake, "i")]
        assert len(set(sequences)) == len(sequences)
        assert {row["_sequence"] for row in rows_of_lake(lake, "s")} <= set(sequences)


@pytest.mark.parametrize("start", ["beginning", "now", "version:2"])
@pytest.mark.parametrize("feed", ["inserts", "changes"])
def test_a_sink_begins_where_it_was_told(lake: Lake, out: str, start: str, feed: Any) -> None:
    add(lake, range(10))
    add(lake, range(10, 20))
    lake.create_sink("w", table="o", kind="jsonl", to=out, start=start, feed=feed)
    add(lake, range(20, 25))
    lake.deliver("w")
    first = {"beginning": 0, "version:2": 10, "now": 20}[start]
    assert [row["id"] for row in rows_at(lake, "w")] == [*range(first, 25)]
    check_manifest(lake, "w")


# A sink's life


def test_a_sink_whose_table_or_branch_is_gone_stops_and_keeps_what_it_delivered(
    lake: Lake, out: str
) -> None:
    lake.create_branch("dev")
    lake.create_sink("w", table="o", kind="parquet", to=f"{out}/w")
    lake.create_sink("d", table="o", kind="parquet", to=f"{out}/d", branch="dev")
    add(lake, range(10))
    lake.deliver()
    delivered = files_at(lake, "w")
    assert delivered
    lake.drop_table("o")
    lake.delete_branch("dev")
    lake.create_table("o", DDL, key="id")
    add(lake, range(50, 60))
    for name in "wd":
        with pytest.raises(SinkStopped, match="Drop the sink"):
            lake.deliver(name)
        assert lake.sink_status(name).state == "stopped"
    assert [one.action for one in lake.deliver()] == ["failed", "failed"]
    assert files_at(lake, "w") == delivered


def test_a_suspended_sink_gets_nothing_until_it_is_resumed(lake: Lake, out: str) -> None:
    lake.create_sink("w", table="o", kind="parquet", to=out)
    add(lake, range(10))
    lake.deliver("w")
    lake.suspend_sink("w", "the warehouse is being painted")
    add(lake, range(10, 20))
    report = lake.deliver("w")
    assert (report.action, report.reason) == ("suspended", "the warehouse is being painted")
    assert lake.sink_status("w").state == "suspended"
    assert len(rows_at(lake, "w")) == 10
    lake.optimize()
    collect_all(lake)
    lake.resume_sink("w")
    assert lake.deliver("w").rows == 10
    check_inserts(lake, "w")


@pytest.mark.parametrize("partition_by", [None, "g"])
def test_a_replay_writes_the_same_files_in_their_place(
    lake: Lake, out: str, partition_by: str | None
) -> None:
    options = {"rows_per_file": 7, "partition_by": partition_by}
    lake.create_sink("w", table="o", kind="parquet", to=out, **options)
    for begin in (0, 50):
        add(lake, range(begin, begin + 30))
        lake.deliver("w")
    before = files_at(lake, "w")
    for since in (-1, 20):
        lake.replay("w", since=since)
        # Rows may come, and what is to be sent again be collected, before it is.
        add(lake, range(100 * (since + 2), 100 * (since + 2) + 3))
        lake.optimize()
        collect_all(lake)
        report = lake.deliver("w")
        assert report.action == "delivered"
        after = files_at(lake, "w")
        assert {key: after[key] for key in before} == before
        check_inserts(lake, "w")
        before = after


def test_one_partition_can_be_replayed(lake: Lake, out: str) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=out, partition_by="g")
    add(lake, range(30))
    lake.deliver("w")
    before = files_at(lake, "w")
    (broken,) = [key for key in before if key.startswith("g=EU/")]
    Path(out, broken).write_text("somebody broke it")
    lake.replay("w", partition="g=EU")
    assert lake.deliver("w").rows == 15
    assert files_at(lake, "w") == before
    with pytest.raises(InvalidOption):
        lake.replay("w", since=10_000)


def test_a_replay_in_the_middle_of_a_plan_leaves_nothing_of_it_behind(lake: Lake, out: str) -> None:
    lake.create_sink("w", table="o", kind="jsonl", to=out, rows_per_file=4)
    add(lake, range(30))
    with armed("deliver.after_chunk", "error@3"), pytest.raises(StoreUnavailable):
        lake.deliver("w")
    assert len(files_at(lake, "w")) == 3
    # What is planned anew ends elsewhere.
    lake.run(lambda tx: tx.delete("o", where="id IN (1, 6, 7)"))
    with pytest.raises(InvalidOption, match=r"^3 rows that sink 'w' delivered"):
        lake.replay("w")
    lake.replay("w", lose_rows=True)
    lake.deliver("w")
    check_inserts(lake, "w")


def test_a_place_with_the_files_of_another_sink_is_refused_and_left_as_it_is(
    lake: Lake, out: str
) -> None:
    add(lake, range(10))
    lake.create_sink("w", table="o", kind="parquet", to=out)
    lake.deliver("w")
    delivered = files_at(lake, "w")
    there = stat_of(out)
    with pytest.raises(SinkExists):
        lake.create_sink("w", table="o", kind="parquet", to=f"{out}-2")
    lake.drop_sink("w")
    with pytest.raises(SinkNotFound):
        lake.deliver("w")
    assert stat_of(out) == there
    lake.run(lambda tx: tx.update("o", {"x": "0"}, where="id < 5"))
    with pytest.raises(InvalidOption, match=r"another sink, 'w'. Choose another address, or empty"):
        lake.create_sink("w", table="o", kind="parquet", to=out)
    lake.create_sink("w", table="o", kind="parquet", to=f"{out}-3")
    # Somebody else's files may come there later.
    shutil.copytree(out, f"{out}-3")
    for _ in range(2):
        with pytest.raises(SinkStopped, match="no manifest that tells whose they are"):
            lake.deliver("w")
    assert stat_of(out) == there
    assert files_at(lake, "w") == delivered
