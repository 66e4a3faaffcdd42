"""Text made into values of a column's type, only where it says exactly such a value.

Owns: what text means in a CSV field, and in a JSON string where JSON has no value of the type.

    integers                5, -5, +5, and spaces around them; nothing that is not whole
    FLOAT DOUBLE            1.5, 1e3, NaN, Infinity, -Infinity
    DECIMAL(p, s)           1.5; never rounded
    BOOLEAN                 true false, t f, yes no, y n, 1 0, in any case
    DATE                    2026-03-01
    TIMESTAMP               2026-03-01 12:00:00.5, with or without Z or +02:00; without, it is
                            read in the session's time zone
    TIMESTAMP_NTZ           the same without a zone
    BINARY                  base64
    STRING                  itself

A file of text is UTF-8, with or without a byte-order mark.

Arrow converts whole columns at once; what it refuses is looked at value by value, which either
finds that the text is one of the above after all, or finds the first that is not.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.errors import WrongType
from tidelock.model.time.zoned_arrays import instants_of
from tidelock.model.time.zones import UTC as UTC_ZONE
from tidelock.model.time.zones import instant_of
from tidelock.model.types import TIMESTAMP, TIMESTAMP_NTZ, type_name

if TYPE_CHECKING:
    from tidelock.model.schema.schema import Column

DECIMAL_DIGITS_MAX = 38
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?"
    r" ?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
)
_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})
_FLOATS = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "inf": float("inf"),
    "+infinity": float("inf"),
    "-infinity": float("-inf"),
    "-inf": float("-inf"),
}


NOT_UTF8 = "It is not UTF-8 text. Convert it first, such as: iconv -f LATIN1 -t UTF-8."
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEAD_BYTES = 1024


class NotUtf8(ValueError):
    """Bytes that are text of another encoding, or no text."""


class Utf8Stream:
    """A stream without its byte-order mark. What begins as UTF-16 and UTF-32 do is refused: bytes
    of theirs may well be UTF-8 that means something else."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._begun = False

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._stream.read(size)
        if self._begun:
            return piece
        self._begun = True
        if piece.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in piece[:HEAD_BYTES]:
            raise NotUtf8
        if piece.startswith(BYTE_ORDER_MARK):
            # An empty piece would mean the end.
            return piece[len(BYTE_ORDER_MARK) :] or self.read(size)
        return piece


class TextMisfit(ValueError):
    """Text that is no value of the type. `position` is its place in the array."""

    def __init__(self, position: int, text: str, reason: str) -> None:
        super().__init__(position, text, reason)
        self.position = position
        self.text = text
        self.reason = reason


def array_from_text(texts: pa.Array, type_: pa.DataType, zone: str = UTC_ZONE) -> pa.Array:
    """The texts, or NULLs, as an array of a type that is not nested."""
    if pa.types.is_string(type_):
        return texts
    quick = _convert_at_once(texts, type_, zone)
    return _convert_one_by_one(texts, type_, zone) if quick is None else quick


def _convert_at_once(texts: pa.Array, type_: pa.DataType, zone: str) -> pa.Array | None:
    try:
        if pa.types.is_binary(type_):
            return None
        if type_ == TIMESTAMP:
            return _moments(texts, zone)
        if pa.types.is_integer(type_) and _any_contains(texts, "x"):
            return None  # Arrow would read 0x10 as 16.
        if pa.types.is_decimal(type_) and not _surely_fit(texts, type_):
            return None
        converted = pc.cast(texts, type_)
    except ValueError:
        return None
    if pa.types.is_floating(type_) and not _all_finite(converted):
        return None  # Arrow reads 1e999 as infinity.
    return converted


