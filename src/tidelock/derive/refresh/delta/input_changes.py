"""The changes of a view's inputs since its frontier.

Owns: how many rows changed, which is known from commits alone, and reading them. A table that was
changed by few commits is read commit by commit, so that maintenance in between costs nothing; one
that was changed by many, or whose history was collected, by comparing the two pins.

Law: rows(now) = rows(frontier) + changes, as multisets; rows that went and came again cancel out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa

from tidelock.derive.plan.body_sql import WEIGHT
from tidelock.errors import SnapshotExpired
from tidelock.model.history.commit import BranchRef, TableChange, TableState
from tidelock.model.streams import InputVersion
from tidelock.store.changes.changes import WEIGHT as STORED_WEIGHT
from tidelock.store.changes.changes import diff_batches
from tidelock.store.changes.moved_rows import changed_batches
from tidelock.store.log.log import Log
from tidelock.store.log.table_changes import changes_of
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset

COMMITS_MAX = 64
"""Of more commits than this, the two ends are compared instead of every step between."""


@dataclass(frozen=True)
class Changes:
    """What happened to one input, not read yet."""

    then: InputVersion
    state: TableState
    steps: tuple[TableChange, ...] | None
    """Newest first; None when only the two ends are compared."""
    rows: int
    """How many rows went or came, before any cancel out."""


def find_changes(
    log: Log, branch: BranchRef, then: InputVersion, state: TableState
) -> Changes | None:
    """What happened to an input since a frontier; None when nothing did."""
    if state.changed == then.changed:
        return None
    found = changes_of(log, branch, state.id, state.changed, then.changed)
    steps = tuple(change for _, change in islice(found, COMMITS_MAX + 1))
    rows = sum(one.inserted + 2 * one.updated + one.deleted for one in steps)
    if len(steps) > COMMITS_MAX:
        return Changes(then, state, None, max(rows, abs(state.rows)))
    return Changes(then, state, steps, rows)


def at_pin(state: TableState, pin: int) -> TableState:
    """The table as it was at another pin, to be read there; what else it was is not known."""
    return replace(state, pin=pin, checksum=0)


def read_changes(files: TableFiles, changes: Changes, columns: Sequence[str]) -> pa.Table:
    """The rows that went (-1) and came (1)."""
    parts: list[pa.RecordBatch] = []
    read = files.reader(changes.state.id)
    now = files.open(changes.state.id, changes.state.pin)
    steps = changes.steps
    if steps is not None:
        try:
            for step in reversed(steps):
                before, after = (
                    state and files.open(state.id, state.pin, state.checksum)
                    for state in (step.before, step.after)
                )
                with files.reading(step.before, step.after):
                    told = changed_batches if step.adopted and step.before else diff_batches
                    parts.extend(told(read, before, after, 0, columns, now))
        except SnapshotExpired:
            steps, parts = None, []
    if steps is None:
        then = at_pin(changes.state, changes.then.pin)
        before = files.open(then.id, then.pin)
        with files.reading(then, changes.state):
            parts = list(diff_batches(read, before, now, 0, columns))
    return weighted(parts, columns, now)


def weighted(parts: Sequence[pa.RecordBatch], columns: Sequence[str], dataset: Dataset) -> pa.Table:
    """Changes as a refresh reads them: the columns and a weight, without rows that cancel out."""
    schema = pa.schema([dataset.schema.field(column) for column in columns])
    schema = schema.append(STORED_WEIGHT)
    # A column that came since was NULL before, also where it may not be now.
    given = [
        pa.RecordBatch.from_arrays(part.select(schema.names).columns, schema=schema)
        for part in parts
    ]
    rows = pa.Table.from_batches(given, schema)
    weights = rows.column(STORED_WEIGHT.name).cast(pa.int64())
    rows = rows.drop_columns([STORED_WEIGHT.name]).append_column(WEIGHT, weights)
    return cancelled(rows)


def cancelled(rows: pa.Table) -> pa.Table:
    """The same changes without rows that went and came."""
    weights = rows.column(WEIGHT).to_numpy()
    columns = [name for name in rows.column_names if name != WEIGHT]
    one_way = not rows.num_rows or (weights > 0).all() or (weights < 0).all()
    if one_way or not columns or any(pa.types.is_nested(rows.field(c).type) for c in columns):
        return rows
    net = rows.group_by(columns, use_threads=False).aggregate([(WEIGHT, "sum")])
    total = net.column(f"{WEIGHT}_sum").to_numpy()
    repeated = pa.array(np.repeat(np.arange(net.num_rows), np.abs(total)))
    signs = pa.array(np.repeat(np.sign(total), np.abs(total)).astype(np.int64))
    kept = net.select(columns).take(repeated).cast(rows.schema.remove(len(columns)))
    return kept.append_column(WEIGHT, signs)
