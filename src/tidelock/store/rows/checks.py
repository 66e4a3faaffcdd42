"""What must hold of rows before they are staged: NOT NULL, text that is text, keys that are unique.

Owns: the checks of batches that already have the table's types.
Cost: nothing of the values is read where Arrow's null counts are enough, but of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.errors import DuplicateKey
from tidelock.model.schema.schema import TableSchema, holds_required
from tidelock.model.types import inner_fields
from tidelock.store.rows.arrow_values import entries
from tidelock.store.rows.refusals import (
    OFFENDERS_MAX,
    first_failing,
    no_text,
    null_in_required,
    tell_keys,
    tell_value,
)

# Below this many rows a Python set is quicker than starting Arrow's grouping.
_SMALL_ROWS = 64
_SCAN_ROWS = 1024


def check_required(data: Any, schema: TableSchema, table: str, *, first_row: int = 0) -> None:
    """RequiredColumnNull if a NOT NULL column, or a NOT NULL field in a column, holds a NULL."""
    for i in schema.required:
        column = data.column(i)
        if column.null_count:
            rows = _rows_where(column.is_null())
            raise null_in_required(table, schema.columns[i].name, rows, first_row)
    for i in schema.required_inside:
        offset = first_row
        for array in _chunks(data.column(i)):
            path = None if _surely_filled(array) else _null_inside(array, schema.columns[i].name)
            if path is not None:
                rows = _rows_inside(array, path)
                raise null_in_required(table, path, rows, offset)
            offset += len(array)


def check_utf8(data: Any, schema: TableSchema, table: str, *, first_row: int = 0) -> None:
    """WrongType if a STRING holds bytes that are no UTF-8, which Arrow takes without a look."""
    for i in schema.textual:
        offset = first_row
        for array in _chunks(data.column(i)):
            if not _is_valid(array):
                row = first_failing(array, _validate, limit=1)[0]
                raise no_text(table, schema.columns[i], array.slice(row, 1), offset + row)
            offset += len(array)


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _validate(array: pa.Array) -> pa.Array:
    # Not a slice of what is nested: that would have all of what is inside.
    pa.concat_arrays([array]).validate(full=True)
    return array


def _chunks(column: Any) -> Iterable[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _rows_where(mask: Any) -> list[int]:
    if isinstance(mask, pa.ChunkedArray):
        mask = mask.combine_chunks()
    return [int(i) for i in pc.indices_nonzero(mask)[:OFFENDERS_MAX].to_pylist()]


def _surely_filled(array: Any) -> bool:
    """Whether no required field holds a NULL, not even where its surroundings are NULL or cut."""
    type_ = array.type
    if pa.types.is_struct(type_):
        parts = [array.field(i) for i in range(type_.num_fields)]
    elif pa.types.is_map(type_):
        parts = [array.keys, array.items]
    elif pa.types.is_list(type_):
        parts = [array.values]
    else:
        return True
    return all(
        (field.nullable or not part.null_count) and _surely_filled(part)
        for field, part in zip(inner_fields(type_), parts, strict=True)
    )


def _null_inside(array: Any, path: str) -> str | None:
    """The path of a NOT NULL field that is NULL where all around it is not, if there is one."""
    type_ = array.type
    if not holds_required(type_):
        return None
    if pa.types.is_struct(type_):
        parts = zip(type_, array.flatten(), strict=True)
        # flatten() makes a field NULL wherever its struct is: more NULLs than that are its own.
        around = array.null_count
    elif pa.types.is_map(type_):
        parts, around = zip(inner_fields(type_), entries(array)[1:], strict=True), 0
    else:
        parts, around = zip([type_.value_field], [array.flatten()], strict=True), 0
    for field, part in parts:
        inner = f"{path}.{field.name}"
        if not field.nullable and part.null_count > around:
            return inner
        found = _null_inside(part, inner)
        if found is not None:
            return found
    return None


def _rows_inside(array: pa.Array, path: str) -> list[int]:
    """The first rows that have a NULL at `path`: only asked when there is one."""
    column = path.split(".")[0]
    rows: list[int] = []
    for start in range(0, len(array), _SCAN_ROWS):
        part = array.slice(start, _SCAN_ROWS)
        if _null_inside(part, column) is None:
            continue
        for i in range(len(part)):
            if _null_inside(part.slice(i, 1), column) is not None:
                rows.append(start + i)
                if len(rows) == OFFENDERS_MAX:
                    return rows
    return rows


def check_unique_keys(data: pa.RecordBatch | pa.Table, schema: TableSchema, table: str) -> None:
    """DuplicateKey if two rows have one key. `data` needs only the key's columns."""
    if schema.key and not are_unique(data, schema.key):
        repeated = repeated_rows(data, schema.key)
        shown = data.take(pa.array(repeated.column("first").to_numpy()[:OFFENDERS_MAX]))
        rows = repeated.column("last").slice(0, OFFENDERS_MAX).to_pylist()
        raise keys_repeated(shown, schema.key, table, repeated.num_rows, rows)


