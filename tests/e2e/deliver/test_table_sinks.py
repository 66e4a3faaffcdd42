"""Iceberg and Delta tables that follow a table, read by others, through kills and lost answers."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from tests.support.lakes import end, run, start, wait_until
from tests.support.s3_server import LossyS3, S3Server, s3_bucket, s3_server
from tests.support.sinks import deliverers
from tests.support.sinks.destinations import age_posts
from tests.support.sinks.own_sink import lines_at
from tests.support.sinks.table_destinations import Tables, as_multiset, check, tables

import tidelock
from tidelock import Lake
from tidelock.deliver.destinations.kinds import open_sink
from tidelock.deliver.destinations.protocol import Sink
from tidelock.errors import DestinationFailed, InvalidOption
from tidelock.model.sinks import SinkDefinition
from tidelock.store.objects.failpoints import recorded
from tidelock.testing.sink_contract import SinkContract, Story
from tidelock.testing.sink_rows import numbered

__all__ = ["s3_bucket", "s3_server", "tables"]

KILLED = -signal.SIGKILL


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return deliverers.make(str(tmp_path / "lake"))


def deliver_elsewhere(lake: Lake, name: str = "w") -> None:
    assert run(deliverers.deliver, lake.uri, name) == 0


# What readers find


@pytest.mark.parametrize("partition_by", [None, ["x"]])
def test_inserted_rows_are_read_by_everybody_once(
    lake: Lake, tables: Tables, partition_by: list[str] | None
) -> None:
    tables.attach(lake, partition_by=partition_by)
    assert lake.deliver("w").rows == 6
    deliverers.add(lake, range(10, 25))
    assert lake.deliver("w").chunks == 4
    assert lake.deliver("w").action == "idle"
    check(lake, tables)
    assert as_multiset(tables.polars().to_pylist()) == as_multiset(tables.rows())


def test_changes_are_read_with_their_operation_and_version(lake: Lake, tables: Tables) -> None:
    tables.attach(lake, feed="changes")
    lake.deliver("w")
    lake.run(lambda tx: tx.update("o", {"x": "x + 1"}, where="id < 3"))
    lake.run(lambda tx: tx.delete("o", where="id = 5"))
    lake.deliver("w")
    rows = tables.rows()
    count = Counter(row["_op"] for row in rows)
    assert count == {"insert": 6, "update_before": 3, "update_after": 3, "delete": 1}
    assert as_multiset(tables.polars().to_pylist()) == as_multiset(rows)
    # Whoever adds up the changes gets the table.
    state: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        sign = 1 if row["_op"] in ("insert", "update_after") else -1
        state[row["id"], row["g"], row["x"]] += sign
    now = lake.table("o").to_arrow().to_pylist()
    assert +state == Counter((row["id"], row["g"], row["x"]) for row in now)


def test_partitions_are_those_of_the_table(lake: Lake, tables: Tables) -> None:
    tables.attach(lake, partition_by=["x"], rows_per_commit=100)
    report = lake.deliver("w")
    # One commit for all of them.
    assert (report.chunks, report.rows) == (1, 6)
    folders = {path.parent.name for path in Path(tables.place()).rglob("x=*/*.parquet")}
    assert folders == {f"x={one * 3}" for one in range(6)}


def test_rows_whose_partition_is_too_long_for_a_folder_arrive_or_are_refused(
    lake: Lake, tables: Tables
) -> None:
    lake.run(lambda tx: tx.delete("o", where="true"))
    tables.attach(lake, partition_by="g")
    long = [100, 102, 104, 105, 106, 107]
    for ids in (range(100, 104), range(104, 110)):
        rows = [{"id": n, "g": "é" * 300 if n in long else "EU"} for n in ids]
        lake.run(lambda tx, rows=rows: tx.append("o", rows))
    if tables.kind == "delta":
        for _ in range(2):
            # Tried again, it says the same, and no row has got in.
            report = lake.deliver("w")
            assert (report.action, report.rows, tables.rows()) == ("failed", 0, [])
            assert "'g' holds a value of 300 characters, which begins 'ééé" in report.reason
            assert "1800 bytes once it is encoded, and 253 fit" in report.reason
            assert "tidelock sink replay w" in report.reason
        lake.run(lambda tx: tx.update("o", {"g": "'short'"}, where="g <> 'EU'"))
        lake.replay("w")
    lake.deliver("w")
    check(lake, tables)
    assert not lake.quarantine("w")
    assert as_multiset(tables.polars().to_pylist()) == as_multiset(tables.rows())


def test_an_empty_text_in_a_partition_column_is_not_lost_in_delta(
    lake: Lake, tmp_path: Path
) -> None:
    tables = Tables("delta", tmp_path / "tables")
    tables.attach(lake, partition_by=["g"])
    report = lake.deliver("w")
    assert report.action == "failed"
    assert "cannot tell from NULL" in report.reason
    assert "" not in [row["g"] for row in tables.rows()]
    tables.attach(lake, "whole")
    lake.deliver("whole")
    check(lake, tables, "whole")


# Kills


def steps_of_a_delivery(lake: Lake, tables: Tables) -> list[tuple[str, int]]:
    tables.attach(lake, "trial")
    seen: Counter[str] = Counter()
    steps = []
    with recorded() as names:
        lake.deliver("trial")
    for name in names:
        if name.startswith("deliver."):
            seen[name] += 1
            steps.append((name, seen[name]))
    lake.drop_sink("trial")
    return steps


def test_a_deliverer_killed_at_any_step_is_followed_by_one_that_goes_on(
    lake: Lake, tables: Tables
) -> None:
    steps = steps_of_a_delivery(lake, tables)
    assert {"deliver.after_create", "deliver.mid_chunk", "deliver.after_chunk"} <= {
        name for name, _ in steps
    }
    for number, (step, hit) in enumerate(steps):
        name = f"w{number}"
        tables.attach(lake, name)
        code = run(deliverers.deliver, lake.uri, name, failpoints=f"{step}=kill@{hit}")
        assert code == KILLED, f"{step} was not reached"
        age_posts(lake.uri)
        # The lake goes on meanwhile.
        deliverers.add(lake, range(100 + number * 2, 102 + number * 2))
        lake.deliver(name)
        check(lake, tables, name)


def test_a_deliverer_that_was_suspended_adds_nothing_when_it_wakes(
    lake: Lake, tables: Tables, tmp_path: Path
) -> None:
    tables.attach(lake)
    lake.deliver("w")
    deliverers.add(lake, range(10, 13))
    gate = tmp_path / "gate"
    late = start(
        deliverers.deliver_or_be_refused,
        lake.uri,
        "w",
        str(tmp_path / "late"),
        failpoints=f"deliver.mid_chunk=pause:{gate}@1",
        lease_seconds=3600,
    )
    try:
        wait_until(lambda: Path(f"{gate}.reached").exists())
        # It has read the table and its rows, and commits after its successor has.
        age_posts(lake.uri, 7200)
        deliver_elsewhere(lake)
        gate.touch()
        wait_until(lambda: not late.is_alive())
    finally:
        end(late)
    deliverers.add(lake, range(20, 23))
    age_posts(lake.uri, 7200)
    deliver_elsewhere(lake)
    check(lake, tables)


# Lost answers


def test_a_commit_whose_answer_is_lost_is_not_made_again_in_delta(
    lake: Lake, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("test\n")
    lossy = LossyS3(s3_server)
    with lossy as proxy:
        options = {
            name: f"file:{secret}" if "access_key" in name else value
            for name, value in proxy.storage_options.items()
        }
        to = f"s3://{s3_bucket}/w"
        lake.create_sink("w", table="o", kind="delta", to=to, storage_options=options)
        lake.deliver("w")
        for number, faults in enumerate((["lost"], ["", "lost"], ["", "lost", "lost"])):
            # The first is the data, the second the commit, the third what the library tries then.
            deliverers.add(lake, range(number * 20 + 10, number * 20 + 20))
            lossy.faults = list(faults)
            wait_until(lambda: lake.deliver("w").action in ("delivered", "idle"))
            assert lossy.faults == []
    rows = DeltaTable(to, storage_options=s3_server.storage_options).to_pyarrow_table()
    wanted = lake.read_since("o", limit=1000).rows.to_pylist()
    assert as_multiset(pa.table(rows).to_pylist()) == as_multiset(wanted)


class ForgetfulCatalog(SqlCatalog):
    """A catalog whose answers are lost: what it was told to commit, it has."""

    lost = 0

    def commit_table(self, *arguments: Any, **named: Any) -> Any:
        answer = super().commit_table(*arguments, **named)
        if ForgetfulCatalog.lost:
            ForgetfulCatalog.lost -= 1
            raise CommitStateUnknownException("no answer")
        return answer


def test_a_commit_whose_answer_is_lost_is_not_made_again_in_iceberg(
    lake: Lake, tmp_path: Path
) -> None:
    tables = Tables("iceberg", tmp_path / "tables")
    Path(tables.place()).mkdir(parents=True)
    catalog = {
        "py-catalog-impl": f"{__name__}.ForgetfulCatalog",
        "uri": f"sqlite:///{tables.place()}/catalog.db",
    }
    tables.attach(lake, catalog=catalog)
    lake.deliver("w")
    deliverers.add(lake, range(10, 20))
    ForgetfulCatalog.lost = 1
    report = lake.deliver("w")
    assert (report.action, ForgetfulCatalog.lost) == ("failed", 0)
    lake.deliver("w")
    check(lake, tables)


def test_others_may_write_to_the_table_at_the_same_time(lake: Lake, tables: Tables) -> None:
    tables.attach(lake, rows_per_commit=1)
    lake.deliver("w")
    deliverers.add(lake, range(10, 30))
    foreign = tables.read().slice(0, 1).set_column(0, "id", pa.array([-1], pa.int64()))
    foreign = foreign.cast(tables.read().schema)
    stop = threading.Event()
    added = []

    def write_on() -> None:
        while not stop.is_set():
            try:
                tables.append(foreign)
                added.append(1)
            except Exception:  # noqa: BLE001 - whoever loses a race tries again
                continue

    numbers = itertools.count(30)

    def deliver_on() -> bool:
        """Deliver one more row each time, until the rival has got in often."""
        deliverers.add(lake, [next(numbers)])
        return lake.deliver("w").action in ("delivered", "idle") and len(added) > 3

    other = threading.Thread(target=write_on)
    other.start()
    try:
        wait_until(deliver_on)
    finally:
        stop.set()
        other.join()
    assert len(added) > 3
    rows = tables.rows()
    assert sum(row["id"] == -1 for row in rows) == len(added)
    mine = [row for row in rows if row["id"] != -1]
    assert as_multiset(mine) == as_multiset(lake.read_since("o", limit=1000).rows.to_pylist())


# Sending again, and tables of others


@pytest.mark.parametrize("feed", ["inserts", "changes"])
def test_a_replay_takes_back_and_sends_again_without_doubling(
    lake: Lake, tables: Tables, feed: str
) -> None:
    tables.attach(lake, feed=feed, partition_by=["x"])
    lake.deliver("w")
    version = lake.snapshot().version
    deliverers.add(lake, range(10, 20))
    lake.run(lambda tx: tx.update("o", {"g": "'new'"}, where="id = 12"))
    lake.deliver("w")
    before = as_multiset(tables.rows())
    commits = tables.commits()
    lake.replay("w", since=3 if feed == "inserts" else version)
    assert lake.deliver("w").rows == 12
    assert tables.commits() > commits
    assert as_multiset(tables.rows()) == before
    lake.replay("w")
    code = run(deliverers.deliver, lake.uri, "w", failpoints="deliver.after_chunk=kill@2")
    assert code == KILLED
    age_posts(lake.uri)
    lake.deliver("w")
    assert as_multiset(tables.rows()) == before
    with pytest.raises(InvalidOption, match="Replay all of it"):
        lake.replay("w", partition="x=3")


def test_a_replay_does_not_take_back_rows_that_the_lake_has_no_longer(
    lake: Lake, tables: Tables
) -> None:
    tables.attach(lake)
    lake.deliver("w")
    before = as_multiset(tables.rows())
    lake.run(lambda tx: tx.delete("o", where="id < 2"))
    deliverers.add(lake, range(10, 20))
    with pytest.raises(InvalidOption, match=r"^2 rows that sink 'w'"):
        lake.replay("w")
    assert as_multiset(tables.rows()) == before
    lake.replay("w", since=1)
    lake.replay("w", lose_rows=True)
    lake.deliver("w")
    check(lake, tables)


def test_a_table_that_was_dropped_is_missed_and_made_again_by_a_replay(
    lake: Lake, tables: Tables
) -> None:
    tables.attach(lake)
    lake.deliver("w")
    tables.drop()
    deliverers.add(lake, range(10, 20))
    report = lake.deliver("w")
    assert report.action == "failed"
    assert "is gone" in report.reason
    assert "tidelock sink replay w" in report.reason
    lake.replay("w")
    lake.deliver("w")
    check(lake, tables)


def test_two_sinks_do_not_fill_one_table(lake: Lake, tables: Tables) -> None:
    tables.attach(lake)
    lake.deliver("w")
    lake.drop_sink("w")
    with pytest.raises(InvalidOption, match=r"belongs to another sink.* drop that table first"):
        tables.attach(lake)
    assert len(tables.rows()) == 6
    tables.drop()
    tables.attach(lake)
    if tables.kind == "delta":
        with pytest.raises(InvalidOption, match="Sink 'w' delivers to"):
            lake.create_sink("v", table="o", kind="delta", to=tables.place())
    else:
        with pytest.raises(InvalidOption, match="Sink 'w' delivers to"):
            lake.create_sink(
                "v", table="o", kind="iceberg", to=tables.place(), identifier="tidelock.w"
            )
        lake.create_sink("v", table="o", kind="iceberg", to=tables.place())
    lake.deliver()
    check(lake, tables)


FOREIGN = pa.schema(
    [
        ("id", pa.int64()),
        ("g", pa.string()),
        ("x", pa.int64()),
        ("note", pa.string()),
        ("_sequence", pa.int64()),
    ]
)


def test_a_table_of_somebody_else_is_added_to_if_its_columns_fit(
    lake: Lake, tables: Tables
) -> None:
    theirs = {"id": -1, "g": "theirs", "x": 0, "note": "kept", "_sequence": None}
    tables.append(pa.Table.from_pylist([theirs], FOREIGN))
    tables.attach(lake)
    lake.deliver("w")
    deliverers.add(lake, range(10, 20))
    lake.deliver("w")
    wanted = lake.read_since("o", limit=1000).rows.to_pylist()
    wanted = [theirs, *({**row, "note": None} for row in wanted)]
    assert as_multiset(tables.rows()) == as_multiset(wanted)
    with pytest.raises(InvalidOption, match="rows of others"):
        lake.replay("w")


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (pa.field("x", pa.string()), "'x' is STRING there and BIGINT here"),
        (pa.field("X", pa.int64()), "'X' is written 'x' in the lake"),
        (pa.field("more", pa.int64(), nullable=False), "'more' is required"),
    ],
    ids=["type", "case", "required"],
)
def test_a_table_whose_columns_do_not_fit_is_refused_and_the_difference_told(
    lake: Lake, tables: Tables, field: pa.Field, said: str
) -> None:
    schema = pa.schema([field, ("id", pa.int64()), ("_sequence", pa.int64())])
    tables.append(schema.empty_table())
    tables.attach(lake)
    report = lake.deliver("w")
    assert report.action == "failed"
    assert said in report.reason
    assert tables.rows() == []


# Columns that come and go


class Placed(SinkContract):
    """Plans sent without a lake, to a table at a place."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def open(self, definition: SinkDefinition) -> Sink:
        return open_sink(
            replace(
                definition,
                kind=self._tables.kind,
                to=self._tables.place(definition.name),
            )
        )

    def read_back(self, definition: SinkDefinition) -> pa.Table:
        return self._tables.read(definition.name)

    def held(self, rows: pa.Table) -> pa.Table:
        for name in self.read_back(self.define()).schema.names:
            if name not in rows.schema.names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows))
        return rows


