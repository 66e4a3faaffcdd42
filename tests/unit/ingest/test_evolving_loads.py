"""Tables that get the columns of what is loaded into them, on an explicit word alone."""

from __future__ import annotations

import datetime as dt
import io
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelock
from tidelock import Lake, errors


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelock.open(tmp_path / "lake", create=True) as lake:
        lake.create_table("t", "id BIGINT PRIMARY KEY, a STRING DEFAULT 'x'")
        yield lake


def types(lake: Lake) -> dict[str, str]:
    return {c["name"]: c["type"] for c in lake.schema("t").to_dict()["columns"]}


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.table("t").to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


FORMS: dict[str, Callable[[], Any]] = {
    "dicts": lambda: [{"id": 1, "n": 5}, {"id": 2, "N": None}],
    "a dict of lists": lambda: {"id": [1, 2], "n": [5, None]},
    "a table": lambda: pa.table({"id": [1, 2], "n": [5, None]}),
    "batches": lambda: [pa.record_batch({"id": [1], "n": [5]}), pa.record_batch({"id": [2]})],
    "a reader": lambda: pa.table({"id": [1, 2], "n": [5, None]}).to_reader(),
    "an iterator": lambda: iter(pa.table({"id": [1, 2], "n": [5, None]}).to_batches(1)),
    "pandas": lambda: pandas.DataFrame({"id": [1, 2], "n": pandas.array([5, None], "Int64")}),
    "polars": lambda: polars.DataFrame({"id": [1, 2], "n": [5, None]}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["append", "upsert", "overwrite"])
def test_columns_that_a_table_does_not_have_are_refused_unless_it_may_evolve(
    lake: Lake, form: str, mode: str
) -> None:
    with pytest.raises(errors.ColumnNotFound, match="no column 'n'") as caught:
        write(lake, mode, FORMS[form](), evolve=False)
    assert "evolve=True adds it." in str(caught.value)
    assert lake.snapshot().version == 1
    write(lake, mode, FORMS[form](), evolve=True)
    assert types(lake) == {"id": "BIGINT", "a": "STRING", "n": "BIGINT"}
    assert rows_of(lake) == [{"id": 1, "a": "x", "n": 5}, {"id": 2, "a": "x", "n": None}]
    assert lake.snapshot().version == 2
    write(lake, "upsert", FORMS[form](), evolve=True)
    assert types(lake) == {"id": "BIGINT", "a": "STRING", "n": "BIGINT"}


def write(lake: Lake, mode: str, data: Any, *, evolve: bool) -> None:
    with lake.transaction() as tx:
        getattr(tx, mode)("t", data, evolve=evolve)


def test_all_columns_that_are_missing_are_named(lake: Lake) -> None:
    with pytest.raises(errors.ColumnNotFound) as caught:
        write(lake, "append", pa.table({"id": [1], "n": [1], "m": [2]}), evolve=False)
    assert caught.value.columns == ["n", "m"]
    assert "evolve=True adds them." in str(caught.value)


def test_types_are_those_of_the_values(lake: Lake) -> None:
    row = {
        "id": 1,
        "s": "x",
        "f": 1.5,
        "b": True,
        "d": Decimal("1.25"),
        "day": dt.date(2020, 1, 1),
        "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        "tags": ["a"],
        "who": {"x": 1},
    }
    write(lake, "append", [row], evolve=True)
    assert types(lake) == {
        "id": "BIGINT",
        "a": "STRING",
        "s": "STRING",
        "f": "DOUBLE",
        "b": "BOOLEAN",
        "d": "DECIMAL(3,2)",
        "day": "DATE",
        "at": "TIMESTAMP",
        "tags": "ARRAY<STRING>",
        "who": "STRUCT<x: BIGINT>",
    }


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"id": 1, "n": None}], "give the column a type"),
        ([{"id": 1, "n": 1}, {"id": 2, "n": "x"}], "do not tell one type"),
        ([{"id": 1, "_rowid": 1}], "reserved"),
        ([{"id": 1, "x.y": 1}], "cannot be a column name"),
    ],
)
def test_what_can_be_no_column_is_refused(lake: Lake, rows: Any, says: str) -> None:
    with pytest.raises(errors.InputError, match=says):
        write(lake, "append", rows, evolve=True)
    assert lake.snapshot().version == 1


def test_files_bring_their_columns_in_the_commit_of_their_rows(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n,word\n1,5,hi\n")
    (tmp_path / "b.jsonl").write_text(
        '{"id": 2, "n": 6, "deep": {"x": 1}}\n{"id": 3, "deep": {"y": [1.5, 2]}, "big": 1}\n'
        '{"id": 4, "big": 2.5, "gone": null}\n'
    )
    pq.write_table(pa.table({"id": [5], "n": pa.array([7], pa.int32())}), tmp_path / "c.parquet")
    files = [tmp_path / "a.csv", tmp_path / "b.jsonl", tmp_path / "c.parquet"]
    with pytest.raises(errors.ColumnNotFound, match="'n', 'word'"):
        lake.load("t", files)
    with pytest.raises(errors.InvalidSchema, match="'gone', and no value"):
        lake.load("t", files, evolve=True)
    (tmp_path / "b.jsonl").write_text(
        (tmp_path / "b.jsonl").read_text().replace(', "gone": null', "")
    )
    report = lake.load("t", files, evolve=True)
    assert report.commit.version == 2
    assert types(lake) == {
        "id": "BIGINT",
        "a": "STRING",
        "n": "BIGINT",
        "word": "STRING",
        "deep": "STRUCT<x: BIGINT, y: ARRAY<DOUBLE>>",
        "big": "DOUBLE",
    }
    assert [row["n"] for row in rows_of(lake)] == [5, 6, None, None, 7]
    assert [row["big"] for row in rows_of(lake)] == [None, None, 1.0, 2.5, None]


def test_files_that_disagree_are_named(lake: Lake, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "n": ["x"]}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text('{"id": 2, "n": 6}\n')
    with pytest.raises(
        errors.InvalidSchema, match=r"STRING in .*a\.parquet and BIGINT in .*b\.jsonl"
    ):
        lake.load("t", [tmp_path / "a.parquet", tmp_path / "b.jsonl"], evolve=True)
    (tmp_path / "c.jsonl").write_text('{"id": 2, "n": 6}\n{"id": 3, "n": "x"}\n')
    with pytest.raises(errors.InvalidSchema, match="'n' are BIGINT and STRING"):
        lake.load("t", tmp_path / "c.jsonl", evolve=True)


def test_a_pipe_is_kept_to_be_read_twice(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Piped:
        buffer = io.BytesIO(b'{"id": 1, "n": 5}\n')

    monkeypatch.setattr(sys, "stdin", Piped)
    lake.load("t", "-", format="jsonl", evolve=True)
    assert rows_of(lake) == [{"id": 1, "a": "x", "n": 5}]
