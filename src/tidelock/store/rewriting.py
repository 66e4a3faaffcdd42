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

from tidelock.store.frame_staging import query_failures
from tidelock.store.frames import spark_schema
from tidelock.store.lance_input import write_rows
from tidelock.store.reading import Table
from tidelock.store.tables import (
    Addresses,
    Dataset,
    TableFiles,
    with_row_ids,
)

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


def rewrite(files: TableFiles, base: Dataset, ids: Sequence[int]) -> Rewritten:
    """Rewrite one group in this process, in bounded memory."""
    return _of(base, ids, *_rewrite(base, ids, lambda reader: files.write(base, reader)))


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
    return [
        _of(
            view.dataset,
            groups[row["group"]],
            [FragmentMetadata.from_json(json.dumps(one)) for one in json.loads(row["fragments"])],
            np.frombuffer(row["row_ids"], dtype="<u8").astype(np.uint64),
        )
        for row in found
    ]


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

    def write(reader: pa.RecordBatchReader) -> list[FragmentMetadata]:
        return write_rows(reader, reader.schema, base, storage_options=options)

    for batch in batches:
        for number in batch.column(0).to_pylist():
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
    write: Callable[[pa.RecordBatchReader], list[FragmentMetadata]],
) -> tuple[list[FragmentMetadata], Addresses]:
    old = [base.get_fragment(fragment_id) for fragment_id in ids]
    scanner = base.scanner(fragments=old, with_row_id=True, scan_in_order=True)
    row_ids: list[Addresses] = [np.array([], dtype=np.uint64)]

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in scanner.to_batches():
            row_ids.append(batch.column("_rowid").to_numpy())
            yield batch.drop_columns(["_rowid"])

    written = write(pa.RecordBatchReader.from_batches(base.schema, rows()))
    in_order = np.concatenate(row_ids)
    return with_row_ids([one for one in written if one.physical_rows], in_order), in_order


def _of(
    base: Dataset, ids: Sequence[int], fragments: Sequence[FragmentMetadata], row_ids: Addresses
) -> Rewritten:
    old = [base.get_fragment(fragment_id) for fragment_id in ids]
    return Rewritten(
        paths=tuple(fragment.metadata.files[0].path for fragment in old),
        fragments=tuple(fragments),
        row_ids=row_ids,
        deletions=tuple(fragment.num_deletions for fragment in old),
    )
