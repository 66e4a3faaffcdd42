"""What GROUP BY names: columns, aliases and positions of the select list, sets of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from sqlglot import exp

from tidelock.derive.sql.aggregates import Grouping
from tidelock.derive.sql.calls import has_aggregate
from tidelock.derive.sql.scopes import Planning, Scope, translate
from tidelock.derive.sql.selections import at_position
from tidelock.errors import InvalidExpression
from tidelock.model.names import fold
from tidelock.model.sql.predicates import has_query
from tidelock.model.sql.trees import bare

SETS_MAX = 64
Keys = tuple[exp.Expr, ...]


def plan_grouping(
    planning: Planning, group: exp.Group, selected: Sequence[exp.Expr], scope: Scope
) -> Grouping:
    """The groups of a query. `selected` is its select list, over the columns of `scope`."""
    if group.args.get("all") is True:
        named = [*scope.aliases, *(fold(one.name or "") for one in scope.relation.visible)]
        if group.expressions or "all" in named:
            planning.refuse(group, "GROUP BY all, where all is a name, is not kept by delta")
        return Grouping(_distinct(tree for tree in selected if not has_aggregate(tree)))
    if group.args.get("all") is False or group.args.get("totals"):
        planning.refuse(group, "this form of GROUP BY is not kept by delta")
    elements = _elements(planning, group)
    plain = not any(isinstance(one, exp.Rollup | exp.Cube | exp.GroupingSets) for one in elements)
    written = [key for one in group.expressions for key in _leaves(one)]
    resolved = [_resolve(planning, key, selected, scope) for key in written]
    keys = _distinct(resolved)
    if plain:
        return Grouping(keys)
    meaning = list(zip(written, resolved, strict=True))
    sets = []
    for one in _combined(elements):
        trees = [_meaning_of(planning, key, meaning, selected, scope) for key in one]
        if not all(tree in keys for tree in trees):
            raise planning.error(
                InvalidExpression, group, "A grouping set holds what is not in GROUP BY. Add it."
            )
        sets.append(tuple(sorted({keys.index(tree) for tree in trees})))
        if len(sets) > SETS_MAX:
            planning.refuse(group, f"more than {SETS_MAX} grouping sets are not kept by delta")
    # Only one set of nothing: a plain aggregate, which has a row of no rows as well.
    if sets == [()]:
        return Grouping(())
    if not any(sets):
        planning.refuse(group, "several empty grouping sets are not kept by delta")
    return Grouping(keys, tuple(sets))


def _elements(planning: Planning, group: exp.Group) -> list[exp.Expr]:
    """The elements as they count; those behind the columns (WITH ROLLUP, ...) in their place."""
    behind = [
        one for name in ("rollup", "cube", "grouping_sets") for one in group.args.get(name) or []
    ]
    if not behind:
        return list(group.expressions)
    if len(behind) > 1:
        planning.refuse(group, "this form of GROUP BY is not kept by delta")
    (only,) = behind
    if isinstance(only, exp.GroupingSets):
        return [only]
    return [type(only)(expressions=[one.copy() for one in group.expressions])]


def _resolve(
    planning: Planning, node: exp.Expr, selected: Sequence[exp.Expr], scope: Scope
) -> exp.Expr:
    tree = at_position(planning, node, selected, "GROUP BY")
    tree = bare(translate(planning, node, scope) if tree is None else tree)
    if has_aggregate(tree):
        raise planning.error(
            InvalidExpression, node, "GROUP BY cannot hold an aggregate. Use a query around."
        )
    if has_query(tree):
        planning.refuse(node, "a subquery inside of GROUP BY is not kept by delta")
    return tree


def _meaning_of(
    planning: Planning,
    node: exp.Expr,
    meaning: Sequence[tuple[exp.Expr, exp.Expr]],
    selected: Sequence[exp.Expr],
    scope: Scope,
) -> exp.Expr:
    for written, tree in meaning:
        if written == node:
            return tree
    return _resolve(planning, node, selected, scope)


def _distinct(trees: Iterator[exp.Expr] | Sequence[exp.Expr]) -> Keys:
    kept: list[exp.Expr] = []
    for tree in trees:
        tree = bare(tree)
        if tree not in kept:
            kept.append(tree)
    return tuple(kept)


def _leaves(element: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(element, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        for one in element.expressions:
            yield from _leaves(one)
    else:
        yield bare(element)


def _combined(elements: Sequence[exp.Expr]) -> Iterator[Keys]:
    """The sets that the elements of GROUP BY give together: one choice of each."""
    for choice in product(*(list(_sets_of(one)) for one in elements)):
        yield tuple(key for part in choice for key in part)


def _sets_of(element: exp.Expr) -> Iterator[Keys]:
    if isinstance(element, exp.Rollup):
        parts = [tuple(_leaves(one)) for one in element.expressions]
        for length in range(len(parts), -1, -1):
            yield tuple(key for part in parts[:length] for key in part)
    elif isinstance(element, exp.Cube):
        parts = [tuple(_leaves(one)) for one in element.expressions]
        for chosen in product((True, False), repeat=len(parts)):
            taken = (part for part, yes in zip(parts, chosen, strict=True) if yes)
            yield tuple(key for part in taken for key in part)
    elif isinstance(element, exp.GroupingSets):
        for one in element.expressions:
            yield from _sets_of(one)
    else:
        yield tuple(_leaves(element))
