"""FROM: tables, queries in their place, joins and lateral views, as one relation.

Joins are taken as they are written; pushdown.py finds their keys and their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from tidelock.derive.algebra.builders import conjunction, exactly, passing, type_of
from tidelock.derive.algebra.operators import (
    Generate,
    Join,
    JoinKind,
    Named,
    Once,
    OuterJoin,
    Scan,
    Select,
)
from tidelock.derive.sql.columns import check_local, check_scalar, named
from tidelock.derive.sql.scopes import Cte, Ctes, Planning, Relation, Scope, Visible, translate
from tidelock.errors import ColumnNotFound, InvalidExpression, TableNotFound
from tidelock.model.names import fold, suggest
from tidelock.model.sql.functions import GENERATORS
from tidelock.model.sql.predicates import conjuncts, has_query
from tidelock.model.sql.trees import column, columns_of, function_name, text_of
from tidelock.model.types import type_name

_OUTER: Mapping[tuple[str, str], JoinKind] = {
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
}
_INNER = {("", ""), ("", "INNER"), ("", "CROSS")}


def with_ctes(planning: Planning, node: exp.Expr, ctes: Ctes) -> Ctes:
    """The named queries that the node can use: those around it, and its own WITH."""
    with_ = node.args.get("with_")
    if with_ is None:
        return ctes
    if with_.args.get("recursive"):
        planning.refuse(with_, "a recursive query is not kept by delta")
    known = dict(ctes)
    for one in with_.expressions:
        columns = tuple(column_.name for column_ in one.args["alias"].columns)
        known[fold(one.alias)] = Cte(one.this, columns, dict(known))
    return known


def plan_from(
    planning: Planning, select: exp.Select, ctes: Ctes, outer: Scope | None
) -> tuple[Relation, list[exp.Expr]]:
    """The relation of a FROM, and the conditions of its joins that read the query around."""
    from_ = select.args.get("from_")
    if from_ is None:
        planning.refuse(select, "rows that come from no table are not kept by delta")
    first = _plan_leaf(planning, from_.this, ctes, outer)
    relation, correlated = _joined(planning, first, select.args.get("joins"), ctes, outer)
    for lateral in select.args.get("laterals") or []:
        relation = _plan_lateral_view(planning, lateral, relation, outer)
    return relation, correlated


def _joined(
    planning: Planning,
    first: Relation,
    joins: Sequence[exp.Join] | None,
    ctes: Ctes,
    outer: Scope | None,
) -> tuple[Relation, list[exp.Expr]]:
    """Joins from left to right. A comma binds less: the conditions behind it see what follows."""
    before: Relation | None = None
    current = first
    correlated: list[exp.Expr] = []
    for join in joins or []:
        right = _plan_leaf(planning, join.this, ctes, outer)
        if _is_comma(join):
            before = current if before is None else _crossed(before, current)
            current = right
        else:
            current, found = _plan_join(planning, join, current, right, ctes, outer)
            correlated += found
    return (current if before is None else _crossed(before, current)), correlated


def _is_comma(join: exp.Join) -> bool:
    return not any(value for name, value in join.args.items() if name != "this")


def _crossed(left: Relation, right: Relation) -> Relation:
    return Relation(
        Join(left.operator, right.operator),
        (*left.visible, *right.visible),
        (*left.hidden, *right.hidden),
    )


# Leaves ----------------------------------------------------------------------------------------


def _plan_leaf(planning: Planning, node: exp.Expr, ctes: Ctes, outer: Scope | None) -> Relation:
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        _allow_only(planning, node, "this", "alias", "joins", "db", "catalog")
        relation = _plan_table(planning, node, ctes)
    elif isinstance(node, exp.Subquery):
        _allow_only(planning, node, "this", "alias", "joins", "with_")
        if isinstance(node.this, exp.Query) or node.args.get("with_"):
            inner = planning.plan_query(planning, _without_alias(node), ctes, outer)
            relation = inner.renamed(None)
        else:
            relation = _plan_leaf(planning, node.this, ctes, outer)
    elif isinstance(node, exp.Lateral):
        planning.refuse(node, "a lateral subquery is not kept by delta")
    else:
        planning.refuse(node, "rows that come from no table are not kept by delta")
    relation = _under_alias(planning, node, relation)
    relation, correlated = _joined(planning, relation, node.args.get("joins"), ctes, outer)
    if correlated:
        planning.refuse(node, "a column of the query around is used inside of a join")
    return relation


def _without_alias(node: exp.Subquery) -> exp.Expr:
    """The query in the parentheses, with the names that it defines in front."""
    copy = node.copy()
    copy.set("alias", None)
    copy.set("joins", None)
    return copy


def _allow_only(planning: Planning, node: exp.Expr, *names: str) -> None:
    for name, value in node.args.items():
        if value and name not in names:
            what = {"sample": "TABLESAMPLE is random", "pivots": "PIVOT is not kept by delta"}
            planning.refuse(node, what.get(name, "this form of a table is not kept by delta"))


def _plan_table(planning: Planning, node: exp.Table, ctes: Ctes) -> Relation:
    cte = None if node.args.get("db") else ctes.get(fold(node.name))
    if cte is not None:
        relation = _plan_cte(planning, cte)
        return _with_names(planning, node, relation.renamed(node.name), cte.columns)
    name = lake_table(planning, node)
    names = []
    for one in planning.schemas[name].columns:
        names.append((planning.fresh(type_name(one.type)), one.name))
    visible = tuple(Visible(original, node.name, here) for here, original in names)
    return Relation(Scan(name, tuple(names)), visible)


def _plan_cte(planning: Planning, cte: Cte) -> Relation:
    """A named query under names of its own for this place; all places have the same operator."""
    place = (*planning.text.place_of(cte.query), text_of(cte.query))
    planning.reads[place] += 1
    relation = planning.ctes.get(place)
    if relation is None:
        relation = planning.plan_query(planning, cte.query, cte.ctes, None)
        if place in planning.keep_once:
            shown = tuple(dict.fromkeys(one.column for one in relation.visible))
            relation = Relation(Once(exactly(relation.operator, shown)), relation.visible)
        planning.ctes[place] = relation
    names = {one.column: planning.fresh(planning.types.get(one.column)) for one in relation.visible}
    columns = tuple(Named(new, f"`{old}`", (old,)) for old, new in names.items())
    visible = tuple(replace(one, column=names[one.column]) for one in relation.visible)
    return Relation(Select(relation.operator, columns), visible)


def lake_table(planning: Planning, node: exp.Table) -> str:
    """The table of the lake that is named, as the lake spells it."""
    written = ".".join(part.name for part in node.parts)
    for name in planning.schemas:
        if not node.args.get("db") and fold(name) == fold(node.name):
            return name
    raise planning.error(
        TableNotFound,
        node,
        f"There is no table {written!r}. {suggest(written, planning.schemas)}",
        table=written,
    )


def _under_alias(planning: Planning, node: exp.Expr, relation: Relation) -> Relation:
    alias = node.args.get("alias")
    if alias is None:
        return relation
    relation = relation.renamed(alias.name)
    return _with_names(planning, node, relation, tuple(one.name for one in alias.columns))


def _with_names(
    planning: Planning, node: exp.Expr, relation: Relation, names: Sequence[str]
) -> Relation:
    if not names:
        return relation
    if len(names) != len(relation.visible):
        raise planning.error(
            InvalidExpression,
            node,
            f"{len(names)} names are given to {len(relation.visible)} columns. Name each column "
            "once.",
        )
    visible = (replace(one, name=name) for one, name in zip(relation.visible, names, strict=True))
    return Relation(relation.operator, tuple(visible))


# Joins -----------------------------------------------------------------------------------------


def _plan_join(
    planning: Planning,
    join: exp.Join,
    left: Relation,
    right: Relation,
    ctes: Ctes,
    outer: Scope | None,
) -> tuple[Relation, list[exp.Expr]]:
    allowed = ("this", "side", "kind", "on", "using", "method")
    if any(value and name not in allowed for name, value in join.args.items()):
        planning.refuse(join, "this form of a join is not kept by delta")
    method = (join.method or "").upper()
    key = ((join.side or "").upper(), (join.kind or "").upper())
    if method not in ("", "NATURAL") or not (key in _INNER or key in _OUTER):
        planning.refuse(join, "this form of a join is not kept by delta")
    kind = _OUTER.get(key)
    shared = _shared_names(planning, join, left, right, natural=method == "NATURAL")
    both = _crossed(left, right)
    if shared is None:
        on = join.args.get("on")
        condition = [] if on is None else conjuncts(translate(planning, on, Scope(both, outer)))
    else:
        condition = [exp.EQ(this=column(a.column), expression=column(b.column)) for a, b in shared]
    asking = [one for one in condition if has_query(one)]
    condition = [one for one in condition if not has_query(one)]
    if asking and kind is not None:
        left, right, answered = _asked_before(planning, join, asking, left, right, kind, ctes)
        condition += answered
        both = _crossed(left, right)
    local, correlated = _split(planning, join, condition, both, kind)
    keep_left_only = kind in ("semi", "anti")
    if kind is None:
        operator: Join | OuterJoin = Join(
            left.operator, right.operator, condition=conjunction(local)
        )
    else:
        operator = OuterJoin(left.operator, right.operator, kind, condition=conjunction(local))
    joined = replace(left if keep_left_only else both, operator=operator)
    if asking and kind is None:
        joined = _asked_after(planning, joined, asking, left, right, ctes, outer)
    return (joined if shared is None else _merged(planning, joined, kind, shared)), correlated


def _asked_after(
    planning: Planning,
    joined: Relation,
    conditions: Sequence[exp.Expr],
    left: Relation,
    right: Relation,
    ctes: Ctes,
    outer: Scope | None,
) -> Relation:
    """An inner join whose conditions hold subqueries. What is asked of one side alone is asked of
    its rows; the rest is asked of the join, where not every answer is that of SQL."""
    sides = (set(left.operator.output), set(right.operator.output))
    of_rows = [one for one in conditions if any(set(columns_of(one)) <= side for side in sides)]
    of_join = [one for one in conditions if one not in of_rows]
    joined, answers = planning.answer(planning, joined, of_join, ctes, outer)
    return planning.keep_rows(planning, joined, [*of_rows, *answers], ctes, outer)


_PARTNERS = {"left": "right", "semi": "right", "anti": "right", "right": "left"}
"""The side of an outer join whose rows only count as partners; a full join has none."""


def _asked_before(
    planning: Planning,
    join: exp.Join,
    conditions: Sequence[exp.Expr],
    left: Relation,
    right: Relation,
    kind: JoinKind,
    ctes: Ctes,
) -> tuple[Relation, Relation, list[exp.Expr]]:
    """The sides of an outer join, with conditions that hold subqueries asked of one side alone: of
    the side whose rows only count as partners, rows that do not fulfil them count for nothing; of
    the other, the answers are conditions of the join, which come last."""
    sides = {"left": left, "right": right}
    partner = _PARTNERS.get(kind)
    answered: list[exp.Expr] = []
    for one in conditions:
        for side in sorted(sides, key=lambda name: name != partner):
            if not set(columns_of(one)) <= set(sides[side].operator.output):
                continue
            try:
                if side == partner or kind == "semi":
                    sides[side] = planning.keep_rows(planning, sides[side], [one], ctes, None)
                else:
                    sides[side], told = planning.answer(planning, sides[side], [one], ctes, None)
                    answered += told
            except ColumnNotFound:
                # The subquery reads the other side, or both.
                continue
            break
        else:
            planning.refuse(join, "a subquery in the condition of a join is not kept by delta")
    return sides["left"], sides["right"], answered


def _split(
    planning: Planning,
    join: exp.Join,
    condition: Sequence[exp.Expr],
    both: Relation,
    kind: JoinKind | None,
) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The conjuncts that the join can answer, and those that read the query around."""
    there = set(both.operator.output)
    local: list[exp.Expr] = []
    correlated: list[exp.Expr] = []
    for one in condition:
        if set(columns_of(one)) <= there:
            check_scalar(planning, one, both.operator)
            local.append(one)
        elif kind is None:
            correlated.append(one)
        else:
            planning.refuse(join, "a column of the query around is used inside of an outer join")
    return local, correlated


