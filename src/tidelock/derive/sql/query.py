"""From the text of a query to operators.

`parse_view` reads a query against the schemas of a lake. What is wrong with it is an error that
names line and column; what is right but cannot be kept by delta is an obstacle. In doubt it is an
obstacle: the query is then computed anew at each refresh, and never wrongly. Whether a query is
wrong is for the engine to say: `read_view` makes an obstacle of an error, too, and remembers it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from tidelock.derive.algebra.builders import exactly, passing
from tidelock.derive.algebra.laws import check
from tidelock.derive.algebra.operators import (
    Merge,
    Operator,
    Select,
    SetKind,
    SetOperation,
    reads_more,
)
from tidelock.derive.algebra.simplification import tidy
from tidelock.derive.algebra.unused_columns import prune
from tidelock.derive.sql.columns import with_columns
from tidelock.derive.sql.from_clause import lake_table, with_ctes
from tidelock.derive.sql.order_by import limit_of, order_nodes, take
from tidelock.derive.sql.pushdown import push
from tidelock.derive.sql.scopes import (
    Ctes,
    Place,
    Planning,
    Refused,
    Relation,
    Scope,
    Visible,
    translate,
)
from tidelock.derive.sql.selections import check_names
from tidelock.derive.sql.selects import plan_select
from tidelock.derive.sql.subqueries.subqueries import answer, keep
from tidelock.derive.sql.view import Obstacle, View
from tidelock.errors import BrokenInvariant, ColumnNotFound, InvalidExpression, TidelockError
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.calls import is_moment_in_words
from tidelock.model.sql.functions import CLOCK, THE_TIME, why_refused
from tidelock.model.sql.reads import find_reads
from tidelock.model.sql.tables import is_named, tables_in
from tidelock.model.sql.text import QueryText
from tidelock.model.sql.trees import column, function_name, read_query

_SET_KINDS: Mapping[type[exp.SetOperation], SetKind] = {
    exp.Union: "union",
    exp.Intersect: "intersect",
    exp.Except: "except",
}


class _Doubt(Exception):
    """What was read makes no sense; perhaps only to this reader."""

    def __init__(self, error: TidelockError) -> None:
        super().__init__(str(error))
        self.error = error


def read_view(query: str, schemas: Mapping[str, TableSchema]) -> View:
    """As `parse_view`; a query that makes no sense here is left to the engine, with a doubt."""
    try:
        return _parse_view(query, schemas)
    except _Doubt as doubt:
        error = doubt.error
    text = QueryText(query)
    reason = f"the query is not understood, and left to the engine ({error})"
    obstacles = [Obstacle(reason, query, 1, 1)]
    if text.words & CLOCK:
        obstacles.append(Obstacle(THE_TIME, query, 1, 1))
    reads = find_reads(query, schemas, lambda condition, schema: None).reads
    tables = tuple(read.name for read in reads)
    return View(None, (), tables, tuple(obstacles), doubt=error)


def parse_view(query: str, schemas: Mapping[str, TableSchema]) -> View:
    """The query as operators over the tables in `schemas`, or the obstacles to that."""
    try:
        return _parse_view(query, schemas)
    except _Doubt as doubt:
        raise doubt.error from None


@contextmanager
def _doubting(query: str) -> Iterator[None]:
    try:
        yield
    except (InvalidExpression, ColumnNotFound) as error:
        raise _Doubt(error) from None
    except (BrokenInvariant, SqlglotError) as error:
        # A bug of ours, which the reason tells; the engine can compute the query all the same.
        raise _Doubt(InvalidExpression(str(error), query=query)) from error
    except RecursionError:
        deep = "The query is nested too deeply to be read. Split it into several stream tables."
        raise _Doubt(InvalidExpression(deep, query=query)) from None


SCANS_MAX = 12
"""A query that reads more tables than this keeps what it names by WITH and reads several times."""


def _parse_view(
    query: str, schemas: Mapping[str, TableSchema], keep_once: frozenset[Place] = frozenset()
) -> View:
    text = QueryText(query)
    planning = Planning(text, schemas, plan_query, keep, answer, keep_once=keep_once)
    with _doubting(query):
        tree = read_query(text)
        named = sorted(filter(is_named, tables_in(tree)), key=text.place_of)
        tables = tuple(dict.fromkeys(lake_table(planning, one) for one in named))
        obstacles = list(_obstacles(planning, tree))
    try:
        with _doubting(query):
            relation = plan_query(planning, tree, {}, None)
        often = _read_often(planning, relation.operator)
        if often and not keep_once:
            return _parse_view(query, schemas, often)
        check_names(planning, tree, [one.name for one in relation.visible])
        columns = tuple((one.name or "", one.column) for one in relation.visible)
        with _doubting(query):
            root = simplified(planning, relation.operator, tuple(name for _, name in columns))
    except Refused as refused:
        if refused.obstacle not in obstacles:
            obstacles.append(refused.obstacle)
    except _Doubt as doubt:
        if not obstacles:
            raise
        return View(None, (), tables, tuple(obstacles), doubt=doubt.error)
    if obstacles:
        return View(None, (), tables, tuple(obstacles))
    with _doubting(query):
        check(root)
    return View(root, columns, tables, (), tuple(planning.notes))


def _read_often(planning: Planning, operator: Operator) -> frozenset[Place]:
    """The named queries that a large query reads several times, and that read several tables."""
    if not reads_more(operator, SCANS_MAX):
        return frozenset()
    return frozenset(
        place
        for place, relation in planning.ctes.items()
        if planning.reads[place] > 1 and reads_more(relation.operator, 1)
    )


def simplified(planning: Planning, operator: Operator, names: tuple[str, ...]) -> Operator:
    """The operator with these columns, its conditions in place and nothing read in vain."""
    return tidy(prune(push(planning, Select(operator, passing(names))), names))


def plan_query(
    planning: Planning,
    node: exp.Expr,
    ctes: Ctes,
    outer: Scope | None,
    outward: list[exp.Expr] | None = None,
) -> Relation:
    """A query of any form, with the names under which its columns are seen."""
    if isinstance(node, exp.Select):
        return plan_select(planning, node, ctes, outer, outward)
    ctes = with_ctes(planning, node, ctes)
    if isinstance(node, exp.Subquery):
        # A limit behind the parentheses would be one for every row of the query around.
        limited = node.args.get("limit") or node.args.get("offset")
        inside = None if limited else outward
        relation = plan_query(planning, node.this, ctes, outer, inside)
    elif isinstance(node, exp.SetOperation):
        relation = _plan_set(planning, node, ctes, outer)
    else:
        planning.refuse(node, "rows that come from no table are not kept by delta")
    limit = limit_of(planning, node)
    ordered = order_nodes(planning, node, limit)
    if limit is None:
        return relation
    scope = Scope(relation, outer)
    trees = [_order_tree(planning, one, relation, scope) for one in ordered]
    operator, names = with_columns(planning, relation.operator, trees)
    order = list(zip(names, ordered, strict=True))
    return take(planning, node, Relation(operator, relation.visible), order, limit)


def _order_tree(
    planning: Planning, ordered: exp.Ordered, relation: Relation, scope: Scope
) -> exp.Expr:
    node = ordered.this
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        position = int(node.name)
        if not 1 <= position <= len(relation.visible):
            raise planning.error(
                InvalidExpression, node, f"ORDER BY {position} is no position of the select list."
            )
        return column(relation.visible[position - 1].column)
    return translate(planning, node, scope)


def _plan_set(
    planning: Planning, node: exp.SetOperation, ctes: Ctes, outer: Scope | None
) -> Relation:
    if node.args.get("by_name") or node.args.get("side") or node.args.get("on"):
        planning.refuse(node, "this form of a set operation is not kept by delta")
    left = plan_query(planning, node.this, ctes, outer)
    right = plan_query(planning, node.expression, ctes, outer)
    if len(left.visible) != len(right.visible):
        raise planning.error(
            InvalidExpression,
            node.expression,
            f"{len(left.visible)} columns are combined with {len(right.visible)}. "
            "Both sides need as many.",
        )
    names = []
    for one, two in zip(left.visible, right.visible, strict=True):
        types = {planning.types.get(one.column), planning.types.get(two.column)}
        names.append(planning.fresh(types.pop() if len(types) == 1 else None))
    inputs = (_by_position(left), _by_position(right))
    kind = _SET_KINDS[type(node)]
    all_ = node.args.get("distinct") is False
    operator: Operator
    if kind == "union" and all_:
        operator = Merge(inputs, tuple(names))
    else:
        operator = SetOperation(*inputs, kind, all_, tuple(names))
    visible = tuple(
        Visible(one.name, None, name) for one, name in zip(left.visible, names, strict=True)
    )
    return Relation(operator, visible)


def _by_position(relation: Relation) -> Operator:
    return exactly(relation.operator, tuple(one.column for one in relation.visible))


# What is looked for in the text as a whole -----------------------------------------------------


def _obstacles(planning: Planning, tree: exp.Expr) -> Iterator[Obstacle]:
    """Every function call that keeps the query from being kept by delta."""
    text = planning.text
    for token in text.tokens:
        if token.token_type is TokenType.PIPE_GT:
            yield Obstacle("pipe syntax is not kept by delta", "|>", *text.place(token.start))
            return
    for call in tree.find_all(exp.Anonymous):
        reason = why_refused(function_name(call), len(call.expressions))
        if reason is not None:
            yield planning.obstacle(call, reason)
    for node in tree.find_all(exp.Cast, exp.Anonymous):
        if is_moment_in_words(node):
            yield planning.obstacle(node, THE_TIME)
