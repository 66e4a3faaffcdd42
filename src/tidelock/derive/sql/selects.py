"""SELECT: from the rows of its FROM and WHERE to the columns that it gives.

The parts of a query take effect in this order, each over what the one before gives: groups, HAVING,
subqueries in expressions, windows, QUALIFY, generators, the select list, DISTINCT, ORDER BY with
LIMIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from tidelock.derive.algebra.builders import is_same_type, passing, type_of
from tidelock.derive.algebra.operators import Distinct, Named, Operator, Select
from tidelock.derive.sql.aggregates import Grouping, aggregate
from tidelock.derive.sql.calls import has_aggregate, has_window, is_generator
from tidelock.derive.sql.columns import named, with_columns
from tidelock.derive.sql.from_clause import generate, with_ctes
from tidelock.derive.sql.group_by import plan_grouping
from tidelock.derive.sql.order_by import Limit, limit_of, order_nodes, take
from tidelock.derive.sql.scopes import Ctes, Planning, Relation, Scope, Visible, translate
from tidelock.derive.sql.selections import Item, at_position, item_tree, select_items
from tidelock.derive.sql.subqueries.subqueries import keep, lift, plan_rows
from tidelock.derive.sql.windows import named_windows, plan_windows, with_windows_named
from tidelock.errors import InvalidExpression
from tidelock.model.names import fold
from tidelock.model.sql.predicates import conjuncts, has_query, pairing
from tidelock.model.sql.trees import bare, column, columns_of, rewrite

_ROW_PARTS = ("with_", "hint", "from_", "joins", "laterals", "where")
_GROUP_PARTS = ("group", "having", "windows", "qualify", "expressions", "distinct")
_ORDER_PARTS = ("order", "limit", "offset", "sort", "cluster", "distribute")
_KNOWN_PARTS = frozenset((*_ROW_PARTS, *_GROUP_PARTS, *_ORDER_PARTS))


@dataclass
class _Parts:
    """The expressions of a query, which all move together from one relation to the next."""

    items: list[exp.Expr]
    having: list[exp.Expr]
    qualify: list[exp.Expr]
    order: list[exp.Expr]

    def all(self) -> list[exp.Expr]:
        return [*self.items, *self.having, *self.qualify, *self.order]

    def replaced(self, trees: Sequence[exp.Expr]) -> _Parts:
        rest = list(trees)
        cut = [len(self.items), len(self.having), len(self.qualify), len(self.order)]
        lists = []
        for length in cut:
            lists.append(rest[:length])
            rest = rest[length:]
        return _Parts(*lists)


def plan_select(
    planning: Planning,
    select: exp.Select,
    ctes: Ctes,
    outer: Scope | None,
    outward: list[exp.Expr] | None = None,
) -> Relation:
    for name, value in select.args.items():
        if value and name not in _KNOWN_PARTS:
            planning.refuse(select, f"{name.upper().strip('_')} is not kept by delta")
    ctes = with_ctes(planning, select, ctes)
    relation, correlated = plan_rows(planning, select, ctes, outer)
    along: list[str] = []
    if correlated:
        if outward is None:
            _refuse_outer(planning, correlated[0])
        relation, along, conditions = _by_equals(planning, relation, correlated)
        outward += conditions
    items = select_items(planning, select, relation)
    limit = limit_of(planning, select)
    ordered = order_nodes(planning, select, limit)
    grouping, parts, generators = _translate(planning, select, relation, outer, items, ordered)
    if along and not _is_by_groups(grouping, parts, limit, generators):
        _refuse_outer(planning, correlated[0])
    if grouping is not None:
        relation, trees = aggregate(planning, relation, grouping, parts.all(), extra=along)
        parts = parts.replaced(trees)
        having = [one for tree in parts.having for one in conjuncts(tree)]
        relation = keep(planning, relation, having, ctes, outer)
        parts = replace(parts, having=[])
    if any(has_query(tree) for tree in parts.all()):
        relation, trees = lift(planning, relation, parts.all(), ctes, outer)
        parts = parts.replaced(trees)
    if any(has_window(tree) for tree in parts.all()):
        relation, trees = plan_windows(planning, relation, parts.all())
        parts = parts.replaced(trees)
    qualify = [one for tree in parts.qualify for one in conjuncts(tree)]
    relation = keep(planning, relation, qualify, ctes, outer)
    names = [item.name for item in items]
    outputs = parts.items
    if generators:
        relation, names, outputs = _generated(planning, relation, items, outputs, generators)
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        planning.refuse(select, "DISTINCT ON is not kept by delta")
    result, sort_columns = _projected(
        planning, relation, names, outputs, parts.order, along, distinct=distinct is not None
    )
    if limit is None:
        return result
    order = list(zip(sort_columns, ordered, strict=True))
    return take(planning, select, result, order, limit)


# A query around ---------------------------------------------------------------------------------


def _refuse_outer(planning: Planning, tree: exp.Expr) -> NoReturn:
    planning.refuse(tree, "a column of the query around is used in a place that is not kept")


def _by_equals(
    planning: Planning, relation: Relation, correlated: Sequence[exp.Expr]
) -> tuple[Relation, list[str], list[exp.Expr]]:
    """What equals something of the query around as columns of the relation: the relation, these
    columns, and the conditions over them."""
    there = relation.operator.output
    outside, inside = [], []
    for tree in correlated:
        beyond = [name for name in columns_of(tree) if name not in there]
        pair = pairing(tree, beyond, there)
        if pair is None or pair[2]:
            _refuse_outer(planning, tree)
        one, two, _ = pair
        if not is_same_type(type_of(one, planning.types), type_of(two, planning.types)):
            _refuse_outer(planning, tree)
        outside.append(one)
        inside.append(two)
    operator, names = with_columns(planning, relation.operator, inside)
    conditions: list[exp.Expr] = [
        exp.EQ(this=one.copy(), expression=column(name))
        for one, name in zip(outside, names, strict=True)
    ]
    return relation.over(operator), list(dict.fromkeys(names)), conditions


def _is_by_groups(
    grouping: Grouping | None, parts: _Parts, limit: Limit | None, generators: Sequence[int]
) -> bool:
    """Whether every row that is given is one of a group, so that more groups are only more rows."""
    plain = limit is None and not generators and not any(map(has_window, parts.all()))
    return plain and grouping is not None and bool(grouping.keys) and grouping.sets is None


# Names -----------------------------------------------------------------------------------------


def _translate(
    planning: Planning,
    select: exp.Select,
    relation: Relation,
    outer: Scope | None,
    items: Sequence[Item],
    ordered: Sequence[exp.Ordered],
) -> tuple[Grouping | None, _Parts, list[int]]:
    """All expressions over the relation's columns; and which of the items are generators."""
    windows = named_windows(planning, select)
    aliases: dict[str, tuple[exp.Expr, ...]] = {}
    by_output: dict[str, tuple[exp.Expr, ...]] = {}
    trees: list[exp.Expr] = []
    generators: list[int] = []
    for position, item in enumerate(items):
        node = with_windows_named(planning, item.node, windows)
        scope = Scope(relation, outer, dict(aliases))
        call = node.this if isinstance(node, exp.Aliases) else node
        if is_generator(call):
            generators.append(position)
            tree = translate(planning, call, scope)
        else:
            tree = item_tree(planning, replace(item, node=node), scope)
            aliased = item.visible is None and isinstance(item.node.parent, exp.Alias)
            if aliased and item.name is not None:
                aliases[fold(item.name)] = (*aliases.get(fold(item.name), ()), tree)
            if item.name is not None:
                known = by_output.get(fold(item.name), ())
                by_output[fold(item.name)] = (*known, tree)
        trees.append(tree)
    scope = Scope(relation, outer, aliases)
    group = select.args.get("group")
    grouping = None if group is None else plan_grouping(planning, group, trees, scope)
    keys = () if grouping is None else grouping.keys
    having = _condition(planning, select, "having", replace(scope, groups=keys), windows)
    qualify = _condition(planning, select, "qualify", scope, windows)
    by_name = replace(scope, aliases=by_output, aliases_first=True)
    order = [_order_tree(planning, one, trees, by_name, windows) for one in ordered]
    parts = _Parts(trees, having, qualify, order)
    if grouping is None and (having or any(has_aggregate(tree) for tree in parts.all())):
        grouping = Grouping(())
    return grouping, parts, generators


