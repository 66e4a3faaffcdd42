"""Tables that are only tried: what a dry run creates in the place of those that it would."""

from __future__ import annotations

from collections.abc import Sequence

import lance

from tidelock.model.schema.schema import TableSchema
from tidelock.store.schema.field_protos import Field, Fields, renumbered
from tidelock.store.tables.fragments import Dataset


def rehearse(schema: TableSchema) -> Dataset:
    """A new, empty dataset that nobody else can open, and that is gone with its holder."""
    made = lance.write_dataset(
        schema.arrow.empty_table(), "memory://", mode="create", enable_stable_row_ids=True
    )
    known = Fields.of(made.lance_schema)
    places = [field.id() for field in made.lance_schema.fields()]
    if places == [column.id for column in schema.columns]:
        return made
    fields = [
        field
        for place, column in zip(places, schema.columns, strict=True)
        for field in _at(known.column(place), column.id)
    ]
    return lance.LanceDataset.commit(
        made, lance.LanceOperation.Project(known.schema(fields)), read_version=made.version
    )


def _at(fields: Sequence[Field], first_id: int) -> tuple[Field, ...]:
    return renumbered(fields, range(first_id, first_id + len(fields)))
