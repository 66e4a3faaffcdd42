"""Values as people read them, in a cell of a table or in a sentence.

Owns: one spelling for each value in a cell: as JSON has it (store/rows/json_values.py), without
quotes; moments with a space for the T; NULL as NULL, and a string that would look like it in
quotes.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tidelock.model.printable import printable

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "NULL"


def shown_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The values of a column, ready for `cell`."""
    from tidelock.store.rows.json_values import python_values

    return [shown_value(value, column.type) for value in python_values(column)]


def shown_value(value: Any, type_: pa.DataType) -> Any:
    """A JSON value, ready for `cell`."""
    import pyarrow as pa

    return for_people(value) if value is not None and pa.types.is_timestamp(type_) else value


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


def shortened(text: str, width: int) -> str:
    """The text, if need be without its end: cut between words, with an ellipsis."""
    if len(text) <= width:
        return text
    head, space, _ = text[:width].rpartition(" ")
    # A text of one long word has no place between words.
    kept = head.rstrip(" .,:;") if space and len(head) > width // 2 else text[: width - 1]
    return kept + "…"


def count(number: int, noun: str) -> str:
    """`1 row`, `2,000 rows`."""
    plural = noun + ("es" if noun.endswith("ch") else "s")
    if noun.endswith("ry"):
        plural = noun[:-1] + "ies"
    return f"{number:,} {noun if number == 1 else plural}"