def _condition(
    planning: Planning,
    select: exp.Select,
    part: str,
    scope: Scope,
    windows: dict[str, exp.Window],
) -> list[exp.Expr]:
    node = select.args.get(part)
    if node is None:
        return []
    tree = translate(planning, with_windows_named(planning, node.this, windows), scope)
    if part == "having" and has_window(tree):
        raise planning.error(InvalidExpression, node, "HAVING cannot hold windows. Use QUALIFY.")
    return [tree]


def _order_tree(
    planning: Planning,
    ordered: exp.Ordered,
    selected: Sequence[exp.Expr],
    scope: Scope,
    windows: dict[str, exp.Window],
) -> exp.Expr:
    node = ordered.this
    listed = at_position(planning, node, selected, "ORDER BY")
    if listed is not None:
        return listed
    return translate(planning, with_windows_named(planning, node, windows), scope)


# Columns ---------------------------------------------------------------------------------------


def _generated(
    planning: Planning,
    relation: Relation,
    items: Sequence[Item],
    outputs: Sequence[exp.Expr],
    generators: Sequence[int],
) -> tuple[Relation, list[str | None], list[exp.Expr]]:
    """The relation with the rows of the generator in the select list, and the columns given."""
    if len(generators) > 1:
        raise planning.error(
            InvalidExpression,
            items[generators[1]].node,
            "A select list can hold one generator. Use LATERAL VIEW for the others.",
        )
    (position,) = generators
    item, call = items[position], outputs[position]
    if has_window(call):
        planning.refuse(item.node, "a window inside of a generator is not kept by delta")
    given: list[str] = []
    if isinstance(item.node, exp.Aliases):
        given = [one.name for one in item.node.expressions]
    elif isinstance(item.node.parent, exp.Alias) and item.name is not None:
        given = [item.name]
    operator, found = generate(planning, item.node, call, relation, given)
    names: list[str | None] = [one.name for one in items]
    trees = list(outputs)
    names[position : position + 1] = [shown for shown, _ in found]
    trees[position : position + 1] = [column(name) for _, name in found]
    return relation.over(operator), names, trees


