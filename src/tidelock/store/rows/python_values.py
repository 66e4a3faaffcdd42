"""Python values made into Arrow arrays, only where no value changes its meaning.

Owns: which Python values a column takes. The rules are those of `arrow_values.py`; pyarrow by
itself would take 5 for a TIMESTAMP, True for a DOUBLE and b"a" for a STRING.
"""

from __future__ import annotations

import datetime
import decimal
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tidelock.model.names import fold
from tidelock.model.time.zones import UTC, instant_of, zone_of
from tidelock.model.types import inner_fields
from tidelock.store.rows.arrow_values import Misfit, UnknownField

Fit = Callable[[Any], Any]

_NONE = type(None)
_DIGITS = decimal.Context(prec=200, traps=[decimal.InvalidOperation])

# Values of exactly these types pyarrow converts as we want, and says so if one does not fit.
_QUICK: dict[pa.DataType, frozenset[type]] = {
    **{t: frozenset({int, _NONE}) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.float64(): frozenset({float, int, _NONE}),
    pa.string(): frozenset({str, _NONE}),
    pa.binary(): frozenset({bytes, _NONE}),
    pa.bool_(): frozenset({bool, _NONE}),
    pa.date32(): frozenset({datetime.date, _NONE}),
    pa.timestamp("us", tz="UTC"): frozenset({datetime.datetime, _NONE}),
}
_QUICK_DECIMAL = frozenset({decimal.Decimal, int, _NONE})


class ValuesMisfit(Exception):
    """The first values that do not fit: (row, value, reason)."""

    def __init__(self, offenders: list[tuple[int, Any, str]]) -> None:
        super().__init__(offenders)
        self.offenders = offenders


def array_of(
    values: Sequence[Any], type_: pa.DataType, path: str, zone: str = UTC, *, limit: int = 3
) -> pa.Array:
    """The values as an array of the type, or ValuesMisfit with the first that do not fit.

    `zone` is the session's time zone, in which times without a zone are read.
    """
    quick = _QUICK_DECIMAL if pa.types.is_decimal(type_) else _QUICK.get(type_)
    if pa.types.is_timestamp(type_) and zone != UTC:
        quick = None
    if quick is not None and quick.issuperset(map(type, values)):
        try:
            return pa.array(values, type_)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            pass  # Told value by value below, or fitted after all.
    fit = fitter(type_, path, zone)
    fitted: list[Any] = []
    offenders: list[tuple[int, Any, str]] = []
    for row, value in enumerate(values):
        try:
            fitted.append(fit(value))
        except Misfit as misfit:
            offenders.append((row, value, str(misfit)))
            if len(offenders) == limit:
                break
    if offenders:
        raise ValuesMisfit(offenders)
    return pa.array(fitted, type_)


@lru_cache(maxsize=1024)
def fitter(type_: pa.DataType, path: str, zone: str) -> Fit:
    """A function that makes one value, or None, fit the type, and raises Misfit if it cannot."""
    inner = _inner_fitter(type_, path, zone)

    def fit(value: Any) -> Any:
        if value is None:
            return None
        value = _plain(value)
        return None if value is None else inner(value)

    return fit


def _inner_fitter(type_: pa.DataType, path: str, zone: str) -> Fit:
    kinds = pa.types
    if kinds.is_struct(type_):
        return _struct_fitter(type_, path, zone)
    if kinds.is_map(type_):
        return _map_fitter(type_, path, zone)
    if kinds.is_list(type_):
        return _list_fitter(type_, path, zone)
    if kinds.is_date(type_):
        return _date(zone)
    if kinds.is_timestamp(type_):
        return _local_time if type_.tz is None else _instant(zone)
    for matches, make in _FITTERS:
        if matches(type_):
            return make(type_)
    raise AssertionError(f"{type_} is not a normal type")


def _plain(value: Any) -> Any:
    """The value without the wrapping of numpy, pandas or pyarrow."""
    module = type(value).__module__
    if module.startswith("pandas") and type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if module == "numpy":
        if type(value).__name__ == "datetime64":
            return _moment(value)
        return value.tolist()
    return value


def _moment(value: Any) -> Any:
    """A numpy datetime64 as a date or datetime; numpy itself makes an integer of nanoseconds."""
    plain = value.item()
    if not isinstance(plain, int):
        return plain
    micros = value.astype("datetime64[us]")
    if micros != value:
        raise Misfit("it is finer than microseconds")
    return micros.item()


def _named(value: Any) -> str:
    return f"it is a Python {type(value).__name__}"


# Single values ---------------------------------------------------------------------------------


def _integer(type_: pa.DataType) -> Fit:
    bound = 1 << (type_.bit_width - 1)

    def fit(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            raise Misfit(_named(value))
        if not isinstance(value, int) and not _is_whole(value):
            raise Misfit("it is not a whole number")
        if not -bound <= int(value) < bound:
            raise Misfit("it is out of range")
        return int(value)

    return fit


def _is_whole(value: float | decimal.Decimal) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return value.is_finite() and value == value.to_integral_value()


def _floating(type_: pa.DataType) -> Fit:
    single = type_ == pa.float32()

    def fit(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            raise Misfit(_named(value))
        try:
            number = float(value)
            if single:
                (number,) = struct.unpack("<f", struct.pack("<f", number))
        except (OverflowError, ValueError) as error:
            raise Misfit("it is out of range") from error
        if isinstance(value, int) and number != value:
            raise Misfit("it would lose digits")
        return number

    return fit


def _decimal(type_: pa.DataType) -> Fit:
    scale, bound = type_.scale, decimal.Decimal(10) ** type_.precision

    def fit(value: Any) -> decimal.Decimal:
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            raise Misfit(_named(value))
        # A float stands for the number that it is printed as, as in Spark.
        number = decimal.Decimal(repr(float(value)) if isinstance(value, float) else value)
        if not number.is_finite():
            raise Misfit("it is not a finite number")
        scaled = number.scaleb(scale, _DIGITS)
        if scaled != scaled.to_integral_value(context=_DIGITS):
            raise Misfit("it would lose digits")
        if abs(scaled) >= bound:
            raise Misfit("it has too many digits")
        return number

    return fit


def _string(type_: pa.DataType) -> Fit:
    def fit(value: Any) -> str:
        if not isinstance(value, str):
            raise Misfit(_named(value))
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Misfit("it is not valid Unicode") from error
        return text

    return fit


def _binary(type_: pa.DataType) -> Fit:
    def fit(value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise Misfit(_named(value))
        return bytes(value)

    return fit


def _boolean(type_: pa.DataType) -> Fit:
    def fit(value: Any) -> bool:
        if not isinstance(value, bool):
            raise Misfit(_named(value))
        return value

    return fit


def _date(zone: str) -> Fit:
    def fit(value: Any) -> datetime.date:
        if isinstance(value, datetime.datetime):
            moment = _micros(value)
            if moment.tzinfo is not None:
                moment = _moved(moment, zone_of(zone))
            if moment.time() != datetime.time.min:
                raise Misfit("it is not at midnight")
            return moment.date()
        if not isinstance(value, datetime.date):
            raise Misfit(_named(value))
        return value

    return fit


def _local_time(value: Any) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            raise Misfit("it has a time zone")
        return _micros(value)
    return _midnight(value)


def _instant(zone: str) -> Fit:
    """To the moment in UTC; a value without a zone is read in the session's."""

    def fit(value: Any) -> datetime.datetime:
        moment = _micros(value) if isinstance(value, datetime.datetime) else _midnight(value)
        if moment.tzinfo is not None:
            return _moved(moment, datetime.UTC)
        try:
            return instant_of(moment, zone)
        except OverflowError as error:
            raise Misfit("it is out of range") from error

    return fit


def _midnight(value: Any) -> datetime.datetime:
    if not isinstance(value, datetime.date):
        raise Misfit(_named(value))
    return datetime.datetime(value.year, value.month, value.day)


def _micros(value: datetime.datetime) -> datetime.datetime:
    """The value as Python's own kind, which is no finer than microseconds."""
    if getattr(value, "nanosecond", 0):
        raise Misfit("it is finer than microseconds")
    plain = value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
    assert isinstance(plain, datetime.datetime)
    return plain


def _moved(value: datetime.datetime, zone: datetime.tzinfo) -> datetime.datetime:
    try:
        return value.astimezone(zone)
    except OverflowError as error:
        raise Misfit("it is out of range") from error


_FITTERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Fit]], ...] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_string, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_boolean, _boolean),
)