def _surely_fit(texts: pa.Array, type_: pa.DataType) -> bool:
    """Whether no number can overflow: Arrow takes some of those that do for others."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    short = longest + type_.scale <= DECIMAL_DIGITS_MAX
    return short and not _any_contains(texts, "e")


def _moments(texts: pa.Array, zone: str) -> pa.Array:
    try:
        return pc.cast(texts, TIMESTAMP)
    except pa.ArrowInvalid:
        return instants_of(pc.cast(texts, TIMESTAMP_NTZ), zone)


def _any_contains(texts: pa.Array, piece: str) -> bool:
    return bool(pc.any(pc.match_substring(texts, piece, ignore_case=True)).as_py())


def _all_finite(values: pa.Array) -> bool:
    return pc.all(pc.is_finite(values)).as_py() is not False


def _convert_one_by_one(texts: pa.Array, type_: pa.DataType, zone: str) -> pa.Array:
    parse = parser(type_, zone)
    values: list[Any] = []
    for position, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else parse(text))
        except ValueError as error:
            raise TextMisfit(position, text, str(error)) from error
    return pa.array(values, type_)


def parser(type_: pa.DataType, zone: str = UTC_ZONE) -> Callable[[str], Any]:
    """A function that makes one text a value of the type, or raises ValueError with the reason."""
    kinds = pa.types
    if kinds.is_string(type_):
        return str
    if kinds.is_integer(type_):
        return lambda text: _integer(text.strip(), type_.bit_width)
    if kinds.is_decimal(type_):
        return lambda text: _decimal(text.strip(), type_.precision, type_.scale)
    if kinds.is_timestamp(type_):
        return lambda text: _moment(text.strip(), zone if type_.tz else None)
    for matches, parse in _PARSERS:
        if matches(type_):
            return lambda text: parse(text.strip())
    raise AssertionError(f"{type_} is nested")


def _integer(text: str, bits: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("it is not a whole number")
    number = int(text)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError("it is out of range")
    return number


def _floating(text: str) -> float:
    if text.lower() in _FLOATS:
        return _FLOATS[text.lower()]
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is not a number")
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("it is out of range")
    return number


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is not a number")
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise ValueError("it is not a number") from error
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    exponent += len(shown) - len(shown.rstrip("0"))
    shown = shown.strip("0")
    if not shown:
        return Decimal(0)
    if -exponent > scale:
        raise ValueError(f"it has more than {scale} digits after the point")
    if len(shown) + exponent > precision - scale:
        raise ValueError(f"it has more than {precision - scale} digits before the point")
    return number


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("it is neither true nor false")


def _date(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise ValueError("it is not a date such as 2026-03-01")
    return date.fromisoformat(text)


def _moment(text: str, zone: str | None) -> datetime:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("it is not a moment such as 2026-03-01 12:00:00")
    fraction = match[3] or ""
    if len(fraction.rstrip("0")) > len(".123456"):
        raise ValueError("it is finer than microseconds")
    if match[4] and zone is None:
        raise ValueError("it has a time zone")
    if fraction:
        # Python reads three or six digits.
        text = text.replace(fraction, fraction[:7].ljust(7, "0"), 1)
    moment = datetime.fromisoformat(text.replace(" Z", "Z").replace(" +", "+").replace(" -", "-"))
    if zone is None:
        return moment
    try:
        return moment.astimezone(UTC) if moment.tzinfo else instant_of(moment, zone)
    except OverflowError as error:
        raise ValueError("it is out of range") from error


def _binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("it is not base64") from error


_PARSERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]], ...] = (
    (pa.types.is_floating, _floating),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_date, _date),
    (pa.types.is_binary, _binary),
)


def misfit_error(misfit: TextMisfit, column: Column, table: str, first_row: int) -> WrongType:
    expected = type_name(column.type)
    shown = misfit.text if len(misfit.text) <= 60 else misfit.text[:59] + "…"
    return WrongType(
        f"Column {column.name!r} of table {table!r} is {expected}, and {shown!r} does not fit: "
        f"{misfit.reason}.",
        table=table,
        column=column.name,
        expected=expected,
        values=[misfit.text],
        rows=[first_row + misfit.position],
    )