Shared = list[tuple[Visible, Visible]]


def _shared_names(
    planning: Planning, join: exp.Join, left: Relation, right: Relation, *, natural: bool
) -> Shared | None:
    """The columns that USING or NATURAL makes one of."""
    if natural:
        theirs = {fold(one.name) for one in right.visible if one.name is not None}
        names = [one.name for one in left.visible if one.name and fold(one.name) in theirs]
        return [
            (_one(planning, join, left, name), _one(planning, join, right, name)) for name in names
        ]
    using = join.args.get("using")
    if not using:
        return None
    return [
        (_one(planning, one, left, one.name), _one(planning, one, right, one.name)) for one in using
    ]


def _one(planning: Planning, node: exp.Expr, relation: Relation, name: str) -> Visible:
    found = [one for one in relation.visible if one.is_called(name)]
    if len(found) == 1:
        return found[0]
    problem = "is ambiguous" if found else "is missing"
    raise planning.error(
        InvalidExpression,
        node,
        f"{name!r} {problem} on one side of the join. USING and NATURAL need it once on each.",
        column=name,
    )


def _merged(
    planning: Planning, joined: Relation, kind: JoinKind | None, shared: Shared
) -> Relation:
    """What is seen of a join that makes one column of two: these first, then the others."""
    lefts, rights = [a for a, _ in shared], [b for _, b in shared]
    gone = {one.column for one in (*lefts, *rights)}
    rest = tuple(one for one in joined.visible if one.column not in gone)
    hidden = joined.hidden
    if kind in ("semi", "anti"):
        return Relation(joined.operator, (*lefts, *rest), hidden)
    if kind == "right":
        return Relation(joined.operator, (*rights, *rest), (*lefts, *hidden))
    if kind != "full":
        return Relation(joined.operator, (*lefts, *rest), (*rights, *hidden))
    computed = []
    merged = []
    for one, two in shared:
        tree = exp.Anonymous(this="coalesce", expressions=[column(one.column), column(two.column)])
        types = {planning.types.get(one.column), planning.types.get(two.column)}
        name = planning.fresh(types.pop() if len(types) == 1 else None)
        computed.append(named(planning, name, tree, joined.operator))
        merged.append(Visible(one.name, None, name))
    operator = Select(joined.operator, (*passing(joined.operator.output), *computed))
    return Relation(operator, (*merged, *rest), (*lefts, *rights, *hidden))


