"""What views read cannot be taken from them, unless they are carried along; and definitions that
are applied again after their inputs were altered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelock
from tidelock.derive.stream import Stored
from tidelock.errors import InvalidDefinition, TableInUse
from tidelock.model.schema.alterations import (
    AddColumn,
    Alteration,
    ChangeType,
    DropColumn,
    RenameColumn,
    SetComment,
)
from tidelock.model.schema.schema import Column
from tidelock.run.lake import Lake

SUMS = "SELECT g, sum(v) AS total FROM a GROUP BY g"
QUERIES = {
    "sums": SUMS,
    "large": "SELECT total FROM sums WHERE total > 7",
    "ids": "SELECT id FROM a WHERE v > 1",
}
BY_DELTA = "TBLPROPERTIES ('refresh_mode' = 'incremental')"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True, engine="sail") as lake:
        with lake.transaction() as tx:
            tx.create_table("a", "id INT NOT NULL, g INT, v INT, spare INT", key="id")
            tx.append("a", [{"id": n, "g": n % 2, "v": n} for n in range(6)])
        for name, query in QUERIES.items():
            lake.create_stream_table(name, query, refresh_mode="incremental")
        lake.refresh()
        yield lake


def rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    found = lake.table(name).to_arrow().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def alter(lake: Lake, *alterations: Alteration, cascade: bool = False) -> None:
    with lake.transaction() as tx:
        tx.alter_table("a", *alterations, cascade=cascade)


def names(lake: Lake) -> set[str]:
    return {one.name for one in lake.stream_tables()}


def actions(lake: Lake) -> dict[str, str]:
    return {one.table: one.action for one in lake.refresh()}


# What is refused


@pytest.mark.parametrize(
    ("alteration", "column", "readers"),
    [
        (DropColumn("v"), "v", ("ids", "sums")),
        (DropColumn("g"), "g", ("sums",)),
        (ChangeType("g", pa.int64()), "g", ("sums",)),
        (ChangeType("v", pa.decimal128(20, 2)), "v", ("ids", "sums")),
    ],
)
def test_a_column_that_is_read_is_neither_dropped_nor_retyped(
    lake: Lake, alteration: Alteration, column: str, readers: tuple[str, ...]
) -> None:
    version = lake.snapshot().version
    with pytest.raises(TableInUse, match=f"Column '{column}' of 'a' is read by") as caught:
        alter(lake, alteration)
    assert (caught.value.table, caught.value.column) == ("a", column)
    assert tuple(sorted(caught.value.dependents)) == readers
    assert lake.snapshot().version == version


def test_the_refusal_names_what_it_is_called_now(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.alter_table("a", RenameColumn("g", "kind"))
        tx.rename_table("a", "orders")
    with pytest.raises(TableInUse, match="Column 'kind' of 'orders'"), lake.transaction() as tx:
        tx.alter_table("orders", DropColumn("kind"))
    with pytest.raises(TableInUse, match="'orders' is read by"), lake.transaction() as tx:
        tx.drop_table("orders")


def test_a_column_that_is_dropped_and_added_again_is_another_one(lake: Lake) -> None:
    with pytest.raises(TableInUse, match="'v'"):
        alter(lake, DropColumn("v"), AddColumn(Column("v", pa.int32())))
    alter(lake, DropColumn("spare"), AddColumn(Column("spare", pa.int32())))


def test_a_view_that_comes_meanwhile_keeps_what_it_reads(lake: Lake) -> None:
    other = tidelock.open(lake.uri, engine="sail")
    with other:
        tx = lake.transaction()
        tx.alter_table("a", DropColumn("spare"))
        other.create_stream_table("late", "SELECT id, spare FROM a")
        with pytest.raises(TableInUse, match="'spare' of 'a' is read by 'late'"):
            tx.publish()


# What is carried along


def test_a_dropped_column_takes_its_readers_along(lake: Lake) -> None:
    alter(lake, DropColumn("g"), cascade=True)
    assert names(lake) == {"ids"}
    assert actions(lake) == {"ids": "none"}


def test_a_dropped_table_takes_everything_along_that_is_computed_from_it(lake: Lake) -> None:
    lake.create_table("b", "id INT")
    lake.create_stream_table("others", "SELECT id FROM b")
    lake.drop_table("a", cascade=True)
    assert names(lake) == {"others"}
    hidden = [name for name in lake.snapshot().states() if name.startswith("_tidelock")]
    assert not hidden


def test_the_word_cascade_carries_along_too(lake: Lake, tmp_path: Path) -> None:
    lake.alter_table("a", "ALTER COLUMN v TYPE BIGINT CASCADE")
    assert names(lake) == set(QUERIES)
    lake.refresh()
    assert rows(lake, "sums") == [(0, 6), (1, 9)]
    lake.alter_table("a", "DROP COLUMN v CASCADE")
    assert names(lake) == set()


def test_a_plan_carries_along_on_request(lake: Lake) -> None:
    wider = "CREATE TABLE a (id INT PRIMARY KEY, g INT, v BIGINT, spare INT)"
    with pytest.raises(TableInUse, match="read by 'ids', 'sums'"):
        lake.apply_schema(wider)
    lake.apply_schema(wider, cascade=True)
    assert names(lake) == set(QUERIES)
    narrower = "CREATE TABLE a (id INT PRIMARY KEY, g INT, spare INT)"
    lake.apply_schema(narrower, allow_data_loss=True, cascade=True)
    assert names(lake) == set()


def test_a_dropped_table_takes_along_what_refers_to_it(lake: Lake) -> None:
    lake.create_table("child", "a_id INT REFERENCES a")
    with pytest.raises(TableInUse):
        lake.drop_table("a")
    lake.drop_table("a", cascade=True)
    assert [one.name for one in lake.tables()] == ["child"]
    assert list(lake.rules("child")) == []


def test_a_retyped_column_is_followed_in_the_order_of_the_views(lake: Lake) -> None:
    lake.create_stream_table("copies", "SELECT id, v FROM a")
    lake.create_stream_table("above", "SELECT v FROM copies WHERE v > 2")
    lake.refresh()
    ids = {one: lake.snapshot().states()[one].id for one in ("copies", "above", "ids")}
    alter(lake, ChangeType("v", pa.int64()), cascade=True)
    assert rows(lake, "above") == [(3,), (4,), (5,)]
    assert actions(lake) == {
        **dict.fromkeys(("sums", "copies", "ids", "above"), "full"),
        "large": "none",
    }
    assert lake.table("above").schema.column("v").type == pa.int64()
    assert {one: lake.snapshot().states()[one].id for one in ids} == ids
    with lake.transaction() as tx:
        tx.append("a", [{"id": 9, "g": 1, "v": 1 << 40}])
    lake.refresh()
    assert rows(lake, "above")[-1] == (1 << 40,)
    assert rows(lake, "sums") == [(0, 6), (1, 9 + (1 << 40))]
    assert set(lake.changes("above", since=0).read_all().column("v").to_pylist()) >= {3, 1 << 40}


def test_a_view_whose_columns_become_others_is_made_anew_with_its_readers(lake: Lake) -> None:
    lake.create_stream_table("told", "SELECT id, concat(v, '') AS text, v / 2 AS half FROM a")
    lake.create_stream_table("halves", "SELECT half FROM told")
    lake.refresh()
    alter(lake, ChangeType("v", pa.decimal128(20, 2)), cascade=True)
    assert "failed" not in actions(lake).values()
    assert (2, "2.00") in [row[:2] for row in rows(lake, "told")]
    assert len(rows(lake, "halves")) == 6


def test_labels_live_on_when_a_view_is_carried_along(lake: Lake) -> None:
    alter(lake, RenameColumn("v", "value"), RenameColumn("g", "v"))
    alter(lake, ChangeType("value", pa.int64()), cascade=True)
    lake.refresh()
    assert rows(lake, "sums") == [(0, 6), (1, 9)]


# Another table under the name


def test_another_table_under_the_name_takes_its_place(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.drop_table("a")
        tx.create_table("a", "v INT, g INT, id INT NOT NULL", key="id")
        tx.append("a", [{"id": 1, "g": 7, "v": 100}])
    assert actions(lake)["sums"] == "full"
    assert rows(lake, "sums") == [(7, 100)]
    alter(lake, RenameColumn("v", "value"))
    with lake.transaction() as tx:
        tx.append("a", [{"id": 2, "g": 7, "value": 5}])
    assert actions(lake)["sums"] == "incremental"
    assert rows(lake, "sums") == [(7, 105)]


def test_a_table_that_is_read_already_does_not_stand_in_for_another(lake: Lake) -> None:
    lake.create_table("b", "id INT, v INT, g INT")
    lake.create_stream_table("both", "SELECT a.id, b.v FROM a JOIN b ON a.id = b.id")
    tx = lake.transaction()
    tx.drop_table("a")
    tx.rename_table("b", "a")
    with pytest.raises(TableInUse, match="'a' is read by 'both'"):
        tx.publish()
    lake.drop_stream_table("both")
    with lake.transaction() as tx:
        tx.drop_table("a")
        tx.rename_table("b", "a")
        tx.append("a", [{"id": 1, "v": 4, "g": 4}])
    assert actions(lake)["sums"] == "full"
    assert rows(lake, "sums") == [(4, 4)]


# Definitions that are from before what they see was kept


def test_a_definition_that_does_not_say_what_it_sees_follows_renames_too(lake: Lake) -> None:
    before = {
        one.name: one for one in lake._catalog.arrange(lake.snapshot().states()).streams.values()
    }
    with lake.transaction() as tx:
        for name, stream in before.items():
            old = Stored(stream.definition, stream.stored.inputs)
            tx.stage(name).stream = replace(stream.state, definition=lake._catalog.keep(old))
    alter(lake, RenameColumn("v", "tmp"), RenameColumn("g", "v"), RenameColumn("tmp", "g"))
    with pytest.raises(TableInUse, match="'g' of 'a' is read by 'ids', 'sums'"):
        alter(lake, DropColumn("g"))
    with lake.transaction() as tx:
        tx.append("a", [{"id": 9, "v": 1, "g": 100}])
        tx.rename_table("a", "b")
    assert actions(lake) == {"sums": "incremental", "ids": "incremental", "large": "incremental"}
    assert rows(lake, "sums") == [(0, 6), (1, 109)]
    stored = lake._catalog.arrange(lake.snapshot().states()).streams["sums"].stored
    assert [column.label for column in stored.seen[0].columns] == ["id", "g", "v", "spare"]
    assert [column.read for column in stored.seen[0].columns] == [False, True, True, False]


# Applying


@pytest.fixture
def folder(tmp_path: Path, lake: Lake) -> Path:
    made = tmp_path / "shop"
    made.mkdir()
    for name in ("large", "sums", "ids"):
        lake.drop_stream_table(name)
    (made / "views.sql").write_text(
        f"CREATE STREAM TABLE sums {BY_DELTA} AS {SUMS};\n"
        f"CREATE STREAM TABLE large {BY_DELTA} AS "
        "SELECT s.total, a.v FROM sums s JOIN a ON a.g = s.g;\n"
    )
    lake.apply(made)
    lake.refresh()
    return made


def edit(folder: Path, *changes: tuple[str, str]) -> None:
    path = folder / "views.sql"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_a_file_that_nobody_changed_is_unchanged_after_renames(lake: Lake, folder: Path) -> None:
    with lake.transaction() as tx:
        tx.alter_table("a", RenameColumn("v", "value"), AddColumn(Column("v", pa.string())))
        tx.rename_table("a", "orders")
    applied = lake.apply(folder)
    assert (applied.commit, applied.plan.counts()["unchanged"]) == (None, 2)
    assert set(actions(lake).values()) == {"none"}


def test_a_file_that_follows_a_rename_keeps_the_rows(lake: Lake, folder: Path) -> None:
    with lake.transaction() as tx:
        tx.alter_table(
            "a",
            RenameColumn("v", "value"),
            AddColumn(Column("first", pa.string()), first=True),
            DropColumn("spare"),
        )
        tx.rename_table("a", "orders")
    edit(
        folder,
        ("sum(v) AS total FROM a", "sum(value) AS total FROM orders"),
        ("a.v FROM sums s JOIN a ON a.g", "a.value AS v FROM sums s JOIN orders a ON a.g"),
    )
    applied = lake.apply(folder)
    assert [one.action for one in applied.plan.pending] == ["replace", "replace"]
    assert all("same rows, which stay" in one.reason for one in applied.plan.pending)
    assert set(actions(lake).values()) == {"none"}
    with lake.transaction() as tx:
        tx.append("orders", [{"id": 9, "g": 1, "value": 100}])
    assert set(actions(lake).values()) == {"incremental"}
    assert rows(lake, "sums") == [(0, 6), (1, 109)]
    assert (109, 100) in rows(lake, "large")
    assert lake.apply(folder).commit is None


@pytest.mark.parametrize(
    "change",
    [
        ("sum(v)", "sum(value + 0)"),
        ("sum(v)", "sum(id)"),
        ("GROUP BY g", "WHERE value > 0 GROUP BY g"),
    ],
)
def test_a_file_that_says_something_else_is_computed_anew(
    lake: Lake, folder: Path, change: tuple[str, str]
) -> None:
    alter(lake, RenameColumn("v", "value"))
    edit(folder, change, *([] if change[0] == "sum(v)" else [("sum(v)", "sum(value)")]))
    applied = lake.apply(folder)
    (replaced,) = applied.plan.pending
    assert "which stay" not in replaced.reason
    assert actions(lake)["sums"] == "full"


def test_a_column_that_came_into_a_natural_join_is_another_query(lake: Lake) -> None:
    lake.create_table("b", "id INT, w INT")
    with lake.transaction() as tx:
        tx.append("b", [{"id": 1, "w": 1}, {"id": 2, "w": 2}])
    lake.create_stream_table("pairs", "SELECT v, w FROM a NATURAL JOIN b")
    lake.refresh()
    with lake.transaction() as tx:
        tx.alter_table("b", AddColumn(Column("g", pa.int32())))
        tx.alter_table("a", RenameColumn("v", "value"))
    assert actions(lake)["pairs"] == "none"
    query = "SELECT value AS v, w FROM a NATURAL JOIN b"
    lake.create_or_replace_stream_table("pairs", query)
    assert actions(lake)["pairs"] == "full"
    assert rows(lake, "pairs") == []


def test_a_view_in_old_names_follows_another_that_is_replaced(lake: Lake, folder: Path) -> None:
    alter(lake, RenameColumn("v", "value"))
    edit(folder, ("sum(v) AS total", "sum(value) AS total, count(*) AS n"))
    applied = lake.apply(folder)
    assert {one.name: one.action for one in applied.plan.changes}["sums"] == "replace"
    assert "failed" not in actions(lake).values()
    assert (6, 0) in rows(lake, "large")


def test_a_name_that_is_gone_is_told_with_its_line(lake: Lake, folder: Path) -> None:
    alter(lake, RenameColumn("v", "value"))
    edit(folder, ("sum(v)", "max(v)"))
    with pytest.raises(InvalidDefinition, match=r"views.sql:1.*'v'"):
        lake.apply(folder)


def test_altering_options_keeps_what_is_seen(lake: Lake) -> None:
    alter(lake, RenameColumn("v", "value"))
    lake.alter_stream_table("sums", schedule="1h")
    lake.alter_stream_table("ids", refresh_mode="full")
    alter(lake, SetComment("value", "euros"))
    assert "failed" not in actions(lake).values()
    assert rows(lake, "ids") == [(2,), (3,), (4,), (5,)]
    lake.alter_stream_table("ids", refresh_mode="incremental_strict")
    assert actions(lake)["ids"] == "full"
    assert rows(lake, "ids") == [(2,), (3,), (4,), (5,)]


def test_explain_says_what_is_called_otherwise_and_what_is_not_seen(lake: Lake) -> None:
    lake.create_stream_table("every", "SELECT * FROM a")
    with lake.transaction() as tx:
        tx.alter_table("a", RenameColumn("v", "value"), AddColumn(Column("note", pa.string())))
        tx.rename_table("a", "orders")
    told = lake.explain("every").text.splitlines()
    assert "Reads orders" in told
    assert "The query writes a for orders" in told
    assert "The query writes v for value of orders" in told
    assert "* was expanded when the view was made; orders also has: note" in told
    assert "* was" not in lake.explain("sums").text
    assert lake.explain("sums").sql[0].input == "orders"
