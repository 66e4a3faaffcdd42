"""How each operation's input becomes something staged, without Spark.

Owns: the order of checks and writes for rows that pass through this process. Spark frames are
staged by frame_staging.py.
Invariants: input is checked before it is staged; memory is bounded by one chunk when the input is
a stream, whatever its size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.errors import InvalidOption, RequiredColumnNull, TidelockError
from tidelock.model.expressions import Assignment, parse_assignment
from tidelock.store.frame_staging import find_rows, update_on_spark
from tidelock.store.inputs import Input, check_unique_keys, rechunk
from tidelock.store.keys import match_keys
from tidelock.store.lance_input import Watched
from tidelock.store.operations import (
    Append,
    Mutation,
    Overwrite,
    Target,
    Upsert,
    added_fragments,
    duplicate_key,
    read_fragments,
    refuse_present,
)
from tidelock.store.reading import Table
from tidelock.store.staging import StagedTable
from tidelock.store.tables import Addresses, Dataset, TableFiles, numbers, with_row_ids

CHUNK_ROWS_MAX = 1024 * 1024
CHUNK_BYTES_MAX = 128 * 1024 * 1024
PENDING_BYTES_MAX = 64 * 1024 * 1024


def append_table(staged: StagedTable, table: pa.Table) -> None:
    """Append rows that are in memory: kept until they are needed, so that small appends join."""
    waiting = staged.open_append()
    if staged.state.key:
        if staged.pending and (waiting is None or staged.applied + 1 < len(staged.operations)):
            staged.current()
            waiting = None
        _refuse_known_keys(staged, waiting, table)
    if waiting is None:
        pin = staged.latest().version if staged.state.key else None
        staged.add(Append([table], checked_pin=pin))
    else:
        waiting.data.append(table)
        if sum(part.nbytes for part in waiting.data) > PENDING_BYTES_MAX:
            staged.current()


def _refuse_known_keys(staged: StagedTable, waiting: Append | None, table: pa.Table) -> None:
    keys = table.select(staged.target.key)
    check_unique_keys(keys, staged.schema, staged.state.name)
    if waiting is not None:
        earlier = [part.select(staged.target.key) for part in waiting.data]
        check_unique_keys(pa.concat_tables([*earlier, keys]), staged.schema, staged.state.name)
    with staged.files.reading(staged.state):
        refuse_present(staged.target, staged.latest(), keys)


def append_stream(staged: StagedTable, batches: Iterable[pa.RecordBatch]) -> None:
    base = staged.current()
    if staged.state.key:
        fragments, dataset = write_unique(staged, base, batches)
        own = added_fragments(base, dataset)
        key = staged.target.key
        append = Append(
            fragments=fragments,
            keys=lambda: (read_fragments(dataset, [one], key) for one in own),
            checked_pin=base.version,
        )
    else:
        append = Append(fragments=write_stream(staged.files, base, staged.target, batches))
    if append.fragments:
        staged.add(append)


def write_stream(
    files: TableFiles, base: Dataset, target: Target, batches: Iterable[pa.RecordBatch]
) -> list[FragmentMetadata]:
    """Write a stream as it arrives. An error of the stream comes out as it was raised."""
    source = Watched(batches)
    reader = pa.RecordBatchReader.from_batches(target.schema.arrow, source)
    try:
        fragments = files.write(base, reader)
    except (TidelockError, OSError, ValueError, RuntimeError, pa.ArrowException):
        if source.error is not None:
            raise source.error from None
        raise
    return [fragment for fragment in fragments if fragment.physical_rows]


def write_unique(
    staged: StagedTable, base: Dataset, batches: Iterable[pa.RecordBatch]
) -> tuple[list[FragmentMetadata], Dataset]:
    """Write a stream whose keys must be new, chunk by chunk, each checked against all before it."""
    files, target = staged.files, staged.target
    dataset = base
    fragments: list[FragmentMetadata] = []
    for chunk in rechunk(batches, CHUNK_ROWS_MAX, CHUNK_BYTES_MAX):
        keys = chunk.select(target.key)
        check_unique_keys(keys, target.schema, target.name)
        with files.reading(staged.state):
            refuse_present(target, dataset, keys, own=frozenset(added_fragments(base, dataset)))
        written = files.write(dataset, chunk)
        dataset = files.append(target.id, dataset, written)
        fragments.extend(written)
    return fragments, dataset


def upsert_table(staged: StagedTable, table: pa.Table) -> None:
    check_unique_keys(table.select(staged.target.key), staged.schema, staged.state.name)
    staged.add(Upsert(lambda: table))


def upsert_stream(staged: StagedTable, batches: Iterable[pa.RecordBatch]) -> None:
    own: set[int] = set()
    before = staged.current()
    for chunk in rechunk(batches, CHUNK_ROWS_MAX, CHUNK_BYTES_MAX):
        check_unique_keys(chunk.select(staged.target.key), staged.schema, staged.state.name)
        staged.add(Upsert(_constant(chunk), own_fragments=frozenset(own)))
        after = staged.current()
        own.update(added_fragments(before, after))
        before = after


def _constant(table: pa.Table) -> Callable[[], pa.Table]:
    return lambda: table


def overwrite(staged: StagedTable, given: Input) -> None:
    staged.add(Overwrite(_replacement(staged, staged.current(), given)))


def _replacement(staged: StagedTable, base: Dataset, given: Input) -> list[FragmentMetadata]:
    files, target = staged.files, staged.target
    if given.table is not None:
        if target.key:
            check_unique_keys(given.table.select(target.key), target.schema, target.name)
        return files.write(base, given.table) if given.table.num_rows else []
    if not target.key:
        return write_stream(files, base, target, given.batches())
    empty = files.replace_all(target.id, base, [])
    return write_unique(staged, empty, given.batches())[0]


def delete(view: Table, staged: StagedTable, where: str) -> int:
    """Stage the removal of rows; returns how many."""
    row_ids, addresses = _find(view, where)
    if len(row_ids):
        staged.add(Mutation(row_ids, addresses, (), view.dataset.version))
    return len(row_ids)


def prune(view: Table, staged: StagedTable, where: str, until: int | None) -> Addresses:
    """Stage the removal of rows by retention, up to a sequence; returns their sequences."""
    row_ids, addresses = _find(view, where)
    if until is not None:
        chosen = row_ids.astype(np.int64) <= until
        row_ids, addresses = row_ids[chosen], addresses[chosen]
    if len(row_ids):
        staged.add(Mutation(row_ids, addresses, (), view.dataset.version))
        staged.pruned = max(staged.pruned, int(row_ids.max()))
    return row_ids


def _find(view: Table, where: str) -> tuple[Addresses, Addresses]:
    """The ids and addresses of the rows for which a condition is true."""
    condition = view.condition(where)
    if condition.lance is None:
        return find_rows(view, where)
    scanner = view.dataset.scanner(
        columns=[], filter=condition.lance, with_row_id=True, with_row_address=True
    )
    with view.files.reading(view.state):
        found = scanner.to_table()
    return numbers(found.column("_rowid")), numbers(found.column("_rowaddr"))


def update(
    view: Table, staged: StagedTable, assignments: Mapping[str, object], where: str | None
) -> int:
    """Stage new values for rows; returns how many."""
    if not isinstance(assignments, Mapping) or not assignments:
        raise InvalidOption(
            "update needs a mapping of columns to expressions, such as {'amount': 'amount * 1.1'}.",
            table=view.name,
        )
    condition = None if where is None else view.condition(where)
    parsed = [
        parse_assignment(column, value, view.schema, table_name=view.name, zone=view.engine.zone)
        for column, value in assignments.items()
    ]
    native = all(one.native is not None for one in parsed)
    if native and (condition is None or condition.lance is not None):
        lance_filter = None if condition is None else condition.lance
        with view.files.reading(view.state):
            mutation = _update_here(view, staged, parsed, lance_filter)
    else:
        mutation = update_on_spark(view, staged, parsed, where)
    if mutation is None:
        return 0
    if {one.column.name for one in parsed} & set(staged.state.key):
        _refuse_colliding_keys(view, staged, mutation)
    staged.add(mutation)
    return len(mutation.row_ids)


def _update_here(
    view: Table, staged: StagedTable, assignments: Sequence[Assignment], lance_filter: str | None
) -> Mutation | None:
    row_ids: list[Addresses] = []
    addresses: list[Addresses] = []
    scanner = view.dataset.scanner(filter=lance_filter, with_row_id=True, with_row_address=True)

    def new_rows() -> Iterator[pa.RecordBatch]:
        for batch in scanner.to_batches():
            if not batch.num_rows:
                continue
            row_ids.append(batch.column("_rowid").to_numpy())
            addresses.append(batch.column("_rowaddr").to_numpy())
            rows = pa.Table.from_batches([batch]).drop_columns(["_rowid", "_rowaddr"])
            yield from _assigned(rows, assignments, view).to_batches()

    fragments = write_stream(staged.files, view.dataset, staged.target, new_rows())
    if not row_ids:
        return None
    ids = np.concatenate(row_ids)
    return Mutation(
        ids, np.concatenate(addresses), with_row_ids(fragments, ids), view.dataset.version
    )


def _assigned(rows: pa.Table, assignments: Sequence[Assignment], view: Table) -> pa.Table:
    changed = rows
    for one in assignments:
        # Every expression reads the row as it was, also columns that another one assigns.
        values = one.evaluate(rows)
        if not one.column.nullable and values.null_count:
            raise required_null(view, one.column.name, one.sql)
        position = rows.column_names.index(one.column.name)
        changed = changed.set_column(position, view.schema.arrow.field(position), values)
    return changed


def required_null(view: Table, column: str, expression: str) -> RequiredColumnNull:
    return RequiredColumnNull(
        f"Table {view.name!r}: {expression!r} gives NULL for the required column {column!r}. "
        "Nothing was written.",
        table=view.name,
        column=column,
        expression=expression,
    )


def _refuse_colliding_keys(view: Table, staged: StagedTable, mutation: Mutation) -> None:
    """An update of key columns must leave every key unique."""
    files, target = staged.files, staged.target
    scratch = files.append(target.id, view.dataset, _without_ids(mutation.fragments))
    keys = read_fragments(scratch, added_fragments(view.dataset, scratch), target.key)
    check_unique_keys(keys, target.schema, target.name)
    match = match_keys(view.dataset, keys)
    others = ~np.isin(match.row_ids, mutation.row_ids)
    if others.any():
        taken = keys.take(pa.array(match.positions[others]))
        raise duplicate_key(
            target, taken, taken.num_rows, "would occur more than once after this update"
        )


def _without_ids(fragments: Sequence[FragmentMetadata]) -> list[FragmentMetadata]:
    return [dataclasses.replace(fragment, row_id_meta=None) for fragment in fragments]
