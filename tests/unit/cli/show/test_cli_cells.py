"""One exact spelling for each value."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelock.cli.show import cells
from tidelock.model.time.durations import show_size
from tidelock.store.rows.json_values import python_values


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short enough to fit", "short enough to fit"),
        ("a text that is too long", "a text that is too…"),
        ("ends, at a comma, here: so", "ends, at a comma…"),
        ("a" * 30, "a" * 19 + "…"),
        ("a " + "b" * 30, "a " + "b" * 17 + "…"),
    ],
)
def test_text_is_cut_between_words_where_there_are_some(text: str, shown: str) -> None:
    assert cells.shortened(text, 20) == shown


@pytest.mark.parametrize(
    ("value", "type_", "spelt"),
    [
        (None, pa.int64(), None),
        (2**63 - 1, pa.int64(), 2**63 - 1),
        (0.1, pa.float64(), 0.1),
        (0.1, pa.float32(), 0.1),
        (16777216.0, pa.float32(), 16777216.0),
        (3.4028234663852886e38, pa.float32(), 3.4028235e38),
        ([0.1, None], pa.list_(pa.float32()), [0.1, None]),
        ({"a": 0.1}, pa.struct([("a", pa.float32())]), {"a": 0.1}),
        ([("a", 0.1)], pa.map_(pa.string(), pa.float32()), {"a": 0.1}),
        (float("nan"), pa.float64(), "NaN"),
        (float("inf"), pa.float32(), "Infinity"),
        (float("-inf"), pa.float64(), "-Infinity"),
        (Decimal("1.50"), pa.decimal128(12, 2), "1.50"),
        (Decimal("0E-10"), pa.decimal128(38, 10), "0.0000000000"),
        (date(2026, 3, 1), pa.date32(), "2026-03-01"),
        (
            datetime(2026, 3, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            pa.timestamp("us", "UTC"),
            "2026-03-01T00:00:00Z",
        ),
        (datetime(2026, 3, 1, 0, 0, 0, 5), pa.timestamp("us"), "2026-03-01T00:00:00.000005"),
        (b"hi", pa.binary(), "aGk="),
        ([Decimal("1.0"), None], pa.list_(pa.decimal128(3, 1)), ["1.0", None]),
        ({"a": b"hi"}, pa.struct([("a", pa.binary())]), {"a": "aGk="}),
        ([("a", 1)], pa.map_(pa.string(), pa.int64()), {"a": 1}),
        ([(1, b"hi")], pa.map_(pa.int32(), pa.binary()), [[1, "aGk="]]),
        ([[("a", 1)]], pa.list_(pa.map_(pa.string(), pa.int64())), [{"a": 1}]),
    ],
)
def test_a_value_has_one_spelling_in_json(value: Any, type_: pa.DataType, spelt: Any) -> None:
    assert python_values(pa.array([value], type_)) == [spelt]


def test_moments_that_python_cannot_hold_are_shown_all_the_same() -> None:
    far = pa.array([400_000_000_000_000_000, None], pa.timestamp("us", "UTC"))
    values = python_values(far)
    assert values[0].startswith("14645-")
    assert values[1] is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "NULL"),
        ("NULL", "'NULL'"),
        ("", "''"),
        (" a", "' a'"),
        ("plain", "plain"),
        ("two\nlines", "two\\nlines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        (True, "true"),
        ({"a": [1]}, '{"a": [1]}'),
        ("Ünï", "Ünï"),
    ],
)
def test_a_cell_cannot_be_mistaken_or_act_on_the_terminal(value: Any, shown: str) -> None:
    assert cells.cell(value, is_text=True) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (123_456, "123 kB"),
        (999_999, "1.0 MB"),
        (5_400_000_000, "5.4 GB"),
        (10**16, "10000 TB"),
    ],
)
def test_sizes_are_in_units_that_people_read(size_bytes: int, shown: str) -> None:
    assert show_size(size_bytes) == shown


def test_nouns_follow_their_number() -> None:
    assert cells.count(1, "row") == "1 row"
    assert cells.count(0, "row") == "0 rows"
    assert cells.count(2000, "branch") == "2,000 branches"


def test_a_moment_is_told_to_the_second_in_listings() -> None:
    assert cells.seconds(cells.moment(datetime(2026, 3, 1, 1, 2, 3, 4, UTC))) == (
        "2026-03-01 01:02:03Z"
    )
    assert cells.seconds(None) == ""


@pytest.mark.parametrize(
    ("number", "told"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (7300, "2 h"), (86_400, "1 day"), (9e5, "10 days")],
)
def test_a_duration_is_told_in_the_unit_that_fits(number: float, told: str) -> None:
    assert cells.duration(number) == told
