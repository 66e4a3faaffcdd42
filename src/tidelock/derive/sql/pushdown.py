"""Where conditions are asked: as far below as they can be, and equalities as the keys of joins.

Takes a tree in which joins and conditions stand as they were written, and gives one that means the
same and that has fewer rows in between:

- a condition on one table is asked at the table;
- an equality between two sides of a join becomes a key of it;
- inner joins, commas included, are put in an order in which each is connected to those before it by
  a key, so that pairs of everything with everything are made only where nothing connects;
- an outer join whose padded rows a condition above would drop anyway is an inner one.

The result has the columns of the tree that was given, and perhaps others, in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from tidelock.derive.algebra.builders import conjunction, exactly, filtered, is_same_type
from tidelock.derive.algebra.operators import (
    Aggregate,
    Condition,
    Distinct,
    Generate,
    GroupingSets,
    Join,
    JoinKind,
    Merge,
    Once,
    Operator,
    OuterJoin,
    Scan,
    Select,
    SetOperation,
    Top,
    Window,
)
from tidelock.derive.algebra.unused_columns import whole
from tidelock.derive.sql.columns import with_columns
from tidelock.derive.sql.scopes import Planning
from tidelock.model.sql.predicates import conjuncts, pairing, rejects_nulls_of
from tidelock.model.sql.trees import columns_of, expression, substitute

Trees = Sequence[exp.Expr]


def push(planning: Planning, operator: Operator, conditions: Trees = ()) -> Operator:
    """The rows of the operator for which all of the conditions are true."""
    match operator:
        case Select():
            return _push_select(planning, operator, conditions)
        case Join():
            return _push_join(planning, operator, conditions)
        case OuterJoin():
            return _push_outer(planning, operator, conditions)
        case Aggregate():
            below, above = _by_columns(conditions, operator.groups)
            if not operator.groups:
                below, above = [], list(conditions)
            return filtered(replace(operator, input=push(planning, operator.input, below)), above)
        case Window():
            below, above = _by_columns(conditions, operator.partition)
            return filtered(replace(operator, input=push(planning, operator.input, below)), above)
        case Generate():
            below, above = _by_columns(conditions, operator.input.output)
            return filtered(replace(operator, input=push(planning, operator.input, below)), above)
        case Distinct():
            below_all = push(planning, operator.input, conditions)
            return replace(operator, input=exactly(below_all, operator.output))
        case Top() | GroupingSets():
            return filtered(replace(operator, input=push(planning, operator.input)), conditions)
        case SetOperation():
            # The two sides may have different types, and a condition means one of them.
            left = exactly(push(planning, operator.left), operator.left.output)
            right = exactly(push(planning, operator.right), operator.right.output)
            return filtered(replace(operator, left=left, right=right), conditions)
        case Merge():
            inputs = tuple(exactly(push(planning, one), one.output) for one in operator.inputs)
            return filtered(replace(operator, inputs=inputs), conditions)
        case Once():
            # Its other readers may not ask the same, nor read the same columns.
            kept = planning.kept.get(id(operator))
            if kept is None:
                rows = exactly(push(planning, operator.input), operator.output)
                kept = replace(operator, input=whole(rows))
                planning.kept[id(operator)] = kept
            return filtered(kept, conditions)
        case Scan():
            return filtered(operator, conditions)
        case _:
            raise TypeError(f"{type(operator).__name__} comes of lowering, which comes later")


def _by_columns(
    conditions: Trees, columns: Collection[str]
) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The conditions that read these columns alone, and the others."""
    within: list[exp.Expr] = []
    beyond: list[exp.Expr] = []
    for one in conditions:
        (within if set(columns_of(one)) <= set(columns) else beyond).append(one)
    return within, beyond


def trees_of(condition: Condition | None) -> list[exp.Expr]:
    return [] if condition is None else conjuncts(expression(condition.sql))


def _push_select(planning: Planning, operator: Select, conditions: Trees) -> Operator:
    meaning = {one.name: expression(one.sql) for one in operator.columns}
    below = trees_of(operator.condition)
    for one in conditions:
        below += conjuncts(substitute(one, meaning))
    return Select(push(planning, operator.input, below), operator.columns)


# Inner joins -----------------------------------------------------------------------------------


def _push_join(planning: Planning, operator: Join, conditions: Trees) -> Operator:
    leaves: list[Operator] = []
    pending = list(conditions)
    _flatten(operator, leaves, pending)
    placed = []
    for leaf in leaves:
        own = [one for one in pending if columns_of(one) and _reads_only(one, leaf.output)]
        pending = [one for one in pending if one not in own]
        placed.append(push(planning, leaf, own))
    pending = _distinct(pending)
    parts: list[Operator] = []
    while placed:
        part, placed, pending = _grow(planning, placed[0], placed[1:], pending)
        parts.append(part)
    result = parts[0]
    for part in parts[1:]:
        result, pending = _join(planning, result, part, pending)
    return filtered(result, pending)


