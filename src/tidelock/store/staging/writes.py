"""How each operation's input becomes something staged, without Spark.

Owns: the order of checks and writes for rows that pass through this process. Spark frames are
staged by spark/stage.py.
Invariants: input is checked before it is staged, but for the keys of a stream, which are compared
once all of it is written; a stream of any size passes in bounded memory, but for where the rows are
that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.errors import InvalidOption, RequiredColumnNull, TidelockError
from tidelock.model.sql.expressions import Assignment, parse_assignment
from tidelock.store.lookup.by_key import match_keys
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.lookup.wanted_keys import GivenKeys, StagedKeys
from tidelock.store.rows.batch_stream import BatchStream
from tidelock.store.rows.checks import check_unique_keys, comparable_keys
from tidelock.store.rows.inputs import Input
from tidelock.store.rows.pieces import rechunk
from tidelock.store.rows.refusals import OFFENDERS_MAX
from tidelock.store.spark.stage import find_rows, update_on_spark
from tidelock.store.staging.operations import (
    Append,
    Mutation,
    Overwrite,
    Target,
    added_fragments,
    duplicate_key,
    refuse_present,
)
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.unique_keys import refuse_repeated
from tidelock.store.staging.upserts import StagedUpsert, Upsert, without_ids
from tidelock.store.table import Table
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset, numbers, with_row_ids

FEW_ROWS_MAX = 256 * 1024
FEW_BYTES_MAX = 32 * 1024 * 1024
"""A stream that ends within these bounds is handled as rows in memory."""
PENDING_BYTES_MAX = 64 * 1024 * 1024
WAITING_KEYS_MAX = 65_536
"""So many keys of rows that wait in memory are compared there; of more, the table is asked."""


def append_table(staged: StagedTable, table: pa.Table) -> None:
    """Append rows that are in memory: kept until they are needed, so that small appends join."""
    waiting = staged.open_append()
    if staged.state.key:
        crowded = waiting is not None and waiting.rows + table.num_rows > WAITING_KEYS_MAX
        alone = staged.applied + 1 == len(staged.operations)
        if staged.pending and (waiting is None or crowded or not alone):
            staged.current()
            waiting = None
        _refuse_known_keys(staged, waiting, table)
    if waiting is None:
        pin = staged.latest().version if staged.state.key else None
        waiting = Append(checked_pin=pin)
        staged.add(waiting)
    waiting.add(table)
    if len(waiting.data) > 1 and waiting.size_bytes > PENDING_BYTES_MAX:
        staged.current()


def _refuse_known_keys(staged: StagedTable, waiting: Append | None, table: pa.Table) -> None:
    target = staged.target
    keys = GivenKeys(table.select(target.key))
    refuse_repeated(target, keys)
    if waiting is not None:
        new = set(comparable_keys(keys.table))
        known = waiting.waiting_keys(target)
        if not known.isdisjoint(new):
            earlier = [part.select(target.key) for part in waiting.data]
            check_unique_keys(pa.concat_tables([*earlier, keys.table]), target.schema, target.name)
    with staged.files.reading(staged.state, trusting=staged.created):
        refuse_present(target, staged.latest(), keys)
    if waiting is not None:
        known |= new


def append_stream(staged: StagedTable, batches: Iterable[pa.RecordBatch]) -> None:
    if not staged.state.key:
        base = staged.current()
        fragments = write_stream(staged.files, base, staged.target, batches)
        if fragments:
            staged.add(Append(fragments=fragments))
        return
    rows = _few_or_stream(batches)
    if isinstance(rows, pa.Table):
        append_table(staged, rows)
        return
    base = staged.current()
    fragments, keys = write_unique(staged, base, rows)
    with staged.files.reading(staged.state, trusting=staged.created):
        refuse_present(staged.target, base, keys)
    staged.add(Append(fragments=fragments, keys=[keys], checked_pin=base.version))


def _few_or_stream(batches: Iterable[pa.RecordBatch]) -> pa.Table | Iterator[pa.RecordBatch]:
    """The rows of a stream as a table, if they may all be in memory; else as they come."""
    chunks = rechunk(batches, FEW_ROWS_MAX, FEW_BYTES_MAX)
    begin = list(islice(chunks, 2))
    if len(begin) == 1:
        return begin[0]
    return _batches(begin, chunks)


def _batches(begin: list[pa.Table], rest: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    while begin:
        yield from begin.pop(0).to_batches()
    for chunk in rest:
        yield from chunk.to_batches()


def write_stream(
    files: TableFiles, base: Dataset, target: Target, batches: Iterable[pa.RecordBatch]
) -> list[FragmentMetadata]:
    """Write a stream as it arrives. An error of the stream comes out as it was raised."""
    source = BatchStream(batches)
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
) -> tuple[list[FragmentMetadata], StagedKeys]:
    """Write a stream whose keys must differ. They are compared when all of it is written, for then
    each has to be looked at once; to compare every part of it with all before it takes longer the
    more parts there are."""
    files, target = staged.files, staged.target
    fragments = write_stream(files, base, target, batches)
    dataset = files.append(target.id, base, fragments) if fragments else base
    keys = StagedKeys(dataset, tuple(added_fragments(base, dataset)), target.key)
    if fragments:
        with files.reading(staged.state, trusting=True):
            refuse_repeated(target, keys)
    return fragments, keys


def upsert_table(staged: StagedTable, table: pa.Table) -> None:
    """Upsert rows that are in memory: kept until they are needed, so that small upserts join."""
    refuse_repeated(staged.target, GivenKeys(table.select(staged.target.key)))
    waiting = staged.open_upsert()
    if waiting is None:
        waiting = Upsert()
        staged.add(waiting)
    waiting.add(table)
    if len(waiting.tables) > 1 and waiting.size_bytes > PENDING_BYTES_MAX:
        staged.current()


def upsert_stream(staged: StagedTable, batches: Iterable[pa.RecordBatch]) -> None:
    rows = _few_or_stream(batches)
    if isinstance(rows, pa.Table):
        upsert_table(staged, rows)
        return
    fragments, _ = write_unique(staged, staged.current(), rows)
    if fragments:
        staged.add(StagedUpsert(fragments))


def overwrite(staged: StagedTable, given: Input) -> None:
    staged.add(Overwrite(_replacement(staged, staged.current(), given)))


def _replacement(staged: StagedTable, base: Dataset, given: Input) -> list[FragmentMetadata]:
    files, target = staged.files, staged.target
    if given.table is not None:
        if target.key:
            refuse_repeated(target, GivenKeys(given.table.select(target.key)))
        return files.write(base, given.table) if given.table.num_rows else []
    if not target.key:
        return write_stream(files, base, target, given.batches())
    return write_unique(staged, base, given.batches())[0]


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
    scratch = files.append(target.id, view.dataset, without_ids(mutation.fragments))
    own = added_fragments(view.dataset, scratch)
    keys = StagedKeys(scratch, tuple(own), target.key)
    refuse_repeated(target, keys)
    match = match_keys(view.dataset, keys)
    others = ~is_among(match.row_ids, np.sort(mutation.row_ids))
    if others.any():
        taken = keys.take(np.sort(match.positions[others])[:OFFENDERS_MAX])
        raise duplicate_key(
            target, taken, int(others.sum()), "would occur more than once after this update"
        )
