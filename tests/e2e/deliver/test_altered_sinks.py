"""Sinks of tables whose columns are altered: each row comes with the columns of its time, once."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.lakes import collect_all, seed_of
from tests.support.sinks.destinations import check_manifest, files_at
from tests.support.sinks.receivers import Receiver, receiving
from tests.support.sinks.table_destinations import Tables

import tidelock
from tidelock import Lake
from tidelock.errors import SinkStopped
from tidelock.model.schema.alterations import (
    AddColumn,
    Alteration,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetRequired,
)
from tidelock.model.schema.schema import Column

FEEDS = ("inserts", "changes")
KINDS = ("parquet", "jsonl", "csv")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        lake.create_table("o", "id BIGINT NOT NULL, g STRING, x INT, y INT", key="id")
        add(lake, 0, 3)
        yield lake


def add(lake: Lake, first: int, count: int, table: str = "o", **more: Any) -> None:
    with lake.transaction() as tx:
        names = tx.table(table).schema.names
        rows = [
            {"id": n, "g": "ab"[n % 2], "x": n, "y": 10 * n} for n in range(first, first + count)
        ]
        tx.append(table, [{k: v for k, v in (row | more).items() if k in names} for row in rows])


def alter(lake: Lake, *alterations: Alteration, table: str = "o", **updates: str) -> None:
    with lake.transaction() as tx:
        tx.alter_table(table, *alterations)
        if updates:
            tx.update(table, updates)


def attach(lake: Lake, tmp_path: Path, kind: str, feed: str, **options: Any) -> None:
    lake.create_sink(
        "w", table="o", kind=kind, to=str(tmp_path / "out" / "w"), feed=feed, **options
    )


def files(lake: Lake, kind: str) -> list[list[dict[str, Any]]]:
    """The rows of each file, in the order of their names."""
    return [_rows(kind, data) for _, data in sorted(files_at(lake, "w").items())]


def _rows(kind: str, data: bytes) -> list[dict[str, Any]]:
    if kind == "parquet":
        return pq.ParquetFile(io.BytesIO(data)).read().to_pylist()
    if kind == "jsonl":
        return [json.loads(line) for line in data.splitlines()]
    return list(csv.DictReader(io.StringIO(data.decode())))


def columns(rows: list[dict[str, Any]]) -> list[str]:
    return [name for name in rows[0] if not name.startswith("_")]


SWAP = (RenameColumn("x", "tmp"), RenameColumn("y", "x"), RenameColumn("tmp", "y"))


# Files


@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_sink_begins_a_new_file_with_the_new_columns(
    lake: Lake, tmp_path: Path, kind: str, feed: str
) -> None:
    attach(lake, tmp_path, kind, feed)
    lake.deliver("w")
    add(lake, 3, 2)
    alter(lake, AddColumn(Column("note", pa.string())))
    add(lake, 5, 2, note="n")
    alter(lake, *SWAP, DropColumn("g"))
    add(lake, 7, 1)
    lake.deliver("w")
    found = files(lake, kind)
    assert [columns(rows) for rows in found] == [
        ["id", "g", "x", "y"],
        ["id", "g", "x", "y"],
        ["id", "g", "x", "y", "note"],
        ["id", "y", "x", "note"],
    ]
    assert [[int(row["id"]) for row in rows] for rows in found] == [[0, 1, 2], [3, 4], [5, 6], [7]]
    assert (int(found[3][0]["x"]), int(found[3][0]["y"])) == (7, 70)
    check_manifest(lake, "w")
    assert lake.deliver("w").action == "idle"


def test_a_commit_that_alters_and_updates_belongs_to_the_new_columns(
    lake: Lake, tmp_path: Path
) -> None:
    attach(lake, tmp_path, "jsonl", "changes")
    lake.deliver("w")
    alter(
        lake,
        DropColumn("g"),
        AddColumn(Column("g", pa.int64())),
        RenameColumn("y", "z"),
        g="x * 100",
    )
    lake.deliver("w")
    _, rows = files(lake, "jsonl")
    assert len(rows) == 6
    before, after = rows[0], rows[1]
    assert (before["_op"], after["_op"]) == ("update_before", "update_after")
    assert before | {"_op": "", "g": 0} == after | {"_op": "", "g": 0}
    assert ([row["g"] for row in rows]) == [None, 0, None, 100, None, 200]
    assert columns(rows) == ["id", "x", "z", "g"]


@pytest.mark.parametrize("feed", FEEDS)
def test_what_does_not_change_columns_does_not_divide_a_delivery(
    lake: Lake, tmp_path: Path, feed: str
) -> None:
    attach(lake, tmp_path, "parquet", feed)
    lake.deliver("w")
    add(lake, 3, 1)
    alter(lake, SetComment("x", "how many"))
    add(lake, 4, 1)
    with lake.transaction() as tx:
        tx.rename_table("o", "orders")
    add(lake, 5, 1, "orders")
    lake.deliver("w")
    assert [[row["id"] for row in rows] for rows in files(lake, "parquet")] == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    assert next(iter(lake.sinks())).table == "orders"


def test_a_table_of_another_name_and_one_under_its_name_are_not_mixed_up(
    lake: Lake, tmp_path: Path
) -> None:
    attach(lake, tmp_path, "parquet", "inserts")
    lake.deliver("w")
    with lake.transaction() as tx:
        tx.rename_table("o", "old")
        tx.create_table("o", "id BIGINT, other STRING")
        tx.append("o", [{"id": 99, "other": "no"}])
        tx.append("old", [{"id": 50, "g": "a", "x": 1, "y": 1}])
    lake.deliver("w")
    assert [row["id"] for row in files(lake, "parquet")[-1]] == [50]
    lake.drop_table("old")
    with pytest.raises(SinkStopped, match="dropped or replaced"):
        lake.deliver("w")


@pytest.mark.parametrize("feed", FEEDS)
def test_a_version_that_is_gone_is_not_waited_for(lake: Lake, tmp_path: Path, feed: str) -> None:
    attach(lake, tmp_path, "jsonl", feed)
    lake.deliver("w")
    add(lake, 3, 1)
    alter(lake, DropColumn("y"), AddColumn(Column("y", pa.string())))
    add(lake, 4, 1, y="text")
    collect_all(lake)
    lake.deliver("w")
    found = [row for rows in files(lake, "jsonl") for row in rows]
    assert [row["id"] for row in found] == [0, 1, 2, 3, 4]
    # A feed of changes keeps what it has to read; of inserts a row comes as it is by then.
    assert found[3]["y"] == (30 if feed == "changes" else None)
    assert found[4]["y"] == "text"


@pytest.mark.parametrize("feed", FEEDS)
def test_partitions_stay_what_they_are_when_their_column_is_renamed(
    lake: Lake, tmp_path: Path, feed: str
) -> None:
    attach(lake, tmp_path, "jsonl", feed, partition_by=["g"])
    lake.deliver("w")
    alter(lake, RenameColumn("g", "kind"), RenameColumn("x", "g"))
    with lake.transaction() as tx:
        tx.append("o", [{"id": 7, "kind": "a", "g": 1, "y": 2}])
    lake.deliver("w")
    found = {key: _rows("jsonl", data) for key, data in files_at(lake, "w").items()}
    assert {key.split("/")[0] for key in found} == {"g=a", "g=b"}
    (late,) = (rows for key, rows in found.items() if rows[0]["id"] == 7)
    assert (late[0]["kind"], late[0]["g"]) == ("a", 1)
    check_manifest(lake, "w")
    lake.replay("w", partition="g=a", since=-1 if feed == "inserts" else 0)
    lake.deliver("w")
    check_manifest(lake, "w")
    assert sum(len(_rows("jsonl", data)) for data in files_at(lake, "w").values()) == 4


def test_a_partition_column_that_was_dropped_stops_its_sink_after_what_came_before(
    lake: Lake, tmp_path: Path
) -> None:
    attach(lake, tmp_path, "jsonl", "inserts", partition_by=["g"])
    lake.deliver("w")
    add(lake, 3, 1)
    alter(lake, DropColumn("g"))
    add(lake, 4, 1)
    with pytest.raises(SinkStopped, match="divides rows by column 'g', which was dropped"):
        lake.deliver("w")
    rows = [row["id"] for rows in files(lake, "jsonl") for row in rows]
    assert sorted(rows) == [0, 1, 2, 3]


def test_a_replay_of_changes_sends_each_era_with_its_columns(lake: Lake, tmp_path: Path) -> None:
    attach(lake, tmp_path, "jsonl", "changes")
    lake.deliver("w")
    add(lake, 3, 1)
    lake.deliver("w")
    alter(lake, *SWAP)
    add(lake, 4, 1)
    lake.deliver("w")
    first = files_at(lake, "w")
    lake.replay("w", since=0)
    lake.deliver("w")
    assert files_at(lake, "w") == first


# HTTP


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.mark.parametrize("feed", FEEDS)
def test_http_rows_carry_the_new_columns_from_the_commit_on(
    lake: Lake, receiver: Receiver, feed: str
) -> None:
    lake.create_sink("w", table="o", kind="http", to=receiver.url, feed=feed)
    lake.deliver("w")
    add(lake, 3, 1)
    alter(lake, RenameColumn("x", "amount"), AddColumn(Column("note", pa.string())))
    add(lake, 4, 1, amount=4, note="new")
    lake.deliver("w")
    rows = [json.loads(line) for one in receiver.requests for line in one.body.splitlines()]
    told = {row["id"]: {k: v for k, v in row.items() if not k.startswith("_")} for row in rows}
    assert told[3] == {"id": 3, "g": "b", "x": 3, "y": 30}
    assert told[4] == {"id": 4, "g": "a", "amount": 4, "y": 40, "note": "new"}


# Iceberg and Delta


@pytest.fixture(params=["iceberg", "delta"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Tables:
    return Tables(request.param, tmp_path / "tables")


def shown(tables: Tables) -> list[dict[str, Any]]:
    rows = tables.rows()
    return sorted(
        ({k: v for k, v in row.items() if not k.startswith("_")} for row in rows),
        key=lambda row: row["id"],
    )


@pytest.mark.parametrize("feed", FEEDS)
def test_a_column_that_comes_comes_with_the_rows(lake: Lake, tables: Tables, feed: str) -> None:
    tables.attach(lake, feed=feed)
    lake.deliver("w")
    commits = tables.commits()
    alter(lake, AddColumn(Column("note", pa.string())), MoveColumn("y"))
    lake.deliver("w")
    assert tables.commits() == commits
    add(lake, 3, 1, note="n")
    lake.deliver("w")
    assert tables.commits() == commits + 1
    rows = shown(tables)
    assert rows[0] == {"id": 0, "g": "a", "x": 0, "y": 0, "note": None}
    assert rows[3] == {"id": 3, "g": "b", "x": 3, "y": 30, "note": "n"}


@pytest.mark.parametrize("feed", FEEDS)
def test_iceberg_follows_renames_drops_and_wider_types(
    lake: Lake, tmp_path: Path, feed: str
) -> None:
    tables = Tables("iceberg", tmp_path / "tables")
    tables.attach(lake, feed=feed, partition_by=["g"])
    lake.deliver("w")
    alter(lake, *SWAP)
    add(lake, 3, 1)
    alter(lake, RenameColumn("g", "kind"), ChangeType("x", pa.int64()), SetRequired("id", True))
    with lake.transaction() as tx:
        tx.append("o", [{"id": 4, "kind": "a", "x": 1 << 40, "y": 4}])
    alter(lake, DropColumn("y"), AddColumn(Column("y", pa.int32())))
    with lake.transaction() as tx:
        tx.append("o", [{"id": 5, "kind": None, "x": 5, "y": 55}])
    lake.deliver("w")
    assert shown(tables) == [
        {"id": 0, "kind": "a", "x": 0, "y": None},
        {"id": 1, "kind": "b", "x": 10, "y": None},
        {"id": 2, "kind": "a", "x": 20, "y": None},
        {"id": 3, "kind": "b", "x": 3, "y": None},
        {"id": 4, "kind": "a", "x": 1 << 40, "y": None},
        {"id": 5, "kind": None, "x": 5, "y": 55},
    ]
    assert lake.deliver("w").action == "idle"
    lake.replay("w", since=-1 if feed == "inserts" else 0)
    lake.deliver("w")
    assert len(shown(tables)) == 6
    assert [row["x"] for row in shown(tables)] == [0, 10, 20, 3, 1 << 40, 5]


def test_iceberg_widens_inside_of_nested_types(lake: Lake, tmp_path: Path) -> None:
    ddl = "id INT, l ARRAY<INT>, m MAP<STRING, FLOAT>, s STRUCT<a: INT, b: DECIMAL(8,2)>"
    lake.create_table("n", ddl)
    rows = {"id": 1, "l": [1], "m": {"k": 1.5}, "s": {"a": 1, "b": 1}}
    tables = Tables("iceberg", tmp_path / "tables")
    tables.attach(lake, table="n")
    with lake.transaction() as tx:
        tx.append("n", [rows])
    lake.deliver("w")
    wider = "l ARRAY<BIGINT>, m MAP<STRING, DOUBLE>, s STRUCT<a: BIGINT, b: DECIMAL(12,2)>"
    from tidelock.model.ddl import parse_schema

    types = {one.name: one.type for one in parse_schema(wider).columns}
    with lake.transaction() as tx:
        tx.alter_table("n", *(ChangeType(name, kind) for name, kind in types.items()))
        tx.append("n", [rows | {"id": 2, "l": [1 << 40]}])
    lake.deliver("w")
    assert sorted(row["l"][0] for row in tables.rows()) == [1, 1 << 40]


@pytest.mark.parametrize(
    ("kind", "alterations", "told"),
    [
        ("delta", [RenameColumn("x", "z")], "cannot rename a column, and 'x' is 'z' now"),
        ("delta", [ChangeType("x", pa.int64())], "cannot widen a column, and 'x' is INT there"),
        (
            "delta",
            [DropColumn("x"), AddColumn(Column("x", pa.int32()))],
            "has a column 'x' already",
        ),
        ("iceberg", [ChangeType("x", pa.float64())], "Iceberg cannot make .*'x'"),
    ],
)
def test_what_a_format_cannot_do_stops_its_sink_before_anything_is_sent(
    lake: Lake, tmp_path: Path, kind: str, alterations: list[Alteration], told: str
) -> None:
    tables = Tables(kind, tmp_path / "tables")
    tables.attach(lake)
    lake.deliver("w")
    add(lake, 3, 1)
    alter(lake, *alterations)
    with lake.transaction() as tx:
        tx.append("o", [{"id": 4, "g": "a", "y": 4}])
    for _ in range(2):
        with pytest.raises(SinkStopped, match=told) as caught:
            lake.deliver("w")
        assert "Create a sink with another address" in str(caught.value)
    assert [row["id"] for row in shown(tables)] == [0, 1, 2, 3]


def test_delta_keeps_a_column_that_was_dropped_and_goes_on(lake: Lake, tmp_path: Path) -> None:
    tables = Tables("delta", tmp_path / "tables")
    tables.attach(lake)
    lake.deliver("w")
    alter(lake, DropColumn("x"))
    add(lake, 3, 1)
    lake.deliver("w")
    add(lake, 4, 1)
    lake.deliver("w")
    assert [row["x"] for row in shown(tables)] == [0, 1, 2, None, None]


def test_a_column_renamed_before_the_first_delivery_makes_the_table_so(
    lake: Lake, tables: Tables
) -> None:
    tables.attach(lake, partition_by=["g"])
    alter(lake, RenameColumn("g", "kind"), RenameColumn("x", "g"))
    lake.deliver("w")
    assert shown(tables)[1] == {"id": 1, "kind": "b", "g": 1, "y": 10}


# read_since


def test_pages_across_an_alteration_have_the_columns_of_their_moment(lake: Lake) -> None:
    page = lake.read_since("o", limit=2)
    assert page.rows.column_names == ["id", "g", "x", "y", "_sequence"]
    alter(lake, *SWAP, DropColumn("g"), AddColumn(Column("g", pa.string())))
    add(lake, 3, 1)
    rest = lake.read_since("o", page.token, limit=10)
    assert rest.rows.column_names == ["id", "y", "x", "g", "_sequence"]
    assert rest.rows.column("x").to_pylist() == [20, 3]
    assert rest.rows.column("g").to_pylist() == [None, "b"]
    ids = page.rows.column("id").to_pylist() + rest.rows.column("id").to_pylist()
    assert ids == [0, 1, 2, 3]


# Random histories


@pytest.mark.parametrize("kind", ["jsonl", "iceberg"])
def test_every_change_comes_once_whatever_the_columns_become(
    lake: Lake, tmp_path: Path, kind: str
) -> None:
    """The changes of each version, added up, are the table, in the columns of that version."""
    with seed_of() as seed:
        chance = random.Random(seed)
        tables = Tables("iceberg", tmp_path / "tables")
        if kind == "jsonl":
            attach(lake, tmp_path, "jsonl", "changes")
        else:
            tables.attach(lake, feed="changes")
        extra = ["x", "y"]
        for step in range(24):
            _alter_somehow(lake, chance, extra, step)
            with lake.transaction() as tx:
                key = chance.randint(0, 30)
                tx.upsert("o", [{"id": key, **{name: chance.randint(0, 99) for name in extra}}])
                tx.delete("o", f"id % 7 = {chance.randint(0, 6)}")
            if chance.random() < 0.3:
                lake.deliver("w")
        lake.deliver("w")
        expected = [tuple(sorted(row.items())) for row in lake.table("o").to_arrow().to_pylist()]
        if kind == "jsonl":
            # Each era alone adds up to what its last version changed, so compare keys over all.
            rows = [row for rows in files(lake, "jsonl") for row in rows]
        else:
            rows = tables.rows()
        signs = {"insert": 1, "update_after": 1, "delete": -1, "update_before": -1}
        totals: Counter[Any] = Counter()
        for row in rows:
            shown_row = {k: v for k, v in row.items() if not k.startswith("_")}
            key = row["id"] if kind == "jsonl" else tuple(sorted(shown_row.items()))
            totals[key] += signs[row["_op"]]
        kept = {key: count for key, count in totals.items() if count}
        if kind == "jsonl":
            assert kept == {row["id"]: 1 for row in lake.table("o").to_arrow().to_pylist()}
        else:
            assert kept == Counter(expected)


def _alter_somehow(lake: Lake, chance: random.Random, extra: list[str], step: int) -> None:
    what = chance.randint(0, 5)
    if what == 0:
        name = f"n{step}"
        alter(lake, AddColumn(Column(name, pa.int32())))
        extra.append(name)
    elif what == 1 and len(extra) > 1:
        gone = extra.pop(chance.randrange(len(extra)))
        alter(lake, DropColumn(gone))
    elif what == 2:
        old = extra.pop(chance.randrange(len(extra)))
        extra.append(f"r{step}")
        alter(lake, RenameColumn(old, f"r{step}"))
    elif what == 3 and len(extra) > 1:
        one, two = chance.sample(extra, 2)
        alter(lake, RenameColumn(one, "t t"), RenameColumn(two, one), RenameColumn("t t", two))
    elif what == 4:
        alter(lake, MoveColumn(chance.choice(extra)))