NESTED = pa.list_(pa.struct([("a", pa.date32())]))


@pytest.mark.parametrize(
    "kind", [pa.int16(), pa.decimal128(9, 2), pa.timestamp("us"), NESTED], ids=str
)
def test_a_new_column_is_added_with_the_first_rows_that_have_it(
    tables: Tables, kind: pa.DataType
) -> None:
    story = Story(Placed(tables), numbered(5))
    story.deliver()
    rows = numbered(5, begin=10)
    field = pa.field("new", kind, nullable=False)
    column = pa.array([[{"a": None}] if kind == NESTED else 7] * 5, kind)
    story.deliver(rows.append_column(field, column))
    story.deliver_again()
    story.check()


def test_a_column_that_is_gone_or_of_another_type_fails_with_its_name(tables: Tables) -> None:
    story = Story(Placed(tables), numbered(5))
    story.deliver()
    for rows, said in (
        (numbered(5, begin=10).drop_columns(["region"]), "'region' is no longer in the lake"),
        (
            numbered(5, begin=10).set_column(1, "region", pa.array(range(5), pa.int64())),
            "'region' is STRING there and BIGINT here",
        ),
    ):
        story.begin(rows)
        with pytest.raises(DestinationFailed, match=said):
            story.deliver_again()
    assert tables.read("contract").num_rows == 5


