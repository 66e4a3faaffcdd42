"""Columns that are inferred: cases as a table, from values of JSON and from texts of CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidelock.errors import InvalidSchema
from tidelock.ingest.files.infer import columns_of, infer_schema
from tidelock.ingest.files.inference import Shape, shape_of_texts, shape_of_value
from tidelock.ingest.files.row_file import Reading, RowFile
from tidelock.model.types import type_name

VALUES: list[tuple[list[Any], str]] = [
    ([], "STRING"),
    ([None], "STRING"),
    ([True, None], "BOOLEAN"),
    ([1, -5], "BIGINT"),
    ([2**63 - 1], "BIGINT"),
    ([2**63], "DECIMAL(38,0)"),
    ([1, 2**63], "DECIMAL(38,0)"),
    ([10**38], "STRING"),
    ([1.5], "DOUBLE"),
    ([1, 1.5], "DOUBLE"),
    ([2**53, 1.5], "DOUBLE"),
    ([2**53 + 1, 1.5], "STRING"),
    (["2026-03-01"], "STRING"),
    ([1, "a"], "STRING"),
    ([1, True], "STRING"),
    ([[]], "ARRAY<STRING>"),
    ([[1], [2.5]], "ARRAY<DOUBLE>"),
    ([[1], ["a"]], "ARRAY<STRING>"),
    ([[{"a": 1}], [{"b": [True]}]], "ARRAY<STRUCT<a: BIGINT, b: ARRAY<BOOLEAN>>>"),
    ([{}], "STRING"),
    ([{}, {"a": 1}], "STRUCT<a: BIGINT>"),
    ([{"a": 1}, {"A": 1.5}], "STRUCT<a: DOUBLE>"),
    ([{"a": 1}, [1]], "STRING"),
    ([{"a": {"b": None}}], "STRUCT<a: STRUCT<b: STRING>>"),
]
TEXTS: list[tuple[list[str | None], str]] = [
    ([], "STRING"),
    ([None], "STRING"),
    (["1", None, "-5", "0"], "BIGINT"),
    (["007"], "STRING"),
    (["+1"], "STRING"),
    ([" 1"], "STRING"),
    (["9223372036854775808"], "DECIMAL(38,0)"),
    (["1" * 39], "STRING"),
    (["1", "1.5"], "DOUBLE"),
    (["1e3", ".5", "5."], "DOUBLE"),
    (["NaN", "-Infinity", "1"], "DOUBLE"),
    (["1e999"], "STRING"),
    (["0.12345678901234567890"], "STRING"),
    (["9007199254740993", "1.5"], "STRING"),
    (["true", "FALSE"], "BOOLEAN"),
    (["t", "f"], "STRING"),
    (["true", "1"], "STRING"),
    (["2026-03-01"], "DATE"),
    (["2026-02-30"], "STRING"),
    (["2026-03-01", "2026-03-01 12:00:00"], "TIMESTAMP"),
    (["2026-03-01T12:00:00.123456Z", "2026-03-01 12:00+02:00"], "TIMESTAMP"),
    (["2026-03-01 12:00:00.1234567"], "STRING"),
    (["2026-03-01", "1"], "STRING"),
    ([""], "STRING"),
]


@pytest.mark.parametrize(("values", "expected"), VALUES)
def test_values_of_json_tell_a_type(values: list[Any], expected: str) -> None:
    one, other = Shape(), Shape()
    for value in values:
        one = one.joined(shape_of_value(value))
    for value in values[::-1]:
        other = other.joined(shape_of_value(value))
    assert type_name(one.type) == expected
    # But for the order and the spelling of names, which are as they were first seen.
    assert sorted(type_name(other.type).upper()) == sorted(expected.upper())


@pytest.mark.parametrize(("texts", "expected"), TEXTS)
def test_texts_of_csv_tell_a_type(texts: list[str | None], expected: str) -> None:
    assert type_name(shape_of_texts(pa.array(texts, pa.string()), "UTC").type) == expected
    one_by_one = Shape()
    for text in texts:
        one_by_one = one_by_one.joined(shape_of_texts(pa.array([text], pa.string()), "UTC"))
    assert type_name(one_by_one.type) == expected


def test_columns_come_in_the_order_in_which_they_occur_under_their_first_names(
    tmp_path: Path,
) -> None:
    lines = [{"b": 1}, {"a": "x", "B": 2.5}, ["no object"], {"c": None}]
    (tmp_path / "a.json").write_text("\n".join(map(json.dumps, lines)) + "\nno JSON\n")
    told = infer_schema([RowFile(str(tmp_path / "a.json"), "jsonl")])
    assert (told.ddl, told.rows) == ("b DOUBLE, a STRING, c STRING", 3)


def test_files_are_looked_at_until_there_is_a_sample(tmp_path: Path) -> None:
    files = []
    for number, value in enumerate(["1", "2.5", "x"]):
        path = tmp_path / f"{number}.csv"
        path.write_text(f"v\n{value}\n")
        files.append(RowFile(str(path), "csv"))
    assert infer_schema(files).ddl == "v STRING"
    assert infer_schema(files[:2]).ddl == "v DOUBLE"
    sampled = infer_schema(files, sample_bytes=1)
    assert (sampled.ddl, sampled.files) == ("v BIGINT", 1)


def test_csv_is_looked_at_as_it_is_described(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1;none;\n2;3;x\n3;4;x;one too many\n")
    reading = Reading(delimiter=";", nulls=("none",), columns=("a", "b", "c"))
    told = columns_of(RowFile(str(path), "csv", reading))
    assert [(one.name, type_name(one.type)) for one in told] == [
        ("a", "BIGINT"),
        ("b", "BIGINT"),
        ("c", "STRING"),
    ]


def test_files_without_a_row_tell_nothing_but_a_header_does(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    assert infer_schema([RowFile(str(tmp_path / "a.csv"), "csv")]).ddl == "a STRING, b STRING"
    (tmp_path / "a.json").write_text("\n")
    with pytest.raises(InvalidSchema, match="No row of"):
        infer_schema([RowFile(str(tmp_path / "a.json"), "jsonl")])
