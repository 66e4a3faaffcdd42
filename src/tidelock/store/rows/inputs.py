"""Users' data made into batches of exactly a table's schema.

Owns: the forms in which rows may be given, and the matching of their columns to the table's.
Invariant: every batch that comes out has exactly `schema.arrow` (order, types, nullability, no
metadata), holds no NULL where there must be none, and can be written to Lance as it is.
What is in memory is checked completely before `read_input` returns; what streams is checked batch
by batch as it passes, and its columns and types at once where they are known.

Rows are matched by column name without regard to case, in any order. A missing column has its
default, which is NULL if there is none; a NULL that is given stays one. What converts is in
`arrow_values.py` (Arrow) and `python_values.py` (Python).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from tidelock.errors import BrokenInvariant
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.time.zones import UTC
from tidelock.store.rows.arrow_values import (
    AmbiguousField,
    Convert,
    Mismatch,
    MissingField,
    Step,
    UnknownField,
    converter,
    match_fields,
    match_names,
)
from tidelock.store.rows.checks import check_required, check_utf8
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults
from tidelock.store.rows.pieces import cut, unsliced_batch, unsliced_table
from tidelock.store.rows.python_values import ValuesMisfit, array_of
from tidelock.store.rows.refusals import (
    unreadable,
    wrong_array,
    wrong_columns,
    wrong_python_values,
    wrong_type,
)

__all__ = ["Input", "is_spark_frame", "read_input"]

_WRONG_COLUMNS = (AmbiguousField, MissingField, UnknownField)
# Offsets of strings and lists are 32 bits wide, so larger arrays are converted in pieces.
_CONVERT_BYTES_MAX = 1 << 30
_FORMS = (
    "Give a pyarrow Table, RecordBatch or RecordBatchReader, a list of dicts, a dict of lists, a "
    "pandas or polars DataFrame, an iterator of RecordBatches, or a Spark DataFrame"
)


class Input:
    """Rows of exactly `schema`: a table in memory, or a stream that is read once."""

    __slots__ = ("_stream", "schema", "table")

    def __init__(
        self,
        schema: TableSchema,
        table: pa.Table | None = None,
        stream: Iterator[pa.RecordBatch] | None = None,
    ) -> None:
        self.schema = schema
        self.table = table
        self._stream = stream

    @property
    def streaming(self) -> bool:
        return self.table is None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows. A stream can be asked only once."""
        if self.table is not None:
            return iter(self.table.to_batches())
        if self._stream is None:
            raise BrokenInvariant("A streaming input was read twice.")
        stream, self._stream = self._stream, None
        return stream

    def __repr__(self) -> str:
        rows = "streaming" if self.table is None else f"{self.table.num_rows} rows"
        return f"Input({rows}, {len(self.schema.columns)} columns)"


def is_spark_frame(data: object) -> bool:
    """Whether the data is a Spark DataFrame, classic or connect. Does not import PySpark."""
    return any(
        kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.")
        for kind in type(data).__mro__
    )


@dataclass(frozen=True)
class _Wanted:
    """What rows are made into, and what is said of them in errors."""

    schema: TableSchema
    table: str
    zone: str
    defaults: Defaults

    @cached_property
    def matched(self) -> pa.Schema:
        """The columns that rows are matched with: those that have a default may be missing."""
        return self.defaults.optional(self.schema.arrow)

    def missing(self, column: Column, rows: int) -> pa.Array:
        return self.defaults.column(column.name, column.type, rows)


