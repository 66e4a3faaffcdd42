"""One column compared with one literal, in Lance's words and with Spark's meaning.

Law: the condition selects a row exactly if the column is not NULL there and Spark finds the
comparison TRUE. Literals are converted to the column's type without rounding, or the comparison is
moved to a neighbouring value or decided here; what Spark would compare at a type that rounds goes
to Spark.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from tidelock.model.schema.schema import Column
from tidelock.model.sql.expressions.literals import (
    DECIMAL_DIGITS_MAX,
    FLOATS,
    INTEGER_BITS,
    INTEGER_DIGITS,
    Literal,
    is_float32,
    read_date,
    read_timestamp,
    read_timestamp_ntz,
    to_instant,
)
from tidelock.model.sql.expressions.syntax import NeedsSpark, shown
from tidelock.model.types import TIMESTAMP, TIMESTAMP_NTZ, type_name

# True: every row; False: no row; text: the rows that Lance selects by it.
Condition: TypeAlias = bool | str

_OTHER_TYPES = {
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIMESTAMP,
    TIMESTAMP_NTZ,
}
_FLOAT32_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def is_comparable(kind: pa.DataType) -> bool:
    """Lance and Spark are known to compare values of this type alike."""
    return kind in _OTHER_TYPES or kind in FLOATS or _is_exact(kind)


def compare(column: Column, op: str, literal: Literal, node: exp.Expr, zone: str) -> Condition:
    """The rows where the column is not NULL and compares so with the literal (not NULL)."""
    if column.type in FLOATS:
        return _compare_float(column, op, literal, node)
    if _is_exact(column.type):
        return _compare_exact(column, op, literal, node)
    value = _as_text(column.type, literal, zone)
    if value is None:
        raise NeedsSpark(_mismatch(column, node))
    return _compared(column, op, value)


def null_check(column: Column, *, negated: bool) -> Condition:
    return f"{quoted(column)} IS {'NOT ' if negated else ''}NULL"


def check_list(column: Column, literals: Sequence[Literal]) -> None:
    """Refuse a list whose members, taken together, Spark would compare at another type."""
    kinds = {literal.type for literal in literals}
    if column.type in FLOATS or len(kinds) == 0:
        return
    if _is_exact(column.type):
        kinds.add(column.type)
        if all(kind in INTEGER_BITS for kind in kinds):
            return
        if all(_is_exact(kind) for kind in kinds):
            sizes = [_size(kind) for kind in kinds]
            if max(w for w, _ in sizes) + max(s for _, s in sizes) <= DECIMAL_DIGITS_MAX:
                return
    elif len(kinds) == 1:
        return
    raise NeedsSpark(f"the types of the values in the list for {column.name}")


def quoted(column: Column) -> str:
    return f"`{column.name}`"


def all_of(parts: Iterable[Condition]) -> Condition:
    return _joined(parts, " AND ", unit=True)


def any_of(parts: Iterable[Condition]) -> Condition:
    return _joined(parts, " OR ", unit=False)


def word(value: str | bytes | bool) -> str:
    """The value as a literal of Lance, in which a backslash is a plain character."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + value.replace("'", "''") + "'"


def _joined(parts: Iterable[Condition], between: str, *, unit: bool) -> Condition:
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif part != unit:
            return part
    if not texts:
        return unit
    return texts[0] if len(texts) == 1 else "(" + between.join(texts) + ")"


def _is_exact(kind: pa.DataType) -> bool:
    return kind in INTEGER_BITS or (bool(pa.types.is_decimal128(kind)) and kind.scale >= 0)


def _size(kind: pa.DataType) -> tuple[int, int]:
    """The digits before and after the point of the decimal type that Spark takes for `kind`."""
    if kind in INTEGER_BITS:
        return INTEGER_DIGITS[kind], 0
    return kind.precision - kind.scale, kind.scale


def _compared(column: Column, op: str, value: str) -> Condition:
    condition = f"{quoted(column)} {op} {value}"
    # An index answers <> by negation, so the rows without a value are left out by name.
    return all_of([condition, null_check(column, negated=True)]) if op == "<>" else condition


def _never_equal(column: Column, op: str) -> Condition:
    return False if op == "=" else null_check(column, negated=True)


def _as_text(kind: pa.DataType, literal: Literal, zone: str) -> str | None:
    """The literal in Lance's words, as a value of a type that is not a number."""
    value = literal.value
    if pa.types.is_timestamp(kind):
        instant = _as_timestamp(kind, literal, zone)
        return None if instant is None else _micros(instant)
    if kind == pa.date32():
        day = read_date(value) if isinstance(value, str) else value
        if not isinstance(day, dt.date) or isinstance(day, dt.datetime):
            return None
        return f"date '{day.isoformat()}'"
    if kind == literal.type and isinstance(value, str | bytes | bool):
        return word(value)
    return None


