"""Rows of a segment's table: telling them apart, and finding them by their ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.store.tables.fragments import numbers

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


def identical(rows: pa.Table) -> list[object]:
    """Each row as a value that equals another exactly if the rows are the same: 0.0 is not -0.0,
    which SQL calls equal; a MAP has no order."""
    columns = [_identical(column) for column in rows.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * rows.num_rows


def _identical(column: pa.ChunkedArray) -> list[object]:
    if pa.types.is_floating(column.type):
        return [repr(value) for value in column.to_pylist()]
    if pa.types.is_nested(column.type):
        return [repr(_unordered(value, column.type)) for value in column.to_pylist()]
    return _comparable(column)


def _unordered(value: Any, kind: pa.DataType) -> Any:
    """A nested value in which the entries of every MAP are in one order."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_map(kind):
        entries = [(key, _unordered(item, kind.item_type)) for key, item in value]
        return sorted(entries, key=repr)
    if pa.types.is_struct(kind):
        return [_unordered(value[field.name], field.type) for field in kind]
    return [_unordered(item, kind.value_type) for item in value]


def _comparable(column: pa.ChunkedArray) -> list[object]:
    values: list[object] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [_NAN if value is not None and value != value else value for value in values]
    if pa.types.is_nested(column.type):
        return [repr(value) for value in values]
    return values
