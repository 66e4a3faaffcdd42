"""The columns of a table at two points: which are the same, and how rows are shown beside each
other.

A column is known by its id, or, where ids were given on two branches apart, by its name. Both
values of a column are compared in the wider type of the two, or as text where neither is wider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tidelock.model.history.diffs import ColumnDiff
from tidelock.model.names import fold
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.schema.widening import is_widening
from tidelock.store.merge.rows.sides import Shown


@dataclass(frozen=True)
class PairedColumns:
    """The columns that users see, each with what it is at either point."""

    pairs: tuple[tuple[Column | None, Column | None], ...]

    @cached_property
    def diffs(self) -> tuple[ColumnDiff, ...]:
        found = (ColumnDiff(before, after) for before, after in self.pairs)
        return tuple(one for one in found if one.what)

    @cached_property
    def _compared(self) -> list[tuple[Column | None, Column, pa.DataType]]:
        return [
            (before, after, after.type if before is None else common_type(before, after))
            for before, after in self.pairs
            if after is not None
        ]

    @property
    def compared_ids(self) -> frozenset[int]:
        """The columns in which rows may differ: those of the state after."""
        return frozenset(after.id for _, after, _ in self._compared)

    @property
    def names(self) -> tuple[str, ...]:
        """What these are called after."""
        return tuple(after.name for _, after, _ in self._compared)

    @cached_property
    def shown_before(self) -> Shown:
        return Shown(
            self._schema, tuple(None if one is None else one.name for one, _, _ in self._compared)
        )

    @cached_property
    def shown_after(self) -> Shown:
        return Shown(self._schema, self.names)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema([pa.field(after.name, kind) for _, after, kind in self._compared])

    def after_name(self, name_before: str) -> str | None:
        """What a column is called after; None if it is not there."""
        for before, after in self.pairs:
            if before is not None and after is not None and before.name == name_before:
                return after.name
        return None


def pair_columns(
    before: TableSchema, after: TableSchema, known: Mapping[int, int]
) -> PairedColumns:
    """The columns of two schemas. `known` are ids before, each with the id of the same column
    after, whether or not it is still there."""
    left = before.shown.columns
    by_id = {known[column.id]: column for column in left if column.id in known}
    by_name = {fold(column.name): column for column in left if column.id not in known}
    after_ids = set(known.values())
    pairs: list[tuple[Column | None, Column | None]] = []
    for column in after.shown.columns:
        if column.id in after_ids:
            found = by_id.get(column.id)
        else:
            found = by_name.get(fold(column.name))
            if found is not None and not _comparable(found, column):
                found = None
        pairs.append((found, column))
    kept = {one.id for one, _ in pairs if one is not None}
    pairs += [(column, None) for column in left if column.id not in kept]
    return PairedColumns(tuple(pairs))


def _comparable(one: Column, other: Column) -> bool:
    types = (one.type, other.type)
    return _wider(*types) is not None or not any(map(pa.types.is_nested, types))


def common_type(one: Column, other: Column) -> pa.DataType:
    """The type in which the values of both are compared."""
    return _wider(one.type, other.type) or pa.string()


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if is_widening(one, other):
        return other
    return one if is_widening(other, one) else None
