"""Rewriting fragments: the same live rows under the same ids, in fewer or fuller fragments.

Owns: the reading and writing of one group of fragments, here or on Spark's executors. Nothing is
published: maintenance.py puts what was rewritten in the place of the old fragments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from tidelock.store.damage import refuse_damaged
from tidelock.store.frame_staging import query_failures
from tidelock.store.frames import spark_schema
from tidelock.store.lance_input import write_rows
from tidelock.store.reading import Table
from tidelock.store.recent import RecentRows
from tidelock.store.sums import data_files, objects_at, sum_on_executor
from tidelock.store.tables import (
    Addresses,
    Dataset,
    TableFiles,
    data_file,
    numbers,
    with_row_ids,
)

SMALL_BYTES_MAX = 4 * 1024 * 1024
"""Groups of fragments up to this size are read whole: a stream costs more than they do."""
FEW_ROWS = 64
"""So many row ids are taken one by one sooner than as an array."""

_REWRITTEN = pa.schema(
    [
        pa.field("group", pa.int64(), nullable=False),
        pa.field("fragments", pa.string(), nullable=False),
        pa.field("row_ids", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Rewritten:
    """One group of fragments and what they were rewritten to."""

    paths: tuple[str, ...]
    fragments: tuple[FragmentMetadata, ...]
    row_ids: Addresses
    """The ids of the rewritten rows, in the order of the new fragments."""
    deletions: tuple[int, ...]
    """How many rows each old fragment had lost when it was read."""


def rewrite(
    files: TableFiles, table_id: str, base: Dataset, ids: Sequence[int], share: bool = False
) -> Rewritten:
    """Rewrite one group in this process, in bounded memory.

    `share`: leave few rows to the process that will fold them again.
    """
    fragments = [base.get_fragment(fragment_id).metadata for fragment_id in ids]
    known = _recent(files.recent, table_id, base.schema, fragments)
    if known is not None:
        rows, row_ids = known
        written = with_row_ids(files.write(base, rows), row_ids)
    else:
        files.refuse_damaged(table_id, fragments)
        written, row_ids = _rewrite(base, ids, lambda rows: files.write(base, rows))
    if share:
        for fragment in written:
            files.recent.share(table_id, data_file(fragment))
    return _of(base, ids, written, row_ids)


def _recent(
    recent: RecentRows, table_id: str, schema: pa.Schema, fragments: Sequence[FragmentMetadata]
) -> tuple[pa.Table, Addresses] | None:
    """The rows and row ids of fragments that were all written just now, else None."""
    if any(fragment.num_deletions for fragment in fragments):
        return None
    tables = []
    shared: Mapping[str, bytes] | None = None
    for fragment in fragments:
        path = data_file(fragment)
        rows = recent.find(path)
        if rows is None:
            shared = recent.shared(table_id) if shared is None else shared
            rows = _decoded(shared.get(path), schema)
        if rows is None or len(rows) != fragment.physical_rows or not rows.schema.equals(schema):
            return None
        tables.append(rows)
    sequences = [RowIdSequence.from_inline_metadata(one.row_id_meta) for one in fragments]
    return pa.concat_tables(tables), np.concatenate([_row_ids(one) for one in sequences])


def _decoded(batch: bytes | None, schema: pa.Schema) -> pa.Table | None:
    if batch is None:
        return None
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(batch), schema)])


def _row_ids(sequence: RowIdSequence) -> Addresses:
    if len(sequence) <= FEW_ROWS:
        return np.fromiter(sequence, np.uint64, len(sequence))
    return numbers(pa.chunked_array([sequence.to_pyarrow()]))


def rewrite_on_spark(view: Table, groups: Sequence[Sequence[int]]) -> list[Rewritten]:
    """Rewrite several groups on the executors, one task each."""
    task: Any = partial(
        rewrite_groups,
        uri=view.path,
        version=view.dataset.version,
        storage_options=view.files.location.lance_options,
        groups=[list(group) for group in groups],
    )
    count = len(groups)
    frame = view.engine.get().range(0, count, 1, count)
    with query_failures(view.name):
        found = frame.mapInArrow(task, spark_schema(_REWRITTEN)).toArrow().to_pylist()
    rewritten = []
    for row in found:
        texts = [json.dumps(one) for one in json.loads(row["fragments"])]
        fragments = [FragmentMetadata.from_json(text) for text in texts]
        view.files.sums.note(view.state.id, data_files(fragments))
        row_ids = np.frombuffer(row["row_ids"], dtype="<u8").astype(np.uint64)
        rewritten.append(_of(view.dataset, groups[row["group"]], fragments, row_ids))
    return rewritten


def rewrite_groups(
    batches: Iterator[pa.RecordBatch],
    *,
    uri: str,
    version: int,
    storage_options: Mapping[str, str] | None,
    groups: Sequence[Sequence[int]],
) -> Iterator[pa.RecordBatch]:
    """On an executor: rewrite the groups whose numbers arrive in `batches`."""
    base = lance.dataset(uri, version=version, storage_options=storage_options)

    options = dict(storage_options) if storage_options else None

    def write(rows: pa.Table | pa.RecordBatchReader) -> list[FragmentMetadata]:
        written = write_rows(rows, rows.schema, base, storage_options=options)
        sum_on_executor(uri, options, written)
        return written

    for batch in batches:
        for number in batch.column(0).to_pylist():
            old = [base.get_fragment(one).metadata for one in groups[number]]
            refuse_damaged(objects_at(uri, options), "", uri.rsplit("/", 1)[-1], old)
            fragments, row_ids = _rewrite(base, groups[number], write)
            row = {
                "group": number,
                "fragments": json.dumps([fragment.to_json() for fragment in fragments]),
                "row_ids": row_ids.astype("<u8").tobytes(),
            }
            yield pa.RecordBatch.from_pylist([row], schema=_REWRITTEN)


def _rewrite(
    base: Dataset,
    ids: Sequence[int],
    write: Callable[[pa.Table | pa.RecordBatchReader], list[FragmentMetadata]],
) -> tuple[list[FragmentMetadata], Addresses]:
    old = [base.get_fragment(fragment_id) for fragment_id in ids]
    scanner = base.scanner(fragments=old, with_row_id=True, scan_in_order=True)
    if _are_small(old):
        table = scanner.to_table()
        in_order = numbers(table.column("_rowid"))
        return with_row_ids(write(table.drop_columns(["_rowid"])), in_order), in_order
    row_ids: list[Addresses] = [np.array([], dtype=np.uint64)]

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in scanner.to_batches():
            row_ids.append(batch.column("_rowid").to_numpy())
            yield batch.drop_columns(["_rowid"])

    written = write(pa.RecordBatchReader.from_batches(base.schema, rows()))
    in_order = np.concatenate(row_ids)
    return with_row_ids([one for one in written if one.physical_rows], in_order), in_order


def _are_small(fragments: Sequence[Any]) -> bool:
    """Whether all rows of some fragments may be in memory at once."""
    files = [file.file_size_bytes for one in fragments for file in one.metadata.files]
    return None not in files and sum(files) <= SMALL_BYTES_MAX


def _of(
    base: Dataset, ids: Sequence[int], fragments: Sequence[FragmentMetadata], row_ids: Addresses
) -> Rewritten:
    old = [base.get_fragment(fragment_id) for fragment_id in ids]
    return Rewritten(
        paths=tuple(data_file(fragment.metadata) for fragment in old),
        fragments=tuple(fragments),
        row_ids=row_ids,
        deletions=tuple(fragment.num_deletions for fragment in old),
    )
