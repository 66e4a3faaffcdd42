"""WHERE and HAVING, and the subqueries in expressions: every one becomes a join.

    x IN (..), EXISTS (..)       semi join, as a condition of its own
    NOT EXISTS (..)              anti join
    x NOT IN (..)                anti join; where NULLs are possible, also a look at how many there
                                 are: `x NOT IN` nothing is true, among NULLs it is never true
    an aggregate                 join with the one row of it
    an aggregate that reads      left join with one row for each of these values; a count that
    columns of the query around  finds nothing there is 0 and not NULL
    EXISTS or IN inside of       as a count that is greater than 0; under a NOT of those that may
    another condition            be equal, for what is unknown is not true there either
    EXISTS or IN of an           as its HAVING, and as a comparison with its one row
    aggregate of everything

    a value of one row           as the greatest of one; several rows stop the query
    groups that read columns     grouped by these columns as well, which must be equal to something
    of the query around          inside

Columns of the query around anywhere but in the WHERE of the subquery are obstacles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from tidelock.derive.algebra.builders import filtered
from tidelock.derive.sql.calls import has_aggregate, has_window, is_generator
from tidelock.derive.sql.columns import check_local, check_scalar, with_columns
from tidelock.derive.sql.from_clause import plan_from, with_ctes
from tidelock.derive.sql.scopes import Ctes, Planning, Relation, Scope, Visible, translate
from tidelock.derive.sql.selections import item_tree, select_items
from tidelock.derive.sql.subqueries.decorrelation import (
    Inner,
    aggregated,
    exists,
    looked_up,
    not_in,
    not_one_column,
    partners,
    perhaps,
    single,
)
from tidelock.errors import InvalidExpression
from tidelock.model.names import fold
from tidelock.model.sql.predicates import all_of, conjuncts, has_query
from tidelock.model.sql.trees import (
    bare,
    column,
    columns_of,
    outside_queries,
    rewrite,
)


def plan_rows(
    planning: Planning, select: exp.Select, ctes: Ctes, outer: Scope | None
) -> tuple[Relation, list[exp.Expr]]:
    """FROM and WHERE, and the conditions among them that read columns of the query around."""
    relation, correlated = plan_from(planning, select, ctes, outer)
    where = select.args.get("where")
    trees = [] if where is None else conjuncts(_translated(planning, where, relation, outer))
    there = set(relation.operator.output)
    own = []
    for tree in trees:
        if set(columns_of(tree)) <= there:
            own.append(tree)
        elif has_query(tree):
            planning.refuse(tree, "a condition on the query around holds a subquery itself")
        else:
            correlated.append(tree)
    return keep(planning, relation, own, ctes, outer), correlated


def _translated(
    planning: Planning, where: exp.Expr, relation: Relation, outer: Scope | None
) -> exp.Expr:
    tree = translate(planning, where.this, Scope(relation, outer))
    if has_aggregate(tree) or has_window(tree):
        raise planning.error(
            InvalidExpression,
            where,
            "WHERE cannot hold aggregates or windows. Use HAVING or QUALIFY, or a query around.",
        )
    return tree


def keep(
    planning: Planning,
    relation: Relation,
    conditions: Sequence[exp.Expr],
    ctes: Ctes,
    outer: Scope | None,
) -> Relation:
    """The rows for which all of the conditions are true, with subqueries in them joined."""
    plain = [one for one in conditions if not has_query(one)]
    for one in plain:
        check_scalar(planning, one, relation.operator)
    operator = filtered(relation.operator, plain)
    result = relation.over(operator)
    subqueries = _Subqueries(planning, ctes, outer)
    for one in conditions:
        if one not in plain:
            result = subqueries.keep(result, one)
    return result


def lift(
    planning: Planning,
    relation: Relation,
    trees: Sequence[exp.Expr],
    ctes: Ctes,
    outer: Scope | None,
) -> tuple[Relation, list[exp.Expr]]:
    """The relation with a column for each subquery in the trees, and the trees that read these."""
    subqueries = _Subqueries(planning, ctes, outer)
    rewritten = []
    for tree in trees:
        relation, changed = subqueries.lift(relation, tree, only_truth=False)
        rewritten.append(changed)
    return relation, rewritten


def answer(
    planning: Planning,
    relation: Relation,
    conditions: Sequence[exp.Expr],
    ctes: Ctes,
    outer: Scope | None,
) -> tuple[Relation, list[exp.Expr]]:
    """As `lift`, of conditions of an outer join."""
    # There Spark takes unknown for false below a NOT as well, unlike everywhere else.
    subqueries = _Subqueries(planning, ctes, outer, standard=False)
    rewritten = []
    for one in conditions:
        relation, changed = subqueries.lift(relation, one, only_truth=True)
        rewritten.append(changed)
    return relation, rewritten


@dataclass(frozen=True)
class _Subqueries:
    planning: Planning
    ctes: Ctes
    outer: Scope | None
    standard: bool = True
    """Whether Spark answers NOT IN here as SQL says."""

    # A condition of its own ------------------------------------------------------------------

    def keep(self, relation: Relation, tree: exp.Expr) -> Relation:
        negated = isinstance(tree, exp.Not)
        test = bare(tree.this) if negated else tree
        query = _query_of(test)
        if query is not None and self._of_everything(query) is None:
            if isinstance(test, exp.Exists):
                inner = self._inner(query, relation, with_output=False)
                return partners(self.planning, relation, inner, [], negated=negated)
            assert isinstance(test, exp.In)
            inner, equalities = self._in(relation, test)
            if negated:
                return not_in(self.planning, relation, inner, equalities)
            return partners(self.planning, relation, inner, equalities, negated=False)
        relation, changed = self.lift(relation, tree, only_truth=True)
        return Relation(
            filtered(relation.operator, conjuncts(changed)), relation.visible, relation.hidden
        )

    def _of_everything(self, query: exp.Expr) -> tuple[exp.Select, Ctes] | None:
        """The SELECT that makes one row of all rows, even of none; HAVING may take that away."""
        select, ctes = _plain(self.planning, query, self.ctes, "having")
        if select is None:
            return None
        if select.args.get("having") is None and not any(map(has_aggregate, select.expressions)):
            return None
        return select, ctes

    def _in(self, relation: Relation, test: exp.In) -> tuple[Inner, list[exp.EQ]]:
        """The rows of the subquery of an IN, and the equalities that it asks for."""
        inner = self._inner(test.args["query"], relation, with_output=True)
        return inner, self._equalities(relation, test, inner.output)

    def _equalities(
        self, relation: Relation, test: exp.In, output: Sequence[exp.Expr]
    ) -> list[exp.EQ]:
        value = bare(test.this)
        values = value.expressions if isinstance(value, exp.Tuple) else [value]
        if len(values) != len(output):
            raise self.planning.error(
                InvalidExpression,
                test,
                f"{len(values)} values are looked for among {len(output)} columns. "
                "Give as many columns as values.",
            )
        for one in values:
            check_local(self.planning, one, relation.operator)
            if has_query(one):
                self.planning.refuse(one, "a subquery as a value of IN is not kept by delta")
        return [
            exp.EQ(this=bare(one).copy(), expression=two.copy())
            for one, two in zip(values, output, strict=True)
        ]

    # Inside of another expression ------------------------------------------------------------

    def lift(
        self, relation: Relation, tree: exp.Expr, *, only_truth: bool
    ) -> tuple[Relation, exp.Expr]:
        """Join every subquery of the tree. `only_truth`: false and unknown are as good."""
        found: list[tuple[exp.Expr, exp.Expr]] = []
        answers: dict[exp.Expr, bool | None] = {}
        for node in outside_queries(tree):
            asked = _query_of(node) is not None
            wanted = _wanted(node, tree) if asked and only_truth else None
            # One answer stands for all places where it is asked.
            in_ = asked and isinstance(node, exp.In)
            if in_ and answers.setdefault(node, wanted) is not wanted:
                self._refuse_unknown(node)
            if any(node == original for original, _ in found):
                continue
            if asked:
                relation, value = self._test(relation, node, wanted)
            elif not isinstance(node, exp.Query) or _is_of_test(node):
                continue
            elif isinstance(node, exp.Subquery) and not isinstance(
                node.parent, exp.SubqueryPredicate
            ):
                relation, value = self._scalar(relation, node)
            else:
                self.planning.refuse(node, "a subquery in this place is not kept by delta")
            found.append((node, value))

        def change(node: exp.Expr) -> exp.Expr | None:
            for original, value in found:
                if node == original:
                    return exp.Paren(this=value.copy())
            return None

        return relation, rewrite(tree, change)

    def _refuse_unknown(self, node: exp.Expr) -> NoReturn:
        # Spark itself takes unknown for false in some places.
        self.planning.refuse(node, "the answer of IN is used where NULL counts")

    def _test(
        self, relation: Relation, node: exp.Expr, wanted: bool | None
    ) -> tuple[Relation, exp.Expr]:
        """The answer of EXISTS or IN. `wanted`: which answer makes the whole true, so that unknown
        is as good as the other one; None if unknown is an answer of its own."""
        query = _query_of(node)
        assert query is not None
        if isinstance(node, exp.In) and not (wanted or (wanted is False and self.standard)):
            self._refuse_unknown(node)
        everything = self._of_everything(query)
        if everything is not None:
            return self._test_everything(relation, node, *everything)
        if isinstance(node, exp.In):
            inner, equalities = self._in(relation, node)
            tests = equalities if wanted else [perhaps(one) for one in equalities]
            return exists(self.planning, relation, inner, tests)
        inner = self._inner(query, relation, with_output=False)
        return exists(self.planning, relation, inner, [])

    def _test_everything(
        self, relation: Relation, node: exp.Expr, select: exp.Select, ctes: Ctes
    ) -> tuple[Relation, exp.Expr]:
        with_output = isinstance(node, exp.In)
        scope = Scope(relation, self.outer)
        inner = self._plan_inner(select, ctes, scope, with_output=with_output)
        having = self._having(select, inner, scope)
        output = tuple(_conditional(having, one) for one in inner.output)
        asked = Inner(inner.relation, (*having, *output), inner.correlated)
        if not asked.output:
            return relation, exp.Boolean(this=True)
        result, values = aggregated(self.planning, relation, asked)
        there, given = values[: len(having)], values[len(having) :]
        no = exp.Boolean(this=False)
        answer: exp.Expr = exp.Boolean(this=True)
        if there:
            answer = exp.Anonymous(this="coalesce", expressions=[*there, no])
        if isinstance(node, exp.In):
            equalities = self._equalities(relation, node, [exp.Paren(this=one) for one in given])
            equal = all_of(equalities)
            answer = _conditional([answer], equal, no) if there else equal
        return result, answer

    def _having(self, select: exp.Select, inner: Inner, scope: Scope) -> list[exp.Expr]:
        node = select.args.get("having")
        if node is None:
            return []
        aliases = {
            fold(one.alias): (translate(self.planning, one.this, Scope(inner.relation, scope)),)
            for one in select.expressions
            if isinstance(one, exp.Alias)
        }
        tree = translate(self.planning, node.this, Scope(inner.relation, scope, aliases))
        if has_query(tree):
            self.planning.refuse(node, "a subquery in the HAVING of a subquery")
        return [tree]

    def _scalar(self, relation: Relation, node: exp.Subquery) -> tuple[Relation, exp.Expr]:
        scope = Scope(relation, self.outer)
        everything = self._of_everything(node)
        if everything is not None:
            inner = self._plan_inner(*everything, scope, with_output=True)
            if len(inner.output) != 1:
                raise not_one_column(self.planning, node)
            having = self._having(everything[0], inner, scope)
            output = (_conditional(having, inner.output[0]),)
            asked = Inner(inner.relation, output, inner.correlated)
            relation, (value,) = aggregated(self.planning, relation, asked)
            return relation, value
        select, ctes = _plain(self.planning, node, self.ctes)
        if select is None:
            rows = self.planning.plan_query(self.planning, node, self.ctes, scope)
            return single(self.planning, relation, node, rows)
        inner = self._plan_inner(select, ctes, scope, with_output=True)
        if len(inner.output) != 1:
            raise not_one_column(self.planning, node)
        distinct = select.args.get("distinct") is not None
        if inner.correlated:
            return looked_up(self.planning, relation, inner, distinct=distinct)
        operator, (name,) = with_columns(self.planning, inner.relation.operator, inner.output)
        rows = Relation(operator, (Visible(None, None, name),))
        return single(self.planning, relation, node, rows, distinct=distinct)

    def _inner(self, node: exp.Expr, relation: Relation, *, with_output: bool) -> Inner:
        """The rows of a subquery that is only asked whether it has some."""
        scope = Scope(relation, self.outer)
        select, ctes = _plain(self.planning, node, self.ctes)
        if select is not None:
            return self._plan_inner(select, ctes, scope, with_output=with_output)
        outward: list[exp.Expr] = []
        rows = self.planning.plan_query(self.planning, node, self.ctes, scope, outward)
        given = tuple(column(one.column) for one in rows.visible)
        return Inner(rows, given, tuple(outward))

    def _plan_inner(
        self, select: exp.Select, ctes: Ctes, scope: Scope, *, with_output: bool
    ) -> Inner:
        relation, correlated = plan_rows(self.planning, select, ctes, scope)
        output: list[exp.Expr] = []
        if with_output:
            for item in select_items(self.planning, select, relation):
                tree = bare(item_tree(self.planning, item, Scope(relation, scope)))
                if has_query(tree):
                    self.planning.refuse(item.node, "a subquery in what a subquery gives")
                output.append(tree)
        return Inner(relation, tuple(output), tuple(correlated))


def _is_of_test(node: exp.Query) -> bool:
    """Whether the query belongs to an EXISTS or an IN, and is joined with it."""
    parent = node.parent
    return isinstance(parent, exp.Exists) or (
        isinstance(parent, exp.In) and parent.args.get("query") is node
    )


def _query_of(node: exp.Expr) -> exp.Expr | None:
    """The query of an EXISTS or an IN."""
    query = None
    if isinstance(node, exp.Exists | exp.In):
        query = node.args.get("query" if isinstance(node, exp.In) else "this")
    return query if isinstance(query, exp.Expr) else None


def _wanted(node: exp.Expr, tree: exp.Expr) -> bool | None:
    """Which answer of the node alone can make the whole true; None if unknown may as well."""
    wanted = True
    while node is not tree:
        parent = node.parent
        if isinstance(parent, exp.Not):
            wanted = not wanted
        elif not isinstance(parent, exp.And | exp.Or | exp.Paren):
            return None
        node = parent
    return wanted


def _conditional(
    conditions: Sequence[exp.Expr], value: exp.Expr, otherwise: exp.Expr | None = None
) -> exp.Expr:
    """The value where the condition, if there is one, is true."""
    for one in conditions:
        case = exp.If(this=one.copy(), true=value.copy())
        value = exp.Case(ifs=[case], default=otherwise)
    return value


# What leaves the rows of FROM and WHERE as they are, or their number.
_PLAIN_PARTS = frozenset(
    {"this", "with_", "hint", "from_", "joins", "laterals", "where", "expressions", "windows"}
    | {"distinct", "order", "sort", "cluster", "distribute"}
)


def _plain(
    planning: Planning, node: exp.Expr, ctes: Ctes, *more: str
) -> tuple[exp.Select | None, Ctes]:
    """The SELECT of a subquery that only filters rows, or makes one of all; None for others."""
    while True:
        ctes = with_ctes(planning, node, ctes)
        parts = {part for part, value in node.args.items() if value}
        if not parts <= _PLAIN_PARTS.union(more):
            return None, ctes
        if not isinstance(node, exp.Subquery):
            break
        node = node.this
    if not isinstance(node, exp.Select):
        return None, ctes
    for one in node.expressions:
        item = one.unalias()
        if has_window(one) or isinstance(one, exp.Aliases) or is_generator(item):
            return None, ctes
    return node, ctes
