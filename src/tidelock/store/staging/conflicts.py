"""The conflicts of a transaction with commits that were published before it.

Owns: what is said, and which evidence is given: the table, the version at which the transaction
read it (`expected`), the one at which it is now (`actual`), and the first rows that both touched,
by key where the table has one, else by row sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidelock.errors import Advice, CommitConflict, SourceMoved
from tidelock.model.history.commit import TableState
from tidelock.store.changes.touched import Touch
from tidelock.store.lookup.by_place import look_up_rows
from tidelock.store.rows.refusals import OFFENDERS_MAX, tell_keys, tell_value
from tidelock.store.tables.datasets import TableFiles

RUN_AGAIN = Advice(
    "Run the transaction again, or use lake.run(...), which retries.",
    "Run the command again.",
)


def table_conflict(
    name: str, expected: int, found: TableState | None, what: str, operation_id: str
) -> CommitConflict:
    """A table is not as it was read; `expected` is 0 where it was read that there is none."""
    actual = found.changed if found else None
    read = f"read it as of version {expected}" if expected else "read that it did not exist"
    now = "it was dropped" if found is None else f"it is now at version {actual}"
    return CommitConflict(
        f"Table {name!r} was {what} by another commit: this transaction {read}, and {now}. Nothing "
        "was written.",
        RUN_AGAIN,
        table=name,
        expected=expected,
        actual=actual,
        operation_id=operation_id,
    )


def row_conflict(
    files: TableFiles, before: TableState, found: TableState, touch: Touch, operation_id: str
) -> CommitConflict:
    """Rows that the transaction updates or deletes were touched by another commit."""
    rows, told = _tell_rows(files, before, touch)
    return CommitConflict(
        f"Table {before.name!r}: {told} updated or deleted by version {touch.version}, and this "
        f"transaction, which read the table as of version {before.changed}, touches the same. "
        "Nothing was written.",
        RUN_AGAIN,
        table=before.name,
        row=rows[0],
        rows=rows,
        expected=before.changed,
        actual=found.changed,
        version=touch.version,
        operation_id=operation_id,
    )


def _tell_rows(files: TableFiles, before: TableState, touch: Touch) -> tuple[list[Any], str]:
    """The first rows as values and in words."""
    count = len(touch.row_ids)
    was = "was" if count == 1 else "were"
    some = touch.row_ids[:OFFENDERS_MAX]
    if not before.key:
        sequences: Sequence[int] = some.astype(np.int64).tolist()
        noun = "the row with the sequence" if count == 1 else "the rows with the sequences"
        return list(sequences), f"{noun} {tell_keys([(one,) for one in sequences], count)} {was}"
    dataset = files.read(before)
    fragments = [fragment.fragment_id for fragment in dataset.get_fragments()]
    found = look_up_rows(dataset, fragments, some.astype(np.int64), before.key)
    columns = [[tell_value(value) for value in found.column(name)] for name in before.key]
    keys = list(zip(*columns, strict=True))
    noun = "the row with the key" if count == 1 else "the rows with the keys"
    return keys, f"{noun} ({', '.join(before.key)}) = {tell_keys(keys, count)} {was}"


def read_conflict(
    before: TableState, now: TableState, condition: str | None, version: int, operation_id: str
) -> CommitConflict:
    """Rows that a serializable transaction has read were changed by another commit."""
    where = "all its rows" if condition is None else f"the rows where {condition}"
    matching = "rows of it" if condition is None else "such rows"
    return CommitConflict(
        f"Table {before.name!r}: this transaction is serializable and has read {where} as of "
        f"version {before.changed}, and version {version} removed or added {matching}. Nothing was "
        "written.",
        RUN_AGAIN,
        table=before.name,
        filter=condition,
        expected=before.changed,
        actual=now.changed,
        version=version,
        operation_id=operation_id,
    )


def name_conflict(
    name: str,
    version: int,
    before: TableState | None,
    now: TableState | None,
    operation_id: str,
) -> CommitConflict:
    """A table that a serializable transaction asked for was created, dropped or replaced."""
    saw = "no such table" if before is None else "it"
    done = "put another in its place" if before and now else "created it" if now else "dropped it"
    return CommitConflict(
        f"Table {name!r}: this transaction is serializable and found {saw} as of version "
        f"{version}, and another commit {done}. Nothing was written.",
        RUN_AGAIN,
        table=name,
        expected=before.changed if before else 0,
        actual=now.changed if now else None,
        operation_id=operation_id,
    )


def position_conflict(expected: str, actual: str, operation_id: str) -> SourceMoved:
    """A source was read further by somebody else."""
    return SourceMoved(
        f"The source was read further by another process: this one read on from {expected!r}, and "
        f"the lake holds everything up to {actual!r}. Nothing was written.",
        expected=expected,
        actual=actual,
        operation_id=operation_id,
    )
