"""Explaining a plan: what is kept, how it moves, and what Spark will be asked.

Owns: words. Everything is told from the plan alone; nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidelock.derive.analysing import Kept
from tidelock.derive.bodies import term_body
from tidelock.derive.sql.operators import (
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
from tidelock.derive.stages import EXTREMES, INTERNAL, Bag, Groups, Stage
from tidelock.derive.views import Prepared
from tidelock.derive.weighted import body_sql


@dataclass(frozen=True)
class Statement:
    """What Spark computes in one stage when one of its sources changed."""

    stage: int
    source: str
    sql: str


def explain_plan(prepared: Prepared) -> Iterator[str]:
    """The lines that describe how a view is kept."""
    if not prepared.incremental:
        yield "It is computed anew at every refresh:"
        for obstacle in prepared.view.obstacles:
            yield f"  - {obstacle.reason}"
        if not prepared.view.obstacles:
            yield "  - refresh_mode is full"
        return
    yield from prepared.view.notes
    for kept in prepared.kept:
        last = kept is prepared.kept[-1]
        where = "the table itself" if last else "an internal table"
        yield f"Stage {kept.stage.number}: {_head(kept.stage)}, kept in {where}"
        yield from (f"    {line}" for line in tree(kept.stage.body))
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


def _head(stage: Stage) -> str:
    head = stage.head
    if isinstance(head, Bag):
        return "rows, moved by their changes"
    if isinstance(head, Groups):
        by = ", ".join(head.groups) or "nothing"
        made = ", ".join(measure.sql for measure in head.measures) or "its distinct values"
        moved = "moved by adding the changes' sums and counts"
        if any(measure.function in EXTREMES for measure in head.measures):
            moved += "; computed again for groups whose least or greatest value leaves"
        return f"{made} by {by}, {moved}"
    return f"{describe(head.operator)}, computed again for the keys that changes touch"


def _state(kept: Kept) -> Iterator[str]:
    sums, extremes = len(kept.layout.sums), len(kept.layout.extremes)
    if sums or extremes:
        yield (
            f"State kept beside the rows: a count, {sums} sums or counts and {extremes} least or "
            "greatest values per group"
        )


def explain_sql(prepared: Prepared) -> Iterator[Statement]:
    """What Spark is asked when a source changed; nothing for what is computed anew."""
    for kept in prepared.kept:
        yield from _statements(kept)


def _statements(kept: Kept) -> Iterator[Statement]:
    leaves = list(enumerate(scans(kept.stage.body)))
    for leaf, scan in leaves:
        relations = {
            other: f"changes({_named(one.table)})"
            if other == leaf
            else f"{'new' if other < leaf else 'old'}({_named(one.table)})"
            for other, one in leaves
        }
        sql = body_sql(term_body(kept.stage.body, leaf).operator, relations)
        yield Statement(kept.stage.number, _named(scan.table), sql)


def _named(table: str) -> str:
    number = table.removeprefix(INTERNAL)
    return table if number == table else f"stage {number}"