def _projected(
    planning: Planning,
    relation: Relation,
    names: Sequence[str | None],
    trees: Sequence[exp.Expr],
    order: Sequence[exp.Expr],
    along: Sequence[str],
    *,
    distinct: bool,
) -> tuple[Relation, list[str]]:
    """The columns of the select list, those that come along, and those to order by."""
    columns: list[Named] = []
    for tree in trees:
        columns.append(_output(planning, bare(tree), relation.operator, columns))
    more = passing(name for name in along if all(one.name != name for one in columns))
    operator: Operator = Select(relation.operator, (*columns, *more))
    visible = tuple(Visible(name, None, one.name) for name, one in zip(names, columns, strict=True))
    if distinct:
        operator = Distinct(operator)
    over_output = [_over(tree, trees, columns) for tree in order]
    if all(set(columns_of(tree)) <= set(operator.output) for tree in over_output):
        operator, sort_columns = with_columns(planning, operator, over_output)
        return Relation(operator, visible), sort_columns
    if distinct:
        raise planning.error(
            InvalidExpression,
            order[0],
            "With DISTINCT, ORDER BY can only use what is selected. Select it as well.",
        )
    hidden: list[Named] = []
    sort_columns = []
    for tree, over in zip(order, over_output, strict=True):
        if isinstance(over, exp.Column) and over.name in {one.name for one in columns}:
            sort_columns.append(over.name)
            continue
        extra = _output(planning, bare(tree), relation.operator, [*columns, *hidden])
        hidden.append(extra)
        sort_columns.append(extra.name)
    return Relation(Select(relation.operator, (*columns, *hidden)), visible), sort_columns


def _output(planning: Planning, tree: exp.Expr, input_: Operator, taken: Sequence[Named]) -> Named:
    """A column under its own name if it is one that stays, under a new name if not."""
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        name = tree.name
        if name in input_.output and all(one.name != name for one in taken):
            return Named(name, f"`{name}`", (name,))
    return named(planning, planning.fresh(type_of(tree, planning.types)), tree, input_)


def _over(tree: exp.Expr, trees: Sequence[exp.Expr], columns: Sequence[Named]) -> exp.Expr:
    """The tree over the columns of the select list, as far as they tell."""
    given = [bare(one) for one in trees]

    def change(node: exp.Expr) -> exp.Expr | None:
        return column(columns[given.index(node)].name) if node in given else None

    return bare(rewrite(bare(tree), change))
