"""Values as people and programs read them.

Owns: one exact spelling for each value in JSON, in CSV and in a table cell.

    JSON   decimals as strings; moments as ISO 8601 in UTC with a Z; bytes as base64; NaN and the
           infinities as strings; a MAP with STRING keys as an object, else as [key, value] pairs
    cell   as JSON, without quotes; moments with a space for the T; NULL as NULL, and a string that
           would look like it in quotes

What JSON says here, `tidelock load` reads back as the same value.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "NULL"


def column_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of a column, ready for `json.dumps`."""
    type_ = column.type
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):
        # Python's dates end in the year 9999, Arrow's do not.
        return [scalar_text(scalar) if scalar.is_valid else None for scalar in column]
    return [json_value(value, type_) for value in values]


def shown_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of a column, ready for `cell`."""
    return [shown_value(value, column.type) for value in column_values(column)]


def shown_value(value: Any, type_: pa.DataType) -> Any:
    """A JSON value, ready for `cell`."""
    import pyarrow as pa

    return for_people(value) if value is not None and pa.types.is_timestamp(type_) else value


def scalar_text(scalar: pa.Scalar) -> Any:
    import pyarrow as pa

    try:
        return json_value(scalar.as_py(), scalar.type)
    except (ValueError, OverflowError):
        pass
    try:
        return scalar.cast(pa.string()).as_py().replace(" ", "T")
    except pa.ArrowException:
        return f"({scalar.type})"


def json_value(value: Any, type_: pa.DataType | None = None) -> Any:
    """A value as JSON has it. The type tells a MAP from an ARRAY, and a FLOAT from a DOUBLE."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _shortest(value, type_) if math.isfinite(value) else _not_finite(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, dict):
        types = {} if type_ is None else {field.name: field.type for field in type_}
        return {str(name): json_value(each, types.get(name)) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return _nested(value, type_)
    return str(value)


def _nested(value: list[Any] | tuple[Any, ...], type_: pa.DataType | None) -> Any:
    import pyarrow as pa

    if type_ is not None and pa.types.is_map(type_):
        pairs = [
            (json_value(key, type_.key_type), json_value(item, type_.item_type))
            for key, item in value
        ]
        named = pa.types.is_string(type_.key_type) or pa.types.is_large_string(type_.key_type)
        return dict(pairs) if named else [list(pair) for pair in pairs]
    item_type = getattr(type_, "value_type", None)
    return [json_value(each, item_type) for each in value]


def _shortest(value: float, type_: pa.DataType | None) -> float:
    """The number with the fewest digits that is read back as the same value of the type."""
    import pyarrow as pa

    if type_ is None or not pa.types.is_float32(type_):
        return value
    return float(pa.scalar(value, type_).cast(pa.string()).as_py())


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def moment(value: datetime) -> str:
    """ISO 8601: in UTC with a Z, or without a zone if the value has none."""
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def for_people(iso: str) -> str:
    """A moment as people read it: 2026-03-01 12:00:00Z."""
    return iso.replace("T", " ", 1)


def seconds(iso: str | None) -> str:
    """A moment in a listing: to the second."""
    return for_people(iso[:19]) + iso[-1] if iso else ""


def duration(number: float) -> str:
    """A number of seconds in the unit that people would use: 42 s, 3 min, 5 h, 2 days."""
    for unit, unit_seconds in (("day", 86_400), ("h", 3600), ("min", 60)):
        if number >= unit_seconds:
            whole = int(number // unit_seconds)
            return count(whole, unit) if unit == "day" else f"{whole} {unit}"
    return f"{int(number)} s"


def cell(value: Any, is_text: bool) -> str:
    """A JSON value as one line of a table cell."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        if is_text and (value == NULL or value != value.strip() or not value):
            value = f"'{value}'"
        return printable(value)
    if isinstance(value, dict | list):
        return printable(json.dumps(value, ensure_ascii=False))
    return str(value)


def printable(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, width: int) -> str:
    """The text, if need be without its end: cut between words, with an ellipsis."""
    if len(text) <= width:
        return text
    head, space, _ = text[:width].rpartition(" ")
    # A text of one long word has no place between words.
    kept = head.rstrip(" .,:;") if space and len(head) > width // 2 else text[: width - 1]
    return kept + "…"


def size(size_bytes: int) -> str:
    """A number of bytes in units that people read: 1.4 MB, 932 bytes."""
    if size_bytes < 1000:
        return f"{size_bytes} byte{'' if size_bytes == 1 else 's'}"
    amount = float(size_bytes)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1000
        if amount < 999.5 or unit == "TB":
            return f"{amount:.1f} {unit}" if amount < 99.95 else f"{amount:.0f} {unit}"
    raise AssertionError("unreachable")


def count(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    plural = noun + ("es" if noun.endswith("ch") else "s")
    if noun.endswith("ry"):
        plural = noun[:-1] + "ies"
    return f"{number:,} {noun if number == 1 else plural}"
