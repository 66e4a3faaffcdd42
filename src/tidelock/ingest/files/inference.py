"""Which type a column has, by the values that were seen of it.

A shape is what was seen: a set of kinds, and what is inside objects and arrays. Shapes of more
values are joined; what a shape comes to as a type is decided at the end. So the order in which
values are seen matters to nothing but the order of names, and how they are spelt.

    nothing, NULL                       STRING
    true false                          BOOLEAN
    1                                   BIGINT; DECIMAL(38,0) where some are beyond it
    1.5                                 DOUBLE, also where others are whole
    2026-03-01                          DATE       (text of CSV; JSON's strings are STRING)
    2026-03-01 12:00:00                 TIMESTAMP, also where others are a DATE
    { … }                               STRUCT of all fields that occur
    [ … ]                               ARRAY of what all elements are
    anything else, and any mixture      STRING, with the JSON of what is no string

Law: what a column was told to be from some values takes each of them without loss. So a whole
number that a DOUBLE does not hold exactly does not become one, and 007 is a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.ingest.files.text import array_from_text
from tidelock.model.names import fold
from tidelock.model.types import TIMESTAMP, list_type

BIGINT = range(-(2**63), 2**63)
EXACT = range(-(2**53), 2**53 + 1)
"""The whole numbers that a DOUBLE holds, each of them."""
DECIMAL = range(-(10**38) + 1, 10**38)

# Kinds. Those of numbers: `small` is exact as a DOUBLE, `whole` is a BIGINT, `huge` a DECIMAL.
_INTEGERS = frozenset({"small", "whole"})
_TIMES = frozenset({"date", "moment"})


@dataclass(frozen=True)
class Shape:
    """What was seen of one column."""

    kinds: frozenset[str] = frozenset()
    fields: Mapping[str, tuple[str, Shape]] = field(default_factory=dict)
    """Of objects: by folded name, the name as it was first seen, and what was seen of it."""
    items: Shape | None = None
    """What was seen inside arrays."""

    def joined(self, other: Shape) -> Shape:
        if self == other:
            return self
        items = self.items
        if other.items is not None:
            items = other.items if items is None else items.joined(other.items)
        return Shape(self.kinds | other.kinds, join_fields(self.fields, other.fields), items)

    @property
    def type(self) -> pa.DataType:
        """The type that takes all that was seen."""
        kinds = self.kinds
        if kinds == {"object"}:
            found = [(name, shape.type) for name, shape in self.fields.values()]
            return pa.struct(found) if found else pa.string()
        if kinds == {"array"}:
            return list_type(pa.string() if self.items is None else self.items.type)
        return next(type_ for wanted, type_ in _TYPES if kinds <= wanted)


def join_fields(
    one: Mapping[str, tuple[str, Shape]], other: Mapping[str, tuple[str, Shape]]
) -> Mapping[str, tuple[str, Shape]]:
    if not other:
        return one
    found = dict(one)
    for folded, (name, shape) in other.items():
        known = found.get(folded)
        found[folded] = (name, shape) if known is None else (known[0], known[1].joined(shape))
    return found


_TYPES: tuple[tuple[frozenset[str], pa.DataType], ...] = (
    (frozenset(), pa.string()),
    (frozenset({"boolean"}), pa.bool_()),
    (_INTEGERS, pa.int64()),
    (_INTEGERS | {"huge"}, pa.decimal128(38, 0)),
    (frozenset({"small", "float"}), pa.float64()),
    (frozenset({"date"}), pa.date32()),
    (_TIMES, TIMESTAMP),
    (
        frozenset({"boolean", "float", "text", "object", "array", "huge", "beyond"})
        | _INTEGERS
        | _TIMES,
        pa.string(),
    ),
)


# JSON -------------------------------------------------------------------------------------------

_EMPTY = Shape()
_PLAIN = {
    kind: Shape(frozenset({kind}))
    for kind in ("boolean", "small", "whole", "huge", "beyond", "float", "text", "date", "moment")
}


def shape_of_value(value: Any) -> Shape:
    """What a value of JSON is."""
    match value:
        case None:
            return _EMPTY
        case bool():
            return _PLAIN["boolean"]
        case int():
            return _PLAIN[_kind_of_integer(value)]
        case float():
            return _PLAIN["float"]
        case str():
            return _PLAIN["text"]
        case list():
            items = _EMPTY
            for one in value:
                items = items.joined(shape_of_value(one))
            return Shape(frozenset({"array"}), items=items)
    return Shape(frozenset({"object"}), fields_of(value))


def fields_of(value: Mapping[str, Any]) -> dict[str, tuple[str, Shape]]:
    """What the fields of an object of JSON are."""
    found: dict[str, tuple[str, Shape]] = {}
    for name, one in value.items():
        shape = shape_of_value(one)
        known = found.get(fold(name))
        found[fold(name)] = (name, shape) if known is None else (known[0], known[1].joined(shape))
    return found


def _kind_of_integer(value: int) -> str:
    if value in EXACT:
        return "small"
    if value in BIGINT:
        return "whole"
    return "huge" if value in DECIMAL else "beyond"


# Text -------------------------------------------------------------------------------------------

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]+)?$|^-?\.[0-9]+([eE][+-]?[0-9]+)?$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MOMENT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?$"
)
_FLOAT = r"^(NaN|-?Infinity)$"
_BOOLEAN = r"^(?i:true|false)$"


def shape_of_texts(texts: pa.Array | pa.ChunkedArray, zone: str) -> Shape:
    """What the texts of a column of CSV say; NULLs say nothing."""
    left = pc.unique(texts.drop_null())
    found = _EMPTY
    for pattern, kinds in (
        (_WHOLE, _integers),
        (_NUMBER, _numbers),
        (_FLOAT, lambda some: ["float"]),
        (_BOOLEAN, lambda some: ["boolean"]),
        (_DATE, lambda some: _readable(some, pa.date32(), "date", zone)),
        (_MOMENT, lambda some: _readable(some, TIMESTAMP, "moment", zone)),
    ):
        if not len(left):
            break
        matches = pc.match_substring_regex(left, pattern)
        some = left.filter(matches)
        if len(some):
            for kind in kinds(some):
                found = found.joined(_PLAIN[kind])
        left = left.filter(pc.invert(matches))
    return found.joined(_PLAIN["text"]) if len(left) else found


def _integers(texts: pa.Array) -> Iterable[str]:
    return {_kind_of_integer(int(text)) for text in texts.to_pylist()}


def _numbers(texts: pa.Array) -> Iterable[str]:
    """A number of more digits than a DOUBLE keeps, or out of its range, is a text."""
    if _any_is_long(texts) or not pc.all(pc.is_finite(texts.cast(pa.float64()))).as_py():
        return ["text"]
    return ["float"]


def _any_is_long(texts: pa.Array) -> bool:
    digits = (re.sub(r"[eE].*|[-.]", "", text).strip("0") for text in texts.to_pylist())
    return any(len(one) > DOUBLE_DIGITS for one in digits)


DOUBLE_DIGITS = 17
"""So many digits tell every DOUBLE from the next, so that whoever wrote one wrote no more."""


def _readable(texts: pa.Array, type_: pa.DataType, kind: str, zone: str) -> Iterator[str]:
    try:
        array_from_text(texts, type_, zone)
    except ValueError:
        # The 31st of February looks like a date.
        yield "text"
    else:
        # There is a year 0 to Arrow, and to nobody else.
        yield "text" if pc.any(pc.starts_with(texts, "0000")).as_py() else kind
