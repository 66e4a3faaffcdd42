"""The columns of a table that is merged: what each side calls them, and what becomes of them.

Owns: reading the schemas of both sides and of the bases, and how the rows of each pin are shown
under the merged columns (model/schema/schema_merge.py decides).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from tidelock.model.history.merges import Side
from tidelock.model.schema.schema import NEW, TableSchema
from tidelock.model.schema.schema_merge import SchemaMerge, Seen, merge_schemas, with_ids
from tidelock.store.kinship.identity import Path
from tidelock.store.merge.rows.sides import Shown
from tidelock.store.schema.change import following
from tidelock.store.schema.declarations import declaration_of
from tidelock.store.schema.pins import next_column_id, size_of


@dataclass(frozen=True)
class MergedColumns:
    """The merged columns, and how each pin shows them."""

    merged: SchemaMerge
    before: TableSchema
    """As the target has them."""

    @cached_property
    def schema(self) -> TableSchema:
        return following(self.before, self.merged.schema)

    @cached_property
    def relaxed(self) -> TableSchema:
        """The merged columns, of which no more is required than the target does."""
        required = {column.name for column in self.before.columns if not column.nullable}
        columns = tuple(
            replace(one.column, nullable=one.column.nullable or one.target not in required)
            for one in self.merged.columns
        )
        return replace(self.schema, columns=columns)

    @property
    def changed(self) -> bool:
        """Whether the target gets other columns, rules or comments."""
        return declaration_of(self.schema) != declaration_of(following(self.before, self.before))

    @property
    def shared_schema(self) -> pa.Schema:
        """The columns for rows that are compared: before one came, it was NULL."""
        return pa.schema([field.with_nullable(True) for field in self.schema.arrow])

    def of_base(self, number: int) -> Shown:
        return self._shown([one.bases[number] for one in self.merged.columns])

    @property
    def of_source(self) -> Shown:
        return self._shown([one.source for one in self.merged.columns])

    @property
    def of_target(self) -> Shown:
        return self._shown([one.target for one in self.merged.columns])

    def _shown(self, names: Sequence[str | None]) -> Shown:
        return Shown(self.shared_schema, tuple(names))

    def renumbered(self, source: TableSchema) -> list[list[int]] | None:
        """Which id each column of the source has at the target; None if they are the same."""
        pairs = [
            [one.source_id, one.column.id]
            for one in self.merged.columns
            if one.source_id is not None
        ]
        same = len(pairs) == len(source.columns) and all(here == there for here, there in pairs)
        return None if same else pairs


def merge_columns(
    table: str,
    bases: Sequence[tuple[TableSchema, Path, Path]],
    source: TableSchema,
    target: TableSchema,
    table_id: str,
    prefer: Side | None,
    kept: frozenset[str] = frozenset(),
    elsewhere: Mapping[str, Mapping[int, int]] | None = None,
) -> MergedColumns:
    """The columns that follow. `bases` are schemas with the ways from there to both
    sides."""
    seen = []
    source = with_targets(source, elsewhere or {})
    for schema, here, there in bases:
        ids = [column.id for column in schema.columns]
        then = with_targets(schema, _moved_parents(schema, there))
        seen.append(Seen(then, here.columns(table_id, ids), there.columns(table_id, ids)))
    merged = merge_schemas(table, seen, source, target, prefer, kept)
    comes = any(one.column.id == NEW for one in merged.columns)
    first_id = next_column_id(target) if comes else 0
    return MergedColumns(with_ids(merged, first_id, size_of), target)


def _moved_parents(schema: TableSchema, there: Path) -> dict[str, dict[int, int]]:
    """For tables that a base's rules refer to: its columns, with the ids that they have now."""
    return {
        rule.table: there.columns(rule.table, list(rule.target))
        for rule in schema.rules
        if rule.kind == "reference"
    }


def with_targets(schema: TableSchema, columns: Mapping[str, Mapping[int, int]]) -> TableSchema:
    """A schema whose references name columns of other tables by other ids."""
    rules = tuple(
        replace(rule, target=tuple(columns[rule.table].get(one, one) for one in rule.target))
        if rule.table in columns
        else rule
        for rule in schema.rules
    )
    return schema if rules == schema.rules else replace(schema, rules=rules)
