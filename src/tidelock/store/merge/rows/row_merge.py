"""The merge of one table's rows, as it is asked for, and which rows each side touched.

What became of both sides is found by comparing pins, fragment by fragment (changes/pin_diff.py),
when it is first needed. `work.py` merges them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidelock.model.history.conflicts import Conflicts
from tidelock.model.history.merges import Granularity, Resolution
from tidelock.store.changes.alike import Mask, same_rows
from tidelock.store.changes.pin_diff import diff_pins
from tidelock.store.lookup.key_numbers import Numbering
from tidelock.store.merge.rows.sides import (
    ById,
    ByKey,
    Shown,
    Touched,
    places_of,
)
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults
from tidelock.store.tables.deletions import ReadBytes
from tidelock.store.tables.fragments import Dataset

Keys = ByKey | ById
Compute = Callable[[str, str, pa.Table, pa.Table, pa.Table], pa.ChunkedArray]
"""The values of a column by an expression over base, source and target rows."""
Pruned = Callable[[Touched], Mask]
"""Which rows of the base are gone from a side because of their age."""


@dataclass(frozen=True)
class Version:
    """One state of the table: its pin, and how its rows are shown."""

    dataset: Dataset
    shown: Shown


@dataclass(frozen=True)
class Overrides:
    """Rows of which the base is another than that of the first base: what several bases make."""

    keys: pa.Table
    rows: pa.Table
    present: Mask
    unknown: Mask


@dataclass
class RowMerge:
    """The merge of one table's rows."""

    table: str
    read: ReadBytes
    base: Version
    source: Version
    target: Version
    source_keys: Keys
    target_keys: Keys
    granularity: Granularity
    resolution: Resolution
    conflicts: Conflicts
    compute: Compute | None = None
    overrides: Overrides | None = None
    pruned_at_source: Pruned | None = None
    pruned_at_target: Pruned | None = None
    filled: Defaults = NO_DEFAULTS
    """Of columns that came since the base."""
    resolved: int = 0

    # What each side touched

    @cached_property
    def here(self) -> Touched:
        return self._touched(self.source, self.source_keys, self.pruned_at_source)

    @cached_property
    def there(self) -> Touched:
        return self._touched(self.target, self.target_keys, self.pruned_at_target)

    def _touched(self, side: Version, keys: Keys, pruned: Pruned | None) -> Touched:
        diff = diff_pins(self.read, self.base.dataset, side.dataset)
        touched = keys.touched(diff, self.base.shown, side.shown)
        if pruned is not None:
            # What went because of its age was not deleted by anybody.
            touched = replace(touched, gone=touched.gone.where(~pruned(touched)))
        return touched

    @property
    def source_lacks_columns(self) -> bool:
        pairs = zip(self.base.shown.names, self.source.shown.names, strict=True)
        return any(here is None and before is not None for before, here in pairs)

    @cached_property
    def compared(self) -> list[str]:
        """The columns that may differ."""
        names = set(self.source_keys.names)
        return [name for name in self.source.shown.schema.names if name not in names]

    def changed_in(self, touched: Touched, base_name: str, side_name: str) -> int:
        """How many rows of the base have another value in a column at a side, by what the two call
        it: for a column that the merged rows do not have."""
        keys = touched.gone.keys
        if not keys.num_rows or not len(touched.come):
            return 0
        places = places_of(touched.come.keys, Numbering(keys), keys.num_rows)
        gone = np.flatnonzero(places >= 0)
        if not len(gone):
            return 0
        old = touched.gone.rows.take(touched.gone.places[gone], [base_name])
        new = touched.come.rows.take(touched.come.places[places[gone]], [side_name])
        new = new.rename_columns([base_name])
        new = new.cast(pa.schema([pa.field(base_name, old.schema.field(0).type)]), safe=False)
        return int((~same_rows(old, new, [base_name])).sum())
