"""Rows that are the same in two pins, though they lie elsewhere.

Between the two pins of a commit that adopts another branch's state of a table
(model/history/commit.py, `adopted`), one of which was maintained, rows lie in other files that
nobody changed. Who follows the table is not told of those.

Owns: telling them from rows that were changed, by their ids and by the values of the columns that
the later pin shows.
Cost: the rows in files that only one of the pins has. In memory are their ids, and so many rows as
fit; nothing is read where neither pin has files of its own with rows of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidelock.store.changes.alike import same_rows
from tidelock.store.changes.changes import weighted_batches
from tidelock.store.changes.pin_diff import PinDiff, PinRows, diff_pins
from tidelock.store.lookup.by_sequence import rows_at_once
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.tables.deletions import NONE, Offsets, ReadBytes
from tidelock.store.tables.fragments import Dataset
from tidelock.store.tables.labelled import Labelled

PART_ROWS_MAX = 65_536


def moved_ids(diff: PinDiff) -> Offsets:
    """The ids, in order, of rows that both pins have alike and only elsewhere."""
    if not diff.may_have_moved:
        return NONE
    _, gone, come = np.intersect1d(diff.gone.ids, diff.come.ids, return_indices=True)
    meant = diff.come.dataset
    names = list(meant.schema.names)
    found = []
    for start in range(0, len(gone), size := _at_once(diff)):
        some = slice(start, start + size)
        old = _labelled(diff.gone, gone[some], meant, names)
        new = _labelled(diff.come, come[some], meant, names)
        alike = same_rows(old, new, names)
        found.append(diff.come.ids[come[some]][alike])
    return np.sort(np.concatenate([*found, NONE]))


def changed_batches(
    read: ReadBytes,
    before: Dataset | None,
    after: Dataset | None,
    version: int,
    columns: Sequence[str] | None,
    shown: Dataset | None,
) -> Iterator[pa.RecordBatch]:
    """As `changes.diff_batches`, without rows that are the same and lie elsewhere. Both pins are
    there."""
    assert before is not None
    assert after is not None
    diff = diff_pins(read, before, after)
    moved = moved_ids(diff)
    meant = after if shown is None else shown
    names = list(meant.schema.names) if columns is None else list(columns)
    for rows, weight in ((diff.gone, -1), (diff.come, 1)):
        if not rows.count:
            continue
        chosen = np.arange(rows.count)
        if len(moved):
            chosen = np.flatnonzero(~is_among(rows.ids, moved))
        for start in range(0, len(chosen), size := _at_once(diff)):
            table = _labelled(rows, chosen[start : start + size], meant, names)
            yield from weighted_batches(iter(table.to_batches()), weight, version)


def _labelled(rows: PinRows, positions: Offsets, meant: Dataset, names: list[str]) -> pa.Table:
    """Rows of a pin, under the columns of another."""
    labelled = Labelled.of(rows.dataset, meant, names)
    found = rows.take(positions, labelled.names or names)
    schema = pa.schema([meant.schema.field(name).with_nullable(True) for name in names])
    batches = [
        pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        for batch in labelled.shown(found.to_batches())
    ]
    return pa.Table.from_batches(batches, schema)


def _at_once(diff: PinDiff) -> int:
    fragments = [
        one.dataset.get_fragment(piece.fragment)
        for one in (diff.gone, diff.come)
        for piece in one.pieces[:8]
    ]
    return min([PART_ROWS_MAX, *(4 * rows_at_once(one) for one in fragments)])
