"""Rows that an operation found at one pin, and how they are found again at another.

Owns: the identity of rows while the base of a transaction moves. A row of the base is known by its
row id, which no commit of others changes. A row that the same transaction added has an id that was
given out on top of the base; on top of another base the same operations are given other ids, in the
same order:

    id >= own_from        it is one of the transaction's own rows
    id at another base    id + shift, if the operations before it add the same rows there

Appends always do. An upsert does if it replaces with the same of its rows as before (its `split`);
StagedTable sees to that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tidelock.store.changes.touched import in_place
from tidelock.store.lookup.by_key import rows_by_id
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset

NEVER = 2**63 - 1


@dataclass
class FoundRows:
    """Rows by their ids, and where they are at pins that were looked at."""

    row_ids: Addresses
    """The ids that they had when they were found."""
    addresses: Addresses
    found_at: int
    own_from: int = NEVER
    shift: int = 0
    _seen: tuple[int, Addresses] | None = field(default=None, repr=False)
    """The pin at which they were last found to be in place, and where that is."""

    def __len__(self) -> int:
        return len(self.row_ids)

    @property
    def ids(self) -> Addresses:
        """The ids that they have on top of the base that is followed now."""
        if not self.shift:
            return self.row_ids
        moved: Addresses = (self.row_ids.astype(np.int64) + self.shift).astype(np.uint64)
        return np.where(self._own(), moved, self.row_ids)

    @property
    def has_own(self) -> bool:
        """Whether the transaction itself added some of them."""
        return bool(self._own().any())

    def follow(self, own_from: int, shift: int) -> None:
        """Take it that the rows of the transaction itself have ids from here on, which are now
        higher by so much."""
        self.own_from, self.shift = own_from, shift

    def out_of_place(self, files: TableFiles, table_id: str, dataset: Dataset) -> Addresses:
        """The ids of those that are not of the transaction's own, and not where they were found."""
        before = files.open(table_id, self.found_at)
        left = in_place(files.reader(table_id), before, dataset, self.addresses)
        if left.all():
            self._seen = (dataset.version, self.addresses)
        return self.row_ids[~left & ~self._own()]

    def at(self, files: TableFiles, table_id: str, dataset: Dataset) -> Addresses:
        """Where they are at a pin, in no particular order; those that are gone are left out."""
        if dataset.version == self.found_at:
            return self.addresses
        if self._seen is not None and self._seen[0] == dataset.version:
            return self._seen[1]
        before = files.open(table_id, self.found_at)
        left = in_place(files.reader(table_id), before, dataset, self.addresses)
        if left.all():
            return self.addresses
        return np.concatenate([self.addresses[left], rows_by_id(dataset, self.ids[~left])])

    def _own(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        own: np.ndarray[tuple[int], np.dtype[np.bool_]] = self.row_ids >= np.uint64(self.own_from)
        return own
