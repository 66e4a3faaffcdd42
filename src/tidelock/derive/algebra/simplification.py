"""Selects that say nothing are dropped, and two in a row are made one.

Two selects are one only if no computation is then made twice: a column that the lower one computes
is read at most once above, unless it is as cheap as a column.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sqlglot import exp

from tidelock.derive.algebra.builders import conjunction, passing
from tidelock.derive.algebra.operators import (
    Aggregate,
    Condition,
    GroupingSets,
    Named,
    Operator,
    Select,
    inputs,
    with_inputs,
)
from tidelock.model.sql.predicates import conjuncts
from tidelock.model.sql.trees import (
    bare,
    columns_of,
    expression,
    outside_queries,
    substitute,
    text_of,
)


def tidy(operator: Operator) -> Operator:
    """The same rows and columns, by fewer operators. What is read twice stays one."""
    return _tidy(operator, {})


def _tidy(operator: Operator, known: dict[int, Operator]) -> Operator:
    found = known.get(id(operator))
    if found is None:
        below = [_tidy(one, known) for one in inputs(operator)]
        found = known[id(operator)] = _simpler(with_inputs(operator, below))
    return found


def _simpler(operator: Operator) -> Operator:
    if isinstance(operator, Select):
        return _tidy_select(operator)
    if isinstance(operator, Aggregate | GroupingSets) and isinstance(operator.input, Select):
        below = operator.input
        if below.condition is None and below.columns == passing(below.output):
            return replace(operator, input=below.input)
    return operator


def _tidy_select(operator: Select) -> Operator:
    while isinstance(operator.input, Select) and _may_be_one(operator, operator.input):
        operator = _one(operator, operator.input)
    if operator.condition is None and operator.columns == passing(operator.input.output):
        return operator.input
    return operator


def _may_be_one(upper: Select, lower: Select) -> bool:
    reads: Counter[str] = Counter()
    for one in upper.columns:
        reads.update(_occurrences(one.sql))
    if upper.condition is not None:
        reads.update(_occurrences(upper.condition.sql))
    return all(
        reads[one.name] <= 1 or one.passed is not None or _is_cheap(expression(one.sql))
        for one in lower.columns
    )


def _occurrences(sql: str) -> list[str]:
    nodes = outside_queries(expression(sql))
    return [node.parts[0].name for node in nodes if isinstance(node, exp.Column)]


def _is_cheap(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Literal | exp.Null | exp.Boolean | exp.Dot | exp.Column)


def _one(upper: Select, lower: Select) -> Select:
    meaning = {one.name: expression(one.sql) for one in lower.columns}
    columns = []
    for one in upper.columns:
        tree = bare(substitute(expression(one.sql), meaning))
        columns.append(Named(one.name, text_of(tree), columns_of(tree)))
    conditions = [
        *_conditions(lower.condition),
        *(substitute(tree, meaning) for tree in _conditions(upper.condition)),
    ]
    return Select(lower.input, tuple(columns), conjunction(conditions))


def _conditions(condition: Condition | None) -> list[exp.Expr]:
    return [] if condition is None else conjuncts(expression(condition.sql))
