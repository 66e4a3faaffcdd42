"""Store assignment: which types may be stored in a column of which type.

Law: as Spark's INSERT under its ANSI policy. Numbers go into numbers, moments into moments, what is
not nested into STRING; nested types field by field, by position. A value that does not fit its
column is an error, never another value. Under ANSI a cast fails on such a value. A user's session
may have that switched off, and would then store another value in silence: there, the same is asked
with words of its own.
"""

from __future__ import annotations

import pyarrow as pa

from tidelock.model.sql.expressions.literals import FLOATS, INTEGER_BITS, INTEGER_DIGITS
from tidelock.model.types import inner_fields, is_list_like, spell_type, type_name


def is_storable(given: pa.DataType, column: pa.DataType) -> bool:
    """Whether values of the given type may be stored, if they fit."""
    kinds = pa.types
    if kinds.is_null(given) or type_name(given) == type_name(column):
        return True
    if kinds.is_nested(given) or kinds.is_nested(column):
        return _same_shape(given, column) and all(
            is_storable(one.type, other.type)
            for one, other in zip(inner_fields(given), inner_fields(column), strict=True)
        )
    if kinds.is_string(column):
        return True
    return (_is_number(given) and _is_number(column)) or (_is_moment(given) and _is_moment(column))


def always_fits(given: pa.DataType, column: pa.DataType) -> bool:
    """Whether every value of a type that is storable fits, so that storing it never fails."""
    if pa.types.is_null(given) or pa.types.is_string(column) or given == column:
        return True
    if pa.types.is_nested(given):
        pairs = zip(inner_fields(given), inner_fields(column), strict=True)
        return all(always_fits(one.type, other.type) for one, other in pairs)
    if column in FLOATS:
        return True
    if given in INTEGER_BITS and column in INTEGER_BITS:
        return INTEGER_BITS[given] <= INTEGER_BITS[column]
    if pa.types.is_decimal(column) and given not in FLOATS:
        whole, scale = _digits(given)
        return bool(whole <= column.precision - column.scale and scale <= column.scale)
    return _is_moment(given) and _is_moment(column)


def stored(value: str, given: pa.DataType, wanted: pa.DataType, *, ansi: bool) -> str:
    """SQL for a value of one type as one of another, which it may be stored as."""
    if type_name(given) == type_name(wanted):
        return value
    type_ = spell_type(wanted, for_spark=True)
    if ansi or always_fits(given, wanted):
        return f"CAST({value} AS {type_})"
    # The value is computed once, by a list of it alone: an expression may answer differently each
    # time that it is asked.
    told = f"A value does not fit {type_name(wanted)}.".replace("'", "''")
    cast = (
        f"IF(v IS NOT NULL AND try_cast(v AS {type_}) IS NULL, "
        f"raise_error('{told}'), try_cast(v AS {type_}))"
    )
    return f"transform(array({value}), v -> {cast})[0]"


def same_fields(given: pa.DataType, column: pa.DataType) -> bool:
    """Whether the fields of structs have the same names in the same order, at every depth."""
    if not _same_shape(given, column):
        return True
    pairs = list(zip(inner_fields(given), inner_fields(column), strict=True))
    if pa.types.is_struct(given) and any(a.name.lower() != b.name.lower() for a, b in pairs):
        return False
    return all(same_fields(one.type, other.type) for one, other in pairs)


def _same_shape(given: pa.DataType, column: pa.DataType) -> bool:
    kinds = pa.types
    alike = (
        (is_list_like(given) and is_list_like(column))
        or (kinds.is_map(given) and kinds.is_map(column))
        or (kinds.is_struct(given) and kinds.is_struct(column))
    )
    return alike and len(inner_fields(given)) == len(inner_fields(column))


def _is_number(kind: pa.DataType) -> bool:
    return kind in INTEGER_BITS or kind in FLOATS or bool(pa.types.is_decimal(kind))


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """The digits before and after the point."""
    if kind in INTEGER_BITS:
        return INTEGER_DIGITS[kind], 0
    return kind.precision - kind.scale, kind.scale
