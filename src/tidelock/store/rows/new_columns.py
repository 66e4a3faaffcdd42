"""Columns that data has and its table does not, for tables that are to evolve with what they get.

Owns: what they are, told from the data as it is given, before any of it is read as rows. What can
be read only once is handed back to be read after all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from tidelock.errors import InvalidSchema
from tidelock.model.ddl import read_columns
from tidelock.model.names import fold
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.types import normal_type
from tidelock.store.rows.inputs import is_spark_frame, vector


def new_columns(data: Any, schema: TableSchema, table: str) -> tuple[list[Column], Any]:
    """The columns that the table does not have, all of them nullable, and the data."""
    if is_spark_frame(data):
        return _unknown(read_columns(data.schema), schema), data
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return _of_arrow(data.schema, schema), data
    if isinstance(data, list | tuple):
        return _of_list(data, schema, table), data
    if isinstance(data, Mapping):
        return _of_values(data, schema, table), data
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "columns"):
        named = {name: data[name] for name in data.columns if schema.find(str(name)) is None}
        return _of_values(named, schema, table, pandas=True), data
    if callable(scanner := getattr(data, "scanner", None)):
        return new_columns(scanner().to_reader(), schema, table)
    if callable(to_reader := getattr(data, "to_reader", None)):
        return new_columns(to_reader(), schema, table)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return _of_arrow(reader.schema, schema), reader
    if isinstance(data, Iterator):
        first = next(data, None)
        if first is None:
            return [], iter(())
        found = _of_arrow(first.schema, schema) if isinstance(first, pa.RecordBatch) else []
        return found, chain([first], data)
    # What else there is, `read_input` reads, or refuses with what may be given.
    return [], data


def _of_arrow(given: pa.Schema, schema: TableSchema) -> list[Column]:
    return _unknown([Column(field.name, field.type) for field in given], schema)


def _of_list(data: Sequence[Any], schema: TableSchema, table: str) -> list[Column]:
    if all(isinstance(one, pa.RecordBatch | pa.Table) for one in data):
        found: dict[str, Column] = {}
        for one in data:
            for column in _of_arrow(one.schema, schema):
                found.setdefault(fold(column.name), column)
        return list(found.values())
    names: dict[str, str] = {}
    values: dict[str, list[Any]] = {}
    for row in data:
        for name, value in row.items() if isinstance(row, Mapping) else ():
            if schema.find(str(name)) is None:
                spelt = names.setdefault(fold(str(name)), str(name))
                values.setdefault(spelt, []).append(value)
    return _of_values(values, schema, table)


def _of_values(
    columns: Mapping[Any, Any], schema: TableSchema, table: str, *, pandas: bool = False
) -> list[Column]:
    found = []
    for name, values in columns.items():
        if schema.find(str(name)) is None:
            found.append(Column(str(name), _type_of(values, str(name), table, pandas)))
    return _unknown(found, schema)


def _type_of(values: Any, name: str, table: str, pandas: bool) -> pa.DataType:
    """The type that all values have, as Arrow tells it."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.type
    if hasattr(values, "dtype") and hasattr(values, "tolist"):
        values = vector(values, pandas=pandas)
        if isinstance(values, pa.Array | pa.ChunkedArray):
            return values.type
    try:
        return pa.array(list(values)).type
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidSchema(
            f"Table {table!r} has no column {name!r}, and its values do not tell one type that all "
            f"of them have: {error}. Add the column with its type first.",
            table=table,
            column=name,
        ) from error


def _unknown(given: Iterable[Column], schema: TableSchema) -> list[Column]:
    """Those that the table does not have. Rows that are there have no value for them."""
    return [
        Column(column.name, normal_type(column.type, column.name))
        for column in given
        if schema.find(column.name) is None
    ]
