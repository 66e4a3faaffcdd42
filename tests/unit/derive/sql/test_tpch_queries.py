"""All of TPC-H is kept by delta, and no join of it is made without a key."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tpch.tables import schemas

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.laws import is_core
from tidelock.derive.algebra.operators import Aggregate, Join, OuterJoin, scans, walk
from tidelock.derive.sql.query import parse_view

QUERIES = sorted((Path(__file__).parents[3] / "tpch" / "queries").glob("q*.sql"))


def test_there_are_all_of_them() -> None:
    assert len(QUERIES) == 22


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_a_query_is_kept_by_delta(path: Path) -> None:
    view = parse_view(path.read_text("utf-8"), schemas())
    assert view.obstacles == ()
    assert view.root is not None
    assert is_core(lower(view.root))
    assert {one.table for one in scans(view.root)} == set(view.tables)
    for one in walk(view.root):
        # Only the single row of an aggregate of everything is paired with every row.
        if isinstance(one, Join | OuterJoin) and not one.keys:
            assert isinstance(one.right, Aggregate)
            assert one.right.groups == ()


@pytest.mark.parametrize(
    ("name", "columns"),
    [("q06", {"l_quantity", "l_extendedprice", "l_discount", "l_shipdate"}), ("q13", None)],
)
def test_only_the_columns_that_are_needed_are_read(name: str, columns: set[str] | None) -> None:
    path = next(path for path in QUERIES if path.stem == name)
    root = parse_view(path.read_text("utf-8"), schemas()).root
    assert root is not None
    by_table = {one.table: {column for _, column in one.columns} for one in scans(root)}
    if columns is not None:
        assert by_table == {"lineitem": columns}
    else:
        assert by_table["customer"] == {"c_custkey"}
        assert by_table["orders"] == {"o_orderkey", "o_custkey", "o_comment"}
