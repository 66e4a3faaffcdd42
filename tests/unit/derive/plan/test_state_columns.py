"""State columns: what stands in a segment's table beside the columns that are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.derive.sql.outlines import tree

from tidelock.derive.algebra.core import lower
from tidelock.derive.algebra.operators import Measure
from tidelock.derive.plan.aggregates import AGGREGATES, is_exact, may_keep
from tidelock.derive.plan.segments import Groups, Segment, cut
from tidelock.derive.plan.state_columns import StateColumns, hash_sql, plan_state_columns


def planned(query: str, type_: str = "bigint") -> StateColumns:
    """The columns of a view whose every column and argument has one type."""
    segment = cut(lower(tree(query)))[-1]
    names = tuple(f"v{number}" for number in range(len(segment.output)))
    return plan_state_columns(segment, names, _Same(type_), _arguments(segment, type_))


class _Same(dict[str, str]):
    def __init__(self, type_: str) -> None:
        super().__init__()
        self.type = type_

    def __missing__(self, name: str) -> str:
        return self.type


def _arguments(segment: Segment, type_: str) -> dict[str, str]:
    if not isinstance(segment.content, Groups):
        return {}
    return {one.name: type_ for one in segment.content.measures if one.argument is not None}


def test_a_bag_has_a_hash_of_its_rows_and_nothing_else() -> None:
    columns = planned("SELECT id, name FROM customers")
    assert [name for name, _ in columns.shown] == ["v0", "v1"]
    assert columns.hash.startswith("xxhash64(")
    assert (columns.keys, columns.sums, columns.extremes, columns.measures) == ((), (), (), ())


def test_a_key_that_is_not_shown_gets_a_column_of_its_own() -> None:
    columns = planned("SELECT SUM(amount) AS s FROM orders GROUP BY customer, id")
    assert [column for column, _ in columns.keys] == ["__tidelock_k0", "__tidelock_k1"]
    columns = planned("SELECT customer, SUM(amount) AS s FROM orders GROUP BY customer")
    assert [column for column, _ in columns.keys] == ["v0"]


def test_measures_of_one_value_share_its_sum_and_its_count() -> None:
    columns = planned(
        "SELECT customer, SUM(amount) AS s, AVG(amount) AS a, COUNT(amount) AS n FROM orders "
        "GROUP BY customer"
    )
    assert [one.column for one in columns.sums] == ["__tidelock_s0", "__tidelock_s1"]
    assert [one.parts for one in columns.measures] == [
        ("__tidelock_s0", "__tidelock_s1"),
        ("__tidelock_s0", "__tidelock_s1"),
        ("__tidelock_s1",),
    ]


def test_least_and_greatest_values_have_columns_of_their_own() -> None:
    columns = planned("SELECT customer, MIN(id) AS a, MAX(id) AS b FROM orders GROUP BY customer")
    assert [(one.column, one.least) for one in columns.extremes] == [
        ("__tidelock_e0", True),
        ("__tidelock_e1", False),
    ]
    assert columns.sums == ()


def test_what_is_computed_again_keeps_no_parts() -> None:
    columns = planned("SELECT customer, MEDIAN(amount) AS m FROM orders GROUP BY customer")
    assert columns.keys
    assert (columns.sums, columns.extremes, columns.measures) == ((), (), ())


def test_a_hash_leaves_out_what_engines_hash_differently() -> None:
    assert hash_sql({"a": "bigint", "b": "array<int>"}) == "xxhash64(`a`)"
    assert hash_sql({"a": "decimal(38,2)"}) == "xxhash64(CAST(`a` AS STRING))"
    assert hash_sql({"m": "map<int,int>"}) == "0L"


# Aggregates --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "type_", "exact"),
    [
        ("count", "double", True),
        ("sum", "bigint", True),
        ("sum", "double", False),
        ("sum", "decimal(12,2)", True),
        ("sum", "decimal(38,6)", True),
        ("sum", "decimal(38,10)", False),
        ("avg", "decimal(12,2)", True),
        ("avg", "decimal(38,6)", False),
        ("avg", "float", False),
        ("min", "string", True),
        ("min", "double", False),
        ("max", "timestamp", True),
        ("bool_and", "boolean", True),
    ],
)
def test_parts_are_kept_only_where_they_never_drift(function: str, type_: str, exact: bool) -> None:
    measure = Measure("m", function, f"{function}(x)", ("x",), "x")
    assert may_keep(measure)
    assert is_exact(measure, {"m": type_}) is exact


def test_what_is_distinct_or_not_in_the_registry_has_no_parts() -> None:
    measure = Measure("m", "sum", "sum(DISTINCT x)", ("x",), "x", distinct=True)
    assert not may_keep(measure)
    assert not may_keep(replace(measure, function="median", distinct=False))


@pytest.mark.parametrize("function", sorted(AGGREGATES))
def test_an_entry_is_complete(function: str) -> None:
    entry = AGGREGATES[function]
    assert function in entry.law
    parts = entry.parts("x", "bigint")
    assert entry.final([f"p{number}" for number in range(len(parts))], "bigint")
