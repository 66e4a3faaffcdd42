"""Explaining what a stream table sees of its inputs, where that is not what they are now.

Owns: words. The query is shown as it was written; everything else by the names of today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from tidelock.derive.algebra.laws import is_core
from tidelock.derive.algebra.operators import Operator, Scan, inputs, with_inputs
from tidelock.derive.plan.segments import with_body
from tidelock.derive.plan.view import ViewPlan
from tidelock.derive.planned import Planned, PlannedInput
from tidelock.errors import TidelockError
from tidelock.model.sql.text import QueryText
from tidelock.model.sql.trees import function_name, read_query


def explain_inputs(planned: Planned) -> Iterator[str]:
    """The lines that tell what the query calls otherwise, and what it does not see."""
    for one in planned.inputs:
        if one.name != one.label:
            yield f"The query writes {one.label} for {one.name}"
        for label, name in _called(one).items():
            if label != name:
                yield f"The query writes {label} for {name} of {one.name}"
    how = _stands_for_all(planned.plan.definition.query)
    for one in planned.inputs:
        if how and one.unseen:
            yield (
                f"{how} was expanded when the view was made; {one.name} also has: "
                f"{', '.join(one.unseen)}"
            )


def with_names(planned: Planned) -> ViewPlan:
    """The plan with the names that tables and columns have now."""
    called = {one.label: _called(one) for one in planned.inputs}
    names = {one.label: one.name for one in planned.inputs}
    same = all(label == name for each in called.values() for label, name in each.items())
    if same and all(label == name for label, name in names.items()):
        return planned.plan
    kept = []
    for one in planned.plan.kept:
        body = _named(one.segment.body, names, called)
        assert is_core(body)
        kept.append(replace(one, segment=with_body(one.segment, body)))
    return replace(planned.plan, kept=tuple(kept))


def _named(
    operator: Operator, names: Mapping[str, str], called: Mapping[str, Mapping[str, str]]
) -> Operator:
    if isinstance(operator, Scan) and operator.table in names:
        columns = called[operator.table]
        return Scan(
            names[operator.table], tuple((here, columns[label]) for here, label in operator.columns)
        )
    return with_inputs(operator, [_named(one, names, called) for one in inputs(operator)])


def _called(one: PlannedInput) -> dict[str, str]:
    """The names of those columns that are still there, by their labels."""
    return one.seen.names({column.id: column.name for column in one.schema.columns})


def _stands_for_all(query: str) -> str | None:
    """What in a query stands for all columns of a table; None if nothing does."""
    try:
        tree = read_query(QueryText(query))
    except TidelockError:
        return "*" if "*" in query else None
    stars = [one for one in tree.find_all(exp.Star) if not _is_counted(one)]
    if stars:
        return "*"
    natural = any(join.method.upper() == "NATURAL" for join in tree.find_all(exp.Join))
    return "NATURAL JOIN" if natural else None


def _is_counted(star: exp.Star) -> bool:
    call = star.parent
    return isinstance(call, exp.Anonymous) and function_name(call) == "count"
