"""Which rows others touched: rows that were found at one pin, looked for at a later one.

A commit touches a row when it updates or deletes it. Maintenance touches nothing: it moves rows.

Laws:
- a row that lives at the place (data file, position) where it was found was touched by nobody, for
  an update writes a row elsewhere and marks its old place as deleted, and no place is used twice;
- a row that is elsewhere was moved or touched. Between the two pins of a commit that is not of
  maintenance nothing is moved, so that such a row is followed commit by commit.

Cost: for rows that are in place, the deletions of their fragments; for others, one look at each
commit on the table in between, and one at all row ids of a pin whenever they were moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tidelock.model.history.commit import TableState
from tidelock.store.changes.moved_rows import moved_ids
from tidelock.store.changes.pin_diff import diff_pins
from tidelock.store.log.line import Line
from tidelock.store.log.table_changes import changes_of
from tidelock.store.lookup.by_key import places_by_id
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.deletions import ReadBytes, deleted_offsets
from tidelock.store.tables.fragments import Addresses, Dataset, data_file, deletion_file

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Touch:
    """Rows that one commit updated or deleted."""

    version: int
    row_ids: Addresses


def in_place(read: ReadBytes, before: Dataset, after: Dataset, addresses: Addresses) -> Mask:
    """Which rows of a pin, all of them alive, live at the same place in another.

    `read` gives the bytes of a file of the table.
    """
    found = np.zeros(len(addresses), dtype=np.bool_)
    for fragment_id, chosen in _by_fragment(addresses):
        old, new = before.get_fragment(fragment_id), after.get_fragment(fragment_id)
        if old is None or new is None or data_file(old.metadata) != data_file(new.metadata):
            continue
        if new.metadata.deletion_file is None or _same_deletions(old, new):
            found[chosen] = True
            continue
        offsets = (addresses[chosen] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        found[chosen] = ~is_among(offsets, deleted_offsets(new.metadata, read))
    return found


def _by_fragment(addresses: Addresses) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """The fragments of some rows, each with the positions of its rows among all of them."""
    if not len(addresses):
        return iter(())
    ids = (addresses >> np.uint64(32)).astype(np.int64)
    order = np.argsort(ids, kind="stable")
    distinct, starts = np.unique(ids[order], return_index=True)
    return zip(distinct.tolist(), np.split(order, starts[1:]), strict=True)


def _same_deletions(old: Dataset, new: Dataset) -> bool:
    if old.metadata.deletion_file is None:
        return False
    return deletion_file(old.metadata) == deletion_file(new.metadata)


def first_touch(
    files: TableFiles, line: Line, before: TableState, now: TableState, row_ids: Addresses
) -> Touch | None:
    """The first commit on a line, between two states of a table, that touched some of these rows of
    the first; None if there is none."""
    read = files.reader(before.id)
    held = files.read(before)
    ids, addresses = places_by_id(held, row_ids)
    changes = list(changes_of(line, line.branch, before.id, now.changed, before.changed))
    for version, change in reversed(changes):
        assert change.before is not None
        assert change.after is not None
        earlier, later = files.read(change.before), files.read(change.after)
        ids, addresses = _follow(read, held, earlier, ids, addresses)
        left = in_place(read, earlier, later, addresses)
        if change.adopted and not left.all():
            # Where one of two branches was maintained, rows lie elsewhere that nobody touched.
            left |= is_among(ids, moved_ids(diff_pins(read, earlier, later)))
            if left.all():
                ids, addresses = places_by_id(later, ids)
        if not left.all():
            return Touch(version, np.sort(ids[~left]))
        held = later
    return None


def _follow(
    read: ReadBytes, held: Dataset, later: Dataset, ids: Addresses, addresses: Addresses
) -> tuple[Addresses, Addresses]:
    """Where rows are once maintenance may have moved them."""
    if held.version == later.version:
        return ids, addresses
    left = in_place(read, held, later, addresses)
    if left.all():
        return ids, addresses
    moved, places = places_by_id(later, ids[~left])
    return np.concatenate([ids[left], moved]), np.concatenate([addresses[left], places])
