"""What must hold of rows before they are staged: NOT NULL, text that is text, keys that are unique.

Owns: the checks of batches that already have the table's types.
Cost: nothing of the values is read where Arrow's null counts are enough, but of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.errors import DuplicateKey
from tidelock.model.schema import TableSchema, holds_required
from tidelock.model.types import inner_fields
from tidelock.store.arrays import entries
from tidelock.store.refusals import (
    OFFENDERS_MAX,
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
                row = _first_invalid(array)
                raise no_text(table, schema.columns[i], array.slice(row, 1), offset + row)
            offset += len(array)


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _first_invalid(array: pa.Array) -> int:
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        # Not a slice of what is nested: that would have all of what is inside.
        low, high = (
            (middle, high)
            if _is_valid(pa.concat_arrays([array.slice(low, middle - low)]))
            else (low, middle)
        )
    return low


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
    rows = data.num_rows
    if rows < 2 or not schema.key:
        return
    keys = [_comparable(data.column(name)) for name in schema.key]
    if rows <= _SMALL_ROWS:
        if len(set(zip(*(key.to_pylist() for key in keys), strict=True))) == rows:
            return
    elif len(keys) == 1 and pa.types.is_integer(keys[0].type):
        if len(keys[0].unique()) == rows:
            return
    elif _groups(keys).num_rows == rows:
        return
    raise _duplicate_key(data, keys, schema.key, table)


def _comparable(column: Any) -> Any:
    """Moments as numbers: Python cannot hold all of them, and numbers compare quicker."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    return column


def _groups(keys: list[Any], aggregates: Sequence[Any] = ()) -> pa.Table:
    names = [str(i) for i in range(len(keys))]
    rows = pa.table(keys, names=names)
    # One thread: groups keep the order of their first rows, and two are not quicker.
    return rows.group_by(names, use_threads=False).aggregate(list(aggregates))


def _duplicate_key(data: Any, keys: list[Any], names: tuple[str, ...], table: str) -> DuplicateKey:
    position = pa.array(range(data.num_rows), pa.int64())
    names_inside = [str(i) for i in range(len(keys))]
    groups = (
        pa.table([*keys, position], names=[*names_inside, "row"])
        .group_by(names_inside, use_threads=False)
        .aggregate([("row", "count"), ("row", "min"), ("row", "max")])
    )
    twice = groups.filter(pc.greater(groups.column("row_count"), 1)).sort_by("row_min")
    shown = twice.slice(0, OFFENDERS_MAX)
    rows = shown.column("row_min").to_pylist()
    values = [tuple(tell_value(data.column(name)[row]) for name in names) for row in rows]
    count = f"{twice.num_rows:,} key{'s' if twice.num_rows > 1 else ''}"
    return DuplicateKey(
        f"The data for table {table!r} has {count} ({', '.join(names)}) more than once: "
        f"{tell_keys(values, twice.num_rows)}. Keep one row for each key.",
        table=table,
        key=names,
        values=[key[0] if len(key) == 1 else key for key in values],
        rows=shown.column("row_max").to_pylist(),
    )
