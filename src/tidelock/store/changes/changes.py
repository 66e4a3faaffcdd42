"""Changes: what commits did to a table, as weighted rows.

Between two pins of one lineage, the rows of added fragments have weight +1, the rows of removed
fragments and the rows newly deleted in kept fragments have weight -1. Maintenance commits change
no row and are skipped. Both pins are readable, so nothing old is reconstructed.

Pins may have other columns than those that are asked for, which are found by their ids: one that a
pin does not have yet is NULL there, one that was widened since is shown in the wider type.

Law: rows(after) = rows(before) + changes, as multisets. It holds for names too: where no table has
the name there are no rows, so that dropping a table deletes its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tidelock.store.lookup.by_place import take_rows
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.tables.deletions import (
    NONE,
    Offsets,
    ReadBytes,
    deleted_offsets,
    live_positions,
)
from tidelock.store.tables.fragments import Addresses, Dataset, data_file, numbers, projection
from tidelock.store.tables.labelled import Labelled

WEIGHT = pa.field("_weight", pa.int32(), nullable=False)
VERSION = pa.field("_version", pa.int64(), nullable=False)


def diff_batches(
    read: ReadBytes,
    before: Dataset | None,
    after: Dataset | None,
    version: int,
    columns: Sequence[str] | None = None,
    shown: Dataset | None = None,
) -> Iterator[pa.RecordBatch]:
    """The weighted rows between two pins of one lineage, deletions first.

    `read` gives the bytes of a file of the table. `shown` is the pin whose columns and names are
    meant; that after the changes, or else before them, if none is given.
    """
    old = fragments_by_file(before)
    new = fragments_by_file(after)
    meant = next((one for one in (shown, after, before) if one is not None), None)
    if meant is None:
        return
    then = None if before is None else Labelled.of(before, meant, columns)
    now = None if after is None else Labelled.of(after, meant, columns)
    for name, fragment_id in old.items():
        assert before is not None
        if name not in new:
            assert then is not None
            yield from weighted_batches(
                then.shown(_scan(before, fragment_id, then.names)), -1, version
            )
        elif after is not None:
            live, gone = newly_deleted(read, before, after, fragment_id)
            assert then is not None
            rows = take_rows(before, fragment_id, live, gone, then.names)
            yield from weighted_batches(then.shown(rows), -1, version)
    for name, fragment_id in new.items():
        if name not in old:
            assert after is not None
            assert now is not None
            yield from weighted_batches(now.shown(_scan(after, fragment_id, now.names)), 1, version)


def fragments_by_file(dataset: Dataset | None) -> dict[str, int]:
    """Fragment ids by their first data file."""
    if dataset is None:
        return {}
    return {data_file(f.metadata): f.fragment_id for f in dataset.get_fragments()}


def _scan(
    dataset: Dataset, fragment_id: int, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    fragment = dataset.get_fragment(fragment_id)
    names = projection(dataset, columns)
    scanner = dataset.scanner(columns=names, fragments=[fragment], scan_in_order=True)
    return iter(scanner.to_batches())


def newly_deleted(
    read: ReadBytes, before: Dataset, after: Dataset, fragment_id: int
) -> tuple[Offsets, Offsets]:
    """Where the rows are that live before and not after: among the rows that live before, and among
    all of the fragment."""
    old, new = before.get_fragment(fragment_id), after.get_fragment(fragment_id)
    if old.num_deletions == new.num_deletions:
        return NONE, NONE
    earlier, later = (deleted_offsets(one.metadata, read) for one in (old, new))
    gone = later[~is_among(later, earlier)]
    return live_positions(gone, earlier), gone


def live_row_ids(dataset: Dataset, fragment_id: int) -> Addresses:
    """The ids of the rows of a fragment that are not deleted."""
    return live_rows(dataset, fragment_id)[0]


def live_rows(dataset: Dataset, fragment_id: int) -> tuple[Addresses, Offsets]:
    """The ids of the rows of a fragment that are not deleted, and where they are among all."""
    fragment = dataset.get_fragment(fragment_id)
    found = dataset.scanner(
        columns=[], fragments=[fragment], with_row_id=True, with_row_address=True
    ).to_table()
    offsets = numbers(found.column("_rowaddr")) & np.uint64(0xFFFFFFFF)
    return numbers(found.column("_rowid")), offsets.astype(np.int64)


def weighted_batches(
    batches: Iterator[pa.RecordBatch], weight: int, version: int
) -> Iterator[pa.RecordBatch]:
    """Rows as changes of one commit."""
    for batch in batches:
        if not batch.num_rows:
            continue
        weights = pa.array(np.full(batch.num_rows, weight, dtype=np.int32))
        versions = pa.array(np.full(batch.num_rows, version, dtype=np.int64))
        schema = pa.schema([*batch.schema, WEIGHT, VERSION])
        yield pa.RecordBatch.from_arrays([*batch.columns, weights, versions], schema=schema)
