"""Oracle: what was inferred from a file reads all of that file, and every value as it was."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelock.ingest.files.infer import infer_schema
from tidelock.ingest.files.read import read_file
from tidelock.ingest.files.row_file import Reading, RowFile
from tidelock.ingest.files.tolerant import Target, read_tolerantly
from tidelock.model.schema.schema import TableSchema

READ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

names = st.sampled_from(["a", "b", "C", "d e", "ü"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-5, 5)
    | st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, 2**63, 10**38])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["2026-03-01", "1", "true", "[1]", ""])
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
rows_of_json = st.lists(st.dictionaries(names, values, min_size=1, max_size=4), min_size=1)

texts = (
    st.integers(-(2**70), 2**70).map(str)
    | st.integers(-5, 5).map(str)
    | st.floats().map(repr)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str)
    | st.dates().map(str)
    | st.datetimes().map(str)
    | st.datetimes().map(lambda moment: moment.isoformat() + "Z")
    | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9:.]{5,9})?\Z")
    | st.sampled_from(["true", "FALSE", "007", "+1", "1.", ".5", "1e5", "", " 1", "NaN", "-0", "x"])
    # Bytes of zero are taken for another encoding.
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
)


@READ
@given(rows_of_json)
def test_json_is_read_as_it_was_inferred(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = tmp_path / "a.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = RowFile(str(path), "jsonl", Reading(as_text=True))
    schema = TableSchema(infer_schema([file]).columns)
    for read in (_whole(file, schema), _tolerant(file, schema)):
        assert len(read) == len(rows)
        for row, given_row in zip(read, rows, strict=True):
            for name in schema.names:
                assert _says(row[name], given_row.get(name)), (name, row[name], given_row)


@READ
@given(st.data())
def test_csv_is_read_as_it_was_inferred(tmp_path: Path, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.lists(texts, min_size=1, max_size=4), min_size=1, max_size=3))
    count = data.draw(st.integers(1, 8))
    rows = [[data.draw(st.sampled_from(kind)) for kind in kinds] for _ in range(count)]
    path = tmp_path / "a.csv"
    lines = [",".join(f"c{n}" for n in range(len(kinds)))]
    lines += [",".join('"' + text.replace('"', '""') + '"' for text in row) for row in rows]
    path.write_bytes(("\n".join(lines) + "\n").encode())
    file = RowFile(str(path), "csv")
    schema = TableSchema(infer_schema([file]).columns)
    for read in (_whole(file, schema), _tolerant(file, schema)):
        assert len(read) == len(rows)
        for row, given_row in zip(read, rows, strict=True):
            for n, text in enumerate(given_row):
                assert _is_text_of(row[f"c{n}"], text), (schema, row, given_row)


def _whole(file: RowFile, schema: TableSchema) -> list[dict[str, Any]]:
    return [row for batch in read_file(file, schema, "t") for row in batch.to_pylist()]


def _tolerant(file: RowFile, schema: TableSchema) -> list[dict[str, Any]]:
    found = list(read_tolerantly(file, Target(schema, "t")))
    assert all(isinstance(one, pa.RecordBatch) for one in found), found
    return [row for batch in found for row in batch.to_pylist()]


def _says(read: Any, value: Any) -> bool:
    """Whether what was read is the value, with nothing lost."""
    if isinstance(value, dict) and isinstance(read, dict):
        by_name = {name.lower(): one for name, one in value.items()}
        return all(_says(one, by_name.get(name.lower())) for name, one in read.items())
    if isinstance(value, list) and isinstance(read, list):
        return len(read) == len(value) and all(map(_says, read, value))
    if read is None or isinstance(read, bool) or isinstance(value, bool):
        return read is value or read == json.dumps(value)
    if isinstance(read, str):
        return read == value or (not isinstance(value, str) and json.loads(read) == value)
    return bool(read == value)


def _is_text_of(read: Any, text: str) -> bool:
    match read:
        case str():
            return read == text
        case bool():
            return text.lower() == str(read).lower()
        case int() | Decimal():
            return Decimal(read) == Decimal(text)
        case float():
            return (math.isnan(read) and text == "NaN") or read == float(text)
        case dt.datetime():
            moment = dt.datetime.fromisoformat(text)
            return read == (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC))
        case dt.date():
            return str(read) == text
    return False


@pytest.mark.parametrize(
    "text", ["2026-03-01T24:00:00Z", "0000-01-01", "9999-12-31 23:59:59.999999"]
)
def test_moments_at_the_edges_are_read_or_are_texts(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(f"c\n{text}\n")
    file = RowFile(str(tmp_path / "a.csv"), "csv")
    schema = TableSchema(infer_schema([file]).columns)
    assert len(_whole(file, schema)) == 1