def read_input(
    data: Any,
    schema: TableSchema,
    table: str,
    zone: str = UTC,
    defaults: Defaults = NO_DEFAULTS,
) -> Input:
    """The data as batches of exactly `schema`; `table` is the name for errors.

    `zone` is the session's time zone, in which times without a zone are read; `defaults` are put
    into rows that do not name a column.
    """
    wanted = _Wanted(schema, table, zone, defaults)
    if isinstance(data, pa.Table):
        return _from_table(data, wanted)
    if isinstance(data, pa.RecordBatch):
        return _from_table(pa.Table.from_batches([data]), wanted)
    if isinstance(data, pa.RecordBatchReader):
        return _from_reader(data, wanted)
    if isinstance(data, list | tuple):
        return _from_list(data, wanted)
    if isinstance(data, Mapping):
        return _from_mapping(data, wanted)
    if is_spark_frame(data):
        raise BrokenInvariant("A Spark DataFrame is not read by read_input.")
    if type(data).__module__.split(".")[0] == "pandas" and hasattr(data, "iloc"):
        return _from_pandas(data, wanted)
    if callable(scanner := getattr(data, "scanner", None)):
        return _from_reader(scanner().to_reader(), wanted)
    if callable(to_reader := getattr(data, "to_reader", None)):
        return _from_reader(to_reader(), wanted)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        if type(data).__module__.split(".")[0] == "polars":
            return _from_table(reader.read_all(), wanted)
        return _from_reader(reader, wanted)
    if hasattr(data, "__arrow_c_array__"):
        return _from_table(pa.Table.from_batches([pa.record_batch(data)]), wanted)
    if isinstance(data, Iterator):
        return Input(schema, stream=_checked(data, wanted))
    raise unreadable(table, type(data).__name__, f"{_FORMS}.")


# Arrow -----------------------------------------------------------------------------------------


def _from_table(data: pa.Table, wanted: _Wanted) -> Input:
    schema, table = wanted.schema, wanted.table
    if not data.schema.equals(schema.arrow, check_metadata=True):
        plan = _plan(data.schema, wanted, data)
        columns = [
            pa.chunked_array([wanted.missing(column, data.num_rows)])
            if i is None
            else _convert_column(data.column(i), step, schema, n, table)
            for n, (column, (i, step)) in enumerate(zip(schema.columns, plan, strict=True))
        ]
        data = pa.Table.from_arrays(columns, schema=schema.arrow)
    check_required(data, schema, table)
    if schema.nested:
        data = unsliced_table(data)
    check_utf8(data, schema, table)
    return Input(schema, data)


def _from_reader(reader: pa.RecordBatchReader, wanted: _Wanted) -> Input:
    if not reader.schema.equals(wanted.schema.arrow, check_metadata=True):
        _plan(reader.schema, wanted, None)
    return Input(wanted.schema, stream=_checked(reader, wanted))


def _checked(batches: Iterable[Any], wanted: _Wanted) -> Iterator[pa.RecordBatch]:
    schema, table = wanted.schema, wanted.table
    row = 0
    for given in batches:
        if not isinstance(given, pa.RecordBatch):
            raise unreadable(
                table,
                f"an iterator of {type(given).__name__}",
                "Let it give pyarrow RecordBatches.",
            )
        for piece in cut(given, given.num_rows, _CONVERT_BYTES_MAX):
            batch = _convert_batch(piece, wanted, row)
            check_required(batch, schema, table, first_row=row)
            # Cut first: what a slice hides is nobody's.
            whole = unsliced_batch(batch) if schema.nested else batch
            check_utf8(whole, schema, table, first_row=row)
            row += batch.num_rows
            yield whole


