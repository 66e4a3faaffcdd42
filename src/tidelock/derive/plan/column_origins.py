"""Where the columns of a body come from: which leaf, unchanged.

A column is traced when it reaches the body's output, or a join, exactly as some table holds it.
Below a merge it comes from one leaf in each input, so that a trace is one origin per input.
An equality between two traced columns of a join is an edge: rows of the one side's leaves that can
take part in a result have a value that occurs on the other side. Of an outer join that holds for
the right side alone: the rows of the left tell which rows of the right matter, and not the other
way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from tidelock.derive.algebra.operators import (
    Condition,
    Generate,
    Join,
    Leaf,
    Merge,
    Operator,
    OuterJoin,
    Select,
)
from tidelock.derive.plan.leaf_filters import Test, find_tests


@dataclass(frozen=True)
class Origin:
    """A column of a leaf, by its name in the table."""

    leaf: int
    column: str
    padded: bool = False
    """Whether NULL stands in its place where a row has no partner. So the leaf's values are known
    to be all there are, but no row of it may be left out because of its value."""


Trace: TypeAlias = tuple[Origin | None, ...]
"""One origin for each input of the merges that it comes through; None where it is computed."""


@dataclass(frozen=True)
class Edge:
    """Two columns that a join compares; a row takes part only if its value is on both sides."""

    left: Trace
    right: Trace
    null_safe: bool = False
    to_right_only: bool = False
    """Whether the left's rows take part in any case."""


@dataclass(frozen=True)
class Traced:
    """A body's leaves, traces and edges."""

    leaves: tuple[int, ...]
    columns: dict[str, Trace]
    edges: tuple[Edge, ...] = ()
    tests: tuple[tuple[int, Test], ...] = ()
    """Comparisons with constants that the rows of a leaf must pass, by the table's columns."""

    def tests_of(self, leaf: int) -> list[Test]:
        return [test for one, test in self.tests if one == leaf]


def trace(operator: Operator) -> Traced:
    """Trace a body (bodies.py)."""
    match operator:
        case Leaf():
            columns: dict[str, Trace] = {
                name: (Origin(operator.number, column),) for name, column in operator.columns
            }
            return Traced((operator.number,), columns)
        case Select():
            below = trace(operator.input)
            columns = {
                column.name: below.columns[column.passed] if column.passed else (None,)
                for column in operator.columns
            }
            tests = (*below.tests, *_tests(operator.condition, below))
            return Traced(below.leaves, columns, below.edges, tests)
        case Generate():
            below = trace(operator.input)
            made: dict[str, Trace] = dict.fromkeys(operator.names, (None,))
            return replace(below, columns={**below.columns, **made})
        case Join():
            both = _both(operator)
            return replace(both, tests=(*both.tests, *_tests(operator.condition, both)))
        case OuterJoin():
            both = _both(operator)
            right = {name: _padded(both.columns[name]) for name in operator.right.output}
            return replace(both, columns={**both.columns, **right})
        case Merge():
            return _merged(operator)
        case _:
            raise TypeError(f"{type(operator).__name__} is no part of a body")


def _both(operator: Join | OuterJoin) -> Traced:
    left, right = trace(operator.left), trace(operator.right)
    own = tuple(
        Edge(
            left.columns[a],
            right.columns[b],
            position in operator.null_safe,
            isinstance(operator, OuterJoin),
        )
        for position, (a, b) in enumerate(operator.keys)
    )
    return Traced(
        left.leaves + right.leaves,
        {**left.columns, **right.columns},
        left.edges + right.edges + own,
        left.tests + right.tests,
    )


def _merged(operator: Merge) -> Traced:
    traced = [(one.output, trace(one)) for one in operator.inputs]
    return Traced(
        tuple(leaf for _, one in traced for leaf in one.leaves),
        {
            name: tuple(origin for names, one in traced for origin in one.columns[names[position]])
            for position, name in enumerate(operator.names)
        },
        tuple(edge for _, one in traced for edge in one.edges),
        tuple(test for _, one in traced for test in one.tests),
    )


def _padded(columns: Trace) -> Trace:
    return tuple(None if one is None else replace(one, padded=True) for one in columns)


def _tests(condition: Condition | None, below: Traced) -> Iterator[tuple[int, Test]]:
    """What a condition says of single columns that come from tables as they are."""
    for test in find_tests(condition.sql) if condition is not None else ():
        for origin in below.columns.get(test.column, ()):
            if origin is not None and not origin.padded:
                yield origin.leaf, replace(test, column=origin.column)
