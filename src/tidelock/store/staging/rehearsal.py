"""Tables that are only tried: what a dry run creates in the place of those that it would."""

from __future__ import annotations

import lance

from tidelock.model.schema import TableSchema
from tidelock.store.tables.fragments import Dataset


def rehearse(schema: TableSchema) -> Dataset:
    """A new, empty dataset that nobody else can open, and that is gone with its holder."""
    return lance.write_dataset(
        schema.arrow.empty_table(), "memory://", mode="create", enable_stable_row_ids=True
    )
