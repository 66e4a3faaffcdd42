"""Keys are unique within one input, and the check is cheap."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelock.errors import DuplicateKey
from tidelock.model.ddl import parse_schema
from tidelock.store.rows.checks import check_unique_keys
from tidelock.store.rows.inputs import read_input

SINGLE = parse_schema("id BIGINT, n INT", key="id")
PAIR = parse_schema("a STRING, b INT, n INT", key=["b", "a"])


@pytest.mark.parametrize("rows", [5, 500])
def test_a_repeated_key_is_shown_with_its_rows(rows: int) -> None:
    ids = [*range(rows), 3, 1, 1, 3]
    with pytest.raises(
        DuplicateKey, match=r"'t' has 2 keys \(id\) more than once.*: 1, 3"
    ) as caught:
        check_unique_keys(pa.table({"id": ids}), SINGLE, "t")
    assert caught.value.table == "t"
    assert caught.value.key == ("id",)
    assert caught.value.values == [1, 3]
    assert caught.value.rows == [rows + 2, rows + 3]


@pytest.mark.parametrize("rows", [5, 500])
def test_a_composite_key_is_compared_as_a_whole(rows: int) -> None:
    table = pa.table({"a": ["x"] * rows, "b": pa.array(range(rows), pa.int32())})
    check_unique_keys(table, PAIR, "t")
    twice = pa.concat_tables([table, table.slice(2, 1)])
    with pytest.raises(DuplicateKey) as caught:
        check_unique_keys(twice, PAIR, "t")
    assert caught.value.values == [(2, "x")]
    with pytest.raises(DuplicateKey):
        check_unique_keys(twice.combine_chunks().to_batches()[0], PAIR, "t")


@pytest.mark.parametrize(
    ("ddl", "values"),
    [
        ("STRING", ["a", "A", "", "á"]),
        ("BINARY", [b"", b"\0", b"\0\0"]),
        ("BOOLEAN", [True, False]),
        ("DECIMAL(38,2)", [Decimal("1.50"), Decimal("1.51"), Decimal("-1.5")]),
        ("DATE", [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        ("TIMESTAMP", [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
        ("TIMESTAMP_NTZ", [dt.datetime(2024, 5, 1), dt.datetime(2024, 5, 1, microsecond=1)]),
    ],
)
@pytest.mark.parametrize("times", [1, 100])
def test_every_type_of_key_is_compared_exactly(ddl: str, values: list[Any], times: int) -> None:
    schema = parse_schema(f"k {ddl}, n INT", key=["k", "n"])
    rows = [{"k": value, "n": n} for n in range(times) for value in values]
    table = read_input(rows, schema, "t").table
    assert table is not None
    check_unique_keys(table, schema, "t")
    with pytest.raises(DuplicateKey):
        check_unique_keys(pa.concat_tables([table, table.slice(0, 1)]), schema, "t")


def test_moments_that_python_cannot_hold_are_compared_and_told() -> None:
    schema = parse_schema("k TIMESTAMP", key="k")
    far = pa.table({"k": pa.array([2**62, 2**62], pa.timestamp("us", tz="UTC"))})
    with pytest.raises(DuplicateKey) as caught:
        check_unique_keys(far, schema, "t")
    assert len(caught.value.values) == 1


def test_no_key_no_rows_and_one_row_are_fine() -> None:
    check_unique_keys(pa.table({"n": [1, 1]}), parse_schema("n INT"), "t")
    check_unique_keys(pa.table({"id": pa.array([], pa.int64())}), SINGLE, "t")
    check_unique_keys(pa.table({"id": [1]}), SINGLE, "t")


def seconds(work: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, time.perf_counter() - started)
    return best / times


def test_one_row_of_the_right_schema_costs_next_to_nothing() -> None:
    table = read_input([{"id": 1, "n": 1}], SINGLE, "t").table
    read = seconds(lambda: read_input(table, SINGLE, "t"), 200)
    check = seconds(lambda: check_unique_keys(table, SINGLE, "t"), 200)
    # Measured 2 and 0.1 microseconds; the bounds leave room for a busy machine.
    assert read < 100e-6
    assert check < 50e-6


def test_keys_are_shown_as_in_sql_and_counted_when_there_are_many() -> None:
    moment = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    schema = parse_schema("a STRING, t TIMESTAMP, d DECIMAL(5,2)", key=["a", "t", "d"])
    rows = [{"a": "it's", "t": moment, "d": Decimal("1.50")}] * 2
    table = read_input(rows, schema, "t").table
    assert table is not None
    shown = r"\('it''s', TIMESTAMP '2026-03-01 12:00:00Z', 1.50\)"
    with pytest.raises(DuplicateKey, match=rf"has 1 key \(a, t, d\) more than once: {shown}\."):
        check_unique_keys(table, schema, "t")
    with pytest.raises(DuplicateKey, match=r"has 5 keys \(id\).*: 0, 1, 2 and 2 more\."):
        check_unique_keys(pa.table({"id": [*range(5), *range(5)]}), SINGLE, "t")
