"""Operators of expression trees: columns, conditions, and the operators that hold only these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from tidelock.derive.algebra.operators import Condition, Named, Operator, Select
from tidelock.model.sql.functions import AGGREGATES, GENERATORS, RANKING
from tidelock.model.sql.trees import columns_of, text_of


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


OF_MANY_ROWS = AGGREGATES | GENERATORS | RANKING
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