def are_unique(data: pa.RecordBatch | pa.Table, names: Sequence[str]) -> bool:
    """Whether no two rows have the same values in some columns."""
    rows: int = data.num_rows
    if rows < 2:
        return True
    keys = [_comparable(data.column(name)) for name in names]
    if rows <= _SMALL_ROWS:
        return len(set(zip(*(key.to_pylist() for key in keys), strict=True))) == rows
    if len(keys) == 1 and pa.types.is_integer(keys[0].type):
        ordered = np.sort(keys[0].to_numpy())
        return bool((ordered[1:] != ordered[:-1]).all())
    return bool(_groups(data, names, []).num_rows == rows)


def repeated_rows(data: pa.RecordBatch | pa.Table, names: Sequence[str]) -> pa.Table:
    """The `first` and the `last` row of each key that occurs more than once, in their order."""
    groups = _groups(data, names, [("row", "count"), ("row", "min"), ("row", "max")])
    twice = groups.filter(pc.greater(groups.column("row_count"), 1)).sort_by("row_min")
    return twice.select(["row_min", "row_max"]).rename_columns(["first", "last"])


def last_of_each(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows without those whose key occurs again after them."""
    if are_unique(rows, names):
        return rows
    last = _groups(rows, names, [("row", "max")]).column("row_max").to_numpy()
    return rows.take(pa.array(np.sort(last)))


def comparable_keys(keys: pa.Table) -> Iterator[tuple[object, ...]]:
    """Each key as a value that equals another one's exactly if the keys are equal."""
    return zip(*(_comparable(column).to_pylist() for column in keys.columns), strict=True)


def _comparable(column: Any) -> Any:
    """Moments as numbers: Python cannot hold all of them, and numbers compare quicker."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column


def _groups(data: Any, names: Sequence[str], aggregates: list[tuple[str, str]]) -> pa.Table:
    """The rows by their values in some columns, `row` being the position of each."""
    inside = [str(number) for number in range(len(names))]
    columns = [_comparable(data.column(name)) for name in names]
    if aggregates:
        columns.append(pa.array(np.arange(data.num_rows)))
    rows = pa.table(columns, names=[*inside, "row"][: len(columns)])
    # One thread: groups keep the order of their first rows, and two are not quicker.
    return rows.group_by(inside, use_threads=False).aggregate(aggregates)


def keys_repeated(
    keys: pa.RecordBatch | pa.Table,
    names: Sequence[str],
    table: str,
    count: int,
    rows: list[int],
) -> DuplicateKey:
    """The error for so many keys, of which some are shown, with the last row of each."""
    values = [
        tuple(tell_value(keys.column(name)[row]) for name in names) for row in range(keys.num_rows)
    ]
    told = f"{count:,} key{'s' if count > 1 else ''}"
    return DuplicateKey(
        f"The data for table {table!r} has {told} ({', '.join(names)}) more than once: "
        f"{tell_keys(values, count)}. Keep one row for each key.",
        table=table,
        key=tuple(names),
        values=[key[0] if len(key) == 1 else key for key in values],
        rows=rows,
    )
