"""Explaining a plan: what is kept, how it moves, and what Spark will be asked.

Owns: words. Everything is told from the plan alone; nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelock.derive.algebra.operators import (
    Aggregate,
    Anti,
    Generate,
    Join,
    Left,
    Merge,
    Once,
    Operator,
    Scan,
    Select,
    Top,
    Window,
    inputs,
    scans,
)
from tidelock.derive.plan.bodies import term_body
from tidelock.derive.plan.body_sql import body_sql
from tidelock.derive.plan.column_types import Kept
from tidelock.derive.plan.segments import INTERNAL, Bag, Groups
from tidelock.derive.plan.view import ViewPlan


@dataclass(frozen=True)
class SegmentQuery:
    """What Spark computes in one segment when one of its inputs changed."""

    segment: int
    input: str
    sql: str


def explain_plan(plan: ViewPlan) -> Iterator[str]:
    """The lines that describe how a view is kept."""
    if not plan.incremental:
        yield "It is computed anew at every refresh:"
        for obstacle in plan.view.obstacles:
            yield f"  - {obstacle.reason}"
        if not plan.view.obstacles:
            yield "  - refresh_mode is full"
        return
    yield from plan.view.notes
    for kept in plan.kept:
        last = kept is plan.kept[-1]
        where = "the table itself" if last else "an internal table"
        yield f"Segment {kept.segment.number}: {_content(kept)}, kept in {where}"
        yield from (f"    {line}" for line in tree(kept.segment.body))
        yield from (f"  {line}" for line in _state(kept))


def tree(operator: Operator, depth: int = 0) -> Iterator[str]:
    """An operator and its inputs, one line each."""
    yield "  " * depth + describe(operator)
    for one in inputs(operator):
        yield from tree(one, depth + 1)


def describe(operator: Operator) -> str:
    """One operator in one line."""
    if isinstance(operator, Scan):
        # With the names that the operators above use, which are told nowhere else.
        columns = ", ".join(
            column if column == name else f"{column} AS {name}" for name, column in operator.columns
        )
        return f"Scan {_named(operator.table)} ({columns})"
    if isinstance(operator, Select):
        where = f" where {operator.condition.sql}" if operator.condition else ""
        return f"Select {', '.join(column.sql for column in operator.columns)}{where}"
    if isinstance(operator, Generate):
        return f"Generate {operator.sql}"
    if isinstance(operator, Join):
        extra = f" where {operator.condition.sql}" if operator.condition else ""
        on = f"on {_pairs(operator.keys)}" if operator.keys else "of all pairs"
        return f"Join {on}{extra}"
    if isinstance(operator, Merge):
        return f"Merge of {len(operator.inputs)}"
    if isinstance(operator, Left):
        return f"Left join on {_pairs(operator.keys)}"
    if isinstance(operator, Anti):
        return f"Anti-join on {_pairs(operator.keys)}"
    if isinstance(operator, Once):
        return "Once"
    if isinstance(operator, Aggregate):
        made = ", ".join(measure.sql for measure in operator.measures) or "nothing"
        return f"Aggregate {made} by {', '.join(operator.groups) or 'nothing'}"
    if isinstance(operator, Window):
        return f"Window {', '.join(column.sql for column in operator.columns)}"
    if isinstance(operator, Top):
        return f"Top {operator.limit} by {operator.order}"
    return type(operator).__name__


def _pairs(keys: tuple[tuple[str, str], ...]) -> str:
    return " and ".join(f"{left} = {right}" for left, right in keys) or "any row"


def _content(kept: Kept) -> str:
    content = kept.segment.content
    if isinstance(content, Bag):
        return "rows, moved by their changes"
    if isinstance(content, Groups):
        by = ", ".join(content.groups) or "nothing"
        made = ", ".join(measure.sql for measure in content.measures) or "its distinct values"
        moved = "moved by adding the changes' sums and counts"
        if kept.state_columns.extremes:
            moved += "; computed again for groups whose least or greatest value leaves"
        return f"{made} by {by}, {moved}"
    return f"{describe(content.operator)}, computed again for the keys that changes touch"


def _state(kept: Kept) -> Iterator[str]:
    sums, extremes = len(kept.state_columns.sums), len(kept.state_columns.extremes)
    if sums or extremes:
        yield (
            f"State kept beside the rows: a count, {sums} sums or counts and {extremes} least or "
            "greatest values per group"
        )


def explain_sql(plan: ViewPlan) -> Iterator[SegmentQuery]:
    """What Spark is asked when an input changed; nothing for what is computed anew."""
    for kept in plan.kept:
        yield from _statements(kept)


def _statements(kept: Kept) -> Iterator[SegmentQuery]:
    leaves = list(enumerate(scans(kept.segment.body)))
    for leaf, scan in leaves:
        relations = {
            other: f"changes({_named(one.table)})"
            if other == leaf
            else f"{'new' if other < leaf else 'old'}({_named(one.table)})"
            for other, one in leaves
        }
        sql = body_sql(term_body(kept.segment.body, leaf).operator, relations)
        yield SegmentQuery(kept.segment.number, _named(scan.table), sql)


def _named(table: str) -> str:
    number = table.removeprefix(INTERNAL)
    return table if number == table else f"segment {number}"
