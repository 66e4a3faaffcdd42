"""Lookup: which rows of a body's tables are read for a change, and which tables are read whole."""

from __future__ import annotations

from collections.abc import Sequence

import lance
import pyarrow as pa
import pytest
from tests.unit.derive.sql.outlines import tree

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.operators import scans
from tidelock.derive.plan.bodies import state_body
from tidelock.derive.plan.column_origins import Traced, trace
from tidelock.derive.plan.segments import cut
from tidelock.derive.refresh.delta import lookup
from tidelock.derive.refresh.delta.lookup import LeafTable, reduce

CUSTOMERS = pa.table({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]})
ORDERS = pa.table({"id": [10, 11, 12, 13], "customer": [1, 1, 2, None], "amount": [5, 6, 7, 8]})


class Body:
    """A query over tables in memory, with the scans that its last segment has."""

    def __init__(self, query: str, tables: dict[str, pa.Table]) -> None:
        body = cut(lower(tree(query)))[-1].body
        self.traced: Traced = trace(state_body(body))
        self.tables = [scan.table.lower() for scan in scans(body)]
        self._leaves = [
            LeafTable(
                lance.write_dataset(tables[scan.table.lower()], "memory://"),
                tuple(dict.fromkeys(column for _, column in scan.columns)),
                ("id",),
            )
            for scan in scans(body)
        ]

    def read(self, seeds: dict[str, pa.Table]) -> dict[str, Sequence[object] | None]:
        """By table the first column of the rows that are read; None for one that is read whole."""
        given = {self.tables.index(name): rows for name, rows in seeds.items()}
        loaded = reduce(self.traced, self._leaves.__getitem__, given)
        return {
            self.tables[leaf]: None if rows is None else rows.column("id").to_pylist()
            for leaf, rows in loaded.items()
        }


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "WHOLE_ROWS_MAX", 0)


JOINED = "SELECT c.id AS c, o.id AS o FROM customers c JOIN orders o ON c.id = o.customer"
TABLES = {"customers": CUSTOMERS, "orders": ORDERS}


def test_of_a_join_only_partners_of_the_change_are_read() -> None:
    read = Body(JOINED, TABLES).read({"orders": ORDERS.slice(0, 2)})
    assert read == {"customers": [1], "orders": [10, 11]}


def test_values_are_followed_both_ways_through_an_inner_join() -> None:
    read = Body(JOINED, TABLES).read({"customers": CUSTOMERS.slice(0, 1)})
    assert read == {"customers": [1], "orders": [10, 11]}


def test_a_null_meets_no_partner() -> None:
    read = Body(JOINED, TABLES).read({"orders": ORDERS.slice(3, 1)})
    assert read["customers"] == []


def test_rows_that_cannot_pass_a_condition_lead_nowhere() -> None:
    read = Body(f"{JOINED} WHERE o.amount > 5", TABLES).read({"orders": ORDERS.slice(0, 1)})
    assert read == {"customers": [], "orders": []}


def test_what_no_value_leads_to_is_read_whole() -> None:
    crossed = "SELECT c.id AS c, o.id AS o FROM customers c CROSS JOIN orders o"
    read = Body(crossed, TABLES).read({"orders": ORDERS.slice(0, 1)})
    assert read == {"customers": None, "orders": [10]}


def test_what_no_value_leads_to_is_read_here_if_it_is_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookup, "WHOLE_ROWS_MAX", 4)
    crossed = "SELECT c.id AS c, o.id AS o FROM customers c CROSS JOIN orders o"
    read = Body(crossed, TABLES).read({"orders": ORDERS.slice(0, 1)})
    assert read == {"customers": [1, 2, 3, 4], "orders": [10]}


def test_too_many_values_leave_the_table_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "KEYS_MAX", 1)
    read = Body(JOINED, TABLES).read({"orders": ORDERS})
    assert read["customers"] is None
