"""Subqueries whose rows are planned already: joined to the rows of the query around them.

Each function takes the relation around, and the inner rows with the conditions by which they hang
on it. It gives the relation with the inner rows joined: as partners that are only asked for, or
with a value for each row, as a tree over the columns of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tidelock.derive.algebra.builders import conjunction, filtered, is_same_type, passing, type_of
from tidelock.derive.algebra.operators import (
    Aggregate,
    Distinct,
    Join,
    Measure,
    Named,
    Operator,
    OuterJoin,
    Select,
)
from tidelock.derive.sql.aggregates import Grouping, aggregate
from tidelock.derive.sql.columns import check_local, with_columns
from tidelock.derive.sql.properties import is_one_row, is_row_at_most, keys, required
from tidelock.derive.sql.scopes import Planning, Relation
from tidelock.errors import InvalidExpression
from tidelock.model.sql.functions import NULL_OF_NOTHING, OF_NOTHING
from tidelock.model.sql.predicates import pairing
from tidelock.model.sql.trees import column, columns_of, expression, substitute, text_of


@dataclass(frozen=True)
class Inner:
    """The rows of a subquery: its relation, what it gives, and its conditions on the outside."""

    relation: Relation
    output: tuple[exp.Expr, ...]
    correlated: tuple[exp.Expr, ...]


# Partners that are only asked for --------------------------------------------------------------


def partners(
    planning: Planning, relation: Relation, inner: Inner, more: Sequence[exp.Expr], *, negated: bool
) -> Relation:
    conditions = [*inner.correlated, *more]
    for one in conditions:
        check_local(planning, one, relation.operator, inner.relation.operator)
    operator = OuterJoin(
        relation.operator,
        inner.relation.operator,
        "anti" if negated else "semi",
        condition=conjunction(conditions),
    )
    return relation.over(operator)


def not_in(
    planning: Planning, relation: Relation, inner: Inner, equalities: Sequence[exp.EQ]
) -> Relation:
    """The rows whose value is not among the inner ones; a NULL among them makes that unknown."""
    if _no_nulls(planning, relation, inner, equalities):
        return partners(planning, relation, inner, equalities, negated=True)
    if inner.correlated or len(equalities) > 1:
        # A row that may be equal, because NULL may be anything, counts as one that is.
        maybe = [perhaps(one) for one in equalities]
        return partners(planning, relation, inner, maybe, negated=True)
    (equality,) = equalities
    operator, (value,) = with_columns(planning, relation.operator, [equality.this])
    without = partners(
        planning,
        relation.over(operator),
        inner,
        [exp.EQ(this=column(value), expression=equality.expression.copy())],
        negated=True,
    )
    answers = _answers(planning, inner, equality.expression)
    some, null = answers.output
    condition = expression(f"NOT `{some}` OR (NOT `{value}` IS NULL AND NOT `{null}`)")
    return relation.over(filtered(Join(without.operator, answers), [condition]))


def perhaps(equality: exp.EQ) -> exp.Expr:
    """Whether the two may be equal: true also where that is unknown."""
    truth = exp.Boolean(this=True)
    return exp.Anonymous(this="coalesce", expressions=[equality.copy(), truth])


def _answers(planning: Planning, inner: Inner, value: exp.Expr) -> Operator:
    """One row: whether the subquery gives a row at all, and whether it gives a NULL.

    Counts change with every row. The answers are the distinct ones of them, so that whoever asks
    for these notices nothing until they change.
    """
    operator, (name,) = with_columns(planning, inner.relation.operator, [value])
    # The rows are read a second time, under another name.
    copy = planning.fresh(planning.types.get(name))
    rows = Select(operator, (Named(copy, f"`{name}`", (name,)),))
    every = Measure(planning.fresh("BIGINT"), "count", "count(*)", ())
    known = Measure(planning.fresh("BIGINT"), "count", f"count(`{copy}`)", (copy,), f"`{copy}`")
    counts = Aggregate(rows, (), (every, known))
    some, null = planning.fresh("BOOLEAN"), planning.fresh("BOOLEAN")
    answers = (
        Named(some, f"`{every.name}` > 0", (every.name,)),
        Named(null, f"`{every.name}` > `{known.name}`", (every.name, known.name)),
    )
    return Distinct(Select(counts, answers))


def _no_nulls(
    planning: Planning, relation: Relation, inner: Inner, equalities: Sequence[exp.EQ]
) -> bool:
    solid = required(relation.operator, planning)
    solid |= required(inner.relation.operator, planning)
    return all(
        isinstance(side, exp.Column) and len(side.parts) == 1 and side.name in solid
        for one in equalities
        for side in (one.this, one.expression)
    )


# Values ----------------------------------------------------------------------------------------


def exists(
    planning: Planning, relation: Relation, inner: Inner, more: Sequence[exp.Expr]
) -> tuple[Relation, exp.Expr]:
    count = exp.Anonymous(this="count", expressions=[exp.Star()])
    counted = Inner(inner.relation, (count,), (*inner.correlated, *more))
    relation, (value,) = aggregated(planning, relation, counted)
    return relation, exp.GT(this=value, expression=exp.Literal.number(0))


def single(
    planning: Planning,
    relation: Relation,
    node: exp.Expr,
    rows: Relation,
    *,
    distinct: bool = False,
) -> tuple[Relation, exp.Expr]:
    """The value in the one row that there is, or NULL if there is none."""
    if len(rows.visible) != 1:
        raise not_one_column(planning, node)
    operator = rows.operator
    if not is_row_at_most(operator, planning):
        value = column(rows.visible[0].column)
        only = Inner(rows, (_only_row(value, distinct),), ())
        relation, (found,) = aggregated(planning, relation, only)
        return relation, found
    joined: Join | OuterJoin = (
        Join(relation.operator, operator)
        if is_one_row(operator)
        else OuterJoin(relation.operator, operator, "left")
    )
    value = column(rows.visible[0].column)
    return relation.over(joined), value


def not_one_column(planning: Planning, node: exp.Expr) -> Exception:
    return planning.error(
        InvalidExpression, node, "A subquery that is used as a value must give one column."
    )


_SEVERAL = "A subquery that is used as a value gives several rows."


def _only_row(value: exp.Expr, distinct: bool) -> exp.Expr:
    """The value in the only (distinct) row; several rows stop the query, as they do in Spark."""
    text = text_of(value)
    rows = f"count(DISTINCT named_struct('v', {text}))" if distinct else "count(*)"
    sql = f"CASE WHEN {rows} > 1 THEN raise_error('{_SEVERAL}') ELSE max({text}) END"
    return expression(sql).copy()


def looked_up(
    planning: Planning, relation: Relation, inner: Inner, *, distinct: bool
) -> tuple[Relation, exp.Expr]:
    """A value of the one row whose key the query around gives."""
    pairs = _pairs(planning, relation, inner)
    given = {two.name for _, two, _ in pairs or [] if isinstance(two, exp.Column)}
    if not any(key <= given for key in keys(inner.relation.operator, planning)):
        only = tuple(_only_row(one, distinct) for one in inner.output)
        relation, (value,) = aggregated(
            planning, relation, Inner(inner.relation, only, inner.correlated)
        )
        return relation, value
    operator, (name,) = with_columns(planning, inner.relation.operator, inner.output)
    # A row that is not there gives NULL, whatever the value is computed from.
    copy = planning.fresh(planning.types.get(name))
    found = Select(operator, (*passing(operator.output), Named(copy, f"`{name}`", (name,))))
    condition = conjunction(inner.correlated)
    joined = OuterJoin(relation.operator, found, "left", condition=condition)
    return relation.over(joined), column(copy)


def aggregated(
    planning: Planning, relation: Relation, inner: Inner
) -> tuple[Relation, list[exp.Expr]]:
    """Join aggregates of the inner rows; gives their values, as trees over the relation."""
    if not inner.correlated:
        result, values = aggregate(planning, inner.relation, Grouping(()), inner.output)
        for one in values:
            check_local(planning, one, relation.operator, result.operator)
        joined = Join(relation.operator, result.operator)
        return relation.over(joined), values
    pairs = _pairs(planning, relation, inner)
    if pairs is None:
        rows, equal = _by_values(planning, relation, inner)
    else:
        operator, names = with_columns(
            planning, inner.relation.operator, [two for _, two, _ in pairs]
        )
        rows = inner.relation.over(operator)
        equal = [
            (exp.NullSafeEQ if equal_nulls else exp.EQ)(this=one.copy(), expression=column(name))
            for (one, _, equal_nulls), name in zip(pairs, names, strict=True)
        ]
    groups = [one.expression.name for one in equal]
    result, values = aggregate(planning, rows, Grouping(()), inner.output, extra=groups)
    assert isinstance(result.operator, Aggregate)
    nothing = _of_nothing(planning, result.operator, inner)
    values = [substitute(value, nothing) for value in values]
    for one in (*values, *equal):
        check_local(planning, one, relation.operator, result.operator)
    joined_left = OuterJoin(
        relation.operator, result.operator, "left", condition=conjunction(equal)
    )
    return relation.over(joined_left), values


def _of_nothing(planning: Planning, operator: Aggregate, inner: Inner) -> dict[str, exp.Expr]:
    """What the measures are where there is no group."""
    meaning: dict[str, exp.Expr] = {}
    for one in operator.measures:
        if one.function in OF_NOTHING:
            sql = f"coalesce(`{one.name}`, {OF_NOTHING[one.function]})"
            meaning[one.name] = expression(sql)
        elif one.function not in NULL_OF_NOTHING:
            planning.refuse(inner.output[0], "what the function gives for no rows is not known")
    return meaning


def _pairs(
    planning: Planning, relation: Relation, inner: Inner
) -> list[tuple[exp.Expr, exp.Expr, bool]] | None:
    """The conditions as equalities of one type, outside and inside; None if they are not."""
    types = planning.types
    found = []
    for one in inner.correlated:
        pair = pairing(one, relation.operator.output, inner.relation.operator.output)
        if pair is None:
            return None
        if not is_same_type(type_of(pair[0], types), type_of(pair[1], types)):
            return None
        found.append(pair)
    return found


def _by_values(
    planning: Planning, relation: Relation, inner: Inner
) -> tuple[Relation, list[exp.Expr]]:
    """The inner rows once for each combination of the outer values that they are asked for."""
    own = set(inner.relation.operator.output)
    outside = [name for name in columns_of(*inner.correlated) if name not in own]
    for one in inner.correlated:
        check_local(planning, one, relation.operator, inner.relation.operator)
    copies = {name: planning.fresh(planning.types.get(name)) for name in outside}
    values = Distinct(
        Select(
            relation.operator,
            tuple(Named(copy, f"`{name}`", (name,)) for name, copy in copies.items()),
        )
    )
    meaning: dict[str, exp.Expr] = {name: column(copy) for name, copy in copies.items()}
    conditions = [substitute(one, meaning) for one in inner.correlated]
    joined = Join(values, inner.relation.operator, condition=conjunction(conditions))
    keys: list[exp.Expr] = [
        exp.NullSafeEQ(this=column(name), expression=column(copy)) for name, copy in copies.items()
    ]
    return inner.relation.over(joined), keys
