"""Staging the difference between a table and a frame, which an engine has found.

Owns: what an executor does with its part of a difference, and the operation that it becomes. Rows
that come are written by the executors as fragments; rows that leave are marked by where they are,
as a bitmap for each fragment, so that even a table of which every row changes costs the driver few
bytes a row.
"""

from __future__ import annotations

import json
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

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
"""0 for a row that leaves, 1 for one that comes, -1 for one that comes in the place of another: the
row at its address leaves, and it takes over that one's id."""
REPLACES, LEAVES, COMES = -1, 0, 1
COPIES = f"{HIDDEN}copies"
"""How many copies of the row do."""
_NUMBERS = (SIDE, COPIES, ROW_ID, ROW_ADDRESS)
_NO_IDS = np.array([], dtype=np.uint64)
ASIDE_BYTES_MAX = 32 * 1024 * 1024
"""More than this of rows that are put aside goes to a file of the executor's own."""
_OUTCOME = pa.schema(
    [
        pa.field("written", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("replaced", pa.int64()),
        pa.field("fragment", pa.int64()),
        pa.field("marks", pa.binary()),
        pa.field("missing", pa.int64()),
        pa.field("repeated", pa.binary()),
        pa.field("error", pa.binary()),
    ]
)


@dataclass(frozen=True)
class WrittenDifference:
    """What executors did: fragments as JSON, how many of their rows replace others, and which rows
    leave, as a Roaring bitmap of offsets for each fragment; how many more leave, of which it was
    not said where they are; and, as such bitmaps, which rows were said to leave more than once."""

    fragments: tuple[str, ...]
    added: int
    replaced: int
    marks: Mapping[int, bytes]
    missing: int
    repeated: Mapping[int, bytes]


def write_difference(
    frame: DataFrame, target: FrameTarget, *, rows_per_file: int = ROWS_PER_FILE
) -> WrittenDifference:
    """Write the rows that come, and gather which leave. `frame` has the columns of the table, SIDE,
    COPIES, the id of the row that a coming one replaces, and the address of a leaving one. It costs
    least where in each partition rows that take over an id come before those that take none."""
    doing = f"did not write what changed of table {target.name!r}"
    task: Any = partial(difference_part, target=target, rows_per_file=rows_per_file)
    with engine_errors(frame.sparkSession, could_not(doing, table=target.name)):
        outcome = frame.mapInArrow(task, spark_schema(_OUTCOME)).toArrow().to_pylist()
    for row in outcome:
        if row["error"] is not None:
            raise pickle.loads(row["error"])
    written = [row for row in outcome if row["written"] is not None]
    marks: dict[int, list[bytes]] = defaultdict(list)
    repeated: dict[int, list[bytes]] = defaultdict(list)
    for row in outcome:
        if row["fragment"] is not None:
            marks[row["fragment"]].append(row["marks"])
            repeated[row["fragment"]].append(row["repeated"])
    return WrittenDifference(
        tuple(row["written"] for row in written),
        sum(row["rows"] for row in written),
        sum(row["replaced"] for row in written),
        {fragment: _united(parts) for fragment, parts in marks.items()},
        sum(row["missing"] for row in outcome),
        _repeated_marks(marks, repeated),
    )


def _repeated_marks(
    marks: Mapping[int, list[bytes]], repeated: Mapping[int, list[bytes]]
) -> dict[int, bytes]:
    """The rows that one part marked twice, or two parts once each."""
    from pyroaring import BitMap

    found: dict[int, bytes] = {}
    for fragment, parts in marks.items():
        seen, again = BitMap(), BitMap.union(*map(BitMap.deserialize, repeated[fragment]))
        for part in map(BitMap.deserialize, parts):
            again |= seen & part
            seen |= part
        if again:
            found[fragment] = again.serialize()
    return found


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
        with part:
            written = write_batches(part.coming(batches), target, rows_per_file)
            late = write_batches(part.late(), target, rows_per_file)
    except TidelockError as error:
        yield _row(error=pickle.dumps(error))
        return
    for fragments, ids in ((written, part.ids), (late, part.late_ids)):
        numbers, begin = np.concatenate([_NO_IDS, *ids]), 0
        for fragment in fragments:
            rows = fragment.physical_rows
            taken = numbers[begin : begin + rows]
            begin += rows
            # A row that is said to leave twice is replaced by nobody: an id is not given twice.
            if len(taken) and not part.repeats:
                # Rows beyond these get fresh ids when the fragment is committed.
                fragment.row_id_meta = RowIdSequence(taken).to_inline_metadata()
            yield _row(json.dumps(fragment.to_json()), rows, len(taken))
    for number, marks in part.marks.items():
        again = part.repeated[number].serialize()
        yield _row(fragment=number, marks=marks.serialize(), repeated=again)
    if part.missing:
        yield _row(missing=part.missing)


class _Part:
    """The rows of one part, told apart as they pass.

    The first rows of a fragment are given ids, and the rest are new. Rows that are to have an id
    and come after new ones are put aside, and written when all others are: some engines give rows
    in another order than they were asked for.
    """

    def __init__(self) -> None:
        from pyroaring import BitMap

        self.marks: dict[int, BitMap] = defaultdict(BitMap)
        self.repeated: dict[int, BitMap] = defaultdict(BitMap)
        self.missing = 0
        self.ids: list[Any] = []
        """Of the rows that come before all new ones."""
        self.late_ids: list[Any] = []
        self._only_ids = True
        self._aside = tempfile.SpooledTemporaryFile(ASIDE_BYTES_MAX)  # noqa: SIM115
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._aside.close()

    def coming(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows to be written now, as they pass."""
        for batch in batches:
            sides = batch.column(SIDE).to_numpy(zero_copy_only=False)
            copies = batch.column(COPIES).to_numpy(zero_copy_only=False)
            leaving = np.flatnonzero(sides != COMES)
            self._mark(batch.column(ROW_ADDRESS).take(pa.array(leaving)))
            self.missing += int(copies[leaving].sum()) - len(leaving)
            coming = np.flatnonzero(sides != LEAVES)
            rows = batch.drop_columns(list(_NUMBERS))
            now = coming[self._take_ids(rows, coming, batch.column(ROW_ID).take(pa.array(coming)))]
            yield from _repeated(rows, now, copies[now])

    def _take_ids(self, rows: pa.RecordBatch, coming: Any, ids: pa.Array) -> Any:
        """Which of the coming rows are written now; those of the others that are late are put
        aside."""
        has_id = ids.is_valid().to_numpy(zero_copy_only=False)
        first = len(ids) if has_id.all() else int(np.argmin(has_id))
        known = np.flatnonzero(has_id)
        early = known[known < first] if self._only_ids else known[:0]
        late = known[len(early) :]
        self.ids.append(_numbers(ids, early))
        self._only_ids = self._only_ids and first == len(ids)
        if len(late):
            self.late_ids.append(_numbers(ids, late))
            self._put_aside(rows.take(pa.array(coming[late])))
        return np.setdiff1d(np.arange(len(ids)), late)

    def _put_aside(self, rows: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._aside, rows.schema)
        self._writer.write_batch(rows)

    def late(self) -> Iterator[pa.RecordBatch]:
        """The rows that were put aside, all of which have ids."""
        if self._writer is not None:
            self._writer.close()
            self._aside.seek(0)
            yield from pa.ipc.open_stream(self._aside)

    def _mark(self, addresses: pa.Array) -> None:
        from pyroaring import BitMap

        found = addresses.to_numpy(zero_copy_only=False).astype(np.uint64)
        fragments = found >> np.uint64(32)
        for fragment in np.unique(fragments).tolist():
            offsets = (found[fragments == fragment] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            marks = self.marks[int(fragment)]
            once, counts = np.unique(offsets, return_counts=True)
            self.repeated[int(fragment)].update(marks & BitMap(once))
            self.repeated[int(fragment)].update(once[counts > 1])
            marks.update(once)

    @property
    def repeats(self) -> bool:
        return any(self.repeated.values())


def _repeated(rows: pa.RecordBatch, chosen: Any, copies: Any) -> Iterator[pa.RecordBatch]:
    """Some of the rows, each as often as it says, in batches of a bounded size."""
    ends = np.cumsum(copies)
    for begin in range(0, int(ends[-1]) if len(ends) else 0, BATCH_ROWS):
        wanted = np.arange(begin, min(begin + BATCH_ROWS, int(ends[-1])))
        yield rows.take(pa.array(chosen[np.searchsorted(ends, wanted, side="right")]))


def _numbers(ids: pa.Array, chosen: Any) -> Any:
    return ids.take(pa.array(chosen)).to_numpy(zero_copy_only=False).astype(np.uint64)


def _row(
    written: str | None = None,
    rows: int = 0,
    replaced: int = 0,
    *,
    fragment: int | None = None,
    marks: bytes | None = None,
    missing: int = 0,
    repeated: bytes | None = None,
    error: bytes | None = None,
) -> pa.RecordBatch:
    values = (written, rows, replaced, fragment, marks, missing, repeated, error)
    row = dict(zip(_OUTCOME.names, values, strict=True))
    return pa.RecordBatch.from_pylist([row], schema=_OUTCOME)
