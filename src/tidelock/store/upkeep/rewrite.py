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
from lance.fragment import FragmentMetadata

from tidelock.store.spark.scan import spark_schema
from tidelock.store.spark.sessions import could_not, engine_errors
from tidelock.store.table import Table
from tidelock.store.tables.damage import refuse_damaged
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.file_sums import data_files, objects_at, sum_on_executor
from tidelock.store.tables.fragments import Addresses, Dataset, data_file, numbers, with_row_ids
from tidelock.store.tables.lance_writer import write_rows
from tidelock.store.upkeep.row_order import ROW_ID, rows_in_order, size_bytes

SMALL_BYTES_MAX = 4 * 1024 * 1024
"""Groups of fragments up to this size are read whole: a stream costs more than they do."""

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


def rewrite(files: TableFiles, table_id: str, base: Dataset, ids: Sequence[int]) -> Rewritten:
    """Rewrite one group in this process, in bounded memory."""
    files.refuse_damaged(table_id, [base.get_fragment(fragment_id).metadata for fragment_id in ids])
    written, row_ids = _rewrite(base, ids, lambda rows: files.write(base, rows))
    return _of(base, ids, written, row_ids)


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
    session = view.engine.get()
    with engine_errors(session, could_not(f"could not rewrite table {view.name!r}")):
        frame = session.range(0, count, 1, count)
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
    if size_bytes(old) <= SMALL_BYTES_MAX:
        table = pa.Table.from_batches(rows_in_order(base, old), _with_row_ids(base.schema))
        in_order = numbers(table.column(ROW_ID))
        return with_row_ids(write(table.drop_columns([ROW_ID])), in_order), in_order
    row_ids: list[Addresses] = [np.array([], dtype=np.uint64)]

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in rows_in_order(base, old):
            row_ids.append(batch.column(ROW_ID).to_numpy())
            yield batch.drop_columns([ROW_ID])

    written = write(pa.RecordBatchReader.from_batches(base.schema, rows()))
    in_order = np.concatenate(row_ids)
    return with_row_ids([one for one in written if one.physical_rows], in_order), in_order


def _with_row_ids(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(ROW_ID, pa.uint64()))


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
