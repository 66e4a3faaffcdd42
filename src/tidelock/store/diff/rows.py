"""The rows of one table that differ between two pins: how many, examples, and all of them.

Cost: the rows of the files that only one pin has, and those that are deleted in one alone. Rows are
read so many at a time as fit in memory; what is kept are their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tidelock.model.history.commit import TableState
from tidelock.model.history.diffs import RowDiff, RowWhat
from tidelock.model.history.renumbering import Ids
from tidelock.store.changes.alike import Mask, same_values
from tidelock.store.changes.pin_diff import PinDiff, PinRows
from tidelock.store.diff.columns import PairedColumns
from tidelock.store.diff.matches import ById, ByKey, Matched, Matching, match_rows, parts
from tidelock.store.merge.rows.sides import rows_at_a_time
from tidelock.store.tables.datasets import TableFiles

SEQUENCE = "_sequence"


@dataclass
class TableRows:
    """The rows of a table that differ between two pins."""

    files: TableFiles
    states: tuple[TableState, ...]
    """The pins that are read."""
    diff: PinDiff
    columns: PairedColumns
    before_names: tuple[str, ...]
    after_names: tuple[str, ...]
    """The columns that users see, as either point calls them."""
    by: Matching
    holder: object
    """What keeps the pins readable."""
    by_column: dict[str, int] = field(default_factory=dict)
    _found: Matched = field(init=False)

    def __post_init__(self) -> None:
        with self.files.reading(*self.states):
            matched = match_rows(self.by, self.diff, self.columns)
            self._found = self._without_same(matched)

    @property
    def inserted(self) -> int:
        return len(self._found.inserted)

    @property
    def updated(self) -> int:
        return len(self._found.after)

    @property
    def deleted(self) -> int:
        return len(self._found.deleted)

    def _without_same(self, matched: Matched) -> Matched:
        """Only those rows of both that have other values."""
        kept: list[Ids] = []
        totals = np.zeros(len(self.columns.names), dtype=np.int64)
        for places in parts(np.arange(len(matched.after)), self._rows_at_once):
            differs = self._differs(matched.before[places], matched.after[places])
            totals += differs.sum(axis=0)
            kept.append(places[differs.any(axis=1)])
        chosen = np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)
        counted = zip(self.columns.names, totals.tolist(), strict=True)
        self.by_column = {name: count for name, count in counted if count}
        return Matched(
            matched.before[chosen], matched.after[chosen], matched.deleted, matched.inserted
        )

    @property
    def _rows_at_once(self) -> int:
        return rows_at_a_time(self.diff.gone.dataset, self.diff.come.dataset)

    def _differs(self, before: Ids, after: Ids) -> Mask:
        """For each pair of rows, and each column, whether the values differ."""
        old = self.columns.shown_before.read(self.diff.gone, before)
        new = self.columns.shown_after.read(self.diff.come, after)
        pairs = zip(old.columns, new.columns, strict=True)
        return np.column_stack([~same_values(one, other) for one, other in pairs])

    # All of them

    def reader(self) -> pa.RecordBatchReader:
        """What became of each row, the columns that differ, and the row before and after."""
        schema = pa.schema(
            [
                pa.field("what", pa.string(), nullable=False),
                pa.field("columns", pa.list_(pa.string()), nullable=False),
                pa.field("before", _struct(self.diff.gone, self.before_names)),
                pa.field("after", _struct(self.diff.come, self.after_names)),
            ]
        )
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema))

    def _batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self.files.reading(*self.states):
            for what, count, before, after in self._parts():
                columns = self._columns(before, after)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([what] * count, pa.string()),
                        pa.array(columns, pa.list_(pa.string())),
                        self._rows(self.diff.gone, before, self.before_names, count),
                        self._rows(self.diff.come, after, self.after_names, count),
                    ],
                    schema=schema,
                )

    def _parts(self) -> Iterator[tuple[RowWhat, int, Ids | None, Ids | None]]:
        found, size = self._found, self._rows_at_once
        for places in parts(np.arange(len(found.after)), size):
            yield "updated", len(places), found.before[places], found.after[places]
        for places in parts(found.inserted, size):
            yield "inserted", len(places), None, places
        for places in parts(found.deleted, size):
            yield "deleted", len(places), places, None

    def _columns(self, before: Ids | None, after: Ids | None) -> list[list[str]]:
        """The columns that differ, row by row."""
        if before is None or after is None:
            return [[] for _ in range(len(before if after is None else after))]  # type: ignore[arg-type]
        names = np.array(self.columns.names, dtype=object)
        return [list(names[row]) for row in self._differs(before, after)]

    def _rows(
        self, rows: PinRows, places: Ids | None, names: Sequence[str], count: int
    ) -> pa.Array:
        kind = _struct(rows, names)
        if places is None:
            return pa.nulls(count, kind)
        found = rows.take(places, names)
        arrays = [
            pa.concat_arrays(column.chunks).cast(one.type)
            for column, one in zip(found.columns, kind, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(kind))

    # Examples

    def examples(self, count: int | None) -> tuple[RowDiff, ...]:
        """So many rows of each kind, or all of them."""
        if count == 0:
            return ()
        found = self._found
        shown: list[RowDiff] = []
        with self.files.reading(*self.states):
            shown += self._examples("updated", found.before[:count], found.after[:count])
            shown += self._examples("inserted", None, found.inserted[:count])
            shown += self._examples("deleted", found.deleted[:count], None)
        return tuple(shown)

    def _examples(self, what: RowWhat, before: Ids | None, after: Ids | None) -> list[RowDiff]:
        """In the order of their keys, or of their values."""
        old = _plain(self.diff.gone, before, self.before_names)
        new = _plain(self.diff.come, after, self.after_names)
        keys = self._keys(before, after)
        columns = self._columns(before, after)
        found = [
            RowDiff(
                what,
                None if keys is None else keys[place],
                tuple(names),
                None if old is None else old[place],
                None if new is None else new[place],
            )
            for place, names in enumerate(columns)
        ]
        return in_order(found)

    def _keys(self, before: Ids | None, after: Ids | None) -> list[dict[str, Any]] | None:
        rows, places = (self.diff.gone, before) if after is None else (self.diff.come, after)
        assert places is not None
        if isinstance(self.by, ById):
            return [{SEQUENCE: one} for one in rows.ids[places].tolist()]
        if not isinstance(self.by, ByKey):
            return None
        shown = self.columns.shown_before if after is None else self.columns.shown_after
        found: list[dict[str, Any]] = shown.of(self.by.names).read(rows, places).to_pylist()
        return found


def in_order(rows: list[RowDiff]) -> list[RowDiff]:
    """Rows by their keys, or else by their values, NULL last."""

    def place(row: RowDiff) -> list[tuple[bool, Any]]:
        values = (row.key or row.after or row.before or {}).values()
        return [(True, 0) if value is None else (False, value) for value in values]

    try:
        return sorted(rows, key=place)
    except TypeError:
        # Some values have no order, such as those of a MAP.
        return sorted(rows, key=lambda row: repr(place(row)))


def _struct(rows: PinRows, names: Sequence[str]) -> pa.StructType:
    schema = rows.dataset.schema
    return pa.struct([schema.field(name).with_nullable(True) for name in names])


def _plain(rows: PinRows, places: Ids | None, names: Sequence[str]) -> list[dict[str, Any]] | None:
    if places is None:
        return None
    found: list[dict[str, Any]] = rows.take(places, names).to_pylist()
    return found
