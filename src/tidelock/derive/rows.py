"""Rows of a stage's table: telling them apart, and finding them by their ids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.store.tables import numbers

IDS = ("_rowid", "_rowaddr")
_NAN = object()


def positions_of(rows: pa.Table, row_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    stored = numbers(rows.column("_rowid")).astype(np.int64)
    order = np.argsort(stored)
    found: npt.NDArray[np.int64] = order[np.searchsorted(stored, row_ids, sorter=order)]
    return found


def signed(rows: pa.Table) -> pa.Table:
    """Ids as signed numbers, which is what the engine has."""
    for name in IDS:
        position = rows.column_names.index(name)
        rows = rows.set_column(position, name, rows.column(name).cast(pa.int64()))
    return rows


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.select(schema.names).cast(schema)


def comparable(rows: pa.Table) -> list[object]:
    """Each row as a value that equals another exactly if SQL calls the rows not distinct."""
    columns = [_comparable(column) for column in rows.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def _comparable(column: pa.ChunkedArray) -> list[object]:
    values: list[object] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [_NAN if value is not None and value != value else value for value in values]
    if pa.types.is_nested(column.type):
        return [repr(value) for value in values]
    return values
