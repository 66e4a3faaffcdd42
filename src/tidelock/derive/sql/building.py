"""Operators of expression trees: columns, conditions, and the operators that hold only these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from tidelock.derive.sql.functions import AGGREGATES, GENERATORS, RANKING
from tidelock.derive.sql.operators import Condition, Named, Operator, Select
from tidelock.derive.sql.predicates import has_query
from tidelock.derive.sql.reading import columns_of, function_name, outside_queries, text_of
from tidelock.derive.sql.scopes import Planning


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
        if isinstance(node, exp.Anonymous) and function_name(node) in _OF_MANY_ROWS:
            planning.refuse(node, "the function is used in a place where one row is looked at")


def passing(names: Iterable[str]) -> tuple[Named, ...]:
    """Columns that stay what they are."""
    return tuple(Named(name, f"`{name}`", (name,)) for name in names)


def conjunction(trees: Iterable[exp.Expr]) -> Condition | None:
    """All of the conditions at once; None for none."""
    parts = list(trees)
    if not parts:
        return None
    texts = [text_of(tree) for tree in parts]
    if len(texts) > 1:
        texts = [
            f"({text})" if isinstance(tree, exp.Or) else text
            for tree, text in zip(parts, texts, strict=True)
        ]
    return Condition(" AND ".join(texts), columns_of(*parts))


def filtered(operator: Operator, trees: Iterable[exp.Expr]) -> Operator:
    """The rows of the operator for which all of the conditions are true."""
    condition = conjunction(trees)
    if condition is None:
        return operator
    return Select(operator, passing(operator.output), condition)


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


_OF_MANY_ROWS = AGGREGATES | GENERATORS | RANKING
INTEGERS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})


def is_same_type(one: str | None, two: str | None) -> bool:
    """Whether values of the two that are equal are one value, in groups as well."""
    return one is not None and (one == two or {one, two} <= INTEGERS)


def type_of(tree: exp.Expr, types: Mapping[str, str]) -> str | None:
    """The type of an expression in Spark's words, where it is plain to see."""
    if isinstance(tree, exp.Paren):
        return type_of(tree.this, types)
    if isinstance(tree, exp.Column):
        return types.get(tree.name) if len(tree.parts) == 1 else None
    if isinstance(tree, exp.Cast):
        return text_of(tree.to).replace(" ", "").upper()
    if isinstance(tree, exp.Literal) and tree.is_string:
        return "STRING"
    if isinstance(tree, exp.Substring):
        return type_of(tree.this, types)
    return None


def exactly(operator: Operator, names: tuple[str, ...]) -> Operator:
    """The operator with these columns and no others, where columns count by position."""
    return operator if operator.output == names else Select(operator, passing(names))
