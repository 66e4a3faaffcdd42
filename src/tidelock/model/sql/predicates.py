"""Conditions: taken apart, and looked through.

In SQL's logic of three values a WHERE keeps a row when its condition is true; unknown is as good as
false. Everything here keeps that: a condition is true for a row exactly when all of its conjuncts
are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import reduce

from sqlglot import exp

from tidelock.model.sql.trees import bare, columns_of, outside_queries


def conjuncts(tree: exp.Expr | None) -> list[exp.Expr]:
    """The parts of a condition that all must be true, what all cases of an OR share among them."""
    return [] if tree is None else list(_conjuncts(tree))


def _conjuncts(tree: exp.Expr) -> Iterator[exp.Expr]:
    tree = bare(tree)
    if isinstance(tree, exp.And):
        yield from _conjuncts(tree.this)
        yield from _conjuncts(tree.expression)
    elif isinstance(tree, exp.Or):
        yield from _factored(tree)
    elif not (isinstance(tree, exp.Boolean) and tree.this):
        yield tree


def _cases(tree: exp.Expr) -> Iterator[exp.Expr]:
    tree = bare(tree)
    if isinstance(tree, exp.Or):
        yield from _cases(tree.this)
        yield from _cases(tree.expression)
    else:
        yield tree


def _factored(tree: exp.Or) -> Iterator[exp.Expr]:
    """(a AND b) OR (a AND c) as a, (b OR c). The law holds for unknown as well."""
    cases = [list(_conjuncts(case)) for case in _cases(tree)]
    shared = [one for one in cases[0] if all(one in other for other in cases[1:])]
    if not shared:
        yield tree
        return
    yield from shared
    rests = [[one for one in case if one not in shared] for case in cases]
    # A case that is nothing but what all share is true with it.
    if all(rests):
        yield any_of([all_of(rest) for rest in rests])


def all_of(trees: Iterable[exp.Expr]) -> exp.Expr:
    return reduce(
        lambda one, two: exp.And(this=one, expression=two), [_safe(tree) for tree in trees]
    )


def any_of(trees: Iterable[exp.Expr]) -> exp.Expr:
    return reduce(
        lambda one, two: exp.Or(this=one, expression=two), [_safe(tree) for tree in trees]
    )


def _safe(tree: exp.Expr) -> exp.Expr:
    copy = tree.copy()
    return exp.Paren(this=copy) if isinstance(copy, exp.And | exp.Or) else copy


def sides(tree: exp.Expr) -> tuple[exp.Expr, exp.Expr, bool] | None:
    """The two sides of an equality and whether NULLs are equal in it; None for anything else."""
    if isinstance(tree, exp.EQ | exp.NullSafeEQ):
        return bare(tree.this), bare(tree.expression), isinstance(tree, exp.NullSafeEQ)
    return None


def pairing(
    tree: exp.Expr, left: Collection[str], right: Collection[str]
) -> tuple[exp.Expr, exp.Expr, bool] | None:
    """The equality as (of the left, of the right, NULLs are equal), if it is one between them."""
    both = sides(tree)
    if both is None or has_query(tree):
        return None
    one, two, null_safe = both
    reads_one, reads_two = set(columns_of(one)), set(columns_of(two))
    if not reads_one or not reads_two:
        return None
    if reads_one <= set(left) and reads_two <= set(right):
        return one, two, null_safe
    if reads_one <= set(right) and reads_two <= set(left):
        return two, one, null_safe
    return None


def has_query(tree: exp.Expr) -> bool:
    return any(isinstance(node, exp.Query) for node in outside_queries(tree))


# NULL whenever one of their operands is NULL.
_STRICT = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.Like,
    exp.ILike,
    exp.RegexpLike,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.IntDiv,
    exp.Mod,
    exp.Neg,
    exp.Not,
    exp.Paren,
    exp.Cast,
    exp.Between,
)


def rejects_nulls_of(tree: exp.Expr, columns: Collection[str]) -> bool:
    """Whether the condition is never true of a row in which all of the columns are NULL."""
    tree = bare(tree)
    if isinstance(tree, exp.And):
        return any(rejects_nulls_of(one, columns) for one in (tree.this, tree.expression))
    if isinstance(tree, exp.Or):
        return all(rejects_nulls_of(one, columns) for one in (tree.this, tree.expression))
    if isinstance(tree, exp.Not) and isinstance(bare(tree.this), exp.Is):
        test = bare(tree.this)
        return isinstance(test.expression, exp.Null) and _is_null_with(test.this, columns)
    return _is_null_with(tree, columns)


def _is_null_with(tree: exp.Expr, columns: Collection[str]) -> bool:
    """Whether the expression is NULL where all of the columns are."""
    if isinstance(tree, exp.Column):
        return tree.parts[0].name in columns
    if isinstance(tree, exp.Between):
        return _is_null_with(tree.this, columns)
    if isinstance(tree, exp.In):
        return not tree.args.get("query") and _is_null_with(tree.this, columns)
    if isinstance(tree, exp.Cast | exp.Not | exp.Neg | exp.Paren):
        return _is_null_with(tree.this, columns)
    if isinstance(tree, _STRICT):
        return any(_is_null_with(one, columns) for one in (tree.this, tree.expression))
    return False
