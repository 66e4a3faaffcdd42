"""A change of schema as an operation: staged, applied and rebased like those on rows.

Owns: the pin that follows from a schema before and one after.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidelock.errors import BrokenInvariant
from tidelock.model.schema.schema import TableSchema
from tidelock.store.operations.counts import Counts, Labels, Target
from tidelock.store.schema.pins import Widened, alter_pin, next_column_id, size_of
from tidelock.store.schema.required import refuse_nulls
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset


@dataclass
class SchemaChange:
    """Other columns, or other rules, and the same rows. The rules are checked with all others,
    before the commit is published (rules/); only NOT NULL is here, on every pin that it is for."""

    before: TableSchema
    after: TableSchema
    survives_data_changes: bool = True
    _widened: Widened = field(default_factory=Widened)

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        if _columns(self.before) == _columns(self.after):
            return base
        refuse_nulls(target, base, self.before, self.after)
        return alter_pin(files, target.id, base, self.before, self.after, self._widened)

    def follow(self, target: Target, labels: Labels) -> None:
        raise BrokenInvariant("Two alterations of one table are a conflict.")


def _columns(schema: TableSchema) -> list[tuple[int, str, pa.DataType, bool]]:
    return [(c.id, c.name, c.type, c.nullable) for c in schema.columns]


def numbered(schema: TableSchema) -> TableSchema:
    """The schema of a new table, whose columns get the ids that Lance will give them."""
    columns, next_id = [], 0
    ids: dict[int, int] = {}
    for column in schema.columns:
        columns.append(replace(column, id=next_id))
        ids[column.id] = next_id
        next_id += size_of(column.type)
    rules = tuple(
        replace(rule, columns=tuple(ids[one] for one in rule.columns)) for rule in schema.rules
    )
    return replace(schema, columns=tuple(columns), rules=rules, next_id=next_id)


def following(before: TableSchema, after: TableSchema) -> TableSchema:
    """A schema that remembers which ids the one before it has given."""
    return replace(after, next_id=max(next_column_id(before), next_column_id(after)))


def has_rules(schema: TableSchema) -> bool:
    """Whether a pin alone does not tell all of it."""
    told = any(c.default is not None or c.comment is not None for c in schema.columns)
    return told or bool(schema.rules) or schema.comment is not None