# Lateral views ---------------------------------------------------------------------------------


def _plan_lateral_view(
    planning: Planning, lateral: exp.Lateral, relation: Relation, outer: Scope | None
) -> Relation:
    call = lateral.this
    if not lateral.args.get("view") or not isinstance(call, exp.Anonymous):
        planning.refuse(lateral, "a lateral subquery is not kept by delta")
    alias = lateral.args.get("alias")
    given = [one.name for one in alias.columns] if alias is not None else []
    qualifier = alias.name if alias is not None else None
    tree = translate(planning, call, Scope(relation, outer))
    outer_rows = bool(lateral.args.get("outer"))
    generated, names = generate(planning, call, tree, relation, given, outer=outer_rows)
    added = tuple(Visible(shown, qualifier or None, name) for shown, name in names)
    return Relation(generated, (*relation.visible, *added), relation.hidden)


def generate(
    planning: Planning,
    node: exp.Expr,
    call: exp.Expr,
    relation: Relation,
    given: Sequence[str],
    *,
    outer: bool = False,
) -> tuple[Generate, list[tuple[str, str]]]:
    """A generator over a relation, and its columns: (visible name, column)."""
    if not isinstance(call, exp.Anonymous) or function_name(call) not in GENERATORS:
        planning.refuse(node, "the function gives no rows that are known")
    check_local(planning, call, relation.operator)
    if any(has_query(one) for one in call.expressions):
        planning.refuse(node, "a subquery inside of a generator is not kept by delta")
    shown = list(given) or _own_names(planning, node, call)
    names = [(one, planning.fresh()) for one in shown]
    operator = Generate(
        relation.operator,
        text_of(call),
        columns_of(call),
        tuple(name for _, name in names),
        outer,
    )
    return operator, names


def _own_names(planning: Planning, node: exp.Expr, call: exp.Anonymous) -> list[str]:
    """The names that Spark gives to what a generator gives, where the type tells them."""
    name = function_name(call).removesuffix("_outer")
    if name in ("explode", "posexplode") and len(call.expressions) == 1:
        argument = call.expressions[0]
        type_ = type_of(argument, planning.types) or ""
        of_array = isinstance(argument, exp.Anonymous) and function_name(argument) in _ARRAYS
        position = ["pos"] if name == "posexplode" else []
        if of_array or type_.startswith("ARRAY<"):
            return [*position, "col"]
        if type_.startswith("MAP<"):
            return [*position, "key", "value"]
    return planning.refuse(node, "the function's columns have no names: name them with AS")


_ARRAYS = frozenset({"array", "split", "sequence", "collect_list", "collect_set", "map_keys"})
