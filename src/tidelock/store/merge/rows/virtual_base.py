"""The base of rows when there are several: what merging the bases gives, row by row.

Histories that crossed have several newest commits in common, and none of them alone is the base: a
change that one of them reverted would come back. So the bases are merged in turn, for the rows on
which they differ; where that is a conflict itself, the base of the row is not known, and both sides
have to agree on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidelock.model.history.conflicts import Conflicts
from tidelock.model.history.merges import Resolution
from tidelock.model.history.renumbering import ABSENT
from tidelock.store.changes.alike import Mask, same_rows
from tidelock.store.kinship.bases import find_bases
from tidelock.store.kinship.identity import path_between
from tidelock.store.lookup.key_numbers import Numbering
from tidelock.store.merge.opened_states import BaseOf, OpenedState, open_bases
from tidelock.store.merge.rows.located import Located, start_of
from tidelock.store.merge.rows.output import RowIds, Written
from tidelock.store.merge.rows.row_merge import Keys, Overrides, RowMerge, Version
from tidelock.store.merge.rows.sides import ROW, ById, ByKey, Shown, distinct, places_of
from tidelock.store.merge.rows.work import merge_rows
from tidelock.store.parts import Parts
from tidelock.store.tables.next_row_id import next_row_id


def virtual_base(
    store: Parts, bases: Sequence[tuple[BaseOf, Shown]], key: tuple[str, ...] | None
) -> Overrides | None:
    """The rows of which the bases make something else than the first of them has; None if there is
    but one. `key` are the columns by which rows are known, None if they are by ids."""
    if len(bases) < 2:
        return None
    first, shown = bases[0][0].opened, bases[0][1]
    found = _Differences(shown.schema, key)
    for number, (other, its_shown) in enumerate(bases[1:], start=1):
        found.number = number
        merge_rows(_between(store, first, shown, other.opened, its_shown, key), found)
    return found.overrides()


def _between(
    store: Parts,
    first: OpenedState,
    shown: Shown,
    other: OpenedState,
    its_shown: Shown,
    key: tuple[str, ...] | None,
) -> RowMerge:
    """The merge of another base into the first, under the columns that both are shown with."""
    tips = [
        (tip, path_between(store, tip, other.tip), path_between(store, tip, first.tip))
        for tip in find_bases(store, other.tip, first.tip)
    ]
    states = [tip.tables.same(first.state) for tip, _, _ in tips]
    earlier = [(one, _at(one, first, shown)) for one in open_bases(store, tips, states, first)]
    base, its_base = earlier[0]
    return RowMerge(
        first.state.name,
        store.files.reader(first.id),
        Version(base.opened.dataset, its_base),
        Version(other.dataset, its_shown),
        Version(first.dataset, shown),
        *keys_of([one for one, _ in earlier], first.id, key),
        granularity="column",
        resolution=Resolution(),
        conflicts=Conflicts(kept_max=0),
        overrides=virtual_base(store, earlier, key),
    )


def keys_of(
    bases: Sequence[BaseOf], table_id: str, key: tuple[str, ...] | None
) -> tuple[Keys, Keys]:
    """How rows of the source and of the target are known."""
    if key is not None:
        by = ByKey(key)
        return by, by
    # What was given out since a base is of another row on each side.
    ends = [next_row_id(one.opened.dataset) for one in bases]
    here = [one.to_source.rows(table_id).below(end) for one, end in zip(bases, ends, strict=True)]
    there = [one.to_target.rows(table_id).below(end) for one, end in zip(bases, ends, strict=True)]
    starts = [start_of(number) for number in range(len(bases))]
    return (
        ById(here[0], 0, tuple(zip(starts[1:], here[1:], strict=True))),
        ById(there[0], 1, tuple(zip(starts[1:], there[1:], strict=True))),
    )


def _at(base: BaseOf, first: OpenedState, shown: Shown) -> Shown:
    """How the rows of an earlier base are shown, by which columns of the first they became."""
    ids = base.to_target.columns(first.id, [one.id for one in base.opened.schema.columns])
    names = {ids[one.id]: one.name for one in base.opened.schema.columns if one.id in ids}
    found = [
        None if name is None else names.get(first.schema.column(name).id) for name in shown.names
    ]
    return Shown(shown.schema, tuple(found))


@dataclass
class _Differences:
    """Takes what merging bases into the first changes of it."""

    schema: pa.Schema
    key: tuple[str, ...] | None
    number: int = 0
    """Of the base that is being merged."""
    _keys: list[pa.Table] = field(default_factory=list)
    _rows: list[pa.Table] = field(default_factory=list)
    _present: list[bool] = field(default_factory=list)
    _unknown: list[bool] = field(default_factory=list)

    def write(self, written: Written) -> None:
        keys = self._of(written.keys, written.located, written.ids)
        self._add(keys, written.rows, present=True, unknown=False)

    def delete(self, keys: pa.Table, located: Located) -> None:
        self._add(self._of(keys, located, None), None, present=False, unknown=False)

    def doubt(self, keys: pa.Table, located: Located, ids: RowIds | None) -> None:
        self._add(self._of(keys, located, ids), None, present=True, unknown=True)

    def _of(self, keys: pa.Table, located: Located, ids: RowIds | None) -> pa.Table:
        """The keys as the merge of the sides knows them: by the first base, also if a row is not
        there any more; else by the other."""
        if self.key is not None:
            return keys
        numbers = located.ids
        if ids is not None:
            numbers = np.where(ids.target == ABSENT, start_of(self.number) + ids.source, ids.target)
        return pa.table({ROW: pa.array(numbers, pa.int64())})

    def _add(self, keys: pa.Table, rows: pa.Table | None, *, present: bool, unknown: bool) -> None:
        count = keys.num_rows
        if rows is None:
            nulls = [pa.nulls(count, one.type) for one in self.schema]
            rows = pa.Table.from_arrays(nulls, schema=self.schema)
        self._keys.append(keys)
        self._rows.append(rows)
        self._present.extend([present] * count)
        self._unknown.extend([unknown] * count)

    def overrides(self) -> Overrides | None:
        if not self._keys:
            return None
        keys, rows = pa.concat_tables(self._keys), pa.concat_tables(self._rows)
        present, unknown = np.array(self._present), np.array(self._unknown)
        every = distinct(keys)
        if every.num_rows < keys.num_rows:
            unknown |= _told_twice(keys, every, rows, present)
        places = places_of(keys, Numbering(every), every.num_rows)
        order = pa.array(places)
        return Overrides(every, rows.take(order), present[places], unknown[places])


def _told_twice(keys: pa.Table, every: pa.Table, rows: pa.Table, present: Mask) -> Mask:
    """Rows of which several bases say something, and not the same: nobody knows who is right."""
    numbers = Numbering(every).find(keys).to_numpy().astype(np.int64)
    last = places_of(keys, Numbering(every), every.num_rows)[numbers]
    differs = present != present[last]
    differs |= present & ~same_rows(rows, rows.take(pa.array(last)), rows.column_names)
    apart = np.bincount(numbers[differs], minlength=every.num_rows) > 0
    told: Mask = apart[numbers]
    return told
