"""Comparing rows value by value, for many rows at once.

Two values are the same when nobody could tell them apart: NULL is the same as NULL, NaN as NaN, and
0.0 is not -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask: TypeAlias = npt.NDArray[np.bool_]
_BITS = {pa.float16(): np.uint16, pa.float32(): np.uint32, pa.float64(): np.uint64}


def same_values(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    """Which of the values at the same places are the same."""
    left, right = _whole(one), _whole(other)
    if not len(left):
        return np.zeros(0, dtype=np.bool_)
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        # By their text: so NaN is itself, at any depth.
        return np.fromiter((repr(a) == repr(b) for a, b in pairs), np.bool_, len(left))
    floats = left.type in _BITS
    equal = pa.array(_bits(left) == _bits(right)) if floats else pc.equal(left, right)
    if not left.null_count and not right.null_count:
        return _mask(equal)
    nulls = _mask(left.is_null()), _mask(right.is_null())
    return np.where(nulls[0] | nulls[1], nulls[0] & nulls[1], _mask(pc.fill_null(equal, False)))


def same_rows(one: pa.Table, other: pa.Table, columns: Sequence[str]) -> Mask:
    """Which of the rows at the same places have the same values in some columns."""
    found = np.ones(one.num_rows, dtype=np.bool_)
    for name in columns:
        found &= same_values(one.column(name), other.column(name))
    return found


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _bits(values: pa.Array) -> npt.NDArray[np.unsignedinteger]:
    """Floats by their bits, every NaN by the same."""
    floats = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    bits = floats.view(_BITS[values.type]).copy()
    bits[np.isnan(floats)] = ~np.zeros(1, dtype=bits.dtype)[0]
    return bits  # type: ignore[no-any-return]


def _mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    found: Mask = _whole(values).to_numpy(zero_copy_only=False)
    return found
