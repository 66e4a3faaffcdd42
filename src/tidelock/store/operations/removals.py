"""Rows that are taken out by what they are, and not by where they were found.

    KeyRemoval    the rows that have these keys
    RowRemoval    as many of the rows as are given that have just these values, whichever they are

Both look their rows up again when they are applied to another pin. What is not there is passed
over: it is gone, which is what was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.store.lookup.by_key import find_rows, match_keys
from tidelock.store.operations.counts import Counts, Labels, Target
from tidelock.store.operations.labels import relabelled
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset, numbers

LOOKED_UP_MAX = 4096
"""For more different values than this all rows are read."""
READ_AT_ONCE = 65_536


@dataclass
class KeyRemoval:
    """The rows of these keys, which differ."""

    keys: pa.Table
    survives_data_changes: bool = True

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        match = match_keys(base, self.keys)
        counts.deleted += len(match)
        return files.replace_rows(target.id, base, match.addresses, []) if len(match) else base

    def follow(self, target: Target, labels: Labels) -> None:
        names = [labels[name] for name in self.keys.column_names]
        self.keys = self.keys.rename_columns(names)


@dataclass
class RowRemoval:
    """Rows by all of their values. Of rows that are alike it does not matter which ones leave."""

    rows: pa.Table
    survives_data_changes: bool = True

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        found = _find(base, self.rows)
        counts.deleted += len(found)
        return files.replace_rows(target.id, base, found, []) if len(found) else base

    def follow(self, target: Target, labels: Labels) -> None:
        self.rows = relabelled(self.rows, labels, target.schema)


def _find(base: Dataset, rows: pa.Table) -> Addresses:
    """The addresses of rows with these values, at most as many of each as are given."""
    wanted = Counter(_values(rows))
    found: list[int] = []
    for batch in _candidates(base, rows):
        addresses = numbers(batch.column("_rowaddr"))
        columns = pa.Table.from_batches([batch]).select(rows.column_names)
        for address, values in zip(addresses.tolist(), _values(columns), strict=True):
            if wanted.get(values):
                wanted[values] -= 1
                found.append(address)
        if not +wanted:
            break
    return np.array(sorted(found), dtype=np.uint64)


def _candidates(base: Dataset, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of the table among which all that have these values are."""
    column = _telling(rows)
    if column is not None:
        values = pc.unique(rows.column(column))
        if len(values) <= LOOKED_UP_MAX:
            listed = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            some = find_rows(base, column, listed, rows.column_names, with_row_ids=True)
            assert some is not None
            yield from some.to_batches(READ_AT_ONCE)
            return
    yield from base.scanner(
        columns=rows.column_names, with_row_address=True, batch_size=READ_AT_ONCE
    ).to_batches()


def _telling(rows: pa.Table) -> str | None:
    """The column that tells rows apart best, of those whose values can be looked up."""
    fits = [field.name for field in rows.schema if _is_plain(field.type)]
    count = {name: pc.count_distinct(rows.column(name), mode="all").as_py() for name in fits}
    return max(fits, key=lambda name: count[name], default=None)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind))


def _values(rows: pa.Table) -> Iterator[tuple[object, ...]]:
    """Each row as a value that equals another one's exactly if all values are the same."""
    return zip(*(map(_plain, _exact(column).to_pylist()) for column in rows.columns), strict=True)


def _exact(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments as numbers, which Python can hold all of; floats by their bits, as a NaN is not equal
    to itself and -0.0 is to 0.0."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_float64(kind):
        return _viewed(column, pa.int64())
    if pa.types.is_date(kind) or pa.types.is_float32(kind):
        return _viewed(column, pa.int32())
    return column


def _viewed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def _plain(value: object) -> object:
    """A value that can be looked up in a dictionary, also if it is a list, a map or a row."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    if isinstance(value, dict):
        return tuple((name, _plain(one)) for name, one in value.items())
    return value
