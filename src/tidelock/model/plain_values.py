"""Values of a row as JSON can hold them, spelt as in all JSON that Tidelock writes
(store/rows/json_values.py): numbers as they are, DECIMAL as text, BINARY as Base64, moments in UTC.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


def plain_value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else _unbounded(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): plain_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return _sequence(value)
    return str(value)


def plain_row(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    return {name: plain_value(value) for name, value in values.items()}


def _unbounded(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _sequence(values: list[Any] | tuple[Any, ...]) -> Any:
    """A list; or a map, which Arrow gives as a list of pairs."""
    pairs = [one for one in values if isinstance(one, tuple) and len(one) == 2]
    keys = {key for key, _ in pairs}
    if pairs and len(pairs) == len(keys) == len(values) and all(type(key) is str for key in keys):
        return {key: plain_value(one) for key, one in pairs}
    return [plain_value(one) for one in values]
