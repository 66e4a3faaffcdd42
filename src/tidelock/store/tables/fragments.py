"""Fragments: the parts of a pin, as Lance describes them, and rows of them taken out or renumbered.

Owns: what is known of a fragment from its metadata alone (its files, its row ids), and the
deletions that make the next version of one. Nothing here commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import DataFile, FragmentMetadata, RowIdSequence

from tidelock.store.objects.parallel import in_parallel
from tidelock.store.tables.file_sums import data_files

UPDATED_ROWS_MAX = 32_768
"""Rows of fragments that so many or fewer have are replaced by one commit of Lance, not by two."""

# Lance has no type stubs: the name says what is meant.
Dataset: TypeAlias = Any
Addresses = npt.NDArray[np.uint64]


def with_row_ids(
    fragments: Sequence[FragmentMetadata], row_ids: Addresses
) -> list[FragmentMetadata]:
    """Give the first rows of freshly written fragments the row ids that they replace.

    Rows beyond `row_ids` get fresh, higher ids when the fragments are committed.
    """
    start = 0
    for fragment in fragments:
        taken = row_ids[start : start + fragment.physical_rows]
        start += fragment.physical_rows
        # The same fragments may be given others later, when they are committed again.
        given = RowIdSequence(taken).to_inline_metadata() if len(taken) else None
        fragment.row_id_meta = given
    return list(fragments)


def are_small(base: Dataset, addresses: Addresses) -> bool:
    """Whether the fragments of some rows have few rows in all."""
    if len(addresses) > UPDATED_ROWS_MAX:
        return False
    ids = np.unique(addresses >> np.uint64(32)).tolist()
    rows = 0
    for fragment_id in ids:
        rows += base.get_fragment(fragment_id).metadata.physical_rows
        if rows > UPDATED_ROWS_MAX:
            return False
    return True


def delete_addresses(
    base: Dataset, addresses: Addresses
) -> tuple[list[FragmentMetadata], list[int]]:
    """Mark rows as deleted: the changed fragments, and the ids of those left without rows."""
    updated: list[FragmentMetadata] = []
    emptied: list[int] = []
    if not len(addresses):
        return updated, emptied
    ordered = np.sort(addresses)
    fragment_ids = (ordered >> np.uint64(32)).astype(np.int64)
    offsets = (ordered & np.uint64(0xFFFFFFFF)).astype(np.int64)
    ids, starts = np.unique(fragment_ids, return_index=True)
    pieces = list(zip(ids.tolist(), np.split(offsets, starts[1:]), strict=True))
    marked = in_parallel(lambda piece: mark_deleted(base, *piece), pieces)
    for (fragment_id, _), changed in zip(pieces, marked, strict=True):
        if changed is None:
            emptied.append(fragment_id)
        else:
            updated.append(changed)
    return updated, emptied


def mark_deleted(
    base: Dataset, fragment_id: int, offsets: npt.NDArray[np.int64]
) -> FragmentMetadata | None:
    return base.get_fragment(fragment_id).delete_rows(offsets.tolist())


class _DataFile(DataFile):  # type: ignore[misc]
    """Lance's own makes a class each time that its path is asked for, as every commit does."""

    @property
    def path(self) -> str:
        path: str = self._path
        return path


def with_plain_paths(fragment: FragmentMetadata) -> FragmentMetadata:
    """The same fragment, whose paths can be asked for without making a class each time."""
    for file in fragment.files:
        file.__class__ = _DataFile
    return fragment


def data_file(fragment: FragmentMetadata) -> str:
    """A fragment's first data file, which names its content for good.

    Not by `path`, which makes a class each time that it is asked for, and with it garbage that only
    Python's collector finds.
    """
    path: str = fragment.files[0]._path
    return path


def fragment_files(fragment: FragmentMetadata) -> list[str]:
    """The files of a fragment, relative to its dataset."""
    files = data_files([fragment])
    if fragment.deletion_file is not None:
        files.append(deletion_file(fragment))
    return files


def deletion_file(fragment: FragmentMetadata) -> str:
    path: str = fragment.deletion_file.path(fragment.id)
    return path


def projection(dataset: Dataset, columns: Sequence[str] | None) -> list[str] | None:
    """The columns as Lance is asked for them: all of them without their names, because it looks
    each name up among all."""
    if columns is None or list(columns) == dataset.schema.names:
        return None
    return list(columns)


def numbers(column: pa.ChunkedArray | pa.Array) -> Addresses:
    """A column of row ids or addresses as a numpy array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    found: Addresses = column.to_numpy(zero_copy_only=False)
    return found
