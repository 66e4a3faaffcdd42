"""Change feeds: the changes of a table over a range of versions, as one stream of batches.

A feed follows a name. A table that is dropped loses its rows, and one that is created under its
name gains them, so that the law of `changes.py` holds between any two versions. One stream
has one schema: where tables of different schemas had the name, the feed says where to divide it.

A stream table keeps columns that nobody sees. Where a commit changed those alone, the row that goes
and the row that comes look the same, and the feed shows neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.errors import InvalidOption, SnapshotExpired, TableReplaced
from tidelock.model.history.commit import BranchRef, TableChange, TableState
from tidelock.model.names import is_hidden
from tidelock.store.changes.changes import VERSION, WEIGHT, diff_batches
from tidelock.store.changes.moved_rows import changed_batches
from tidelock.store.leases.uses import Reader, Use
from tidelock.store.log.log import Head
from tidelock.store.log.table_changes import named_changes
from tidelock.store.parts import Parts
from tidelock.store.tables.fragments import Dataset

COMPARED_ROWS_MAX = 1_000_000


def change_reader(
    store: Parts, head: Head, table: str, since: int, until: int | None
) -> pa.RecordBatchReader:
    """The changes after `since`, up to and with `until`, in commit order."""
    last = head.version if until is None else until
    for name, value in (("since", since), ("until", last)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= head.version:
            raise InvalidOption(
                f"{name}={value!r} is not a version of branch {head.branch.name!r}, "
                f"which has 0 to {head.version}.",
                **{name: value},
            )
    if since > last:
        raise InvalidOption(
            f"Changes since version {since} until version {last}: the first is after the last.",
            since=since,
            until=last,
        )
    tables = store.log.tables_at(head.branch, last)
    found = list(named_changes(store.log, head.branch, table, last, since))
    newest = tables.find(table) or (found[0][1].state if found else None)
    if newest is None:
        raise tables.unknown(table)
    reader = Reader()
    last_changes = {change.table_id: version for version, change in reversed(found)}
    store.hold_versions(reader, _uses(head.branch, last_changes, since))
    shown = store.files.read(newest)
    schema = _shown(shown.schema)
    _refuse_replaced(store, newest, schema, found)

    given = pa.schema([*(one.with_nullable(True) for one in schema), WEIGHT, VERSION])
    unaltered = not any(_is_altered(change) for _, change in found)
    given = pa.schema([*schema, WEIGHT, VERSION]) if unaltered else given

    def changes() -> Iterator[pa.RecordBatch]:
        for version, change in reversed(found):
            try:
                before, after = _pins(store, change)
            except SnapshotExpired as error:
                raise _expired(store, table, found) from error
            with store.files.reading(change.before, change.after):
                read = store.files.reader(change.table_id)
                # A table that had the name before is another one, with columns of its own.
                meant = shown if change.table_id == newest.id else None
                told = changed_batches if _may_have_moved(change) else diff_batches
                rows = told(read, before, after, version, schema.names, meant)
                batches = without_pairs(rows) if _may_hold_pairs(store, change) else rows
                for batch in batches:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=given)
            store.uses.hold(reader, _uses(head.branch, last_changes, version))

    return pa.RecordBatchReader.from_batches(given, changes())


def _may_have_moved(change: TableChange) -> bool:
    return change.adopted and change.before is not None


def _is_altered(change: TableChange) -> bool:
    before, after = change.before, change.after
    return before is not None and after is not None and before.schema != after.schema


def _uses(branch: BranchRef, last_changes: Mapping[str, int], since: int) -> list[Use]:
    """What reading the changes of some tables after a version needs."""
    return [
        Use(branch.id, since, last, table_id)
        for table_id, last in last_changes.items()
        if last > since
    ]


def _pins(store: Parts, change: TableChange) -> tuple[Dataset | None, Dataset | None]:
    before, after = (state and store.files.read(state) for state in (change.before, change.after))
    return before, after


def _expired(store: Parts, table: str, found: Sequence[tuple[int, TableChange]]) -> SnapshotExpired:
    """The error for changes that are no longer kept; `found` is newest first."""
    kept = 0
    for version, change in found:
        kept = version
        try:
            _pins(store, change)
        except SnapshotExpired:
            break
    return SnapshotExpired(
        f"Garbage collection removed data that changes of {table!r} are read from. They are kept "
        f"after version {kept}: read those, and what was there before from a snapshot.",
        table=table,
        version=kept,
    )


def _may_hold_pairs(store: Parts, change: TableChange) -> bool:
    """Whether rows may have gone and come that differ only in columns that nobody sees.

    A commit that changed more rows than are compared in memory is shown as it is.
    """
    both_ways = change.updated or (change.inserted and change.deleted)
    if not both_ways or 2 * change.updated + change.inserted + change.deleted > COMPARED_ROWS_MAX:
        return False
    return any(is_hidden(name) for name in store.files.read(change.state).schema.names)


def without_pairs(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The changes of one commit without rows that go and come again, in the same order."""
    given = list(batches)
    if not given:
        return given
    rows = pa.Table.from_batches(given)
    weights = rows.column(WEIGHT.name).to_numpy()
    numbers = _numbered(rows.drop_columns([WEIGHT.name, VERSION.name]))
    kinds = int(numbers.max()) + 1
    pairs = np.minimum(
        np.bincount(numbers[weights > 0], minlength=kinds),
        np.bincount(numbers[weights < 0], minlength=kinds),
    )
    kept = np.ones(len(weights), dtype=bool)
    for sign in (1, -1):
        side = np.flatnonzero(weights == sign)
        side = side[np.argsort(numbers[side], kind="stable")]
        ordered = numbers[side]
        rank = np.arange(len(side)) - np.searchsorted(ordered, ordered)
        kept[side[rank < pairs[ordered]]] = False
    found: list[pa.RecordBatch] = rows.filter(pa.array(kept)).to_batches()
    return found


def _numbered(rows: pa.Table) -> npt.NDArray[np.int64]:
    """A number for each row; equal rows, and only those, have the same."""
    numbers = np.zeros(rows.num_rows, dtype=np.int64)
    for column in rows.columns:
        values = column.combine_chunks()
        if pa.types.is_nested(values.type):
            values = pa.array([repr(value) for value in values.to_pylist()], pa.string())
        codes = values.dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)
        joint = numbers * (int(codes.max()) + 1) + codes
        numbers = np.unique(joint, return_inverse=True)[1]
    return numbers


def _shown(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if not is_hidden(field.name)])


def _refuse_replaced(
    store: Parts,
    newest: TableState,
    schema: pa.Schema,
    found: Sequence[tuple[int, TableChange]],
) -> None:
    """TableReplaced when a table of another schema had the name before; `found` is newest first."""
    known = {newest.id}
    created = 0
    for version, change in found:
        if change.table_id not in known:
            known.add(change.table_id)
            if not _shown(store.files.read(change.state).schema).equals(schema):
                raise _replaced(newest.name, dropped=version, created=created)
        if change.before is None:
            created = version


def _replaced(table: str, dropped: int, created: int) -> TableReplaced:
    between = created - 1
    divide = f"Read up to version {between} and from version {between} on separately."
    if dropped == created:
        divide = (
            f"Read up to version {between} and from version {created} on separately; in between, "
            "all rows of the old table go and those of the new one come."
        )
    return TableReplaced(
        f"Table {table!r} was replaced at version {created} by one with other columns, so its "
        f"changes are not one stream. {divide}",
        table=table,
        version=created,
        dropped=dropped,
    )
