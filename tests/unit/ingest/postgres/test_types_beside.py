"""What no type holds exactly is kept beside the row, by column, and given back."""

from __future__ import annotations

import pyarrow as pa
from tests.unit.ingest.postgres.pg_types import DATE, INT4, NUMERIC, column

from tidelock.ingest.postgres.types import (
    KEPT_TEXTS,
    convert,
    keep_beside,
    kept_beside,
    map_column,
    text_of,
)

DAYS = pa.array(["2024-01-01", "infinity", None, "infinity"])
SUMS = pa.array(["1.5", "1.50", "NaN", "2"])
COUNTS = pa.array(["1", "2", None, "4"])


def marked() -> dict[str, tuple[pa.Array, pa.Array | None]]:
    given = {"day": (DAYS, DATE), "sum": (SUMS, NUMERIC), "count": (COUNTS, INT4)}
    return {
        name: (texts, convert(texts, map_column(column(type_, name)))[1])
        for name, (texts, type_) in given.items()
    }


def test_a_row_keeps_the_texts_of_its_columns_or_nothing() -> None:
    beside = keep_beside(marked(), 4)
    beside.validate(full=True)
    assert beside.type == KEPT_TEXTS
    assert beside.to_pylist() == [
        None,
        [("day", "infinity"), ("sum", "1.50")],
        [("sum", "NaN")],
        [("day", "infinity")],
    ]


def test_nothing_is_kept_where_nothing_is_marked() -> None:
    beside = keep_beside({"count": (COUNTS, None)}, 4)
    assert beside.type == KEPT_TEXTS
    assert beside.null_count == 4
    assert kept_beside(beside, "count") is None
    assert keep_beside({}, 0).to_pylist() == []


def test_kept_texts_are_given_back_by_column_from_any_part_of_a_batch() -> None:
    beside = keep_beside(marked(), 4)
    mapped = map_column(column(NUMERIC, "sum"))
    values, _ = convert(SUMS, mapped)
    assert text_of(values, mapped, kept_beside(beside, "sum")).equals(SUMS)
    part = text_of(values.slice(1, 2), mapped, kept_beside(beside.slice(1, 2), "sum"))
    assert part.equals(SUMS.slice(1, 2))
    found = kept_beside(beside, "day")
    assert found is not None
    assert found.to_pylist() == [None, "infinity", None, "infinity"]
    absent = kept_beside(beside, "other")
    assert absent is not None
    assert absent.null_count == 4


def test_a_value_without_its_kept_text_is_printed_as_its_type_prints_it() -> None:
    mapped = map_column(column(NUMERIC))
    values, _ = convert(SUMS, mapped)
    assert text_of(values, mapped).to_pylist() == ["1.5", "1.5", None, "2"]
