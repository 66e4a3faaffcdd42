"""What is decided about files without touching any: names, marks, orders, commits, positions."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidelock.errors import InvalidOption
from tidelock.ingest.files.marks import checksums, doubted, is_in_doubt, plain_marks
from tidelock.ingest.landing.entries import Position
from tidelock.ingest.landing.pattern import parse_path
from tidelock.ingest.landing.places import LISTED
from tidelock.ingest.landing.plan import (
    before_unready,
    in_order,
    listed_files,
    plan_round,
    sample_of,
)
from tidelock.ingest.landing.settings import settle

MEANT: list[tuple[str, str, list[str], list[str]]] = [
    ("/in/*.json", "/in", ["a.json"], ["a.csv", "x/a.json", "a.json.gz"]),
    ("/in/**/*.json", "/in", ["a.json", "x/a.json", "x/y/a.json"], ["a.csv", "x.json/a"]),
    ("/in/**", "/in", ["a", "x/y"], []),
    ("/in/x/**/y/*", "/in/x", ["y/a", "b/y/a"], ["a", "b/a"]),
    (
        "/in/day=?/[ab]*.csv",
        "/in",
        ["day=1/a.csv", "day=2/b1.csv"],
        ["day=12/a.csv", "day=1/c.csv"],
    ),
    ("/in/[!ab].csv", "/in", ["c.csv"], ["a.csv", "/.csv"]),
    ("/in/{a,b*}.csv", "/in", ["a.csv", "bc.csv"], ["c.csv", "ac.csv"]),
    ("/in/", "/in", ["a", "b.json"], ["x/a"]),
    ("/in/a+b.json", "/in", ["a+b.json"], ["aab.json", "b.json"]),
    ("s3://landing/events/**/*.json", "s3://landing/events", ["a.json"], ["a.csv"]),
    ("s3://landing/*", "s3://landing", ["a.json"], ["x/a"]),
    ("file:///in/*.json", "/in", ["a.json"], ["a.csv"]),
]


@pytest.mark.parametrize(("text", "base", "meant", "other"), MEANT)
def test_a_path_means_names_below_its_first_wildcard(
    text: str, base: str, meant: list[str], other: list[str]
) -> None:
    pattern = parse_path(text)
    assert pattern.base == base
    assert parse_path(pattern.text) == pattern
    assert [name for name in meant if not re.search(pattern.regex, name)] == []
    assert [name for name in other if re.search(pattern.regex, name)] == []


def test_a_relative_path_is_kept_as_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = settle({"path": "in/*.csv", "schema": "a int", "key": "a", "nulls": "x", "zone": None})
    assert kept == {
        "path": f"{os.getcwd()}/in/*.csv",
        "schema": "a INT",
        "key": ["a"],
        "nulls": ["x"],
    }


@pytest.mark.parametrize("path", [None, "", 5, "memory://x/*.csv"])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(InvalidOption):
        settle({"path": path})


def listing(*files: tuple[str, int, int]) -> pa.Table:
    rows = [
        {"name": name, "size": size, "modified": modified, "mark": f"{size}:{modified}"}
        for name, size, modified in files
    ]
    return pa.Table.from_pylist(rows, LISTED)


def cut_names(files: pa.Table, files_max: int, bytes_max: int) -> list[list[str]]:
    cuts = plan_round(files, files_max, bytes_max)
    return [[file.name for file in listed_files(files, cut)] for cut in cuts]


def test_commits_are_bounded_and_a_file_beyond_the_bound_is_one_of_its_own() -> None:
    files = listing(("a", 5, 0), ("b", 5, 0), ("c", 50, 0), ("d", 1, 0), ("e", 1, 0), ("f", 1, 0))
    assert cut_names(files, 2, 10) == [["a", "b"], ["c"], ["d", "e"], ["f"]]
    assert cut_names(files, 100, 10) == [["a", "b"], ["c"], ["d", "e", "f"]]
    assert cut_names(files, 100, 1000) == [["a", "b", "c", "d", "e", "f"]]
    assert cut_names(files, 1, 1) == [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]]
    assert plan_round(listing(), 1, 1) == []


def test_files_are_ordered_by_name_or_by_time_and_name() -> None:
    files = listing(("b", 1, 5), ("a", 1, 9), ("c", 1, 5))
    assert in_order(files, "name").column("name").to_pylist() == ["a", "b", "c"]
    assert in_order(files, "time").column("name").to_pylist() == ["b", "c", "a"]


def test_where_names_ascend_nothing_is_taken_past_a_file_that_is_not_ready() -> None:
    files = listing(("a", 1, 0), ("b", 1, 0), ("d", 1, 0))
    assert before_unready(files, listing(("c", 1, 0), ("e", 1, 0))).num_rows == 2
    assert before_unready(files, listing()).num_rows == 3


def test_a_position_counts_commits_and_has_the_last_name() -> None:
    for position in (Position(), Position(3), Position(4, "a b/c.json")):
        assert Position.parse(str(position)) == position
    assert Position.parse("") == Position(0, "")


def test_a_mark_of_a_young_file_has_a_checksum_with_it() -> None:
    marks = pa.chunked_array([["3:5", doubted("3:6", "abc"), doubted("3:7", None)]])
    assert plain_marks(marks).to_pylist() == ["3:5", "3:6", "3:7"]
    assert checksums(marks).to_pylist()[1] == "abc"
    assert is_in_doubt(10**9, 2 * 10**9)
    assert not is_in_doubt(10**9, 4 * 10**9)


def test_a_sample_is_of_the_first_files_that_fit_or_of_the_smallest() -> None:
    files = listing(("d", 4, 0), ("a", 50, 0), ("b", 4, 0), ("c", 4, 0))
    assert [file.name for file in sample_of(files, 2, 10)] == ["b", "c"]
    assert [file.name for file in sample_of(files, 9, 9)] == ["b", "c"]
    assert [file.name for file in sample_of(files, 9, 3)] == ["b"]
    assert sample_of(listing(), 9, 9) == []