def _as_timestamp(kind: pa.DataType, literal: Literal, zone: str) -> dt.datetime | None:
    local = kind == TIMESTAMP_NTZ
    value = literal.value
    if isinstance(value, dt.datetime):
        return value if literal.type == kind else None
    if isinstance(value, str):
        return read_timestamp_ntz(value) if local else read_timestamp(value, zone)
    if isinstance(value, dt.date):
        midnight = dt.datetime.combine(value, dt.time())
        return midnight if local else to_instant(midnight, zone)
    return None


def _compare_exact(column: Column, op: str, literal: Literal, node: exp.Expr) -> Condition:
    """Compare integers and decimals without any rounding, as Spark does at a common type."""
    kind = column.type
    _check_common_type(column, literal, node)
    if kind in INTEGER_BITS:
        bound = 1 << (INTEGER_BITS[kind] - 1)
        low, high, scale = -bound, bound - 1, 0
    else:
        low, high, scale = 1 - 10**kind.precision, 10**kind.precision - 1, kind.scale
    wanted = Fraction(literal.number) * 10**scale
    unscaled = math.floor(wanted)
    if wanted != unscaled:
        if op in ("=", "<>"):
            return _never_equal(column, op)
        op, unscaled = ("<=", unscaled) if op[0] == "<" else (">=", unscaled + 1)
    if low <= unscaled <= high:
        return _compared(column, op, _digits(unscaled, kind))
    holds = op == "<>" or (op != "=" and (op[0] == "<") == (unscaled > high))
    return null_check(column, negated=True) if holds else False


def _check_common_type(column: Column, literal: Literal, node: exp.Expr) -> None:
    """Refuse what Spark would compare as doubles, or as decimals that had to lose digits."""
    kind = column.type
    integral = kind in INTEGER_BITS
    if literal.type in INTEGER_BITS:
        if integral:
            return
        size = (len(str(abs(int(literal.number)))), 0)
    elif pa.types.is_decimal128(literal.type):
        # Beyond BIGINT, Spark drops the column from the comparison and answers TRUE for a NULL.
        if integral and not -(2**63) <= literal.number <= 2**63 - 1:
            raise NeedsSpark(_mismatch(column, node))
        size = _size(literal.type)
    elif literal.type == pa.float64() and integral and kind != pa.int64():
        return
    else:
        raise NeedsSpark(_mismatch(column, node))
    whole, fraction = _size(kind)
    if max(whole, size[0]) + max(fraction, size[1]) > DECIMAL_DIGITS_MAX:
        raise NeedsSpark(_mismatch(column, node))


def _compare_float(column: Column, op: str, literal: Literal, node: exp.Expr) -> Condition:
    """Compare FLOAT and DOUBLE at DOUBLE, where NaN equals itself and is above everything.

    Lance orders values by their bits, NaNs with a sign before all others, so that an order needs a
    word about NaN; equality with a number does not.
    """
    if not _is_exact(literal.type) and literal.type not in FLOATS:
        raise NeedsSpark(_mismatch(column, node))
    wanted = float(literal.number)
    if column.type == pa.float32() and not is_float32(wanted):
        if op in ("=", "<>"):
            return _never_equal(column, op)
        op, wanted = _next_to(wanted, op)
    # Adding zero makes a negative zero a positive one: they are equal, and only one has a form.
    condition = _compared(column, op, repr(wanted + 0.0))
    if op in ("<", "<="):
        return all_of([condition, f"NOT isnan({quoted(column)})"])
    if op in (">", ">="):
        return any_of([condition, f"isnan({quoted(column)})"])
    return condition


def _next_to(wanted: float, op: str) -> tuple[str, float]:
    """The same comparison with a neighbouring FLOAT, for a bound that lies between two."""
    below, above = _around(wanted)
    if op[0] == "<":
        return ("<=", below) if math.isfinite(below) else ("<", above)
    return (">=", above) if math.isfinite(above) else (">", below)


def _around(wanted: float) -> tuple[float, float]:
    """The nearest FLOATs below and above a number that is none."""
    size = abs(wanted)
    if size > _FLOAT32_MAX:
        low, high = _FLOAT32_MAX, math.inf
    else:
        (bits,) = struct.unpack("<I", struct.pack("<f", size))
        (nearest,) = struct.unpack("<f", struct.pack("<I", bits))
        step = 1 if nearest < size else -1
        (other,) = struct.unpack("<f", struct.pack("<I", bits + step))
        low, high = sorted((nearest, other))
    return (low, high) if wanted > 0 else (-high, -low)


def _digits(unscaled: int, kind: pa.DataType) -> str:
    if kind == pa.int64() and unscaled == -(2**63):
        # Lance reads a sign apart from its digits, and these digits alone are no BIGINT.
        return f"cast('{unscaled}' as bigint)"
    if kind in INTEGER_BITS:
        return str(unscaled)
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
    return f"cast('{number:f}' as decimal({kind.precision},{kind.scale}))"


def _micros(value: dt.datetime) -> str:
    epoch = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
    return f"cast({(value - epoch) // dt.timedelta(microseconds=1)} as timestamp(6))"


def _mismatch(column: Column, node: exp.Expr) -> str:
    return f"{column.name} ({type_name(column.type)}) compared with {shown(node)}"
