"""Columns as an engine can compare them: equal exactly if the values are the same.

Engines neither group nor sort by a MAP, and take 0.0 and -0.0 for equal where they do. So a MAP is
compared as the sorted list of its entries, wherever in a value it is, and a floating-point number
that is zero with how it is written. Two NULLs are the same, and so are two NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidelock.model.names import HIDDEN, quote


@dataclass(frozen=True)
class Compared:
    """How rows are grouped by one column."""

    name: str
    made: str | None
    """SQL over the row for what is compared, where that is not the column itself."""
    alias: str
    """What that is called."""
    keys: tuple[str, ...]
    """What groups are made of."""
    value: str
    """SQL over the group that gives the column."""


def compare(schema: pa.Schema) -> list[Compared]:
    return [
        _compared(field.name, field.type, f"{HIDDEN}c{number}")
        for number, field in enumerate(schema)
    ]


def has_nested(schema: pa.Schema) -> bool:
    return any(pa.types.is_nested(kind) for kind in schema.types)


def _compared(name: str, kind: pa.DataType, alias: str) -> Compared:
    column = quote(name)
    if pa.types.is_floating(kind):
        type_ = "DOUBLE" if pa.types.is_float64(kind) else "FLOAT"
        back = f"IF({alias} IS NULL, {column}, CAST({alias} AS {type_}))"
        return Compared(name, _zero(column), alias, (column, alias), back)
    told = _told(column, kind, 0)
    if told is None:
        return Compared(name, None, alias, (column,), column)
    # All values of a group are the same, but for the order of a MAP.
    return Compared(name, told, alias, (alias,), f"first({column})")


def _told(value: str, kind: pa.DataType, depth: int) -> str | None:
    """SQL over a value by which it is told from others; None if the value itself will do."""
    if pa.types.is_floating(kind):
        return f"named_struct('v', {value}, 'z', {_zero(value)})"
    inside = f"_x{depth}"
    if pa.types.is_map(kind):
        key = _told(f"{inside}.key", kind.key_type, depth + 1) or f"{inside}.key"
        item = _told(f"{inside}.value", kind.item_type, depth + 1) or f"{inside}.value"
        entry = f"named_struct('k', {key}, 'v', {item})"
        return f"array_sort(transform(map_entries({value}), {inside} -> {entry}))"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = _told(inside, kind.value_type, depth + 1)
        return None if element is None else f"transform({value}, {inside} -> {element})"
    if pa.types.is_struct(kind):
        fields = [(f"{value}.{quote(one.name)}", one.type) for one in kind]
        found = [_told(sql, type_, depth) for sql, type_ in fields]
        if not any(found):
            return None
        listed = (f"'f{n}', {one or fields[n][0]}" for n, one in enumerate(found))
        return f"IF({value} IS NULL, NULL, named_struct({', '.join(listed)}))"
    return None


def _zero(value: str) -> str:
    """How a zero is written, by which 0.0 is told from -0.0; NULL for any other number."""
    return f"IF({value} = 0, CAST({value} AS STRING), NULL)"
