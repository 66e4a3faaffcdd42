"""Reading some rows of a table, by where they lie, or by their ids.

Owns: the choice between Lance's ways to do it. Its `take` counts live rows, and looks through a
fragment's deletions for each row that it takes: rows times deletions. So it is asked only where one
of the two is small; otherwise rows are told by their addresses, or the fragment is read through.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import serialize_row_addrs

from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.tables.fragments import Dataset, numbers, projection

TAKE_COST_MAX = 65_536
LISTED_MAX = 1024
"""A filter with more addresses than this takes longer than reading the fragment."""
TAKEN_AT_ONCE = 65_536

Offsets = npt.NDArray[np.int64]


def take_rows(
    dataset: Dataset,
    fragment_id: int,
    live: Offsets,
    offsets: Offsets,
    columns: Sequence[str] | None,
) -> Iterator[pa.RecordBatch]:
    """The rows at these places of a fragment, in their order, which is ascending.

    `live` are their places among the rows that are not deleted, `offsets` among all.
    """
    if not len(live):
        return
    fragment = dataset.get_fragment(fragment_id)
    # Lance takes no rows without columns, which is all that counting them needs.
    names = dataset.schema.names[:1] if columns is not None and not columns else columns
    for batch in _rows(dataset, fragment, live, offsets, names):
        if batch.num_rows:
            yield batch if columns is None else batch.select(list(columns))


def _rows(
    dataset: Dataset, fragment: Any, live: Offsets, offsets: Offsets, columns: Any
) -> Iterator[pa.RecordBatch]:
    names = projection(dataset, columns)
    if live[-1] - live[0] + 1 == len(live):
        yield from dataset.scanner(
            columns=names,
            fragments=[fragment],
            scan_in_order=True,
            offset=int(live[0]),
            limit=len(live),
        ).to_batches()
    elif len(live) * fragment.num_deletions <= TAKE_COST_MAX:
        for start in range(0, len(live), TAKEN_AT_ONCE):
            some = live[start : start + TAKEN_AT_ONCE].tolist()
            yield from fragment.take(some, columns=names).to_batches()
    elif len(live) <= LISTED_MAX:
        listed = ", ".join(str(one) for one in _addresses(fragment, offsets).tolist())
        yield from dataset.scanner(
            columns=names,
            fragments=[fragment],
            scan_in_order=True,
            filter=f"_rowaddr IN ({listed})",
        ).to_batches()
    else:
        wanted = _addresses(fragment, offsets)
        scanner = dataset.scanner(
            columns=names, fragments=[fragment], scan_in_order=True, with_row_address=True
        )
        for batch in scanner.to_batches():
            mask = is_among(batch.column("_rowaddr").to_numpy(), wanted)
            if mask.any():
                yield batch.filter(pa.array(mask)).drop_columns(["_rowaddr"])


def look_up_rows(
    dataset: Dataset, fragments: Iterable[int], row_ids: Offsets, columns: Sequence[str]
) -> pa.Table:
    """The rows with these ids, which ascend, wherever in some fragments they lie; `_rowid` last.

    Lance makes an index of all row ids of a pin when it is first asked, so this is for many rows.
    """
    found = dataset.scanner(
        columns=projection(dataset, columns),
        fragments=[dataset.get_fragment(one) for one in fragments],
        with_row_id=True,
        row_addr_allowlist=serialize_row_addrs(row_ids.tolist()),
    ).to_table()
    order = np.argsort(numbers(found.column("_rowid")), kind="stable")
    return found.take(pa.array(order)).select([*columns, "_rowid"])


def _addresses(fragment: Any, offsets: Offsets) -> npt.NDArray[np.uint64]:
    return (np.uint64(fragment.fragment_id) << np.uint64(32)) + offsets.astype(np.uint64)
