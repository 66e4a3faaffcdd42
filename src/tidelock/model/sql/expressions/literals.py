"""The literals of Spark SQL, with the types that Spark gives them.

Types are Arrow's. A literal that is not understood to the last digit is not a literal here: `read`
answers None, and the expression goes to Spark. Dates and times are read only in their strict ISO
shapes, in which Spark's many lenient ones cannot differ.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
import zoneinfo
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from tidelock.model.sql.expressions.syntax import bare, has_only
from tidelock.model.types import TIMESTAMP, TIMESTAMP_NTZ

Value: TypeAlias = bool | int | float | Decimal | str | bytes | dt.date | dt.datetime | None

INTEGER_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
# The digits of the decimal type that Spark takes for an integer type.
INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
FLOATS = (pa.float32(), pa.float64())
DECIMAL_DIGITS_MAX = 38

_INTEGER_CASTS = {
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
}
_TIMESTAMP_CASTS = (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)

_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_FRACTION = re.compile(r"[0-9]+\.[0-9]*|\.[0-9]+", re.ASCII)
_EXPONENT = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?(Z|[+-][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-9]{2})", re.ASCII)

# Outside of these years, the rules of a region differ between editions of the time zone database.
_REGION_YEARS = range(1971, 2037)


@dataclass(frozen=True)
class Literal:
    """A constant: its type in Spark, as an Arrow type, and its value. NULL has the type null."""

    type: pa.DataType
    value: Value

    @property
    def number(self) -> int | Decimal | float:
        assert isinstance(self.value, int | Decimal | float)
        return self.value


NULL = Literal(pa.null(), None)


def read(node: exp.Expr, zone: str) -> Literal | None:
    """The literal that the node is, or None when it is none, or one that only Spark can read."""
    node = bare(node)
    if isinstance(node, exp.Neg):
        # A sign belongs to a number directly behind it: -2147483648 is an INT.
        inner = node.this
        plain = isinstance(inner, exp.Literal) and not inner.is_string
        return _number("-" + inner.this) if plain else _negated(_cast(inner, zone))
    if isinstance(node, exp.Null):
        return NULL
    if isinstance(node, exp.Boolean):
        return Literal(pa.bool_(), bool(node.this))
    if isinstance(node, exp.Literal):
        return Literal(pa.string(), node.this) if node.is_string else _number(node.this)
    if isinstance(node, exp.HexString):
        text = str(node.this)
        even = len(text) % 2 == 0 and has_only(node, "this")
        return Literal(pa.binary(), bytes.fromhex(text)) if even else None
    return _cast(node, zone)


_PLAIN = re.compile(
    r"(?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))|'(?P<text>[^'\\$]*)'"
    r"|(?P<word>NULL|TRUE|FALSE)|(?P<kind>DATE|TIMESTAMP)\s*'(?P<moment>[^'\\$]*)'",
    re.IGNORECASE | re.ASCII,
)
_WORDS = {"NULL": NULL, "TRUE": Literal(pa.bool_(), True), "FALSE": Literal(pa.bool_(), False)}
_MOMENTS = {"DATE": exp.DType.DATE, "TIMESTAMP": exp.DType.TIMESTAMPTZ}


def read_plain(text: str, zone: str) -> Literal | None:
    """The literal that a text is, if no parser is needed to see that: for many of them."""
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    if found["number"] is not None:
        return _number(found["number"])
    if found["word"] is not None:
        return _WORDS[found["word"].upper()]
    if found["kind"] is not None:
        return _cast_time(found["moment"], _MOMENTS[found["kind"].upper()], zone)
    return Literal(pa.string(), found["text"])


def decimal_type(value: Decimal) -> pa.Decimal128Type | None:
    """The type that Spark gives to a decimal literal: 1.10 is a DECIMAL(3,2)."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale)
    return pa.decimal128(precision, scale) if precision <= DECIMAL_DIGITS_MAX else None


def read_date(text: str) -> dt.date | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def read_timestamp(text: str, zone: str) -> dt.datetime | None:
    """The instant that the text names, read in the zone unless the text has its own."""
    parts = _TIMESTAMP.fullmatch(text)
    local = _local(parts)
    if parts is None or local is None:
        return None
    return to_instant(local, "UTC" if parts[4] == "Z" else parts[4] or zone)


def read_timestamp_ntz(text: str) -> dt.datetime | None:
    """The local time that the text names; a zone in it is not understood here."""
    parts = _TIMESTAMP.fullmatch(text)
    return None if parts is None or parts[4] else _local(parts)


