"""Parameters of SQL as they are written on the command line: `name=value`, `name:type=value`.

Owns: the types. A value is text unless its type is named; what it becomes is bound, never pasted.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from typing import Any

from tidelock.errors import InvalidOption

_BOOLEANS = {"true": True, "false": False}

TYPES: dict[str, Callable[[str], Any]] = {
    "string": str,
    "int": int,
    "double": float,
    "decimal": decimal.Decimal,
    "boolean": lambda text: _BOOLEANS[text.lower()],
    "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
    "null": lambda text: None,
}


def read_parameters(given: Sequence[str]) -> dict[str, Any]:
    """The values of parameters by name, or InvalidOption that names the option."""
    found: dict[str, Any] = {}
    for option in given:
        named, equals, text = option.partition("=")
        name, colon, kind = named.partition(":")
        if not equals or not name:
            raise InvalidOption(
                f"--param {option!r} is not NAME=VALUE or NAME:TYPE=VALUE.", option=option
            )
        if name in found:
            raise InvalidOption(f"--param {name} is given twice.", option=option)
        found[name] = _value(name, kind if colon else "string", text, option)
    return found


def _value(name: str, kind: str, text: str, option: str) -> Any:
    read = TYPES.get(kind.lower())
    if read is None:
        raise InvalidOption(
            f"--param {option!r}: there is no type {kind!r}. Use one of: {', '.join(TYPES)}.",
            option=option,
        )
    try:
        return read(text)
    except (ValueError, KeyError, ArithmeticError):
        raise InvalidOption(
            f"--param {name}: {text!r} is no {kind.lower()}.", option=option
        ) from None
