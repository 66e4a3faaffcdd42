"""Staging what an engine found to differ: the operation that takes rows out and puts others in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from lance.fragment import FragmentMetadata
from pyroaring import BitMap

from tidelock.errors import BrokenInvariant
from tidelock.store.lookup.by_key import rows_by_id
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.lookup.wanted_keys import PASS_BATCH_ROWS, WantedKeys
from tidelock.store.operations.counts import ByColumnId, Counts, Target
from tidelock.store.operations.operations import Replacement
from tidelock.store.spark.differences import WrittenDifference, write_difference
from tidelock.store.spark.stage import frame_target
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.table import Table
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.file_sums import data_files
from tidelock.store.tables.fragments import Addresses, Dataset, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class FrameReplacement(ByColumnId):
    """Rows that leave, as marks on the fragments of a pin, and rows that come, as fragments; the
    first `replaced` of these have the ids of rows that leave."""

    marks: Mapping[int, bytes]
    fragments: Sequence[FragmentMetadata]
    added: int
    replaced: int
    found_at: int
    survives_data_changes: bool = False

    @classmethod
    def of(cls, view: Table, written: WrittenDifference) -> FrameReplacement:
        fragments = [FragmentMetadata.from_json(text) for text in written.fragments]
        view.files.sums.note(view.state.id, data_files(fragments))
        return cls(written.marks, fragments, written.added, written.replaced, view.dataset.version)

    @property
    def removed(self) -> int:
        return sum(len(BitMap.deserialize(marks)) for marks in self.marks.values())

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        addresses = self.addresses()
        removed = len(addresses)
        if base.version != self.found_at:
            # After maintenance, which moved rows and changed none.
            ids = _ids_at(files.open(target.id, self.found_at), addresses)
            addresses = rows_by_id(base, ids)
        if len(addresses) != removed:
            raise BrokenInvariant(
                f"{removed} rows of {target.name!r} were to leave, and {len(addresses)} were found "
                "again after maintenance."
            )
        counts.updated += self.replaced
        counts.deleted += removed - self.replaced
        counts.inserted += self.added - self.replaced
        return files.replace_rows(target.id, base, addresses, self.fragments)

    def by_row(self, view: Table, keys: WantedKeys | None) -> Replacement:
        """The same, in conflict only with who touches one of its rows; `keys` are those of the rows
        that come, where others might take them."""
        addresses = self.addresses()
        return Replacement(
            _ids_at(view.dataset, addresses),
            addresses,
            self.fragments,
            self.replaced,
            self.found_at,
            keys,
            survives_data_changes=True,
        )

    def addresses(self) -> Addresses:
        """Where the rows that leave are at the pin they were found at."""
        parts = [
            np.array(BitMap.deserialize(marks).to_array(), dtype=np.uint64)
            + np.uint64(fragment << 32)
            for fragment, marks in sorted(self.marks.items())
        ]
        return np.concatenate(parts) if parts else np.array([], dtype=np.uint64)


def _ids_at(dataset: Dataset, addresses: Addresses) -> Addresses:
    """The ids of the rows at these addresses, which are sorted; in their order."""
    scanner = dataset.scanner(
        columns=[], with_row_id=True, with_row_address=True, batch_size=PASS_BATCH_ROWS
    )
    ids, places = [addresses[:0]], [addresses[:0]]
    for batch in scanner.to_batches():
        there = numbers(batch.column("_rowaddr"))
        mask = is_among(there, addresses)
        ids.append(numbers(batch.column("_rowid"))[mask])
        places.append(there[mask])
    # Fragments need not come by their ids.
    return np.concatenate(ids)[np.argsort(np.concatenate(places))]


def replace_frame(view: Table, staged: StagedTable, frame: DataFrame) -> FrameReplacement | None:
    """Write a difference (`differences.py`) and stage it, unless there is none. None if it
    does not say of every row that leaves where it is."""
    written = write_replacement(view, frame)
    if written.missing:
        return None
    operation = FrameReplacement.of(view, written)
    if operation.fragments or operation.marks:
        staged.add(operation)
    return operation


def write_replacement(view: Table, frame: DataFrame) -> WrittenDifference:
    """Write a difference onto a table as it is seen, and stage nothing."""
    return write_difference(frame, frame_target(view))
