"""Numbers: integers, floats and decimals.

    int2 int4 int8 oid   -7
    float4 float8        the shortest digits that give the number again: 0.1, -0, 1e+300, NaN,
                         -Infinity; with an exponent below 1e-4, and from 1e+06 or 1e+15
    numeric(p,s)         with s digits after the point, also where they are 0; NaN
    numeric              with as many digits as it was given; NaN, Infinity

A decimal is held if all its digits are. How many zeros end it is not part of a number, but of its
text: a type that says how many there are is printed so, all others with as few as can be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.ingest.postgres.types.converters import CastConverter, Malformed

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]{2,3})?", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_PLAIN = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:e([+-][0-9]+))?", re.ASCII)
_EXPONENT_FROM = {pa.float32(): 6, pa.float64(): 15}
_ARROW_EXPONENT_FROM = 1e10
_LEAST_PLAIN = 1e-4
ARROW_PLAIN_SCALE_MAX = 6
"""Up to this scale Arrow prints all decimals in digits alone."""


@dataclass(frozen=True)
class Integers(CastConverter):
    type: pa.DataType

    @property
    def usual(self) -> str:
        # One digit less than the type may have: what may overflow is read one by one.
        digits = len(str(1 << (self.type.bit_width - 1))) - 1
        return rf"^-?[0-9]{{1,{digits}}}$"

    def read(self, text: str) -> int | None:
        if not _INTEGER.fullmatch(text):
            raise Malformed(text, "a whole number")
        value, limit = int(text), 1 << (self.type.bit_width - 1)
        return value if -limit <= value < limit else None

    def texts(self, values: pa.Array) -> pa.Array:
        return values.cast(pa.string())


@dataclass(frozen=True)
class Floats(CastConverter):
    type: pa.DataType

    @property
    def usual(self) -> str:
        # Arrow reads 1e999 as infinity: what has an exponent and is not printed again is read.
        return r"^-?[0-9]{1,17}(\.[0-9]{1,40})?$"

    def read(self, text: str) -> float | None:
        if text in ("NaN", "Infinity", "-Infinity"):
            return float(text)
        if _NUMBER.fullmatch(text):
            value: float = pa.array([text]).cast(self.type)[0].as_py()
            if abs(value) != float("inf"):
                return value
        raise Malformed(text, "a number")

    def texts(self, values: pa.Array) -> pa.Array:
        """As Arrow prints them, and what PostgreSQL prints otherwise one by one.

        One kind is left as it is: for a few, such as 1e23, which lie between two numbers,
        PostgreSQL prints more digits than are needed. Their texts are kept.
        """
        told = values.cast(pa.string())
        finite = pc.is_finite(values)
        if pc.all(finite).as_py() is False:
            endless = pc.if_else(pc.greater(values, 0), "Infinity", "-Infinity")
            told = pc.if_else(finite, told, pc.if_else(pc.is_nan(values), "NaN", endless))
        numbers = np.abs(pc.fill_null(values, 0).to_numpy(zero_copy_only=False))
        exponent_from = _EXPONENT_FROM[self.type]
        low, high = sorted((_ARROW_EXPONENT_FROM, 10.0**exponent_from))
        between = (numbers >= low) & (numbers < high)
        if self.type == pa.float64() and between.any():
            # Whole numbers, such as moments in milliseconds, are printed at once.
            whole = between & (numbers == np.floor(numbers))
            plain = pc.if_else(pa.array(whole), values, None).cast(pa.int64()).cast(pa.string())
            told, between = pc.coalesce(plain, told), between & ~whole
        odd = between | ((numbers < _LEAST_PLAIN) & (numbers > 0))
        if not odd.any():
            return told
        respelt = [_respelt(text, exponent_from) for text in told.filter(pa.array(odd)).to_pylist()]
        return pc.replace_with_mask(told, pa.array(odd), pa.array(respelt, pa.string()))


def _respelt(text: str, exponent_from: int) -> str:
    """A number as PostgreSQL writes it, from the same digits in another notation."""
    match = _PLAIN.fullmatch(text)
    assert match is not None, text
    sign, whole, fraction, power = match[1], match[2], match[3] or "", int(match[4] or 0)
    digits = (whole + fraction).lstrip("0")
    exponent = len(whole) - 1 + power - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0") or "0"
    if -4 <= exponent < exponent_from:
        # Only of what is large: Arrow writes no exponent where PostgreSQL would not below 1.
        rest = digits[exponent + 1 :]
        return f"{sign}{digits[: exponent + 1].ljust(exponent + 1, '0')}{rest and '.' + rest}"
    point = "." if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}{digits[1:]}e{exponent:+03d}"


@dataclass(frozen=True)
class Decimals(CastConverter):
    """`digits` after the point are always printed, and more where there are; None: as few as can
    be."""

    type: pa.DataType
    digits: int | None
    beyond = ("NaN", "Infinity", "-Infinity")

    @property
    def usual(self) -> str:
        # Not what may overflow, which Arrow takes for other numbers.
        whole, scale = self.type.precision - self.type.scale, self.type.scale
        before = rf"[0-9]{{1,{whole}}}" if whole else "0"
        after = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
        return f"^-?{before}{after}$"

    def read(self, text: str) -> Decimal | None:
        match = _PLAIN.fullmatch(text)
        if match is None or match[4]:
            raise Malformed(text, "a number")
        whole, fraction = match[2].lstrip("0"), (match[3] or "").rstrip("0")
        if len(whole) > self.type.precision - self.type.scale or len(fraction) > self.type.scale:
            return None
        return Decimal(f"{match[1]}{whole or '0'}.{fraction or '0'}")

    def texts(self, values: pa.Array) -> pa.Array:
        told, scale = plain_decimals(values), self.type.scale
        if self.digits == scale:
            return told
        if self.digits is not None and self.digits > scale:
            point = "" if scale else "."
            return _joined(told, point + "0" * (self.digits - scale))
        if not scale:
            return told
        short = pc.ascii_rtrim(pc.ascii_rtrim(told, "0"), ".")
        if not self.digits:
            return short
        # Cut to so many digits, unless there are more that are not 0.
        cut = pc.utf8_slice_codeunits(told, 0, self.digits - scale)
        return pc.if_else(pc.greater(pc.utf8_length(short), pc.utf8_length(cut)), short, cut)


def plain_decimals(values: pa.Array) -> pa.Array:
    """Decimals in digits alone, with all digits of their scale."""
    scale = values.type.scale
    told = values.cast(pa.string())
    if scale <= ARROW_PLAIN_SCALE_MAX:
        return told
    powers = pc.match_substring(told, "E")
    if pc.any(powers).as_py() is not True:
        return told
    found = values.filter(powers)
    whole = pa.decimal128(found.type.precision, 0)
    # The same integers in another type: their digits without the point.
    digits = pa.Array.from_buffers(whole, len(found), found.buffers(), offset=found.offset)
    sign = pc.if_else(pc.less(digits, pa.scalar(Decimal(0), whole)), "-", "")
    padded = pc.utf8_lpad(pc.abs(digits).cast(pa.string()), scale, "0")
    # Arrow writes a power of ten only for what is less than 1.
    return pc.replace_with_mask(told, powers, pc.binary_join_element_wise(sign, "0.", padded, ""))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
