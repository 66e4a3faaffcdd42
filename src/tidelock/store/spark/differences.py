"""Staging the difference between a table and a frame, which an engine has found.

Owns: what an executor does with its part of a difference, and the operation that it becomes. Rows
that come are written by the executors as fragments; rows that leave are marked by where they are,
as a bitmap for each fragment, so that even a table of which every row changes costs the driver few
bytes a row.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidelock.errors import TidelockError
from tidelock.model.names import HIDDEN
from tidelock.store.spark.scan import BATCH_ROWS, ROW_ADDRESS, ROW_ID, spark_schema
from tidelock.store.spark.sessions import could_not, engine_errors
from tidelock.store.spark.write import ROWS_PER_FILE, FrameTarget, write_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIDE = f"{HIDDEN}side"
"""0 for a row that leaves, 1 for one that comes."""
COPIES = f"{HIDDEN}copies"
"""How many copies of the row do."""
_NUMBERS = (SIDE, COPIES, ROW_ID, ROW_ADDRESS)
_OUTCOME = pa.schema(
    [
        pa.field("written", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("replaced", pa.int64()),
        pa.field("fragment", pa.int64()),
        pa.field("marks", pa.binary()),
        pa.field("missing", pa.int64()),
        pa.field("error", pa.binary()),
    ]
)


@dataclass(frozen=True)
class WrittenDifference:
    """What executors did: fragments as JSON, how many of their rows replace others, and which rows
    leave, as a Roaring bitmap of offsets for each fragment; how many more leave, of which it was
    not said where they are."""

    fragments: tuple[str, ...]
    added: int
    replaced: int
    marks: Mapping[int, bytes]
    missing: int


def write_difference(
    frame: DataFrame, target: FrameTarget, *, rows_per_file: int = ROWS_PER_FILE
) -> WrittenDifference:
    """Write the rows that come, and gather which leave. `frame` has the columns of the table, SIDE,
    COPIES, the id of the row that a coming one replaces, and the address of a leaving one."""
    doing = f"did not write what changed of table {target.name!r}"
    task: Any = partial(difference_part, target=target, rows_per_file=rows_per_file)
    with engine_errors(frame.sparkSession, could_not(doing, table=target.name)):
        outcome = frame.mapInArrow(task, spark_schema(_OUTCOME)).toArrow().to_pylist()
    for row in outcome:
        if row["error"] is not None:
            raise pickle.loads(row["error"])
    written = [row for row in outcome if row["written"] is not None]
    marks: dict[int, list[bytes]] = defaultdict(list)
    for row in outcome:
        if row["fragment"] is not None:
            marks[row["fragment"]].append(row["marks"])
    return WrittenDifference(
        tuple(row["written"] for row in written),
        sum(row["rows"] for row in written),
        sum(row["replaced"] for row in written),
        {fragment: _united(parts) for fragment, parts in marks.items()},
        sum(row["missing"] for row in outcome),
    )


def _united(parts: list[bytes]) -> bytes:
    from pyroaring import BitMap

    if len(parts) == 1:
        return parts[0]
    united: bytes = BitMap.union(*map(BitMap.deserialize, parts)).serialize()
    return united


def difference_part(
    batches: Iterator[pa.RecordBatch], *, target: FrameTarget, rows_per_file: int
) -> Iterator[pa.RecordBatch]:
    """On an executor: write one part of a difference."""
    # Imported here and not above: Lance must not be loaded before Spark's daemon forks.
    from lance.fragment import RowIdSequence

    part = _Part()
    try:
        written = write_batches(part.coming(batches), target, rows_per_file)
    except TidelockError as error:
        yield _row(error=pickle.dumps(error))
        return
    ids, begin = part.row_ids(), 0
    for fragment in written:
        rows = fragment.physical_rows
        taken = ids[begin : begin + rows]
        begin += rows
        if len(taken):
            # Rows beyond these get fresh ids when the fragment is committed.
            fragment.row_id_meta = RowIdSequence(taken).to_inline_metadata()
        yield _row(json.dumps(fragment.to_json()), rows, len(taken))
    for number, marks in part.marks.items():
        yield _row(fragment=number, marks=marks.serialize())
    if part.missing:
        yield _row(missing=part.missing)


class _Part:
    """The rows of one part, told apart as they pass."""

    def __init__(self) -> None:
        from pyroaring import BitMap

        self.marks: dict[int, BitMap] = defaultdict(BitMap)
        self.missing = 0
        self._ids: list[Any] = []
        self._prefix = True

    def coming(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sides = batch.column(SIDE).to_numpy(zero_copy_only=False)
            copies = batch.column(COPIES).to_numpy(zero_copy_only=False)
            leaving = np.flatnonzero(sides == 0)
            self._mark(batch.column(ROW_ADDRESS).take(pa.array(leaving)))
            self.missing += int(copies[leaving].sum()) - len(leaving)
            coming = np.flatnonzero(sides == 1)
            self._number(batch.column(ROW_ID).take(pa.array(coming)))
            yield from _repeated(batch.drop_columns(list(_NUMBERS)), coming, copies[coming])

    def _mark(self, addresses: pa.Array) -> None:
        found = addresses.to_numpy(zero_copy_only=False).astype(np.uint64)
        fragments = found >> np.uint64(32)
        for fragment in np.unique(fragments).tolist():
            offsets = found[fragments == fragment] & np.uint64(0xFFFFFFFF)
            self.marks[int(fragment)].update(offsets.astype(np.uint32))

    def _number(self, ids: pa.Array) -> None:
        """Keep the ids of rows that replace others for as long as only such rows have come: the
        first rows of a fragment are given ids, and the rest are new."""
        known = int(np.argmin(valid)) if not (valid := _valid(ids)).all() else len(ids)
        if self._prefix and known:
            self._ids.append(ids.slice(0, known).to_numpy(zero_copy_only=False).astype(np.uint64))
        self._prefix = self._prefix and known == len(ids)

    def row_ids(self) -> Any:
        return np.concatenate(self._ids) if self._ids else np.array([], dtype=np.uint64)


def _repeated(rows: pa.RecordBatch, chosen: Any, copies: Any) -> Iterator[pa.RecordBatch]:
    """Some of the rows, each as often as it says, in batches of a bounded size."""
    ends = np.cumsum(copies)
    for begin in range(0, int(ends[-1]) if len(ends) else 0, BATCH_ROWS):
        wanted = np.arange(begin, min(begin + BATCH_ROWS, int(ends[-1])))
        yield rows.take(pa.array(chosen[np.searchsorted(ends, wanted, side="right")]))


def _valid(ids: pa.Array) -> Any:
    return ids.is_valid().to_numpy(zero_copy_only=False)


def _row(
    written: str | None = None,
    rows: int = 0,
    replaced: int = 0,
    *,
    fragment: int | None = None,
    marks: bytes | None = None,
    missing: int = 0,
    error: bytes | None = None,
) -> pa.RecordBatch:
    values = (written, rows, replaced, fragment, marks, missing, error)
    row = dict(zip(_OUTCOME.names, values, strict=True))
    return pa.RecordBatch.from_pylist([row], schema=_OUTCOME)
