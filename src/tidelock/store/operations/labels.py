"""Labels: rows that were staged under one schema, under the names of another."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidelock.model.schema.schema import TableSchema


def labels_after(before: TableSchema, after: TableSchema) -> Mapping[str, str] | None:
    """What the columns of rows that were staged for one schema are called in another; None if such
    rows would not be what their writer meant.

    They are where nothing of them is lost and nothing is missing: columns may have been renamed,
    moved and relaxed, and columns that may be NULL, and are by default, may have come.
    """
    if before.key_ids != after.key_ids:
        return None
    labels = {}
    for column in before.columns:
        now = after.with_id(column.id)
        if now is None or now.type != column.type or (column.nullable and not now.nullable):
            return None
        labels[column.name] = now.name
    known = {column.id for column in before.columns}
    come = [column for column in after.columns if column.id not in known]
    if any(not column.nullable or column.default is not None for column in come):
        return None
    return labels


def relabelled(rows: pa.Table, labels: Mapping[str, str], after: TableSchema) -> pa.Table:
    """Rows that were staged for a schema, as another has them; columns that came are NULL."""
    given = dict(zip((labels[name] for name in rows.column_names), rows.columns, strict=True))
    columns = [
        given[column.name] if column.name in given else pa.nulls(rows.num_rows, column.type)
        for column in after.columns
    ]
    return pa.Table.from_arrays(columns, schema=after.arrow)
