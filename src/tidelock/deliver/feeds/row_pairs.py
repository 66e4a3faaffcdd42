"""One commit's changes of one table, paired: which rows came, which went, which were updated.

A row keeps its row id when it is updated, so that a row that went and one that came under one id
are the same row before and after. Entries are ordered by row id; the ordinal of an entry is
its number in that order, which depends on the two pins alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidelock.store.changes.changes import fragments_by_file, live_rows, newly_deleted
from tidelock.store.changes.moved_rows import moved_ids
from tidelock.store.changes.pin_diff import diff_pins
from tidelock.store.lookup.by_place import look_up_rows, take_rows
from tidelock.store.lookup.by_sequence import READ_ROWS, Ids, rows_at_once
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.tables.deletions import NONE, ReadBytes
from tidelock.store.tables.fragments import Dataset
from tidelock.store.tables.labelled import Labelled

LOOKED_UP_ROWS_MIN = 16_384
GROWTH_MAX = 8

INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_before", "update_after"


@dataclass(frozen=True)
class Side:
    """Rows of one pin: their ids in order, and where each is."""

    dataset: Dataset | None
    ids: Ids
    fragments: Ids
    live: Ids
    """Among the live rows of the fragment."""
    offsets: Ids
    """Among all of its rows."""

    @property
    def rows_at_once(self) -> int:
        """How many rows may be in memory at once."""
        assert self.dataset is not None
        fragments = np.unique(self.fragments).tolist()
        return min(rows_at_once(self.dataset.get_fragment(fragment)) for fragment in fragments)

    @classmethod
    def of(cls, dataset: Dataset | None, pieces: Sequence[tuple[int, Ids, Ids, Ids]]) -> Side:
        empty = np.array([], dtype=np.int64)
        ids, live, offsets = (
            np.concatenate([piece[index] for piece in pieces] or [empty]) for index in (1, 2, 3)
        )
        fragments = np.concatenate(
            [np.full(len(piece[1]), piece[0]) for piece in pieces] or [empty]
        )
        order = np.argsort(ids, kind="stable")
        return cls(dataset, ids[order], fragments[order], live[order], offsets[order])

    def without(self, ids: Ids) -> Side:
        """Without the rows of some ids, which are in order."""
        if not len(ids):
            return self
        kept = ~is_among(self.ids, ids)
        return Side(
            self.dataset,
            self.ids[kept],
            self.fragments[kept],
            self.live[kept],
            self.offsets[kept],
        )

    def take(self, wanted: Ids, columns: Sequence[str], shown: Dataset | None) -> pa.Table:
        """The rows with these ids, in their order; `shown` is the pin whose columns they get."""
        assert self.dataset is not None
        if shown is None:
            return self._take(wanted, columns)
        labelled = Labelled.of(self.dataset, shown, columns)
        rows = self._take(wanted, labelled.names or columns)
        given = pa.Table.from_batches(labelled.shown(rows.to_batches()))
        return pa.Table.from_arrays(given.columns, names=list(columns))

    def _take(self, wanted: Ids, columns: Sequence[str]) -> pa.Table:
        assert self.dataset is not None
        if len(self.ids) > LOOKED_UP_ROWS_MIN:
            owners = np.unique(self.fragments).tolist()
            return look_up_rows(self.dataset, owners, wanted, columns).drop_columns(["_rowid"])
        indices = np.searchsorted(self.ids, wanted)
        fragments, live, offsets = (
            array[indices] for array in (self.fragments, self.live, self.offsets)
        )
        order = np.lexsort((live, fragments))
        parts: list[pa.RecordBatch] = []
        for mine in np.split(order, np.flatnonzero(np.diff(fragments[order])) + 1):
            number = int(fragments[mine[0]])
            parts.extend(take_rows(self.dataset, number, live[mine], offsets[mine], columns))
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.Table.from_batches(parts).take(pa.array(back))


def _all(dataset: Dataset, fragment_id: int) -> tuple[int, Ids, Ids, Ids]:
    ids, offsets = live_rows(dataset, fragment_id)
    return fragment_id, ids.astype(np.int64), np.arange(len(ids)), offsets


@dataclass(frozen=True)
class PairedChanges:
    """What a commit did to one table. Owns: which rows went, came, or were updated."""

    read_bytes: ReadBytes
    before: Dataset | None
    after: Dataset | None
    shown: Dataset | None = None
    """The pin whose columns rows are given; each side's own if there is none."""
    may_have_moved: bool = False
    """Whether rows may lie elsewhere that nobody changed."""

    @cached_property
    def _moved(self) -> Ids:
        """The rows that nobody changed."""
        if not self.may_have_moved or self.before is None or self.after is None:
            return NONE
        return moved_ids(diff_pins(self.read_bytes, self.before, self.after))

    @cached_property
    def gone(self) -> Side:
        old, new = fragments_by_file(self.before), fragments_by_file(self.after)
        pieces = []
        for file, fragment_id in old.items():
            assert self.before is not None
            if file not in new:
                pieces.append(_all(self.before, fragment_id))
            elif self.after is not None:
                live, offsets = newly_deleted(self.read_bytes, self.before, self.after, fragment_id)
                if len(live):
                    ids = live_rows(self.before, fragment_id)[0].astype(np.int64)
                    pieces.append((fragment_id, ids[live], live, offsets))
        return Side.of(self.before, pieces).without(self._moved)

    @cached_property
    def came(self) -> Side:
        old, new = fragments_by_file(self.before), fragments_by_file(self.after)
        pieces = []
        for file, fragment_id in new.items():
            if file not in old:
                assert self.after is not None
                pieces.append(_all(self.after, fragment_id))
        return Side.of(self.after, pieces).without(self._moved)

    @cached_property
    def ids(self) -> Ids:
        return np.union1d(self.gone.ids, self.came.ids)

    def ordinals(self) -> Ids:
        """The ordinal of every row: twice that of one that was updated."""
        both = is_among(self.ids, self.gone.ids) & is_among(self.ids, self.came.ids)
        times = 1 + both
        return np.repeat(np.arange(len(self.ids), dtype=np.int64), times)

    def read(
        self, columns: Sequence[str], after: int, until: int
    ) -> Iterator[tuple[pa.RecordBatch, Ids]]:
        """The rows of the entries with ordinals in (after, until], operation and row id last."""
        first, last = max(after + 1, 0), min(until + 1, len(self.ids))
        sides = [side for side in (self.gone, self.came) if len(side.ids)]
        rows_max = min((side.rows_at_once for side in sides), default=READ_ROWS)
        begin, rows = first, rows_max
        while begin < last:
            # A lookup reads more than it finds, so for a reader that goes on they grow.
            end = min(last, begin + rows)
            yield from self._read(columns, begin, end)
            begin, rows = end, min(2 * rows, GROWTH_MAX * rows_max)

    def _read(
        self, columns: Sequence[str], begin: int, end: int
    ) -> Iterator[tuple[pa.RecordBatch, Ids]]:
        ids = self.ids[begin:end]
        went, arrived = is_among(ids, self.gone.ids), is_among(ids, self.came.ids)
        parts, operations, ordinals, turns = [], [], [], []
        for side, present, alone, paired, turn in (
            (self.gone, went, DELETE, BEFORE, 0),
            (self.came, arrived, INSERT, AFTER, 1),
        ):
            chosen = np.flatnonzero(present)
            if not len(chosen):
                continue
            parts.append(side.take(ids[chosen], columns, self.shown))
            operations.append(np.where((went & arrived)[chosen], paired, alone))
            ordinals.append(begin + chosen)
            turns.append(np.full(len(chosen), turn))
        if not parts:
            return
        order = np.lexsort((np.concatenate(turns), np.concatenate(ordinals)))
        rows = pa.concat_tables(parts).take(pa.array(order)).combine_chunks()
        where = np.concatenate(ordinals)[order]
        said = pa.array(np.concatenate(operations)[order].tolist(), pa.string())
        sequences = pa.array(self.ids[where])
        columns_now = [column.combine_chunks() for column in rows.columns]
        names = [*rows.column_names, "_op", "_sequence"]
        yield pa.RecordBatch.from_arrays([*columns_now, said, sequences], names=names), where
