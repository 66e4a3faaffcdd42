"""The rows that one side of a merge touched since the base, by key and by place.

Owns: how rows of any pin are shown under the merged columns, and which rows two pins do not share.
In memory are the keys and places of those rows; the rows themselves are read when they are needed,
so many at a time as fit.

The key of a row is that of its table. In a table without one it is a number, the same for the same
row on all sides (`ROW`): the id that it has at the base, or one of its own if it is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.model.history.renumbering import ABSENT, Ids, Renumbering
from tidelock.store.changes.alike import Mask
from tidelock.store.changes.pin_diff import PinDiff, PinRows
from tidelock.store.lookup.by_sequence import rows_at_once
from tidelock.store.lookup.key_numbers import Numbering
from tidelock.store.tables.fragments import Dataset

ROW = "__tidelock_row"
PART_ROWS_MAX = 262_144
FRESH = 1 << 61
"""Numbers of new rows begin here: the source's are even, the target's odd."""


@dataclass(frozen=True)
class Shown:
    """How the rows of one pin are shown under the merged columns."""

    schema: pa.Schema
    """The merged columns."""
    names: tuple[str | None, ...]
    """What the pin calls each; None for one that it does not have."""

    def read(self, rows: PinRows, positions: Ids) -> pa.Table:
        """Rows of the pin, under the merged columns."""
        wanted = [name for name in self.names if name is not None]
        found = rows.take(positions, wanted)
        return self.label(found, len(positions))

    def label(self, found: pa.Table, count: int) -> pa.Table:
        columns = [
            pa.nulls(count, field.type) if name is None else _cast(found.column(name), field.type)
            for name, field in zip(self.names, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def of(self, labels: Sequence[str]) -> Shown:
        """For some of the columns alone."""
        places = [self.schema.get_field_index(one) for one in labels]
        return Shown(
            pa.schema([self.schema.field(place) for place in places]),
            tuple(self.names[place] for place in places),
        )


def _cast(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return values if values.type == kind else values.cast(kind)


@dataclass(frozen=True)
class Keyed:
    """Rows of one pin, each with its key."""

    rows: PinRows
    shown: Shown
    keys: pa.Table
    places: Ids
    """Where each is among the rows of the pin."""

    def __len__(self) -> int:
        return len(self.places)

    def take(self, chosen: Ids) -> pa.Table:
        """Some of them, under the merged columns."""
        return self.shown.read(self.rows, self.places[chosen])

    @cached_property
    def may_be_elsewhere(self) -> Mask:
        """Which of them lie in files that the other pin does not have, so that they may be in it
        all the same."""
        return self.rows.whole[self.places]

    @cached_property
    def ids(self) -> Ids:
        return self.rows.ids[self.places]

    def where(self, mask: Mask) -> Keyed:
        return replace(self, keys=self.keys.filter(pa.array(mask)), places=self.places[mask])


@dataclass(frozen=True)
class Touched:
    """What one side did since the base."""

    gone: Keyed
    """Rows of the base that are not at the side, or not as they were."""
    come: Keyed
    """Rows of the side that are not at the base, or not as they were."""


@dataclass(frozen=True)
class ByKey:
    """Rows are known by the columns of the key."""

    names: tuple[str, ...]
    """As the merged columns call them."""

    def touched(self, diff: PinDiff, base: Shown, side: Shown) -> Touched:
        return Touched(self._keyed(diff.gone, base), self._keyed(diff.come, side))

    def _keyed(self, rows: PinRows, shown: Shown) -> Keyed:
        places = np.arange(rows.count)
        keys = shown.of(self.names).read(rows, places)
        return Keyed(rows, shown, keys, places)


@dataclass(frozen=True)
class ById:
    """Rows are known by their ids: those of the base, as they are at the side."""

    numbering: Renumbering
    """From the base to the side."""
    parity: int
    """What numbers of new rows are modulo 2, so that no two rows of both sides have the same."""
    others: tuple[tuple[int, Renumbering], ...] = ()
    """Further bases: the number that their ids begin with, and from there to the side."""

    names = (ROW,)

    def touched(self, diff: PinDiff, base: Shown, side: Shown) -> Touched:
        return Touched(
            _numbered(diff.gone, base, diff.gone.ids),
            _numbered(diff.come, side, self.at_base(diff.come.ids)),
        )

    def at_base(self, ids: Ids) -> Ids:
        """The numbers of rows that have these ids at the side."""
        found = self.numbering.inverse().there(ids)
        for start, numbering in self.others:
            other = numbering.inverse().there(ids)
            found = np.where((found == ABSENT) & (other != ABSENT), start + other, found)
        return np.where(found == ABSENT, FRESH + 2 * ids + self.parity, found)


def _numbered(rows: PinRows, shown: Shown, numbers: Ids) -> Keyed:
    keys = pa.table({ROW: pa.array(numbers, pa.int64())})
    return Keyed(rows, shown, keys, np.arange(rows.count))


def distinct(*keys: pa.Table) -> pa.Table:
    """Every key once."""
    every = pa.concat_tables([one for one in keys if one.num_rows] or [keys[0]])
    if every.num_columns == 1:
        return pa.table([every.column(0).unique()], schema=every.schema)
    found = every.group_by(every.column_names, use_threads=False).aggregate([])
    return pa.Table.from_arrays(found.columns, schema=every.schema)


def places_of(keys: pa.Table, numbering: Numbering, count: int) -> Ids:
    """For each numbered key, where it is among some; ABSENT if it is not."""
    found = np.full(count, ABSENT, dtype=np.int64)
    if keys.num_rows:
        numbers = numbering.find(keys)
        known = np.flatnonzero(pc.is_valid(numbers).to_numpy())
        found[pc.drop_null(numbers).to_numpy().astype(np.int64)] = known
    return found


def rows_at_a_time(*datasets: Dataset) -> int:
    """How many rows may be in memory at once."""
    sizes = [
        rows_at_once(fragment) for dataset in datasets for fragment in dataset.get_fragments()[:8]
    ]
    return min([PART_ROWS_MAX, *(4 * size for size in sizes)])