def _convert_batch(data: pa.RecordBatch, wanted: _Wanted, first_row: int) -> pa.RecordBatch:
    schema = wanted.schema
    if data.schema.equals(schema.arrow, check_metadata=True):
        return data
    plan = _plan(data.schema, wanted, data, first_row)
    columns = [
        wanted.missing(column, data.num_rows)
        if i is None
        else _convert(data.column(i), step, schema, n, wanted.table, first_row)
        for n, (column, (i, step)) in enumerate(zip(schema.columns, plan, strict=True))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _convert_column(
    column: pa.ChunkedArray, step: Convert | None, schema: TableSchema, n: int, table: str
) -> pa.ChunkedArray:
    if step is None:
        return column
    row, chunks = 0, []
    for chunk in column.chunks:
        for piece in cut(chunk, len(chunk), _CONVERT_BYTES_MAX):
            chunks.append(_convert(piece, step, schema, n, table, row))
            row += len(piece)
    return pa.chunked_array(chunks, schema.columns[n].type)


def _convert(
    array: pa.Array, step: Convert | None, schema: TableSchema, n: int, table: str, row: int
) -> pa.Array:
    if step is None:
        return array
    try:
        return step(array)
    except (pa.ArrowException, ValueError) as error:
        raise wrong_array(array, step, schema.columns[n], table, row) from error


def _plan(source: pa.Schema, wanted: _Wanted, data: Any, first_row: int = 0) -> list[Step]:
    """Which column each column comes from, and how; `data` is for the evidence of an error."""
    schema, table, matched = wanted.schema, wanted.table, wanted.matched
    try:
        known, plan = _cached_plan(source, matched, wanted.zone)
        if known.equals(source, check_metadata=True):
            return plan
        # Equal but for inner names or metadata, which the cache does not tell apart.
        return match_fields(list(source), list(matched), "", wanted.zone)
    except Mismatch as error:
        column = schema.column(error.path.split(".")[0])
        n = match_names(source.names, list(matched))[schema.names.index(column.name)]
        array = None if data is None or n is None else data.column(n)
        raise wrong_type(error, column, table, array, first_row) from error
    except _WRONG_COLUMNS as error:
        raise wrong_columns(error, table) from error


@lru_cache(maxsize=256)
def _cached_plan(source: pa.Schema, target: pa.Schema, zone: str) -> tuple[pa.Schema, list[Step]]:
    return source, match_fields(list(source), list(target), "", zone)


# Python ----------------------------------------------------------------------------------------


def _from_list(data: Sequence[Any], wanted: _Wanted) -> Input:
    schema, table = wanted.schema, wanted.table
    kinds = {type(row) for row in data}
    if all(issubclass(kind, Mapping) for kind in kinds):
        return _from_rows(data, wanted)
    if kinds == {pa.RecordBatch}:
        batches = list(_checked(data, wanted))
        return Input(schema, pa.Table.from_batches(batches, schema=schema.arrow))
    if kinds == {pa.Table}:
        batches = [batch for each in data for batch in each.to_batches()]
        checked = list(_checked(batches, wanted))
        return Input(schema, pa.Table.from_batches(checked, schema=schema.arrow))
    odd = next(kind for kind in kinds if not issubclass(kind, Mapping))
    raise unreadable(
        table,
        f"a list of {odd.__name__}",
        "Make each row a dict of column names and values; for dataclasses, dataclasses.asdict().",
    )


def _from_rows(rows: Sequence[Mapping[str, Any]], wanted: _Wanted) -> Input:
    schema = wanted.schema
    known = set(schema.names)
    if all(row.keys() <= known for row in rows):
        return _from_values(_by_column(rows, wanted), len(rows), wanted)
    # Some names are spelt otherwise, or unknown; each row is matched by itself.
    folded: list[dict[str, Any]] = []
    targets = [field.with_nullable(True) for field in schema.arrow]
    for row in rows:
        try:
            names = [_column_name(name) for name in row]
            places = match_names(names, targets)
        except _WRONG_COLUMNS as error:
            raise wrong_columns(error, wanted.table) from error
        values = list(row.values())
        folded.append(
            {name: values[i] for name, i in zip(schema.names, places, strict=True) if i is not None}
        )
    return _from_values(_by_column(folded, wanted), len(rows), wanted)


def _by_column(rows: Sequence[Mapping[str, Any]], wanted: _Wanted) -> dict[str, list[Any] | None]:
    """The values of each column; None for one that no row names and that has a default."""
    columns: dict[str, list[Any] | None] = {}
    for name in wanted.schema.names:
        if name not in wanted.defaults:
            columns[name] = [row.get(name) for row in rows]
        elif not any(name in row for row in rows):
            columns[name] = None
        else:
            one = wanted.defaults.one
            columns[name] = [row[name] if name in row else one(name) for row in rows]
    return columns


def _from_mapping(data: Mapping[Any, Any], wanted: _Wanted) -> Input:
    columns: dict[str, Any] = {}
    for given, values in data.items():
        if isinstance(values, pa.Array | pa.ChunkedArray | list | tuple | range):
            columns[_column_name(given)] = values
        elif hasattr(values, "dtype") and hasattr(values, "tolist"):
            columns[_column_name(given)] = vector(values, pandas=False)
        else:
            raise unreadable(
                wanted.table,
                f"a dict with {type(values).__name__} values",
                "A dict must map column names to lists of values; for one row, put it in a list.",
            )
    return _from_columns(columns, wanted)


def _from_pandas(data: Any, wanted: _Wanted) -> Input:
    if not hasattr(data, "columns"):
        raise unreadable(wanted.table, f"pandas {type(data).__name__}", "Give a DataFrame.")
    columns: dict[str, Any] = {}
    for i, given in enumerate(data.columns):
        name = _column_name(given)
        if name in columns:
            raise wrong_columns(AmbiguousField(name, (name, name)), wanted.table)
        columns[name] = vector(data.iloc[:, i], pandas=True)
    return _from_columns(columns, wanted, rows=len(data))


def vector(values: Any, *, pandas: bool) -> Any:
    """A numpy or pandas vector as Arrow; one of Python objects as a list, to be fitted by type.

    In pandas NaN stands for a missing value, because most of its types have no other.
    """
    if values.dtype == object:
        listed = values.tolist()
        if not pandas:
            return listed
        return [None if isinstance(v, float) and v != v else v for v in listed]
    return pa.Array.from_pandas(values) if pandas else pa.array(values)


def _column_name(given: Any) -> str:
    return given if isinstance(given, str) else str(given)


def _from_columns(columns: Mapping[str, Any], wanted: _Wanted, rows: int | None = None) -> Input:
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        told = ", ".join(f"{name}: {len(values)}" for name, values in columns.items())
        raise unreadable(wanted.table, f"columns of different lengths ({told})", "Make them equal.")
    try:
        places = match_names(list(columns), list(wanted.matched))
    except _WRONG_COLUMNS as error:
        raise wrong_columns(error, wanted.table) from error
    count = next(iter(lengths), rows or 0)
    given = list(columns.values())
    named = {
        name: None if i is None else given[i]
        for name, i in zip(wanted.schema.names, places, strict=True)
    }
    return _from_values(named, count, wanted)


def _from_values(columns: Mapping[str, Any], count: int, wanted: _Wanted) -> Input:
    """From one list, Arrow array or None (missing) per column of the schema."""
    schema, table, zone = wanted.schema, wanted.table, wanted.zone
    arrays = []
    for n, column in enumerate(schema.columns):
        values = columns[column.name]
        if values is None:
            arrays.append(wanted.missing(column, count))
        elif isinstance(values, pa.Array | pa.ChunkedArray):
            arrays.append(_given_array(values, schema, n, table, zone))
        else:
            try:
                arrays.append(array_of(values, column.type, column.name, zone))
            except ValuesMisfit as misfit:
                raise wrong_python_values(misfit.offenders, column, table) from misfit
            except UnknownField as error:
                raise wrong_columns(error, table) from error
    data = pa.Table.from_arrays(arrays, schema=schema.arrow)
    check_required(data, schema, table)
    whole = unsliced_table(data) if schema.nested else data
    check_utf8(whole, schema, table)
    return Input(schema, whole)


def _given_array(
    values: pa.Array | pa.ChunkedArray, schema: TableSchema, n: int, table: str, zone: str
) -> pa.ChunkedArray:
    column = schema.columns[n]
    chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    try:
        step = converter(chunked.type, column.type, column.name, zone)
    except Mismatch as error:
        raise wrong_type(error, column, table, chunked, 0) from error
    except _WRONG_COLUMNS as error:
        raise wrong_columns(error, table) from error
    return _convert_column(chunked, step, schema, n, table)
