"""What a stream table sees of its inputs: the columns that they had when it was defined.

The text of a query names tables and columns as they were called when it was written. These names
are labels here, and mean what they meant then for as long as the definition lives: a table is
known by its id and a column by its column id, whatever they are called by now. So a query is read
again and again against the same columns, and `*` stands for the same ones.

    label     the name in the text
    name      what the table, or a pin of it, calls the column

Invariants: a column that came later has no label, and is not seen. One that was dropped keeps its
label; it is NULL, and a query that reads it is broken. What is taken for granted of an input
(NOT NULL, the key) is never more than what was so at definition, and never more than what is so
now: relaxing either may change a plan, and tightening does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelock.model.names import fold

if TYPE_CHECKING:
    from tidelock.model.schema.schema import TableSchema


@dataclass(frozen=True, slots=True)
class SeenColumn:
    """A column as a definition found it."""

    label: str
    id: int
    type: str
    nullable: bool = True
    read: bool = True
    """Whether the query's rows depend on it."""


@dataclass(frozen=True, slots=True)
class SeenInput:
    """A table as a definition found it."""

    table: str
    """Its label."""
    table_id: str
    columns: tuple[SeenColumn, ...]
    key: tuple[int, ...] = ()

    def weakened(self, now: TableSchema) -> SeenInput:
        """The same input, of which no more is taken for granted than is so now."""
        found = [now.with_id(column.id) for column in self.columns]
        columns = tuple(
            column if column.nullable or not (one is None or one.nullable) else _relaxed(column)
            for column, one in zip(self.columns, found, strict=True)
        )
        key = self.key if set(self.key) == set(now.key_ids) else ()
        if key == self.key and columns == self.columns:
            return self
        return replace(self, columns=columns, key=key)

    def called(self, now: TableSchema) -> SeenInput | None:
        """The same input under the labels that its columns have now; None if those that are left
        cannot be told from those that were dropped."""
        found = [now.with_id(column.id) for column in self.columns]
        names = {fold(one.name) for one in found if one is not None}
        gone = [c for c, one in zip(self.columns, found, strict=True) if one is None]
        if any(fold(column.label) in names for column in gone):
            return None
        columns = tuple(
            column if one is None else replace(column, label=one.name)
            for column, one in zip(self.columns, found, strict=True)
        )
        return replace(self, columns=columns)

    def renumbered(self, ids: Mapping[int, int]) -> SeenInput:
        """The same input on a branch where its columns have other ids."""
        columns = tuple(replace(one, id=ids.get(one.id, one.id)) for one in self.columns)
        key = tuple(ids.get(one, one) for one in self.key)
        return replace(self, columns=columns, key=key)

    def names(self, called: Mapping[int, str]) -> dict[str, str]:
        """What a pin calls the columns, by their labels; `called` are its names by id. Columns that
        it does not have are not among them."""
        return {one.label: called[one.id] for one in self.columns if one.id in called}


def with_reads(seen: SeenInput, read: Collection[str]) -> SeenInput:
    """The same input, now that it is known which columns a query's rows depend on."""
    columns = tuple(replace(one, read=one.label in read) for one in seen.columns)
    return seen if columns == seen.columns else replace(seen, columns=columns)


def _relaxed(column: SeenColumn) -> SeenColumn:
    return replace(column, nullable=True)
