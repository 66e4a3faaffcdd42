"""Arrow's decimals made into numbers of other types, and others into decimals, to the last digit.

Owns: the conversions in which Arrow is not exact, or does not notice that it is not:

- a decimal that is multiplied to reach a larger scale may overflow and come out as another number;
- a float that is much smaller than a column's last digit comes out as 0;
- a decimal becomes a float that is off by one bit;
- a narrow decimal is compared with bounds that its type cannot hold, and refused.

Law: what comes out is the same number, or for a float the nearest; else ValueError.
"""

from __future__ import annotations

import decimal

import pyarrow as pa
import pyarrow.compute as pc

DECIMAL_DIGITS_MAX = 38


def integer_to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Arrow wants room for the widest integer, whatever the values are; 76 digits always have it.
    return array.cast(pa.decimal256(76, target.scale)).cast(target)


def float_to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if pc.any(pc.invert(pc.is_finite(array))).as_py():
        raise ValueError("it is not a finite number")
    _check_digits(array, target)
    tiny = pc.less(pc.abs(array), pa.scalar(10.0**-target.scale, array.type))
    if pc.any(pc.and_(tiny, pc.not_equal(array, 0.0))).as_py():
        raise ValueError("it would lose digits")
    return array.cast(pa.string()).cast(target)


def decimal_to_decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    _check_digits(array, target)
    return array.cast(target)


def decimal_to_integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    return _wide(array).cast(target)


def decimal_to_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Of -7.00000 Arrow itself makes -7.000000000000001.
    out = array.cast(pa.string()).cast(target)
    if pc.any(pc.is_inf(out)).as_py():
        raise ValueError("it is out of range")
    return out


def _check_digits(array: pa.Array, target: pa.DataType) -> None:
    """ValueError where a number has more digits before the point than the column has."""
    limit = decimal.Decimal(10) ** (target.precision - target.scale)
    ends = pc.min_max(_wide(array))
    for end in (ends["min"], ends["max"]):
        value = end.as_py()
        # As it is printed: a float may stand for a number that it is not.
        if value is not None and abs(decimal.Decimal(str(value))) >= limit:
            raise ValueError("it has too many digits")


def _wide(array: pa.Array) -> pa.Array:
    if pa.types.is_decimal32(array.type) or pa.types.is_decimal64(array.type):
        return array.cast(pa.decimal128(DECIMAL_DIGITS_MAX, array.type.scale))
    return array