def to_instant(local: dt.datetime, zone: str) -> dt.datetime | None:
    """The one instant of a local time; None if there is none, or two, or the zone is not sure."""
    try:
        if zone in ("UTC", "Z", "GMT", "Etc/UTC"):
            return local.replace(tzinfo=dt.UTC)
        offset = _OFFSET.fullmatch(zone)
        if offset:
            hours, minutes = int(offset[2]), int(offset[3])
            if minutes > 59 or hours * 60 + minutes > 18 * 60:
                return None
            shift = dt.timedelta(hours=hours, minutes=minutes)
            return (local - (shift if offset[1] == "+" else -shift)).replace(tzinfo=dt.UTC)
        if "/" not in zone or zone.startswith("Etc/") or local.year not in _REGION_YEARS:
            return None
        region = zoneinfo.ZoneInfo(zone)
    except (OverflowError, ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return None
    instants = {local.replace(tzinfo=region, fold=fold).astimezone(dt.UTC) for fold in (0, 1)}
    return instants.pop() if len(instants) == 1 else None


def is_float32(value: float) -> bool:
    """The value is exactly one of FLOAT."""
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == value)
    except OverflowError:
        return False


def _local(parts: re.Match[str] | None) -> dt.datetime | None:
    if parts is None:
        return None
    try:
        day = dt.date.fromisoformat(parts[1])
        time = dt.time.fromisoformat(parts[2] or "00:00:00")
    except ValueError:
        return None
    return dt.datetime.combine(day, time.replace(microsecond=int((parts[3] or "0").ljust(6, "0"))))


def _number(text: str) -> Literal | None:
    digits = text.removeprefix("-")
    if _DIGITS.fullmatch(digits):
        if len(digits) > 100:
            return None
        value = int(text)
        for kind in (pa.int32(), pa.int64()):
            if fits(value, kind):
                return Literal(kind, value)
        return _decimal(Decimal(value))
    if _FRACTION.fullmatch(digits):
        return _decimal(Decimal(text))
    if _EXPONENT.fullmatch(digits):
        return _double(text)
    return None


def _decimal(value: Decimal) -> Literal | None:
    kind = decimal_type(value)
    # A decimal has no negative zero.
    return None if kind is None else Literal(kind, value if value else value.copy_abs())


def _double(text: str) -> Literal | None:
    value = float(text)
    vanished = value == 0 and any(digit in "123456789" for digit in re.split("[eE]", text)[0])
    return None if math.isinf(value) or vanished else Literal(pa.float64(), value)


def fits(value: int, kind: pa.DataType) -> bool:
    bound = 1 << (INTEGER_BITS[kind] - 1)
    return -bound <= value < bound


def _negated(literal: Literal | None) -> Literal | None:
    """Minus a number with a suffix, such as -10L. At the very bound of its type, Spark decides."""
    if literal is None or isinstance(literal.value, bool):
        return None
    if isinstance(literal.value, Decimal):
        return _decimal(literal.value.copy_negate())
    if isinstance(literal.value, int | float):
        return Literal(literal.type, -literal.value)
    return None


def _cast(node: exp.Expr, zone: str) -> Literal | None:
    """DATE '…', TIMESTAMP '…', and numbers with a suffix, which sqlglot shows as casts."""
    if not isinstance(node, exp.Cast) or not has_only(node, "this", "to", "safe"):
        return None
    inner, target = node.this, node.to
    if not isinstance(inner, exp.Literal):
        return None
    text: str = inner.this
    kind = target.this
    if kind == exp.DType.DECIMAL:
        return _cast_decimal(text, target)
    if not has_only(target, "this", "nested"):
        return None
    if inner.is_string:
        return _cast_time(text, kind, zone)
    if kind in _INTEGER_CASTS and _DIGITS.fullmatch(text) and len(text) <= 30:
        integer = _INTEGER_CASTS[kind]
        return Literal(integer, int(text)) if fits(int(text), integer) else None
    if kind not in (exp.DType.DOUBLE, exp.DType.FLOAT):
        return None
    if not any(shape.fullmatch(text) for shape in (_DIGITS, _FRACTION, _EXPONENT)):
        return None
    double = _double(text)
    if kind == exp.DType.DOUBLE or double is None:
        return double
    exact = is_float32(float(text)) and Decimal(text) == Decimal(float(text))
    return Literal(pa.float32(), double.value) if exact else None


def _cast_time(text: str, kind: exp.DType, zone: str) -> Literal | None:
    value: dt.date | None = None
    if kind == exp.DType.DATE:
        value = read_date(text)
        return None if value is None else Literal(pa.date32(), value)
    if kind in _TIMESTAMP_CASTS:
        value = read_timestamp(text, zone)
        return None if value is None else Literal(TIMESTAMP, value)
    if kind == exp.DType.TIMESTAMPNTZ:
        value = read_timestamp_ntz(text)
        return None if value is None else Literal(TIMESTAMP_NTZ, value)
    return None


def _cast_decimal(text: str, target: exp.DataType) -> Literal | None:
    """1.5BD. A cast to any other type than the number's own would round or widen it."""
    if not (_FRACTION.fullmatch(text) or _DIGITS.fullmatch(text)):
        return None
    literal = _decimal(Decimal(text))
    params = [param.name for param in target.expressions]
    if literal is None or params != [str(literal.type.precision), str(literal.type.scale)]:
        return None
    return literal
