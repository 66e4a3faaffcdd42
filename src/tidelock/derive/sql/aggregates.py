"""GROUP BY: groups, aggregate functions, grouping sets, and what is computed from them.

The expressions of a query above its groups are rewritten to read the outcome: a part that equals a
group becomes the group's column, an aggregate becomes the column of a measure. What is left then
must read nothing else of a row.

Aggregates whose answer Spark leaves open (an order, a choice among equals) are settled here: lists
are sorted, ties go to the greatest or least value. So the same rows always give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tidelock.derive.algebra.builders import type_of
from tidelock.derive.algebra.operators import Aggregate, GroupingSets, Measure, Operator
from tidelock.derive.sql.calls import called, is_aggregate
from tidelock.derive.sql.columns import check_local, with_columns
from tidelock.derive.sql.scopes import Planning, Relation
from tidelock.errors import InvalidExpression
from tidelock.model.sql.functions import CANONICAL, OF_ARGUMENT_TYPE, RESULT_TYPES, UNSETTLED
from tidelock.model.sql.predicates import has_query
from tidelock.model.sql.trees import (
    bare,
    column,
    columns_of,
    expression,
    function_name,
    rewrite,
    text_of,
)


@dataclass(frozen=True)
class Grouping:
    """What GROUP BY says: the expressions, and which of them each set has; None: it has all."""

    keys: tuple[exp.Expr, ...]
    sets: tuple[tuple[int, ...], ...] | None = None


# Aggregation -----------------------------------------------------------------------------------


def aggregate(
    planning: Planning,
    relation: Relation,
    grouping: Grouping,
    trees: Sequence[exp.Expr],
    *,
    extra: Sequence[str] = (),
) -> tuple[Relation, list[exp.Expr]]:
    """The groups of a relation, and the trees over their columns.

    `extra` are columns of the relation by which it is grouped as well. Of the relation stays
    visible what is a group.
    """
    operator, names = with_columns(planning, relation.operator, grouping.keys)
    shown = names
    if grouping.sets is not None:
        shown = [planning.fresh(planning.types.get(name)) for name in names]
    identity = planning.fresh("BIGINT") if grouping.sets is not None else None
    collected = _Collected(planning, operator, grouping.keys, shown, identity)
    rewritten = [collected.rewritten(tree) for tree in trees]
    measures = tuple(collected.measures.values())
    result: Aggregate | GroupingSets
    if grouping.sets is None:
        result = Aggregate(operator, tuple(dict.fromkeys((*extra, *names))), measures)
    else:
        pairs = tuple(zip(shown, names, strict=True))
        result = GroupingSets(operator, pairs, grouping.sets, measures, identity)
    seen_as = dict(zip(names, shown, strict=True))
    visible, hidden = (
        tuple(replace(one, column=seen_as[one.column]) for one in seen if one.column in seen_as)
        for seen in (relation.visible, relation.hidden)
    )
    for tree, original in zip(rewritten, trees, strict=True):
        _check_grouped(planning, tree, original, grouping, result)
    return Relation(result, visible, hidden), rewritten


def _check_grouped(
    planning: Planning,
    tree: exp.Expr,
    original: exp.Expr,
    grouping: Grouping,
    result: Aggregate | GroupingSets,
) -> None:
    there = set(result.input.output)
    left_over = there.intersection(columns_of(tree)).difference(result.output)
    if not left_over:
        return
    # Spark also sees that `1 + a` is `a + 1`; a text that it may accept is not called wrong here.
    if not left_over <= set(columns_of(*grouping.keys)):
        raise planning.error(
            InvalidExpression,
            original,
            "An expression reads a column that is neither in GROUP BY nor inside of an aggregate. "
            "Add it to GROUP BY, or take an aggregate of it.",
        )
    planning.refuse(original, "an expression is not seen to be made of groups and aggregates")


class _Collected:
    """The measures that expressions ask for, each once."""

    def __init__(
        self,
        planning: Planning,
        input_: Operator,
        keys: Sequence[exp.Expr],
        shown: Sequence[str],
        identity: str | None,
    ) -> None:
        self._planning = planning
        self._input = input_
        self._keys = list(keys)
        self._shown = list(shown)
        self._identity = identity
        self.measures: dict[str, Measure] = {}

    def rewritten(self, tree: exp.Expr) -> exp.Expr:
        return rewrite(tree, self._change)

    def _change(self, node: exp.Expr) -> exp.Expr | None:
        if node in self._keys:
            return column(self._shown[self._keys.index(node)])
        if isinstance(node, exp.Window):
            return self._in_window(node)
        if isinstance(node, exp.Anonymous) and function_name(node) in ("grouping", "grouping_id"):
            return self._grouping(node)
        if is_aggregate(node):
            return self._measure(node)
        return None

    def _in_window(self, window: exp.Window) -> exp.Expr:
        """A window over groups: the function itself stays, what it reads is rewritten."""
        copy = window.copy()
        call = called(copy.this)
        inside = list(call.expressions) if call is not None else []
        inside += [one for name, one in _parts(copy) if name != "this"]
        if isinstance(copy.this, exp.Filter):
            inside.append(copy.this.expression)
        for one in inside:
            one.replace(self.rewritten(one))
        return copy

    def _grouping(self, call: exp.Anonymous) -> exp.Expr:
        if self._identity is None:
            raise self._planning.error(
                InvalidExpression,
                call,
                f"{function_name(call)}() needs GROUPING SETS, CUBE or ROLLUP. Remove it.",
            )
        asked = [bare(one) for one in call.expressions]
        if function_name(call) == "grouping_id":
            if asked and asked != self._keys:
                self._planning.refuse(call, "grouping_id is kept of all groups in their order only")
            return column(self._identity)
        if len(asked) != 1 or asked[0] not in self._keys:
            raise self._planning.error(
                InvalidExpression, call, "grouping() takes one expression of GROUP BY."
            )
        bit = len(self._keys) - 1 - self._keys.index(asked[0])
        shifted = f"shiftright(`{self._identity}`, {bit}) & 1"
        return expression(f"CAST({shifted} AS TINYINT)").copy()

    def _measure(self, node: exp.Expr) -> exp.Expr:
        if has_query(node):
            self._planning.refuse(node, "a subquery inside of an aggregate is not kept by delta")
        check_local(self._planning, node, self._input)
        if any(is_aggregate(one) for one in _inside(node)):
            raise self._planning.error(
                InvalidExpression, node, "An aggregate inside of an aggregate. Use a query around."
            )
        call, outside = settled(self._planning, node)
        text = text_of(call)
        if text not in self.measures:
            self.measures[text] = measure(self._planning, call)
        found = column(self.measures[text].name)
        return found if outside is None else exp.Anonymous(this=outside, expressions=[found])


def _inside(node: exp.Expr) -> Iterator[exp.Expr]:
    """What an aggregate reads, without the call itself."""
    call = called(node)
    for argument in call.expressions if call is not None else []:
        yield from argument.walk()


def _parts(node: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    for name, value in node.args.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, exp.Expr):
                yield name, one


# Single functions ------------------------------------------------------------------------------


def measure(planning: Planning, node: exp.Expr) -> Measure:
    """The aggregate over the columns of the input as a measure with a name of its own."""
    call = called(node)
    assert call is not None
    function = CANONICAL.get(function_name(call), function_name(call))
    arguments = call.expressions
    distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = arguments[0].expressions
    only = arguments[0] if len(arguments) == 1 else None
    if function == "count" and len(arguments) > 1 and not distinct:
        # It counts the rows in which none of them is NULL.
        tests = " OR ".join(f"({text_of(one)}) IS NULL" for one in arguments)
        only = expression(f"CASE WHEN {tests} THEN NULL ELSE 1 END")
    star = isinstance(only, exp.Star)
    condition = next(
        (one.expression.this for one in node.walk() if isinstance(one, exp.Filter)), None
    )
    type_ = RESULT_TYPES.get(function)
    if function in OF_ARGUMENT_TYPE and only is not None:
        type_ = type_of(only, planning.types)
    return Measure(
        planning.fresh(type_),
        function,
        text_of(node),
        columns_of(node),
        None if only is None or star else text_of(only),
        distinct,
        None if condition is None else text_of(condition),
    )


def settled(planning: Planning, node: exp.Expr) -> tuple[exp.Expr, str | None]:
    """The aggregate in a form that has one answer, and a function to apply to it, if any."""
    call = called(node)
    assert call is not None
    name = function_name(call)
    if name in UNSETTLED:
        planning.refuse(node, "the answer depends on the order in which rows arrive")
    name = CANONICAL.get(name, name)
    if name in ("collect_list", "collect_set"):
        planning.note(f"What {name} gives is sorted: Spark leaves its order open.")
        return node, "sort_array"
    if name in ("max_by", "min_by") and len(call.expressions) == 2:
        planning.note(f"Among equals, {name} takes the {name[:3]} value: Spark leaves it open.")
        return _by_both(node), None
    if name == "mode":
        return _least_mode(planning, node, call), None
    if name == "listagg":
        return _ordered_list(planning, node, call), None
    return node, None


def _by_both(node: exp.Expr) -> exp.Expr:
    copy = node.copy()
    call = called(copy)
    assert call is not None
    value, order = call.expressions
    both = exp.Anonymous(this="struct", expressions=[order.copy(), value.copy()])
    known = exp.Not(this=exp.Is(this=exp.Paren(this=order.copy()), expression=exp.Null()))
    call.set("expressions", [value, exp.Case(ifs=[exp.If(this=known, true=both)])])
    return copy


def _least_mode(planning: Planning, node: exp.Expr, call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) != 1 or isinstance(call.expressions[0], exp.Distinct):
        return node
    planning.note("Among equals, mode takes the least value: Spark leaves it open.")
    copy = node.copy()
    inner = called(copy)
    assert inner is not None
    inner.append("expressions", exp.Boolean(this=True))
    return copy


def _ordered_list(planning: Planning, node: exp.Expr, call: exp.Anonymous) -> exp.Expr:
    if not call.expressions or isinstance(call.expressions[0], exp.Distinct):
        planning.refuse(node, "the order of the list is not defined by its values")
    planning.note("What listagg joins is ordered by its values at last: Spark leaves it open.")
    copy = node.copy()
    last = exp.Ordered(this=call.expressions[0].copy(), nulls_first=True)
    within = copy.find(exp.WithinGroup)
    if within is not None:
        within.expression.append("expressions", last)
        return copy
    inner = called(copy)
    assert inner is not None
    order = exp.Order(expressions=[last])
    if inner is copy:
        return exp.WithinGroup(this=copy, expression=order)
    inner.replace(exp.WithinGroup(this=inner.copy(), expression=order))
    return copy
