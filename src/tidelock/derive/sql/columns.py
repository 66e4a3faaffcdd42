"""Columns of a query: expressions, named so that operators can hold them, or refused."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from tidelock.derive.algebra.builders import OF_MANY_ROWS, passing, type_of
from tidelock.derive.algebra.operators import Named, Operator, Select
from tidelock.derive.sql.scopes import Planning
from tidelock.model.sql.predicates import has_query
from tidelock.model.sql.trees import columns_of, function_name, outside_queries, text_of


def named(planning: Planning, name: str, tree: exp.Expr, input_: Operator) -> Named:
    """A computed column. What the tree reads must be there: if not, it is of a query around."""
    check_scalar(planning, tree, input_)
    return Named(name, text_of(tree), columns_of(tree))


def check_local(planning: Planning, tree: exp.Expr, *inputs: Operator) -> None:
    if has_query(tree):
        planning.refuse(tree, "a subquery in this place is not kept by delta")
    there = {name for one in inputs for name in one.output}
    if not set(columns_of(tree)) <= there:
        planning.refuse(tree, "a column of the query around is used in a place that is not kept")


def check_scalar(planning: Planning, tree: exp.Expr, *inputs: Operator) -> None:
    """As `check_local`, and the expression is one of a single row."""
    check_local(planning, tree, *inputs)
    for node in outside_queries(tree):
        if isinstance(node, exp.Anonymous) and function_name(node) in OF_MANY_ROWS:
            planning.refuse(node, "the function is used in a place where one row is looked at")


def with_columns(
    planning: Planning, operator: Operator, trees: Iterable[exp.Expr]
) -> tuple[Operator, list[str]]:
    """The operator with each tree as a column of it, and the names of these columns.

    A tree that is a column already is that column.
    """
    computed: list[Named] = []
    names: list[str] = []
    known: dict[str, str] = {}
    for tree in trees:
        if isinstance(tree, exp.Column) and len(tree.parts) == 1 and tree.name in operator.output:
            names.append(tree.name)
            continue
        text = text_of(tree)
        if text not in known:
            known[text] = planning.fresh(type_of(tree, planning.types))
            computed.append(named(planning, known[text], tree, operator))
        names.append(known[text])
    if computed:
        operator = Select(operator, (*passing(operator.output), *computed))
    return operator, names
