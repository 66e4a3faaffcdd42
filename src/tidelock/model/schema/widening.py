"""Widening: which types hold every value of another type.

The list is that of Delta's type widening, which Spark's users know:

    TINYINT    SMALLINT, INT, BIGINT, DECIMAL, FLOAT, DOUBLE
    SMALLINT   INT, BIGINT, DECIMAL, FLOAT, DOUBLE
    INT        BIGINT, DECIMAL, DOUBLE
    BIGINT     DECIMAL
    FLOAT      DOUBLE
    DECIMAL    DECIMAL with as many digits or more, on both sides of the point
    DATE       TIMESTAMP_NTZ

A DECIMAL holds an integer type when it has all its digits before the point. Inside of ARRAY, MAP
and STRUCT each part may be widened; the fields of a STRUCT stay as they are.
"""

from __future__ import annotations

import pyarrow as pa

from tidelock.model.types import TIMESTAMP_NTZ, inner_fields

_WIDER: dict[pa.DataType, frozenset[pa.DataType]] = {
    pa.int8(): frozenset({pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()}),
    pa.int16(): frozenset({pa.int32(), pa.int64(), pa.float32(), pa.float64()}),
    pa.int32(): frozenset({pa.int64(), pa.float64()}),
    pa.int64(): frozenset(),
    pa.float32(): frozenset({pa.float64()}),
    pa.date32(): frozenset({TIMESTAMP_NTZ}),
}
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def is_widening(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of the old type is one of the new type, or they are the same."""
    if old == new:
        return True
    if pa.types.is_decimal(new):
        if old in _DIGITS:
            return bool(new.precision - new.scale >= _DIGITS[old])
        return bool(
            pa.types.is_decimal(old)
            and new.scale >= old.scale
            and new.precision - new.scale >= old.precision - old.scale
        )
    if pa.types.is_nested(old):
        return _is_wider_inside(old, new)
    return new in _WIDER.get(old, ())


def _is_wider_inside(old: pa.DataType, new: pa.DataType) -> bool:
    if old.id != new.id:
        return False
    before, after = inner_fields(old), inner_fields(new)
    if [one.name for one in before] != [one.name for one in after]:
        return False
    return all(
        is_widening(one.type, other.type) and (other.nullable or not one.nullable)
        for one, other in zip(before, after, strict=True)
    )
