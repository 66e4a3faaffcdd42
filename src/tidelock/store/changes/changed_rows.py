"""Whether a commit changed a row for which a condition is true.

Owns: the answer for one step between two pins of one lineage. A row is changed that the step
removed or added, an update being one of each; the condition is asked of the row as it was before
it was removed, or as it is after it was added.
Cost: the fragments that were added or removed, and the rows that were deleted in those that are
kept. Nothing is held in memory but one batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelock.store.changes.changes import fragments_by_file, newly_deleted
from tidelock.store.lookup.by_place import LISTED_MAX
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.lookup.wanted_keys import PASS_BATCH_ROWS
from tidelock.store.tables.deletions import Offsets, ReadBytes
from tidelock.store.tables.fragments import Dataset


def changes_a_row(read: ReadBytes, before: Dataset, after: Dataset, condition: str) -> bool:
    """Whether a step removed or added a row for which a condition of Lance's is true.

    `read` gives the bytes of a file of the table.
    """
    old, new = fragments_by_file(before), fragments_by_file(after)
    added = [fragment_id for file, fragment_id in new.items() if file not in old]
    removed = [fragment_id for file, fragment_id in old.items() if file not in new]
    if _holds(after, added, condition) or _holds(before, removed, condition):
        return True
    for file, fragment_id in old.items():
        if file in new:
            _, gone = newly_deleted(read, before, after, fragment_id)
            if len(gone) and _holds_at(before, fragment_id, gone, condition):
                return True
    return False


def _holds(dataset: Dataset, fragments: Sequence[int], condition: str) -> bool:
    """Whether the condition is true for a row of some fragments."""
    if not fragments:
        return False
    scanner = dataset.scanner(
        columns=[],
        fragments=[dataset.get_fragment(one) for one in fragments],
        filter=condition,
        limit=1,
        with_row_address=True,
        use_scalar_index=False,
    )
    return bool(scanner.to_table().num_rows)


def _holds_at(dataset: Dataset, fragment_id: int, offsets: Offsets, condition: str) -> bool:
    """Whether the condition is true for one of some rows of a fragment."""
    addresses = (np.uint64(fragment_id) << np.uint64(32)) + offsets.astype(np.uint64)
    if len(addresses) <= LISTED_MAX:
        listed = ", ".join(map(str, addresses.tolist()))
        return _holds(dataset, [fragment_id], f"({condition}) AND _rowaddr IN ({listed})")
    batches = dataset.scanner(
        columns=[],
        fragments=[dataset.get_fragment(fragment_id)],
        filter=condition,
        with_row_address=True,
        use_scalar_index=False,
        batch_size=PASS_BATCH_ROWS,
    ).to_batches()
    return any(is_among(batch.column("_rowaddr").to_numpy(), addresses).any() for batch in batches)
