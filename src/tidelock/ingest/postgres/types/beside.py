"""The texts that are kept beside a row's values, in one hidden column for all of its columns.

    MAP<STRING, STRING>      column -> PostgreSQL's text; NULL if the row has none

What is kept is what `convert` marked. A row of which nothing is marked costs nothing, and a batch
of such rows an array of NULLs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.model.types import map_type

KEPT_TEXTS = map_type(pa.string(), pa.string(), True, "kept texts")


def keep_beside(marked: Mapping[str, tuple[pa.Array, pa.Array | None]], rows: int) -> pa.Array:
    """The hidden column of a batch, from each column's texts and which of them are kept."""
    names, places, found = [], [], []
    for name, (texts, kept) in marked.items():
        if kept is None:
            continue
        names.append(name)
        places.append(np.flatnonzero(kept.to_numpy(zero_copy_only=False)))
        found.append(texts.take(pa.array(places[-1])).cast(pa.string()))
    if not sum(map(len, places)):
        return pa.nulls(rows, KEPT_TEXTS)
    row = np.concatenate(places)
    order = np.argsort(row, kind="stable")
    column = np.repeat(np.arange(len(names)), [len(one) for one in places])
    keys = pa.array(names, pa.string()).take(pa.array(column[order]))
    texts = pa.concat_arrays(found).take(pa.array(order))
    sizes = np.bincount(row, minlength=rows)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.MapArray.from_arrays(
        pa.array(offsets), keys, texts, type=KEPT_TEXTS, mask=pa.array(sizes == 0)
    )


def kept_beside(beside: pa.Array, name: str) -> pa.Array | None:
    """The texts that were kept of one column, NULL where there is none; None if there are none."""
    if beside.null_count == len(beside):
        return None
    return pc.map_lookup(beside, name, "first")
