"""Merged rows on their way into the target: counted alone, or written and staged as one operation.

Owns: the order of what is written. In every fragment the rows that replace others come first, with
the ids of those, and so does a row that the target had deleted; rows that come anew follow, and get
fresh ids at commit, in the order in which they were handed over. So which id each of them gets is
known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.errors import BrokenInvariant
from tidelock.model.history.renumbering import ABSENT, Ids, Range, ranges_of
from tidelock.store.lookup.by_key import rows_by_id
from tidelock.store.merge.rows.located import Located
from tidelock.store.merge.rows.output import RowIds, Written
from tidelock.store.operations.counts import ByColumnId, Counts, Target
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset, with_row_ids
from tidelock.store.tables.next_row_id import next_row_id

HELD_ROWS_MAX = 262_144
HELD_BYTES_MAX = 64 * 1024 * 1024


@dataclass
class MergedRows(ByColumnId):
    """Rows of the target that leave, and rows that come; some of both are the same rows with other
    values. What was decided about them holds for the rows that were read and no others, so that a
    merge is made again when another commit changes the table."""

    row_ids: Addresses
    addresses: Addresses
    fragments: Sequence[FragmentMetadata]
    inserted: int
    updated: int
    found_at: int
    survives_data_changes: bool = False

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        addresses = self.addresses
        if base.version != self.found_at:
            addresses = rows_by_id(base, self.row_ids)
        if len(addresses) != len(self.row_ids):
            raise BrokenInvariant(
                f"{len(self.row_ids)} rows of {target.name!r} were merged, {len(addresses)} were "
                "found again after maintenance."
            )
        counts.inserted += self.inserted
        counts.updated += self.updated
        counts.deleted += len(addresses) - self.updated
        return files.replace_rows(target.id, base, addresses, self.fragments)


@dataclass
class RowCount:
    """Only counts what would be done."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def write(self, written: Written) -> None:
        come = int((written.located.ids == ABSENT).sum())
        self.inserted += come
        self.updated += len(written.located.ids) - come

    def delete(self, keys: pa.Table, located: Located) -> None:
        self.deleted += len(located.ids)

    def doubt(self, keys: pa.Table, located: Located, ids: RowIds | None) -> None:
        """Nothing is done about it."""

    @property
    def empty(self) -> bool:
        return not (self.inserted or self.updated or self.deleted)


@dataclass
class RowWriter(RowCount):
    """Writes fragments of the target's table, and makes the operation of them."""

    files: TableFiles | None = None
    dataset: Dataset = None
    schema: pa.Schema | None = None
    """The columns as the target will have them."""
    _replaced: list[pa.Table] = field(default_factory=list)
    _anew: list[pa.Table] = field(default_factory=list)
    _held_ids: list[Ids] = field(default_factory=list)
    _rows: int = 0
    _bytes: int = 0
    _fragments: list[FragmentMetadata] = field(default_factory=list)
    _removed: list[Located] = field(default_factory=list)
    _source_ids: list[Ids] = field(default_factory=list)

    def write(self, written: Written) -> None:
        super().write(written)
        there = written.located.ids != ABSENT
        ids = written.located.ids
        if written.ids is not None:
            # A row that the target deleted, and gets back, is the same row.
            ids = np.where(there, ids, written.ids.target)
        known = ids != ABSENT
        if known.any():
            self._replaced.append(written.rows.filter(pa.array(known)))
            self._held_ids.append(ids[known])
            self._removed.append(written.located.at(np.flatnonzero(there)))
        if not known.all():
            self._anew.append(written.rows.filter(pa.array(~known)))
            if written.ids is not None:
                self._source_ids.append(written.ids.source[~known])
        self._rows += written.rows.num_rows
        self._bytes += written.rows.nbytes
        if self._rows >= HELD_ROWS_MAX or self._bytes >= HELD_BYTES_MAX:
            self._flush()

    def delete(self, keys: pa.Table, located: Located) -> None:
        super().delete(keys, located)
        self._removed.append(located)

    def _flush(self) -> None:
        if not self._rows:
            return
        assert self.files is not None
        assert self.schema is not None
        rows = pa.concat_tables([*self._replaced, *self._anew])
        # Values are of these types already; what is required was found to be there.
        rows = pa.Table.from_arrays(rows.columns, schema=self.schema)
        ids = np.concatenate([*self._held_ids, np.zeros(0, dtype=np.int64)]).astype(np.uint64)
        written = self.files.write(self.dataset, rows)
        self._fragments.extend(with_row_ids(written, ids))
        self._replaced, self._anew, self._held_ids = [], [], []
        self._rows = self._bytes = 0

    def operation(self) -> MergedRows | None:
        """What was handed over, as one operation; None if that is nothing."""
        self._flush()
        if self.empty:
            return None
        nothing = np.zeros(0, dtype=np.int64)
        ids = np.concatenate([*(one.ids for one in self._removed), nothing])
        addresses = np.concatenate([*(one.addresses for one in self._removed), nothing])
        return MergedRows(
            ids.astype(np.uint64),
            addresses.astype(np.uint64),
            self._fragments,
            self.inserted,
            self.updated,
            self.dataset.version,
        )

    def renumbered(self) -> list[Range]:
        """Which ids rows that come anew get at the target, by those that they have at the
        source."""
        if not self._source_ids:
            return []
        here = np.concatenate(self._source_ids)
        first = next_row_id(self.dataset)
        return ranges_of(here, first + np.arange(len(here), dtype=np.int64))
