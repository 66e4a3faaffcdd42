"""Assignments that need no Spark: literals, columns, and + - * over them, on Arrow data.

Law: for every row the result is Spark's, cast to the column's type by the rules of ANSI store
assignment, and there is an error exactly if Spark has one.

Each node has Spark's type. Integers are checked for overflow at that type, step by step. Decimals
grow as Spark's do, and where Spark would have to drop digits, Spark computes. As in Spark, the
right side of an operation is not looked at where the left side is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidelock.model.sql.expressions.literals import (
    DECIMAL_DIGITS_MAX,
    FLOATS,
    INTEGER_BITS,
    INTEGER_DIGITS,
    is_float32,
    read,
)
from tidelock.model.sql.expressions.syntax import NeedsSpark, Scope, bare, has_only, shown

_OPERATORS: dict[type[exp.Expr], str] = {exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply"}


@dataclass(frozen=True)
class Constant:
    type: pa.DataType
    value: Any


@dataclass(frozen=True)
class Read:
    type: pa.DataType
    column: str


@dataclass(frozen=True)
class Negation:
    type: pa.DataType
    of: Computation


@dataclass(frozen=True)
class Arithmetic:
    """Both sides are converted to `operand_types` first; the result has `type`."""

    type: pa.DataType
    operator: str
    left: Computation
    right: Computation
    operand_types: tuple[pa.DataType, pa.DataType]


Computation: TypeAlias = Constant | Read | Negation | Arithmetic


def compile_expression(node: exp.Expr, scope: Scope, *, folding: bool = False) -> Computation:
    """The computation of the node, or NeedsSpark with the part that only Spark can compute.

    `folding` lets constants be computed with each other. When Spark does that, and whether it does
    it at all, only matters where it may fail for a query that has no rows.
    """
    node = bare(node)
    literal = read(node, scope.zone)
    if literal is not None:
        return Constant(literal.type, literal.value)
    column = scope.find(node)
    if column is not None:
        return Read(column.type, column.name)
    if isinstance(node, exp.Neg):
        inner = compile_expression(node.this, scope, folding=folding)
        if (isinstance(inner, Constant) and not folding) or not _is_number(inner.type):
            raise NeedsSpark(shown(node))
        return Negation(inner.type, inner)
    if type(node) in _OPERATORS and has_only(node, "this", "expression"):
        left = compile_expression(node.this, scope, folding=folding)
        right = compile_expression(node.expression, scope, folding=folding)
        return _operation(_OPERATORS[type(node)], left, right, node, folding)
    raise NeedsSpark(shown(node))


def _operation(
    operator: str, left: Computation, right: Computation, node: exp.Expr, folding: bool
) -> Computation:
    kinds = (left.type, right.type)
    # Spark may compute constants before it sees a row, and need not do so at all.
    constant = isinstance(left, Constant) and isinstance(right, Constant)
    if (constant and not folding) or not all(_is_number(kind) for kind in kinds):
        raise NeedsSpark(shown(node))
    if all(kind in INTEGER_BITS for kind in kinds):
        widest = max(kinds, key=lambda kind: INTEGER_BITS[kind])
        result = Arithmetic(widest, operator, left, right, (widest, widest))
        # Spark moves the constants of a chain to its end, so that another step may overflow.
        chain = _chain(result, operator)
        if operator != "subtract" and len(chain) > 2 and any(chain) and not folding:
            raise NeedsSpark(f"the constants in {shown(node)}")
        return result
    if any(kind in FLOATS for kind in kinds):
        # Arrow rounds decimals to doubles in another way than Java; a literal is rounded here.
        if any(
            pa.types.is_decimal(side.type) and not isinstance(side, Constant)
            for side in (left, right)
        ):
            raise NeedsSpark(shown(node))
        kind = pa.float32() if set(kinds) == {pa.float32()} else pa.float64()
        return Arithmetic(kind, operator, left, right, (kind, kind))
    one, two = _as_decimal(left), _as_decimal(right)
    kind = _decimal_result(operator, one, two)
    if kind is None:
        raise NeedsSpark(f"{shown(node)} has more than {DECIMAL_DIGITS_MAX} digits")
    return Arithmetic(kind, operator, left, right, (one, two))


def _chain(node: Computation, operator: str) -> list[bool]:
    """For every operand of a + b + ... (or of a * b * ...), whether it is a constant."""
    if isinstance(node, Arithmetic) and node.operator == operator:
        return _chain(node.left, operator) + _chain(node.right, operator)
    return [isinstance(node, Constant)]


def _is_number(kind: pa.DataType) -> bool:
    return kind in INTEGER_BITS or kind in FLOATS or bool(pa.types.is_decimal128(kind))


def _as_decimal(side: Computation) -> pa.Decimal128Type:
    if pa.types.is_decimal(side.type):
        return side.type
    if isinstance(side, Constant):
        return pa.decimal128(len(str(abs(side.value))), 0)
    return pa.decimal128(INTEGER_DIGITS[side.type], 0)


def _decimal_result(
    operator: str, one: pa.Decimal128Type, two: pa.Decimal128Type
) -> pa.Decimal128Type | None:
    if operator == "multiply":
        precision, scale = one.precision + two.precision + 1, one.scale + two.scale
    else:
        scale = max(one.scale, two.scale)
        precision = max(one.precision - one.scale, two.precision - two.scale) + scale + 1
    return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else None


def check_storable(computation: Computation, kind: pa.DataType) -> bool | None:
    """Whether the result may be stored here as `kind`: True; None: Spark decides; False: refused.

    Refused is what ANSI store assignment refuses before it looks at any row.
    """
    source = computation.type
    if source == kind or source == pa.null():
        return True
    if _is_number(source) and _is_number(kind):
        return _converts_exactly(computation, kind) or None
    families = (_family(source), _family(kind))
    if None in families or families[1] == "string" or families == ("time", "time"):
        return None
    return False


def _converts_exactly(computation: Computation, kind: pa.DataType) -> bool:
    source = computation.type
    if isinstance(computation, Constant) and kind in FLOATS:
        return kind == pa.float64() or is_float32(float(computation.value))
    if kind in INTEGER_BITS:
        return source in INTEGER_BITS
    if kind in FLOATS:
        return source in FLOATS or (source in INTEGER_BITS and kind == pa.float64())
    return source in INTEGER_BITS or bool(pa.types.is_decimal(source))


def _family(kind: pa.DataType) -> str | None:
    if _is_number(kind):
        return "number"
    for name, test in (
        ("string", pa.types.is_string),
        ("binary", pa.types.is_binary),
        ("boolean", pa.types.is_boolean),
        ("time", pa.types.is_date32),
        ("time", pa.types.is_timestamp),
    ):
        if test(kind):
            return name
    return None


def compute(computation: Computation, kind: pa.DataType, rows: pa.Table) -> Any:
    """The result for all rows, of exactly that type. Raises ArrowInvalid where Spark overflows."""
    if isinstance(computation, Constant):
        if computation.value is None or rows.num_rows == 0:
            return pa.nulls(rows.num_rows, kind)
        # Rounded to a double here, as in Java; Arrow's cast of a decimal may be off by one bit.
        source = kind if kind in FLOATS else computation.type
        value = convert(constant(computation, source), source, kind)
        return pa.repeat(value, rows.num_rows)
    result = convert(_evaluate(computation, rows, None), computation.type, kind)
    return result.cast(kind) if result.type != kind else result


def convert(values: Any, source: pa.DataType, kind: pa.DataType) -> Any:
    """Store assignment between numbers: decimals round half up, what does not fit is an error."""
    if source == kind:
        return values
    if kind in FLOATS:
        return pc.cast(values, kind, safe=False)
    if not pa.types.is_decimal(kind):
        return pc.cast(values, kind)
    if source in INTEGER_BITS:
        values = pc.cast(values, pa.decimal128(20, 0))
        source = values.type
    # Wide enough for any rounding and any change of scale, so that only the last cast can fail.
    values = pc.cast(values, pa.decimal256(source.precision + DECIMAL_DIGITS_MAX, source.scale))
    if source.scale > kind.scale:
        values = pc.round(values, ndigits=kind.scale, round_mode="half_towards_infinity")
    return pc.cast(values, kind)


def constant(node: Constant, kind: pa.DataType) -> pa.Scalar:
    """The constant, read as an operand of the given type."""
    if kind in FLOATS:
        return pa.scalar(float(node.value), kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(node.value), kind)
    return pa.scalar(node.value, kind)


def _evaluate(node: Computation, rows: pa.Table, live: Any) -> Any:
    """The node's values, of its type; `live` says which rows are looked at, None for all."""
    if isinstance(node, Constant):
        return constant(node, node.type)
    if isinstance(node, Read):
        values = rows.column(node.column)
        return values if live is None else pc.if_else(live, values, pa.scalar(None, values.type))
    if isinstance(node, Negation):
        values = _evaluate(node.of, rows, live)
        return pc.negate(values) if pa.types.is_decimal(node.type) else pc.negate_checked(values)
    left = _operand(node.left, node.operand_types[0], rows, live)
    if isinstance(node.right, Negation | Arithmetic) and not isinstance(node.left, Constant):
        seen = pc.is_valid(left)
        live = seen if live is None else pc.and_(live, seen)
    right = _operand(node.right, node.operand_types[1], rows, live)
    checked = "" if node.type in FLOATS else "_checked"
    result = pc.call_function(node.operator + checked, [left, right])
    return result if result.type == node.type else pc.cast(result, node.type)


def _operand(node: Computation, kind: pa.DataType, rows: pa.Table, live: Any) -> Any:
    if isinstance(node, Constant):
        return constant(node, kind)
    values = _evaluate(node, rows, live)
    return values if values.type == kind else pc.cast(values, kind, safe=kind not in FLOATS)


def exact(node: Computation, row: Mapping[str, Any]) -> Any:
    """The node's value for one row without any limits, to show what did not fit; None if NULL."""
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Read):
        return row[node.column]
    if isinstance(node, Negation):
        value = exact(node.of, row)
        return None if value is None else -value
    left, right = exact(node.left, row), exact(node.right, row)
    if left is None or right is None:
        return None
    if node.type in FLOATS:
        left, right = float(left), float(right)
    if node.operator == "multiply":
        return left * right
    return left + right if node.operator == "add" else left - right
