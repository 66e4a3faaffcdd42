"""Rows that a large transaction removes from one table, in storage while it is open.

They are kept as a dataset of their own, which no version of the lake refers to: what tells each row
(its key, or all of its values), `after`, how many puts came before it, and `part`, the
subtransaction. They are read again by ranges of keys, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.ingest.intake.changes import Parts, Places
from tidelock.model.names import HIDDEN
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.store.lookup.key_numbers import Numbering, whole
from tidelock.store.lookup.literals import in_list
from tidelock.store.lookup.wanted_keys import Range
from tidelock.store.objects import layout
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset

AFTER, PART = f"{HIDDEN}after", f"{HIDDEN}part"
READ_AT_ONCE = 65_536


class Removes:
    """Owns the dataset of one table's removes; it is made when there is something to remove."""

    def __init__(self, files: TableFiles, schema: pa.Schema) -> None:
        """`schema` is that of the table."""
        self._files = files
        self._schema = schema
        self._id = layout.new_id("removes")
        self._base: Dataset | None = None
        self._fragments: list[FragmentMetadata] = []
        self._read: Dataset | None = None

    def __bool__(self) -> bool:
        return bool(self._fragments)

    def add(self, rows: pa.Table, after: Places, parts: Parts) -> None:
        told = rows.append_column(pa.field(AFTER, pa.int64()), pa.array(after))
        told = told.append_column(pa.field(PART, pa.int64()), pa.array(parts.astype(np.int64)))
        if self._base is None:
            columns = tuple(Column(one.name, one.type, True) for one in told.schema)
            self._base = self._files.create(self._id, TableSchema(columns))
        self._fragments.extend(self._files.write(self._base, told.cast(self._base.schema)))
        self._read = None

    def within(
        self, one: Range | None, key: Sequence[str], begin: int, undone: Parts
    ) -> tuple[pa.Table, Places]:
        """The keys in a range, or all of them, and `after` of each: those that count."""
        filter = "" if one is None else one.for_lance()
        return self._keys(filter, key, begin, undone)

    def outside(
        self, ranges: Sequence[Range], key: Sequence[str], begin: int, undone: Parts
    ) -> pa.Table:
        """The keys in none of these ranges, which cover all values between two."""
        names = [f"NOT ({one.for_lance()})" for one in ranges]
        return self._keys(" AND ".join(names), key, begin, undone)[0]

    def of(self, keys: pa.Table, begin: int, undone: Parts) -> tuple[Places, Places]:
        """For each remove of one of these keys the number of the key, and its `after`."""
        name = keys.column_names[0]
        wanted = whole(keys.column(0).unique())
        found, after = self._keys(in_list(name, wanted), keys.column_names, begin, undone)
        if not found.num_rows:
            return np.zeros(0, np.int64), after
        numbers = Numbering(keys).find(found)
        there = numbers.is_valid()
        mask = there.to_numpy()
        return whole(numbers.filter(there)).to_numpy().astype(np.int64), after[mask]

    def rows(self, begin: int, undone: Parts) -> Iterator[pa.Table]:
        """All values of the rows that count, some at a time."""
        dataset = self._dataset()
        if dataset is None:
            return
        for batch in dataset.scanner(batch_size=READ_AT_ONCE).to_batches():
            rows = _counting(pa.Table.from_batches([batch]), begin, undone)
            if rows.num_rows:
                yield rows.drop_columns([AFTER, PART])

    def _keys(
        self, filter: str, key: Sequence[str], begin: int, undone: Parts
    ) -> tuple[pa.Table, Places]:
        dataset = self._dataset()
        if dataset is None:
            return self._schema.empty_table().select(list(key)), np.zeros(0, np.int64)
        columns = [*key, AFTER, PART]
        found = dataset.scanner(columns=columns, filter=filter or None).to_table()
        rows = _counting(found, begin, undone)
        keys = rows.select(list(key))
        typed = pa.schema([self._schema.field(name) for name in key])
        return keys.cast(typed), rows.column(AFTER).to_numpy()

    def _dataset(self) -> Dataset | None:
        if self._read is None and self._base is not None:
            self._read = self._files.append(self._id, self._base, self._fragments)
        return self._read


def _counting(rows: pa.Table, begin: int, undone: Parts) -> pa.Table:
    """The removes that count: not undone, and not before all rows were removed at once."""
    kept = rows.column(AFTER).to_numpy() >= begin
    kept &= ~np.isin(rows.column(PART).to_numpy(), undone)
    return rows.filter(pa.array(kept))