# Settings


def test_secrets_of_a_catalog_are_kept_as_references(lake: Lake, tmp_path: Path) -> None:
    catalog = {"type": "rest", "uri": "http://127.0.0.1:1", "token": "plain"}
    with pytest.raises(InvalidOption, match="token='env:NAME'"):
        lake.create_sink("w", table="o", kind="iceberg", to="s3://bucket/w", catalog=catalog)
    with pytest.raises(InvalidOption, match="no namespace"):
        lake.create_sink("w", table="o", kind="iceberg", to=str(tmp_path / "w"), identifier="w")
    assert [sink.name for sink in lake.sinks()] == []


def test_a_lake_delivers_to_a_sink_that_its_user_wrote(lake: Lake, tmp_path: Path) -> None:
    place = str(tmp_path / "rows.db")
    lake.create_sink("w", table="o", kind="tests.support.sinks.own_sink:open_sqlite", to=place)
    deliverers.add(lake, range(10, 300))
    with tidelock.open(lake.uri) as other:
        other.deliver("w")
    wanted = lake.read_since("o", limit=1000).rows.to_pylist()
    assert as_multiset(lines_at(place)) == as_multiset(wanted)


@pytest.mark.parametrize(("kind", "library"), [("iceberg", "pyiceberg"), ("delta", "deltalake")])
def test_a_kind_whose_library_is_missing_says_how_to_install_it(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, library: str
) -> None:
    for name in [one for one in sys.modules if one.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    module = {"iceberg": "iceberg", "delta": "delta_lake"}[kind]
    monkeypatch.delitem(sys.modules, f"tidelock.deliver.destinations.{module}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidOption, match=rf"pip install 'tidelock\[{kind}\]'"):
        lake.create_sink("w", table="o", kind=kind, to=str(tmp_path / "w"))
