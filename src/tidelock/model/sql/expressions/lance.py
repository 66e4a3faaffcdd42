"""A filter of Spark SQL as a filter of Lance that selects the same rows, or `NeedsSpark`.

Law: Lance selects a row exactly if Spark's value of the condition is TRUE.

Three-valued logic ends here. Negations are pushed down to the comparisons, so that what Lance gets
is made of AND and OR over conditions that are TRUE or not, and a comparison that an index answers
by negation names its `IS NOT NULL`. So no NULL is ever negated, by an index or by a scan.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from tidelock.model.schema.schema import Column
from tidelock.model.sql.expressions.comparisons import (
    Condition,
    all_of,
    any_of,
    check_list,
    compare,
    is_comparable,
    null_check,
    quoted,
    word,
)
from tidelock.model.sql.expressions.literals import FLOATS, INTEGER_BITS, NULL, Literal, read
from tidelock.model.sql.expressions.syntax import NeedsSpark, Scope, bare, has_only, shown
from tidelock.model.types import type_name

# Lance's parser stops at 50 nested parentheses, and deep trees cost stack in its planner.
DEPTH_MAX = 16
LEAVES_MAX = 1000

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DECIDED: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def to_lance(tree: exp.Expr, scope: Scope) -> str:
    """The Lance filter, or NeedsSpark with the part that Lance cannot decide as Spark does."""
    try:
        condition = _Translation(scope).where(tree, negated=False, depth=0)
    except RecursionError:
        raise NeedsSpark("it is nested too deeply for Lance") from None
    return word(condition) if isinstance(condition, bool) else condition


class _Translation:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.leaves = 0

    def where(self, node: exp.Expr, *, negated: bool, depth: int) -> Condition:
        """The rows for which the node is TRUE; negated, those for which it is FALSE."""
        node = bare(node)
        if isinstance(node, exp.Not):
            return self.where(node.this, negated=not negated, depth=depth)
        if isinstance(node, exp.And | exp.Or):
            if depth > DEPTH_MAX:
                raise NeedsSpark("it is nested too deeply for Lance")
            parts = [self.where(part, negated=negated, depth=depth + 1) for part in node.flatten()]
            return all_of(parts) if isinstance(node, exp.And) != negated else any_of(parts)
        self.leaves += 1
        if self.leaves > LEAVES_MAX:
            raise NeedsSpark(f"it has more than {LEAVES_MAX} conditions")
        return self._leaf(node, negated)

    def _leaf(self, node: exp.Expr, negated: bool) -> Condition:
        if isinstance(node, exp.Boolean):
            return bool(node.this) != negated
        if isinstance(node, exp.Null):
            return False
        if isinstance(node, exp.Column):
            column = self._column(node)
            if column.type != pa.bool_():
                raise NeedsSpark(f"{shown(node)} is not a boolean")
            return f"{quoted(column)} = {word(not negated)}"
        if type(node) in _COMPARISONS and has_only(node, "this", "expression"):
            return self._comparison(node, negated)
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ) and has_only(
            node, "this", "expression"
        ):
            return self._null_safe(node, negated != isinstance(node, exp.NullSafeNEQ))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return null_check(self._column(node.this), negated=negated)
        if isinstance(node, exp.In) and has_only(node, "this", "expressions"):
            return self._in(node, negated)
        if isinstance(node, exp.Between) and has_only(node, "this", "low", "high"):
            column = self._column(node.this)
            ends = ((">=", node.args["low"]), ("<=", node.args["high"]))
            parts = [self._against(column, op, end, negated) for op, end in ends]
            return any_of(parts) if negated else all_of(parts)
        if type(node) is exp.Like and has_only(node, "this", "expression", "negate"):
            return self._like(node, negated != bool(node.args.get("negate")))
        raise NeedsSpark(shown(node))

    def _column(self, node: exp.Expr) -> Column:
        column = self.scope.find(bare(node))
        if column is None:
            raise NeedsSpark(shown(node))
        if not is_comparable(column.type):
            raise NeedsSpark(f"{shown(node)} has the type {type_name(column.type)}")
        if "`" in column.name or "." in column.name:
            raise NeedsSpark(f"Lance cannot be asked for a column named {column.name!r}")
        return column

    def _literal(self, node: exp.Expr) -> Literal:
        literal = read(node, self.scope.zone)
        if literal is None:
            raise NeedsSpark(shown(node))
        return literal

    def _comparison(self, node: exp.Expr, negated: bool) -> Condition:
        op = _COMPARISONS[type(node)]
        left, right = bare(node.this), bare(node.expression)
        if isinstance(left, exp.Column):
            return self._against(self._column(left), op, right, negated)
        if isinstance(right, exp.Column):
            return self._against(self._column(right), _MIRRORED[op], left, negated)
        one, two = self._literal(left), self._literal(right)
        if one.type in INTEGER_BITS and two.type in INTEGER_BITS:
            return _DECIDED[op](int(one.number), int(two.number)) != negated
        raise NeedsSpark(shown(node))

    def _against(self, column: Column, op: str, other: exp.Expr, negated: bool) -> Condition:
        op = _OPPOSITE[op] if negated else op
        if isinstance(bare(other), exp.Column):
            return f"{quoted(column)} {op} {quoted(self._peer(column, other))}"
        return self._compare(column, op, other)

    def _compare(self, column: Column, op: str, other: exp.Expr) -> Condition:
        literal = self._literal(other)
        return literal is not NULL and compare(column, op, literal, other, self.scope.zone)

    def _peer(self, column: Column, other: exp.Expr) -> Column:
        peer = self._column(other)
        # Lance orders NaNs by their bits; other types would need a cast of every row.
        if peer.type != column.type or peer.type in FLOATS:
            raise NeedsSpark(
                f"{column.name} ({type_name(column.type)}) compared with "
                f"{peer.name} ({type_name(peer.type)})"
            )
        return peer

    def _null_safe(self, node: exp.Expr, negated: bool) -> Condition:
        """<=> and IS [NOT] DISTINCT FROM are never NULL: NULL is equal to NULL."""
        left, right = bare(node.this), bare(node.expression)
        if not isinstance(left, exp.Column):
            left, right = right, left
        column = self._column(left)
        if isinstance(right, exp.Column):
            return self._null_safe_peers(column, self._peer(column, right), negated)
        if self._literal(right) is NULL:
            return null_check(column, negated=negated)
        if not negated:
            return self._compare(column, "=", right)
        return any_of([self._compare(column, "<>", right), null_check(column, negated=False)])

    def _null_safe_peers(self, column: Column, peer: Column, negated: bool) -> Condition:
        pair = (column, peer)
        if not negated:
            both_null = all_of(null_check(one, negated=False) for one in pair)
            return any_of([f"{quoted(column)} = {quoted(peer)}", both_null])
        one_null = (
            all_of([null_check(one, negated=False), null_check(other, negated=True)])
            for one, other in (pair, pair[::-1])
        )
        return any_of([f"{quoted(column)} <> {quoted(peer)}", *one_null])

    def _in(self, node: exp.In, negated: bool) -> Condition:
        column = self._column(node.this)
        items = [(self._literal(item), item) for item in node.expressions]
        values = [(literal, item) for literal, item in items if literal is not NULL]
        check_list(column, [literal for literal, _ in values])
        zone = self.scope.zone
        found = [compare(column, "=", literal, item, zone) for literal, item in values]
        if negated and len(values) < len(items):
            return False
        prefix = f"{quoted(column)} = "
        texts = [part.removeprefix(prefix) for part in found if isinstance(part, str)]
        present = null_check(column, negated=True)
        if not texts:
            return present if negated else False
        listed = f"({', '.join(texts)})"
        if negated:
            return all_of([f"{quoted(column)} NOT IN {listed}", present])
        return f"{quoted(column)} IN {listed}"

    def _like(self, node: exp.Expr, negated: bool) -> Condition:
        column = self._column(node.this)
        pattern = self._literal(node.expression).value
        # A backslash in a pattern escapes what follows; only Spark is known to do it as Spark does.
        if column.type != pa.string() or not isinstance(pattern, str) or "\\" in pattern:
            raise NeedsSpark(shown(node))
        if not negated:
            return f"{quoted(column)} LIKE {word(pattern)}"
        condition = f"{quoted(column)} NOT LIKE {word(pattern)}"
        return all_of([condition, null_check(column, negated=True)])
