"""How rows that are given become something staged, without Spark.

Owns: the order of checks and writes for rows that pass through this process. Spark frames are
staged by spark/stage.py.
Invariants: input is checked before it is staged, but for the keys of a stream, which are compared
once all of it is written; a stream of any size passes in bounded memory, but for where the rows are
that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow as pa
from lance.fragment import FragmentMetadata

from tidelock.errors import TidelockError
from tidelock.store.lookup.wanted_keys import GivenKeys, StagedKeys
from tidelock.store.operations.counts import Target
from tidelock.store.operations.operations import (
    Append,
    Overwrite,
    added_fragments,
    refuse_present,
)
from tidelock.store.operations.upserts import StagedUpsert, Upsert
from tidelock.store.rows.batch_stream import BatchStream
from tidelock.store.rows.checks import check_unique_keys, comparable_keys
from tidelock.store.rows.inputs import Input
from tidelock.store.rows.pieces import rechunk
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.unique_keys import refuse_repeated
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset

FEW_ROWS_MAX = 256 * 1024
FEW_BYTES_MAX = 32 * 1024 * 1024
"""A stream that ends within these bounds is handled as rows in memory."""
PENDING_BYTES_MAX = 64 * 1024 * 1024
WAITING_KEYS_MAX = 65_536
"""So many keys of rows that wait in memory are compared there; of more, the table is asked."""


def append_table(staged: StagedTable, table: pa.Table) -> None:
    """Append rows that are in memory: kept until they are needed, so that small appends join."""
    waiting = staged.open_append()
    if staged.schema.key:
        crowded = waiting is not None and waiting.rows + table.num_rows > WAITING_KEYS_MAX
        alone = staged.applied + 1 == len(staged.operations)
        if staged.pending and (waiting is None or crowded or not alone):
            staged.current()
            waiting = None
        _refuse_known_keys(staged, waiting, table)
    if waiting is None:
        pin = staged.latest().version if staged.schema.key else None
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
    if not staged.schema.key:
        base = staged.current()
        fragments = write_stream(staged.files, base, staged.target, batches)
        if fragments:
            staged.add(Append(fragments=fragments))
        return
    rows = few_or_stream(batches)
    if isinstance(rows, pa.Table):
        append_table(staged, rows)
        return
    base = staged.current()
    fragments, keys = write_unique(staged, base, rows)
    with staged.files.reading(staged.state, trusting=staged.created):
        refuse_present(staged.target, base, keys)
    staged.add(Append(fragments=fragments, keys=[keys], checked_pin=base.version))


def few_or_stream(batches: Iterable[pa.RecordBatch]) -> pa.Table | Iterator[pa.RecordBatch]:
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
    rows = few_or_stream(batches)
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
