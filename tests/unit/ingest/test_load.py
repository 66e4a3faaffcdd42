"""Files of rows are loaded from Python as from the command line: one commit, or an error."""

from __future__ import annotations

import os
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


def test_new_files_alone_are_loaded_and_known_ones_are_passed_over(
    lake: tidelock.Lake, landing: Path
) -> None:
    first = lake.load("orders", landing / "a.csv", only_new=True)
    assert (first.loaded, first.rows, first.known) == (True, 2, 0)
    more = lake.load("orders", landing, only_new=True)
    assert (more.loaded, more.rows, more.known) == (True, 1, 1)
    version = lake.snapshot().version
    none = lake.load("orders", [landing / "b.csv", f"{landing}/../landing/a.csv"], only_new=True)
    assert (none.loaded, none.rows, none.known) == (False, 0, 2)
    assert (none.commit.version, lake.snapshot().version) == (version, version)
    assert rows(lake) == {1: "ann", 2: "bob", 3: None}


def test_a_file_that_changed_is_refused_or_upserted_again(
    lake: tidelock.Lake, landing: Path
) -> None:
    lake.load("orders", landing, only_new=True)
    status = (landing / "a.csv").stat()
    (landing / "a.csv").write_text("id,name\n1,eve\n2,bob\n")
    # Neither its size nor its time tell: it was too young for that.
    os.utime(landing / "a.csv", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(InvalidOption, match=r"a\.csv was loaded into table 'orders' before"):
        lake.load("orders", landing, only_new=True)
    again = lake.load("orders", landing, only_new=True, mode="upsert")
    assert (again.rows, again.known, rows(lake)[1]) == (2, 1, "eve")
    assert not lake.load("orders", landing, only_new=True).loaded


def test_what_was_loaded_is_known_of_a_table_and_not_of_its_name(
    lake: tidelock.Lake, landing: Path
) -> None:
    lake.load("people", landing, create=True, only_new=True)
    lake.drop_table("people")
    assert lake.load("people", landing, create=True, only_new=True).loaded
    assert not lake.load("people", landing, create=True, only_new=True).loaded
    lake.drop_table("people")


def test_bad_rows_are_put_aside_in_the_commit_of_the_others(
    lake: tidelock.Lake, landing: Path
) -> None:
    (landing / "c.csv").write_text("id,name\nfour,x\n5,y\n")
    (landing / "d.csv").write_text("id,nobody\n6,x\n")
    report = lake.load("orders", landing, on_bad_row="quarantine")
    assert (report.rows, report.quarantined, sorted(rows(lake))) == (4, 2, [1, 2, 3, 5])
    aside = lake.table("orders_quarantine").to_arrow().to_pylist()
    assert [(Path(one["file"]).name, one["line"], one["record"]) for one in aside] == [
        ("c.csv", 2, "four,x"),
        ("d.csv", None, None),
    ]
    lake.drop_table("orders_quarantine")


def test_columns_are_inferred_and_told_before_the_table_is_created(
    lake: tidelock.Lake, landing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    assert lake.infer_schema(landing).ddl == "id BIGINT, name STRING"
    lake.load("people", landing, create=True, inferred=lambda schema: told.append(str(schema)))
    assert told == ["id BIGINT, name STRING"]
    lake.drop_table("people")
    monkeypatch.setattr("tidelock.ingest.files.infer.SAMPLE_BYTES", 1)
    monkeypatch.setattr("tidelock.ingest.files.infer.infer_schema.__defaults__", (1,))
    (landing / "c.csv").write_text("id,name\nx,y\n")
    with pytest.raises(WrongType, match="inferred from the first 2 rows") as refused:
        lake.load("people", landing, create=True)
    assert 'schema="id BIGINT, name STRING"' in str(refused.value)
