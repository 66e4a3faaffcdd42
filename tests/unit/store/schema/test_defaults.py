"""What rows get that do not name a column, on every way in that needs no engine."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest

import tidelock
from tidelock import Lake, errors
from tidelock.store.rows.defaults import Defaults
from tidelock.store.spark.write import FrameTarget, write_batches

DDL = """
    id BIGINT PRIMARY KEY, tier STRING NOT NULL DEFAULT 'basic', since DATE DEFAULT current_date(),
    at TIMESTAMP DEFAULT now(), amount DECIMAL(6,2) DEFAULT 1 + 2 * 3, mark STRING DEFAULT uuid(),
    note STRING
"""
NAMED = ("tier", "since", "at", "amount", "mark", "note")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", DDL)
        yield lake


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table("t").to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def batches(ids: list[int]) -> Iterator[pa.RecordBatch]:
    return iter(pa.table({"ID": ids}).to_batches(max_chunksize=1))


FORMS: dict[str, Callable[[list[int]], Any]] = {
    "dicts": lambda ids: [{"id": one} for one in ids],
    "dicts in another case": lambda ids: [{"ID": one} for one in ids],
    "a dict of lists": lambda ids: {"id": ids},
    "a table": lambda ids: pa.table({"id": ids}),
    "a batch": lambda ids: pa.record_batch({"id": ids}),
    "batches": lambda ids: [pa.record_batch({"id": [one]}) for one in ids],
    "a reader": lambda ids: pa.table({"id": ids}).to_reader(),
    "an iterator": batches,
    "pandas": lambda ids: pandas.DataFrame({"id": ids}),
    "polars": lambda ids: polars.DataFrame({"id": ids}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
def test_columns_that_rows_do_not_name_get_their_defaults(lake: Lake, form: str, mode: str) -> None:
    with lake.transaction() as tx:
        getattr(tx, mode)("t", FORMS[form]([1, 2, 3]))
    rows = rows_of(lake)
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert {row["tier"] for row in rows} == {"basic"}
    assert {row["amount"] for row in rows} == {Decimal("7.00")}
    assert {row["note"] for row in rows} == {None}
    assert len({row["mark"] for row in rows}) == 3
    (moment,) = {row["at"] for row in rows}
    assert dt.datetime.now(dt.UTC) - moment < dt.timedelta(minutes=5)
    assert {row["since"] for row in rows} == {moment.date()}


def test_a_null_that_is_given_stays_one(lake: Lake) -> None:
    explicit = {"id": 1, "since": None, "at": None, "amount": None, "mark": None}
    with lake.transaction() as tx:
        tx.append("t", [explicit, {"id": 2, "amount": 5}])
        tx.append("t", pa.table({"id": [3], "amount": pa.array([None], pa.decimal128(6, 2))}))
        tx.append("t", {"id": [4], "amount": [None]})
    one, two, three, four = rows_of(lake)
    assert {one[name] for name in NAMED if name != "tier"} == {None}
    assert one["tier"] == "basic"
    assert two["amount"] == Decimal(5)
    assert two["mark"] is not None
    assert three["amount"] is None
    assert four["amount"] is None
    with pytest.raises(errors.RequiredColumnNull), lake.transaction() as tx:
        tx.append("t", [{"id": 5, "tier": None}])


def test_all_rows_of_a_transaction_have_one_moment(lake: Lake) -> None:
    with lake.transaction() as tx:
        for number in range(3):
            tx.append("t", [{"id": number}])
            tx.append("t", pa.table({"id": [10 + number]}))
    assert len({row["at"] for row in rows_of(lake)}) == 1
    with lake.transaction() as tx:
        tx.append("t", [{"id": 100}])
    assert len({row["at"] for row in rows_of(lake)}) == 2


def test_times_are_those_of_the_sessions_zone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = type(lake._engine)
    monkeypatch.setattr(engine, "zone", property(lambda self: "Pacific/Kiritimati"))
    lake.create_table(
        "u",
        "d DATE DEFAULT current_date(), n TIMESTAMP_NTZ DEFAULT now(), t TIMESTAMP DEFAULT "
        "current_date(), c TIMESTAMP DEFAULT TIMESTAMP '2020-01-01 00:00:00', x INT",
    )
    with lake.transaction() as tx:
        tx.append("u", [{"x": 1}])
    (row,) = lake.table("u").to_arrow().to_pylist()
    local = dt.datetime.now(dt.timezone(dt.timedelta(hours=14)))
    assert abs(row["n"] - local.replace(tzinfo=None)) < dt.timedelta(minutes=5)
    assert row["d"] == row["n"].date()
    assert row["t"] == dt.datetime(row["d"].year, row["d"].month, row["d"].day, tzinfo=dt.UTC) - (
        dt.timedelta(hours=14)
    )
    assert row["c"] == dt.datetime(2019, 12, 31, 10, tzinfo=dt.UTC)


def test_what_executors_write_gets_the_values_of_the_driver(lake: Lake) -> None:
    table = lake.table("t")
    with lake.transaction() as tx:
        staged = tx.stage("t")
        target = FrameTarget(
            table.path,
            table.dataset.version,
            table.files.location.lance_options,
            table.schema,
            "t",
            defaults=pickle.loads(pickle.dumps(staged.defaults)),
        )
        (fragment,) = write_batches(batches([1, 2]), target, 100)
        assert fragment.physical_rows == 2
        tx.rollback()


def test_files_without_a_column_get_its_default_and_lines_without_a_field(
    lake: Lake, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,amount\n1,\n2,5\n")
    (tmp_path / "b.jsonl").write_text(
        '{"id": 3, "amount": null}\n{"id": 4}\n{"id": 5, "amount": 6, "tier": "gold"}\n'
    )
    lake.load("t", [tmp_path / "a.csv", tmp_path / "b.jsonl"])
    rows = rows_of(lake)
    seven = Decimal("7.00")
    assert [row["amount"] for row in rows] == [None, Decimal(5), None, seven, Decimal(6)]
    assert [row["tier"] for row in rows] == ["basic"] * 4 + ["gold"]
    assert len({row["mark"] for row in rows}) == 5
    assert len({row["at"] for row in rows}) == 1
    (tmp_path / "c.jsonl").write_text('{"id": 6}\n{"id": 7, "amount": "x"}\n')
    with pytest.raises(errors.WrongType, match=r"c\.jsonl, line 2"):
        lake.load("t", tmp_path / "c.jsonl")


def test_rows_may_be_nothing_but_defaults(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("d", "a INT DEFAULT 1, b STRING NOT NULL DEFAULT 'x'")
    (tmp_path / "a.jsonl").write_text("{}\n{}\n")
    with lake.transaction() as tx:
        tx.append("d", [{}, {"a": None}])
    lake.load("d", tmp_path / "a.jsonl")
    rows = lake.table("d").to_arrow().to_pylist()
    assert sorted(map(str, rows)) == sorted(
        map(str, [{"a": 1, "b": "x"}] * 3 + [{"a": None, "b": "x"}])
    )


def test_defaults_change_for_rows_to_come_alone(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.append("t", [{"id": 1}])
        tx.alter_table("t", "ALTER COLUMN tier SET DEFAULT 'silver'")
        tx.alter_table("t", "ALTER COLUMN amount DROP DEFAULT")
        tx.append("t", [{"id": 2}])
    assert [(row["tier"], row["amount"]) for row in rows_of(lake)] == [
        ("basic", Decimal(7)),
        ("silver", None),
    ]
    with lake.transaction() as tx:
        tx.alter_table("t", "ALTER COLUMN tier DROP DEFAULT")
        with pytest.raises(errors.InputError, match="NOT NULL"):
            tx.append("t", pa.table({"id": [3]}))


def test_nested_defaults_are_put_where_values_are_missing() -> None:
    type_ = pa.list_(pa.struct([("x", pa.int32())]))
    given = pa.array([[{"x": 1}], None], type_)
    one = Defaults({"c": pa.array([[{"x": 9}, None]], type_)})
    found = one.scattered("c", given, [False, True, False, True])
    assert found.to_pylist() == [[{"x": 9}, None], [{"x": 1}], [{"x": 9}, None], None]
    assert one.column("c", type_, 2).to_pylist() == [[{"x": 9}, None]] * 2
    assert one.column("c", type_, 0).to_pylist() == []
