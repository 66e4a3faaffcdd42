"""Values have one spelling in JSON, whoever writes it, and are read back as they were."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelock.cli.show.results import WRITERS
from tidelock.ingest.files.jsonl import JsonlRows, array_from_json
from tidelock.model.ddl import parse_schema
from tidelock.store.rows.json_values import encode_lines, encode_values, join_lines, python_values

UTC = dt.UTC
MOMENT = dt.datetime(2026, 3, 1, 12, 0, 0, 5)
STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "tinyint": (pa.int8(), [-128, 127], [-128, 127]),
    "smallint": (pa.int16(), [-(2**15)], [-(2**15)]),
    "int": (pa.int32(), [2**31 - 1], [2**31 - 1]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.1, -0.0, 16777216.0], [0.1, -0.0, 16777216.0]),
    "double": (pa.float64(), [1.0, -0.0, 5e-324, 1e300, 0.1], [1.0, -0.0, 5e-324, 1e300, 0.1]),
    "endless": (pa.float64(), [math.inf, -math.inf], ["Infinity", "-Infinity"]),
    "decimal": (
        pa.decimal128(38, 10),
        [Decimal("1E-10"), Decimal("-0.5")],
        ["0.0000000001", "-0.5000000000"],
    ),
    "string": (pa.string(), ["", 'a"b\\c\nd\té\x01😀'], ["", 'a"b\\c\nd\té\x01😀']),
    "binary": (pa.binary(), [b"", b"\0\xff"], ["", "AP8="]),
    "boolean": (pa.bool_(), [True, False], [True, False]),
    "date": (
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        ["0001-01-01", "9999-12-31"],
    ),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [MOMENT.replace(tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC)],
        ["2026-03-01T12:00:00.000005Z", "0001-01-01T00:00:00Z"],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [dt.datetime(2026, 3, 1, 12), MOMENT, dt.datetime(9999, 12, 31, 23, 59, 59, 999999)],
        ["2026-03-01T12:00:00", "2026-03-01T12:00:00.000005", "9999-12-31T23:59:59.999999"],
    ),
    "array": (pa.list_(pa.float32()), [[0.1, None], []], [[0.1, None], []]),
    "struct": (STRUCT, [{"a": 1, "b": None}], [{"a": 1, "b": None}]),
    "map": (
        pa.map_(pa.string(), pa.decimal128(5, 2)),
        [[('k"', Decimal("1.5")), ("", None)], []],
        [{'k"': "1.50", "": None}, {}],
    ),
    "map of dates": (
        pa.map_(pa.date32(), STRUCT),
        [[(dt.date(2026, 3, 1), {"a": 1, "b": "x"})], []],
        [[["2026-03-01", {"a": 1, "b": "x"}]], []],
    ),
    "map that repeats a key": (
        pa.map_(pa.string(), pa.int64()),
        [[("a", 1), ("a", 2)], [("a", 1), ("b", 2)], None, []],
        [[["a", 1], ["a", 2]], {"a": 1, "b": 2}, None, {}],
    ),
    "maps in arrays": (
        pa.list_(pa.map_(pa.string(), pa.bool_())),
        [[[("k", True)], None], [[]]],
        [[{"k": True}, None], [{}]],
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_one_spelling_and_is_read_back_as_it_was(name: str) -> None:
    type_, values, spelt = VALUES[name]
    column = pa.array([*values, None], type_)
    assert python_values(column) == [*spelt, None]
    assert [str(value) for value in python_values(column)[: len(spelt)]] == list(map(str, spelt))
    for piece in (column, column.slice(1), pa.concat_arrays([column, column]).slice(1, 3)):
        texts = encode_values(piece)
        assert array_from_json([json.loads(text) for text in texts.to_pylist()], type_, "v").equals(
            piece
        )


def test_not_a_number_is_read_back() -> None:
    (text,) = encode_values(pa.array([math.nan])).to_pylist()
    assert text == '"NaN"'
    assert math.isnan(array_from_json([json.loads(text)], pa.float64(), "v")[0].as_py())


def every_type() -> pa.RecordBatch:
    columns = {
        f"c{number}": pa.array([*values, None, None, None][:3], type_)
        for number, (type_, values, _) in enumerate(VALUES.values())
    }
    return pa.record_batch(columns)


def test_the_command_line_and_sinks_write_the_same_bytes() -> None:
    rows = every_type()
    lines = join_lines(encode_lines(rows))
    written = {}
    for format_ in ("jsonl", "json"):
        stream = io.BytesIO()
        WRITERS[format_](pa.Table.from_batches([rows.slice(0, 1), rows.slice(1)]), stream)
        written[format_] = stream.getvalue()
    assert written["jsonl"] == lines
    assert json.loads(written["json"]) == [json.loads(line) for line in lines.splitlines()]


def test_a_file_of_lines_is_loaded_as_the_rows_that_it_was_written_from() -> None:
    rows = every_type()
    schema = parse_schema(rows.schema)
    loaded = JsonlRows(io.BytesIO(join_lines(encode_lines(rows))), schema, "t", "UTC")
    (batch,) = loaded.batches()
    assert batch.select(rows.schema.names).equals(rows)


def test_what_no_table_holds_is_told_as_text() -> None:
    interval = pa.array([dt.timedelta(days=1), None], pa.duration("us"))
    assert python_values(interval) == ["1 day, 0:00:00", None]