def _flatten(operator: Operator, leaves: list[Operator], pending: list[exp.Expr]) -> None:
    if not isinstance(operator, Join):
        leaves.append(operator)
        return
    _flatten(operator.left, leaves, pending)
    _flatten(operator.right, leaves, pending)
    pending += trees_of(operator.condition)
    for position, (left, right) in enumerate(operator.keys):
        sign = "<=>" if position in operator.null_safe else "="
        pending.append(expression(f"`{left}` {sign} `{right}`"))


def _reads_only(tree: exp.Expr, columns: Iterable[str]) -> bool:
    return set(columns_of(tree)) <= set(columns)


def _distinct(trees: Trees) -> list[exp.Expr]:
    kept: list[exp.Expr] = []
    for tree in trees:
        if tree not in kept:
            kept.append(tree)
    return kept


def _grow(
    planning: Planning, start: Operator, others: list[Operator], pending: list[exp.Expr]
) -> tuple[Operator, list[Operator], list[exp.Expr]]:
    """Join to `start` whatever an equality connects; what is left over, and the conditions too."""
    current, rest = start, list(others)
    while True:
        following = next((one for one in rest if _connected(current, one, pending)), None)
        if following is None:
            return current, rest, pending
        rest = [one for one in rest if one is not following]
        current, pending = _join(planning, current, following, pending)


def _connected(left: Operator, right: Operator, pending: Trees) -> bool:
    return any(pairing(one, left.output, right.output) is not None for one in pending)


def _join(
    planning: Planning, left: Operator, right: Operator, pending: list[exp.Expr]
) -> tuple[Operator, list[exp.Expr]]:
    """Join the two by all conditions that they can answer; the others are left over."""
    there = (*left.output, *right.output)
    usable = [one for one in pending if columns_of(one) and _reads_only(one, there)]
    pending = [one for one in pending if one not in usable]
    left, right, keys, null_safe, condition = _with_keys(planning, left, right, usable)
    return Join(left, right, keys, condition, null_safe), pending


def _with_keys(
    planning: Planning, left: Operator, right: Operator, conditions: Trees
) -> tuple[Operator, Operator, tuple[tuple[str, str], ...], tuple[int, ...], Condition | None]:
    """The two sides with columns to join on, and what of the conditions is no equality."""
    ones: list[exp.Expr] = []
    twos: list[exp.Expr] = []
    null_safe: list[int] = []
    others: list[exp.Expr] = []
    for tree in conditions:
        pair = pairing(tree, left.output, right.output)
        if pair is None:
            others.append(tree)
            continue
        one, two, equal_nulls = pair
        if equal_nulls:
            null_safe.append(len(ones))
        ones.append(one)
        twos.append(two)
    left, names_left = with_columns(planning, left, ones)
    right, names_right = with_columns(planning, right, twos)
    keys = tuple(zip(names_left, names_right, strict=True))
    return left, right, keys, tuple(null_safe), conjunction(others)


# Outer joins -----------------------------------------------------------------------------------


def _push_outer(planning: Planning, operator: OuterJoin, conditions: Trees) -> Operator:
    on = trees_of(operator.condition)
    for position, (one, two) in enumerate(operator.keys):
        sign = "<=>" if position in operator.null_safe else "="
        on.append(expression(f"`{one}` {sign} `{two}`"))
    kind = _narrowed(operator, conditions)
    if kind is None:
        return _push_join(planning, Join(operator.left, operator.right), [*conditions, *on])
    to_left: list[exp.Expr] = []
    to_right: list[exp.Expr] = []
    above = list(conditions)
    # Of a side whose every row stays, a condition above can be asked before; of a side whose rows
    # only count as partners, the condition of the join itself.
    if kind in ("left", "semi", "anti"):
        to_left, above = _by_columns(above, operator.left.output)
        to_right, on = _by_columns(on, operator.right.output)
    if kind == "right":
        to_right, above = _by_columns(above, operator.right.output)
    if kind in ("right", "semi"):
        partners, on = _by_columns(on, operator.left.output)
        to_left += partners
    left = push(planning, operator.left, to_left)
    right = push(planning, operator.right, to_right)
    left, right, keys, null_safe, condition = _with_keys(planning, left, right, on)
    types = planning.types
    same = all(is_same_type(types.get(one), types.get(two)) for one, two in keys)
    return filtered(OuterJoin(left, right, kind, keys, condition, null_safe, same), above)


def _narrowed(operator: OuterJoin, conditions: Trees) -> JoinKind | None:
    """The kind of join that gives all rows for which the conditions can be true; None is inner."""
    if operator.kind in ("semi", "anti"):
        return operator.kind
    needs_left = any(rejects_nulls_of(one, operator.left.output) for one in conditions)
    needs_right = any(rejects_nulls_of(one, operator.right.output) for one in conditions)
    keeps_left = operator.kind in ("left", "full") and not needs_right
    keeps_right = operator.kind in ("right", "full") and not needs_left
    if keeps_left and keeps_right:
        return "full"
    if keeps_left:
        return "left"
    return "right" if keeps_right else None
