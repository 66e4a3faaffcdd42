"""Diffs as values: what they say of themselves."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidelock.errors import TableNotFound
from tidelock.model.history.diffs import (
    ColumnDiff,
    DefinitionDiff,
    Diff,
    DiffPoint,
    RowDiff,
    StreamDiff,
    TableDiff,
)
from tidelock.model.plain_values import plain_value
from tidelock.model.schema.schema import Column

BEFORE = DiffPoint("main", "main", 4, "main-4")
AFTER = DiffPoint("dev", "dev", 5, "dev-1-5")


def test_an_empty_diff_says_so() -> None:
    diff = Diff(BEFORE, AFTER, (), (TableDiff("orders", "o", "changed"),))
    assert not diff
    assert repr(diff) == "From main (version 4) to dev (version 5): no difference"
    assert not diff.table("Orders").differs
    with pytest.raises(TableNotFound, match="Did you mean 'orders'"):
        diff.table("order")


def test_a_summary_has_one_line_for_each_table() -> None:
    orders = TableDiff(
        "orders", "o", "changed", inserted=2, updated=1200, by_column={"a": 1, "amount": 1200}
    )
    gone = TableDiff("gone", "g", "dropped", deleted=1)
    assert repr(
        Diff(BEFORE, AFTER, (gone, orders), (TableDiff("same", "s", "changed"),))
    ).splitlines() == [
        "From main (version 4) to dev (version 5): 2 tables differ, 1 is the same",
        "  gone    -1; dropped",
        "  orders  +2 ~1,200; amount in 1,200 rows, a in 1 row",
    ]


def test_columns_rules_and_definitions_are_told_before_and_after() -> None:
    old = Column("qty", pa.int32(), False, 1)
    new = Column("quantity", pa.int64(), True, 1, "1")
    stream = StreamDiff(
        (DefinitionDiff("query", "SELECT 1", "SELECT\n  2"),), "current", "never refreshed"
    )
    table = TableDiff(
        "t",
        "t",
        "changed",
        was="u",
        columns=(ColumnDiff(old, new), ColumnDiff(None, new), ColumnDiff(old, None)),
        rules=(DefinitionDiff("few", "CHECK (a)", None),),
        stream=stream,
    )
    assert table.to_text().splitlines() == [
        "t  renamed from u, column quantity renamed from qty and retyped from INT to BIGINT and "
        "relaxed and with another default, column quantity added, column qty dropped, rule few "
        "dropped, query differs, after: never refreshed",
        "column quantity: renamed qty → quantity, retyped INT → BIGINT, required NOT NULL → NULL, "
        "default none → 1",
        "column quantity: added, BIGINT DEFAULT 1",
        "column qty: dropped",
        "rule few: dropped, CHECK (a)",
        "query: SELECT 1 → SELECT 2",
        "before: current; after: never refreshed",
    ]
    json.dumps(table.to_dict())


def test_rows_are_told_in_one_line_each() -> None:
    rows = (
        RowDiff("updated", {"id": 1}, ("v",), {"id": 1, "w": "a\nb"}, {"id": 1, "v": None}),
        RowDiff("updated", None, ("v",), {"g": "x", "v": 1}, {"g": "x", "v": 2}),
        RowDiff("inserted", {"id": 2}, (), None, {"id": 2, "v": b"\x00"}),
        RowDiff("deleted", {"id": 3}, (), {"id": 3}, None),
    )
    renamed = ColumnDiff(Column("w", pa.string(), id=1), Column("v", pa.string(), id=1))
    table = TableDiff("t", "t", "changed", columns=(renamed,), deleted=9, examples=rows[:1])
    assert table.to_text().splitlines()[2:] == [
        r"~ id=1: v 'a\nb' → NULL",
        "… and 8 more rows",
    ]
    table = TableDiff("t", "t", "changed", examples=rows[1:])
    assert table.to_text().splitlines()[1:] == [
        "~ g='x': v 1 → 2",
        "+ id=2: v=AA==",
        "- id=3",
    ]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1000"),
        (b"\x00", "AA=="),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "2026-03-01T12:00:00Z"),
        (datetime(2026, 3, 1, 12, 0, 0, 5), "2026-03-01T12:00:00.000005"),
        (date(2026, 3, 1), "2026-03-01"),
        ([1, None], [1, None]),
        ({"a": [Decimal(1)]}, {"a": ["1"]}),
        ([("a", 1), ("b", 2)], {"a": 1, "b": 2}),
        ([(1, "a")], [[1, "a"]]),
        ([("a", 1), ("a", 2)], [["a", 1], ["a", 2]]),
    ],
)
def test_values_are_spelt_as_in_all_json(value: Any, plain: Any) -> None:
    assert plain_value(value) == plain
    assert json.loads(json.dumps(plain_value(value))) == plain
