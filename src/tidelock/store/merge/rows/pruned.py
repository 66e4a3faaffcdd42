"""Rows that retention removed at one side since a base: they were not deleted by anybody.

Owns: telling which rows those are, from the commits of kind `retention` on the side's own line.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidelock.model.history.commit import TableChange, TableState
from tidelock.store.changes.alike import Mask
from tidelock.store.changes.pin_diff import diff_pins
from tidelock.store.kinship.bases import Tip
from tidelock.store.log.table_changes import changes_of
from tidelock.store.lookup.key_numbers import Numbering, is_among
from tidelock.store.merge.rows.sides import ROW, ById, ByKey, Shown, Touched, distinct
from tidelock.store.parts import Parts
from tidelock.store.tables.fragments import Dataset
from tidelock.store.tables.labelled import column_ids


def parted_at(base: Tip, tip: Tip) -> int:
    """The last version that the lines of two commits have in common."""
    version = min(base.version, tip.version)
    while version and base.branch.home_of(version) != tip.branch.home_of(version):
        ends = [until for _, until in (*base.branch.lineage, *tip.branch.lineage)]
        version = max((one for one in ends if one < version), default=0)
    return version


def retention_since(
    store: Parts, base: Tip, before: TableState, tip: Tip, state: TableState
) -> Iterator[TableChange]:
    """What retention did to a table on the line of a commit since it parted from a base's."""
    if state.pruned <= before.pruned:
        return
    since = parted_at(base, tip)
    if before.changed < since and base.place.is_on(tip.branch, tip.version):
        since = before.changed
    for version, change in changes_of(store.log, tip.branch, state.id, state.changed, since):
        if store.log.commit_at(tip.branch, version).kind == "retention":
            yield change


def pruned_only(store: Parts, tip: Tip, state: TableState, base: Tip, before: TableState) -> bool:
    """Whether nothing but retention made a state from that of a base, on the same line."""
    if state.pruned <= before.pruned or not base.place.is_on(tip.branch, tip.version):
        return False
    changes = changes_of(store.log, tip.branch, state.id, state.changed, before.changed)
    return all(
        store.log.commit_at(tip.branch, version).kind == "retention" for version, _ in changes
    )


def pruned_rows(
    store: Parts,
    changes: list[TableChange],
    by: ByKey | ById,
    side: Dataset,
    shown: Shown,
    touched: Touched,
) -> Mask:
    """Which of the base's rows that are gone from a side were removed by its retention. `shown` is
    how the rows of the side's pin are shown."""
    gone = touched.gone
    found = np.zeros(len(gone), dtype=np.bool_)
    for change in changes:
        assert change.before is not None
        assert change.after is not None
        read = store.files.reader(change.table_id)
        before, after = store.files.read(change.before), store.files.read(change.after)
        removed = diff_pins(read, before, after).gone
        if isinstance(by, ById):
            numbers = np.sort(by.at_base(removed.ids))
            found |= is_among(gone.keys.column(ROW).to_numpy(), numbers)
            continue
        then = _as_of(shown.of(by.names), side, before)
        keys = then.read(removed, np.arange(removed.count))
        if keys.num_rows and gone.keys.num_rows:
            known = Numbering(distinct(keys)).find(gone.keys)
            found |= known.is_valid().to_numpy()
    return found & ~_come_again(touched)


def _as_of(shown: Shown, side: Dataset, then: Dataset) -> Shown:
    """How the rows of an earlier pin are shown, whose columns may have had other names."""
    ids = column_ids(side)
    names = {number: name for name, number in column_ids(then).items()}
    return Shown(shown.schema, tuple(names[ids[str(name)]] for name in shown.names))


def _come_again(touched: Touched) -> Mask:
    """Rows that are gone, and there again under the same key."""
    gone, come = touched.gone.keys, touched.come.keys
    if not gone.num_rows or not come.num_rows:
        return np.zeros(gone.num_rows, dtype=np.bool_)
    found: Mask = Numbering(come).find(gone).is_valid().to_numpy()
    return found
