"""Where the columns of a body come from: which occurrence of which table, unchanged.

A column is traced when it reaches the body's output, or a join, exactly as some table holds it.
Below a merge it comes from one table in each branch, so that a trace is one origin per branch.
An equality between two traced columns of a join is an edge: rows of the one side's tables that can
take part in a result have a value that occurs on the other side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from tidelock.derive.leaf_filters import Test, find_tests
from tidelock.derive.sql.operators import (
    Condition,
    Core,
    Generate,
    Join,
    Merge,
    Operator,
    Scan,
    Select,
    scans,
)


@dataclass(frozen=True)
class Origin:
    """A column of the n-th scan of a body, by its name in the table."""

    leaf: int
    column: str


Trace: TypeAlias = tuple[Origin | None, ...]
"""One origin for each branch of the merges that it comes through; None where it is computed."""


@dataclass(frozen=True)
class Edge:
    """Two columns that a join compares; a row takes part only if its value is on both sides."""

    left: Trace
    right: Trace
    null_safe: bool = False


@dataclass(frozen=True)
class Traced:
    """A body's leaves, traces and edges."""

    leaves: tuple[int, ...]
    columns: dict[str, Trace]
    edges: tuple[Edge, ...]
    tests: tuple[tuple[int, Test], ...] = ()
    """Comparisons with constants that the rows of a leaf must pass, by the table's columns."""

    def tests_of(self, leaf: int) -> list[Test]:
        return [test for one, test in self.tests if one == leaf]


@dataclass(frozen=True)
class Branch:
    """One input of a merge, with the numbers of its leaves."""

    operator: Operator
    sign: int
    leaves: range


def branches_of(merge: Merge, first: int) -> Iterator[Branch]:
    for operator, sign in zip(merge.inputs, merge.signs, strict=True):
        leaves = range(first, first + len(scans(operator)))
        yield Branch(operator, sign, leaves)
        first = leaves.stop


def trace(body: Core, only: int | None = None) -> Traced:
    """Trace a body; with `only`, merges keep just the branch that holds that leaf."""
    return _trace(body, 0, only)


def _trace(operator: Operator, first: int, only: int | None) -> Traced:
    if isinstance(operator, Scan):
        columns: dict[str, Trace] = {
            name: (Origin(first, column),) for name, column in operator.columns
        }
        return Traced((first,), columns, ())
    if isinstance(operator, Select):
        below = _trace(operator.input, first, only)
        columns = {
            column.name: below.columns[column.passed] if column.passed else (None,)
            for column in operator.columns
        }
        return Traced(
            below.leaves, columns, below.edges, (*below.tests, *_tests(operator.condition, below))
        )
    if isinstance(operator, Generate):
        below = _trace(operator.input, first, only)
        made: dict[str, Trace] = dict.fromkeys(operator.names, (None,))
        return replace(below, columns={**below.columns, **made})
    if isinstance(operator, Join):
        left = _trace(operator.left, first, only)
        right = _trace(operator.right, first + len(scans(operator.left)), only)
        own = tuple(
            Edge(left.columns[a], right.columns[b], position in operator.null_safe)
            for position, (a, b) in enumerate(operator.keys)
        )
        both = Traced(
            left.leaves + right.leaves,
            {**left.columns, **right.columns},
            left.edges + right.edges + own,
            left.tests + right.tests,
        )
        return replace(both, tests=(*both.tests, *_tests(operator.condition, both)))
    if isinstance(operator, Merge):
        branches = list(branches_of(operator, first))
        used = [branch for branch in branches if only in branch.leaves] or branches
        traced = [(b.operator.output, _trace(b.operator, b.leaves.start, only)) for b in used]
        return Traced(
            tuple(leaf for _, branch in traced for leaf in branch.leaves),
            {
                name: tuple(
                    origin for names, branch in traced for origin in branch.columns[names[position]]
                )
                for position, name in enumerate(operator.names)
            },
            tuple(edge for _, branch in traced for edge in branch.edges),
            tuple(test for _, branch in traced for test in branch.tests),
        )
    raise TypeError(f"{type(operator).__name__} is no part of a body")


def _tests(condition: Condition | None, below: Traced) -> Iterator[tuple[int, Test]]:
    """What a condition says of single columns that come from tables as they are."""
    for test in find_tests(condition.sql) if condition is not None else ():
        for origin in below.columns.get(test.column, ()):
            if origin is not None:
                yield origin.leaf, replace(test, column=origin.column)
