"""Which rows of a fragment are deleted, read from Lance's own deletion files.

A fragment's deletion file holds the positions of its deleted rows: as an Arrow file where they are
few, as a Roaring bitmap where they are many. Reading it takes as long as there are deletions, where
scanning the fragment for what is left takes as long as it has rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata
from pyroaring import BitMap

from tidelock.errors import BrokenInvariant

Offsets = npt.NDArray[np.int64]
ReadBytes = Callable[[str], bytes]
"""Reads a file of a table, by its path in the dataset."""

NONE: Offsets = np.array([], dtype=np.int64)


def deleted_offsets(fragment: FragmentMetadata, read: ReadBytes) -> Offsets:
    """The positions of a fragment's deleted rows among all its rows, in order."""
    deletion = fragment.deletion_file
    if deletion is None:
        return NONE
    data = read(deletion.path(fragment.id))
    if deletion.file_type == "array":
        found = pa.ipc.open_file(data).read_all().column(0).to_numpy()
    elif deletion.file_type == "bitmap":
        found = np.array(BitMap.deserialize(data).to_array())
    else:
        raise BrokenInvariant(f"Lance has deletion files of a kind {deletion.file_type!r}.")
    return np.sort(found.astype(np.int64))


def live_positions(offsets: Offsets, deleted: Offsets) -> Offsets:
    """Where rows are among a fragment's live rows, given where they are among all of them."""
    return offsets - np.searchsorted(deleted, offsets)
