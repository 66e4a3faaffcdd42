"""Defaults as values: what is put into rows that do not name a column.

A value for all rows, or a fresh one for each. Everything here is a plain value, so that it goes to
the executors with the rows' schema; where the values come from is for `store/schema/defaults.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Defaults:
    """By the names of columns: an array of one value, or None for a fresh UUID in each row."""

    values: Mapping[str, pa.Array | None] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def column(self, name: str, type_: pa.DataType, rows: int) -> pa.Array:
        """The values of a column that rows do not name; NULL where it has no default."""
        if name not in self.values:
            return pa.nulls(rows, type_)
        value = self.values[name]
        if value is None:
            return pa.array([str(uuid.uuid4()) for _ in range(rows)], type_)
        if not rows:
            return value.slice(0, 0)
        if pa.types.is_nested(type_):
            return value.take(pa.array([0] * rows, pa.int32()))
        return pa.repeat(value[0], rows)

    def one(self, name: str) -> Any:
        """One value, as Python has it."""
        value = self.values[name]
        return str(uuid.uuid4()) if value is None else value[0].as_py()

    def scattered(self, name: str, given: pa.Array, named: Sequence[bool]) -> pa.Array:
        """The values of a column that some rows name, `given` in their order, and some do not."""
        missing = self.column(name, given.type, len(named) - len(given))
        own, other = iter(range(len(given))), iter(range(len(given), len(named)))
        places = [next(own) if one else next(other) for one in named]
        return pa.concat_arrays([given, missing]).take(pa.array(places, pa.int64()))

    def optional(self, schema: pa.Schema) -> pa.Schema:
        """The schema that rows must match: they need not name what has a default."""
        return _optional(schema, frozenset(self.values)) if self.values else schema


NO_DEFAULTS = Defaults()


@lru_cache(maxsize=256)
def _optional(schema: pa.Schema, names: frozenset[str]) -> pa.Schema:
    return pa.schema([f.with_nullable(True) if f.name in names else f for f in schema])
