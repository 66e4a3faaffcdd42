"""Values of some columns among rows, each once, without those of which one is NULL.

As in SQL, a row with a NULL in the columns of a rule agrees with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.store.lookup.key_numbers import Numbering, whole
from tidelock.store.rows.checks import are_unique


def distinct(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The values that rows have in some columns."""
    found = filled(rows, columns).select(list(columns))
    if len(columns) == 1:
        return pa.table([whole(found.column(0)).unique()], names=list(columns))
    if are_unique(found, columns):
        return found
    inside = [str(number) for number in range(len(columns))]
    groups = found.rename_columns(inside).group_by(inside, use_threads=False).aggregate([])
    return groups.select(inside).rename_columns(list(columns))


def filled(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows without those that have a NULL in one of some columns."""
    for name in columns:
        if rows.column(name).null_count:
            rows = rows.filter(pc.is_valid(rows.column(name)))
    return rows


def without(values: pa.Table, numbers: npt.NDArray[np.int64]) -> pa.Table:
    """The values but those of some numbers."""
    kept = np.ones(values.num_rows, dtype=np.bool_)
    kept[numbers] = False
    return values.filter(pa.array(kept))


def among(rows: pa.Table, columns: Sequence[str], values: pa.Table) -> npt.NDArray[np.bool_]:
    """For each row whether its values in some columns are among others."""
    named = rows.select(list(columns))
    numbering = Numbering(values.rename_columns(list(columns)))
    found: npt.NDArray[np.bool_] = whole(numbering.find(named).is_valid()).to_numpy(
        zero_copy_only=False
    )
    return found
