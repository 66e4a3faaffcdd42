"""ORDER BY, LIMIT and OFFSET.

Without a limit an order changes nothing of a table, and is left out. With one it must be total:
where it is not, Spark takes any of the rows that are equal in it. Here the other columns decide, so
that the same rows are always taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tidelock.derive.algebra.builders import passing
from tidelock.derive.algebra.operators import Operator, Select, Top
from tidelock.derive.sql.properties import keys
from tidelock.derive.sql.scopes import Planning, Relation
from tidelock.errors import InvalidExpression
from tidelock.model.sql.functions import UNORDERABLE
from tidelock.model.sql.trees import expression, function_name


@dataclass(frozen=True)
class Limit:
    limit: int | None
    offset: int


def limit_of(planning: Planning, query: exp.Expr) -> Limit | None:
    """How many rows a query asks for; None if it asks for all."""
    limit = _count(planning, query.args.get("limit"))
    offset = _count(planning, query.args.get("offset"))
    return None if limit is None and not offset else Limit(limit, offset or 0)


def _count(planning: Planning, node: exp.Expr | None) -> int | None:
    if node is None:
        return None
    if isinstance(node, exp.Fetch) or not isinstance(node, exp.Limit | exp.Offset):
        planning.refuse(node, "this form of a limit is not kept by delta")
    number = node.expression
    if isinstance(number, exp.Column | exp.Var) and number.name.upper() == "ALL":
        return None
    if node.args.get("expressions") or not isinstance(number, exp.Literal) or number.is_string:
        planning.refuse(node, "a limit that is no plain number is not kept by delta")
    try:
        return int(number.name)
    except ValueError:
        raise planning.error(InvalidExpression, node, "A limit must be a whole number.") from None


def _is_all(ordered: exp.Expr) -> bool:
    node = ordered.this
    quoted = isinstance(node, exp.Column) and node.this.quoted
    return isinstance(node, exp.Column | exp.Var) and node.name.upper() == "ALL" and not quoted


def order_nodes(planning: Planning, query: exp.Expr, limit: Limit | None) -> list[exp.Ordered]:
    """What the query orders by, if that matters."""
    order = query.args.get("order")
    if limit is not None and order is not None and any(map(_is_all, order.expressions)):
        planning.refuse(order, "ORDER BY ALL with a limit is not kept by delta")
    within = any(query.args.get(one) for one in ("sort", "cluster", "distribute"))
    if limit is None:
        if order is not None or within:
            planning.note("ORDER BY without LIMIT is left out: a table has no order.")
        return []
    if within:
        planning.refuse(query, "a limit of rows that are sorted in parts only")
    return [] if order is None else list(order.expressions)


def take(
    planning: Planning,
    node: exp.Expr,
    relation: Relation,
    order: Sequence[tuple[str, exp.Ordered]],
    limit: Limit,
) -> Relation:
    """The first rows of the relation; `order` are columns of it, and how each is ordered."""
    operator = relation.operator
    parts = [_spelled(name, one) for name, one in order]
    given = [name for name, _ in order]
    shown = list(dict.fromkeys(one.column for one in relation.visible))
    missing = _missing(planning, operator, given, shown) if given else shown
    if missing:
        _check_orderable(planning, node, operator, missing)
        planning.note("Rows that the order of a LIMIT leaves equal are taken by their columns.")
        parts += [f"`{name}` ASC NULLS FIRST" for name in missing]
    reads = tuple(dict.fromkeys((*given, *missing)))
    result: Operator = Top(operator, ", ".join(parts), reads, limit.limit, limit.offset)
    if set(result.output) != set(shown):
        result = Select(result, passing(shown))
    return Relation(result, relation.visible)


def _spelled(name: str, one: exp.Ordered) -> str:
    direction = "DESC" if one.args.get("desc") else "ASC"
    nulls = "FIRST" if one.args.get("nulls_first") else "LAST"
    return f"`{name}` {direction} NULLS {nulls}"


def _missing(
    planning: Planning, operator: Operator, given: Sequence[str], shown: Sequence[str]
) -> list[str]:
    """The columns that make the order total; none where it is."""
    best: list[str] | None = None
    for key in keys(operator, planning):
        rest = sorted(key - set(given))
        if best is None or len(rest) < len(best):
            best = rest
    return [name for name in shown if name not in given] if best is None else best


def _check_orderable(
    planning: Planning, node: exp.Expr, operator: Operator, names: Sequence[str]
) -> None:
    computed = (
        {one.name: one.sql for one in operator.columns} if isinstance(operator, Select) else {}
    )
    for name in names:
        type_ = planning.types.get(name, "")
        tree = expression(computed[name]) if name in computed else None
        may_be_map = isinstance(tree, exp.Anonymous) and function_name(tree) in UNORDERABLE
        if may_be_map or type_.startswith(("MAP<", "VARIANT")):
            planning.refuse(node, "rows that are equal in the order differ in a MAP only")
