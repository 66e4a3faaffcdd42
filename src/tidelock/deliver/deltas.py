"""One commit's changes of one table, paired: which rows came, which went, which were updated.

A row keeps its row id when it is updated, so that a row that went and one that came under one id
are the same row before and after. Entries are ordered by row id; the place of an entry is its
number in that order, which depends on the two pins alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidelock.store.changes import fragments_by_file, live_row_ids, newly_deleted
from tidelock.store.deletions import ReadBytes
from tidelock.store.sequences import READ_ROWS, Ids
from tidelock.store.tables import Dataset

INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_before", "update_after"


@dataclass(frozen=True)
class Side:
    """Rows of one pin: their ids in order, and where each is."""

    dataset: Dataset | None
    ids: Ids
    fragments: Ids
    offsets: Ids
    """Among the live rows of the fragment."""

    @classmethod
    def of(cls, dataset: Dataset | None, found: Sequence[tuple[int, Ids, Ids]]) -> Side:
        empty = np.array([], dtype=np.int64)
        ids = np.concatenate([one for _, one, _ in found] or [empty])
        fragments = np.concatenate([np.full(len(one), f) for f, one, _ in found] or [empty])
        offsets = np.concatenate([one for _, _, one in found] or [empty])
        order = np.argsort(ids, kind="stable")
        return cls(dataset, ids[order], fragments[order], offsets[order])

    def take(self, wanted: Ids, columns: Sequence[str]) -> pa.Table:
        """The rows with these ids, in their order."""
        assert self.dataset is not None
        places = np.searchsorted(self.ids, wanted)
        fragments, offsets = self.fragments[places], self.offsets[places]
        order = np.lexsort((offsets, fragments))
        parts = []
        for number in np.unique(fragments):
            mine = offsets[order][fragments[order] == number]
            parts.append(_read(self.dataset, int(number), mine, list(columns)))
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_tables(parts).take(pa.array(back))


def _read(dataset: Dataset, fragment_id: int, offsets: Ids, columns: list[str]) -> pa.Table:
    fragment = dataset.get_fragment(fragment_id)
    if offsets[-1] - offsets[0] + 1 == len(offsets):
        return dataset.scanner(
            columns=columns,
            fragments=[fragment],
            scan_in_order=True,
            offset=int(offsets[0]),
            limit=len(offsets),
        ).to_table()
    return fragment.take(offsets.tolist(), columns=columns)


@dataclass(frozen=True)
class Delta:
    read_bytes: ReadBytes
    before: Dataset | None
    after: Dataset | None

    @cached_property
    def gone(self) -> Side:
        old, new = fragments_by_file(self.before), fragments_by_file(self.after)
        found = []
        for file, fragment_id in old.items():
            assert self.before is not None
            ids = live_row_ids(self.before, fragment_id).astype(np.int64)
            if file not in new:
                found.append((fragment_id, ids, np.arange(len(ids))))
            elif self.after is not None:
                offsets = newly_deleted(self.read_bytes, self.before, self.after, fragment_id)
                if len(offsets):
                    found.append((fragment_id, ids[offsets], offsets))
        return Side.of(self.before, found)

    @cached_property
    def came(self) -> Side:
        old, new = fragments_by_file(self.before), fragments_by_file(self.after)
        found = []
        for file, fragment_id in new.items():
            if file not in old:
                assert self.after is not None
                ids = live_row_ids(self.after, fragment_id).astype(np.int64)
                found.append((fragment_id, ids, np.arange(len(ids))))
        return Side.of(self.after, found)

    @cached_property
    def ids(self) -> Ids:
        return np.union1d(self.gone.ids, self.came.ids)

    def places(self) -> Ids:
        """The place of every row: twice that of one that was updated."""
        times = 1 + np.isin(self.ids, np.intersect1d(self.gone.ids, self.came.ids))
        return np.repeat(np.arange(len(self.ids), dtype=np.int64), times)

    def read(
        self, columns: Sequence[str], after: int, until: int
    ) -> Iterator[tuple[pa.RecordBatch, Ids]]:
        """The rows of the entries with places in (after, until], operation and row id last."""
        first, last = max(after + 1, 0), min(until + 1, len(self.ids))
        for begin in range(first, last, READ_ROWS):
            yield from self._read(columns, begin, min(last, begin + READ_ROWS))

    def _read(
        self, columns: Sequence[str], begin: int, end: int
    ) -> Iterator[tuple[pa.RecordBatch, Ids]]:
        ids = self.ids[begin:end]
        went, arrived = np.isin(ids, self.gone.ids), np.isin(ids, self.came.ids)
        parts, operations, places, turns = [], [], [], []
        for side, present, alone, paired, turn in (
            (self.gone, went, DELETE, BEFORE, 0),
            (self.came, arrived, INSERT, AFTER, 1),
        ):
            chosen = np.flatnonzero(present)
            if not len(chosen):
                continue
            parts.append(side.take(ids[chosen], columns))
            operations.append(np.where((went & arrived)[chosen], paired, alone))
            places.append(begin + chosen)
            turns.append(np.full(len(chosen), turn))
        if not parts:
            return
        order = np.lexsort((np.concatenate(turns), np.concatenate(places)))
        rows = pa.concat_tables(parts).take(pa.array(order)).combine_chunks()
        where = np.concatenate(places)[order]
        said = pa.array(np.concatenate(operations)[order].tolist(), pa.string())
        sequences = pa.array(self.ids[where])
        columns_now = [column.combine_chunks() for column in rows.columns]
        names = [*rows.column_names, "_op", "_sequence"]
        yield pa.RecordBatch.from_arrays([*columns_now, said, sequences], names=names), where
