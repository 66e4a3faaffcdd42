"""Files of rows are loaded from Python as from the command line: one commit, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidelock
from tidelock.errors import DuplicateKey, InvalidOption, TidelockError, WrongType

DDL = "id BIGINT NOT NULL, name STRING"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "a.csv").write_text("id,name\n1,ann\n2,bob\n")
    (folder / "b.csv").write_text("id,name\n3,\n")
    return folder


@pytest.fixture
def lake() -> Iterator[tidelock.Lake]:
    with tidelock.open("memory://load", create=True, actor="tests") as lake:
        lake.create_table("orders", DDL, key=["id"])
        yield lake
        lake.drop_table("orders")


def rows(lake: tidelock.Lake) -> dict[int, Any]:
    return {row["id"]: row["name"] for row in lake.table("orders").to_arrow().to_pylist()}


def test_a_pattern_is_loaded_as_one_commit(lake: tidelock.Lake, landing: Path) -> None:
    before = lake.snapshot().version
    seen: list[int] = []
    report = lake.load("orders", f"{landing}/*.csv", progress=seen.append)
    assert (report.rows, report.loaded, sum(seen)) == (3, True, 3)
    assert report.commit.version == before + 1
    assert report.commit.message == f"load {landing}/a.csv, {landing}/b.csv"
    assert rows(lake) == {1: "ann", 2: "bob", 3: None}


def test_paths_folders_and_several_names_are_taken(lake: tidelock.Lake, landing: Path) -> None:
    lake.load("orders", landing)
    lake.load("orders", [landing / "a.csv", str(landing / "b.csv")], mode="overwrite")
    assert sorted(rows(lake)) == [1, 2, 3]


def test_modes_do_what_transactions_do(lake: tidelock.Lake, landing: Path, tmp_path: Path) -> None:
    lake.load("orders", landing)
    with pytest.raises(DuplicateKey):
        lake.load("orders", landing / "a.csv")
    (tmp_path / "c.jsonl").write_text('{"id": 1, "name": "eve"}\n')
    lake.load("orders", tmp_path / "c.jsonl", mode="upsert")
    assert rows(lake)[1] == "eve"
    lake.load("orders", tmp_path / "c.jsonl", mode="overwrite")
    assert rows(lake) == {1: "eve"}


def test_an_operation_is_loaded_once(lake: tidelock.Lake, landing: Path) -> None:
    first = lake.load("orders", landing, operation_id="day-1")
    again = lake.load("orders", landing, operation_id="day-1")
    assert (again.loaded, again.commit.version) == (False, first.commit.version)
    assert len(rows(lake)) == 3


def test_csv_is_read_as_it_is_described(lake: tidelock.Lake, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("7;none\n8;x\n")
    lake.load(
        "orders",
        tmp_path / "x.txt",
        format="csv",
        delimiter=";",
        nulls="none",
        columns=["id", "name"],
    )
    assert rows(lake) == {7: None, 8: "x"}


def test_a_table_that_is_missing_is_created(lake: tidelock.Lake, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "name": ["ann"]}), tmp_path / "people.parquet")
    lake.load("people", tmp_path / "people.parquet", create=True, key="id")
    assert lake.table("people").key == ("id",)
    with pytest.raises(InvalidOption, match="Leave key= out"):
        lake.load("people", tmp_path / "people.parquet", create=True, key=["name"])
    lake.drop_table("people")


def test_a_bad_value_names_file_and_line_and_loads_nothing(
    lake: tidelock.Lake, landing: Path
) -> None:
    (landing / "b.csv").write_text("id,name\n3,x\nfour,y\n")
    with pytest.raises(WrongType, match=r"b\.csv, line 3: .* Nothing was loaded\.") as refused:
        lake.load("orders", landing)
    assert (refused.value.file, refused.value.line) == (str(landing / "b.csv"), 3)
    assert rows(lake) == {}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"files": []}, "Name the files to load"),
        ({"files": "none.csv"}, "There is no file 'none.csv'"),
        ({"files": "x.what"}, "Say format='parquet', 'csv' or 'jsonl'"),
        ({"format": "xml"}, "There is no format 'xml'"),
        ({"mode": "replace"}, "There is no mode 'replace'"),
        ({"delimiter": "::"}, "A delimiter is one character"),
        ({"key": "id"}, "Say create=True"),
        ({"table": "new"}, "create=True creates it"),
        ({"on_bad_row": "skip"}, "is none of: fail, quarantine"),
        ({"only_new": True, "mode": "overwrite"}, "Leave only_new= out"),
    ],
)
def test_a_load_that_cannot_be_says_why_in_the_words_of_python(
    lake: tidelock.Lake,
    landing: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    told: str,
) -> None:
    monkeypatch.chdir(landing)
    (landing / "x.what").write_text("")
    version = lake.snapshot().version
    with pytest.raises(TidelockError, match=told):
        lake.load(**{"table": "orders", "files": "a.csv", **arguments})
    assert lake.snapshot().version == version