# Nested values ---------------------------------------------------------------------------------


def _list_fitter(type_: pa.DataType, path: str, zone: str) -> Fit:
    item = fitter(type_.value_type, f"{path}.item", zone)

    def fit(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise Misfit(_named(value))
        return [item(each) for each in value]

    return fit


def _map_fitter(type_: pa.DataType, path: str, zone: str) -> Fit:
    key, item = (fitter(f.type, f"{path}.{f.name}", zone) for f in inner_fields(type_))

    def fit(value: Any) -> list[tuple[Any, Any]]:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list | tuple):
            raise Misfit(_named(value))
        fitted = []
        for pair in pairs:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise Misfit("it is not made of (key, value) pairs")
            name = key(pair[0])
            if name is None:
                raise Misfit("a key of the map is NULL")
            fitted.append((name, item(pair[1])))
        return fitted

    return fit


def _struct_fitter(type_: pa.DataType, path: str, zone: str) -> Fit:
    fields = {f.name: fitter(f.type, f"{path}.{f.name}", zone) for f in type_}
    folded = {fold(name): name for name in fields}

    def fit(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Misfit(_named(value))
        fitted: dict[str, Any] = {}
        for name, each in value.items():
            target = name if name in fields else folded.get(fold(str(name)))
            if target is None:
                raise UnknownField(path, str(name), list(fields))
            if target in fitted:
                raise Misfit(f"it has {target!r} twice, in two spellings")
            fitted[target] = fields[target](each)
        return fitted

    return fit
