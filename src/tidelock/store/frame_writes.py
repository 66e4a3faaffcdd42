"""Writing Spark frames as Lance fragments, on the executors.

Owns: the function that an executor runs over its part of a frame, and what comes back from it.
Rows never pass through the driver: it sees the metadata of fragments, counts, and for rewritten
rows the addresses of the rows that they replace.

Nothing that is written here is visible: fragments belong to nobody until they are committed. A
task that runs twice leaves a fragment that nobody names, and garbage collection removes it. So a
result holds each row exactly once, whatever Spark had to repeat.

Rows are matched, converted and checked by `store/inputs.py`, as on every other write path: columns
and types on the driver before anything runs, values in the tasks. What a task refuses comes back
as a row and is raised here as the error that it was; raising it in the task would make Spark repeat
the task and bury the error in a message.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelock.errors import QueryFailed, TidelockError
from tidelock.model.schema import TableSchema
from tidelock.model.zones import UTC, ZONE_SETTING
from tidelock.store.frames import ROW_ADDRESS, ROW_ID, spark_schema, tasks_for
from tidelock.store.inputs import read_input
from tidelock.store.lance_input import Watched, write_rows
from tidelock.store.sums import sum_on_executor

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata
    from pyspark.sql import DataFrame

ROWS_PER_FILE = 1 << 20
# Partitions beyond this many per core are joined, so that many small ones do not become as many
# fragments; below it tasks still even out.
TASKS_PER_CORE = 2
CORES_UNKNOWN = 64
_OUTCOME = pa.schema(
    [
        pa.field("fragment", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("addresses", pa.binary()),
        pa.field("error", pa.binary()),
    ]
)
_ROW_NUMBERS = (ROW_ID, ROW_ADDRESS)


@dataclass(frozen=True)
class FrameTarget:
    """Where a frame is written: the pin that it goes onto, as plain values."""

    uri: str
    version: int
    storage_options: Mapping[str, str] | None
    schema: TableSchema
    name: str
    zone: str = UTC
    """The time zone of the frame's session, in which times without a zone are read."""


@dataclass(frozen=True)
class WrittenFragment:
    """One fragment that was written and not yet committed.

    `replaces` are the addresses of the rows that its rows take the place of, as packed
    little-endian unsigned 64-bit numbers in the order of the rows; empty for new rows.
    """

    json: str
    rows: int
    replaces: bytes = b""

    @property
    def metadata(self) -> FragmentMetadata:
        from lance.fragment import FragmentMetadata

        return FragmentMetadata.from_json(self.json)


def write_frame(
    frame: DataFrame, target: FrameTarget, *, rows_per_file: int = ROWS_PER_FILE
) -> list[WrittenFragment]:
    """Write the rows of `frame` as new fragments; none if it has no rows."""
    _check_columns(_arrow_schema(frame), target)
    target = replace(target, zone=frame.sparkSession.conf.get(ZONE_SETTING) or UTC)
    return _run(frame, partial(write_part, target=target, rows_per_file=rows_per_file), target)


def write_rewritten_frame(
    frame: DataFrame, target: FrameTarget, *, rows_per_file: int = ROWS_PER_FILE
) -> list[WrittenFragment]:
    """Write new contents of existing rows. `frame` has `_rowid` and `_rowaddr` besides the columns
    of the table; the rows keep their ids, and the addresses that they leave are handed back."""
    given = _arrow_schema(frame)
    _check_columns(pa.schema([field for field in given if field.name not in _ROW_NUMBERS]), target)
    return _run(frame, partial(rewrite_part, target=target, rows_per_file=rows_per_file), target)


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    # With this zone every TIMESTAMP is an instant, which is all that the check looks at.
    return to_arrow_schema(frame.schema, timezone="UTC")


def _check_columns(given: pa.Schema, target: FrameTarget) -> None:
    """Names and types, by the rules of all writes, before a task starts."""
    read_input(pa.RecordBatchReader.from_batches(given, []), target.schema, target.name)


def _run(frame: DataFrame, write: Any, target: FrameTarget) -> list[WrittenFragment]:
    from pyspark.errors import PySparkException

    try:
        tasks = tasks_for(frame.sparkSession, unknown=CORES_UNKNOWN)
        # Without a shuffle; a frame of fewer partitions stays as it is.
        joined = frame.coalesce(tasks * TASKS_PER_CORE)
        outcome = joined.mapInArrow(write, spark_schema(_OUTCOME)).toArrow()
    except PySparkException as error:
        # Imported here and not above: Lance must not be loaded before Spark's daemon forks.
        from tidelock.store.executor_reads import told_by_worker

        known = told_by_worker(error)
        if known is not None:
            raise known from error
        raise QueryFailed(
            f"Spark did not write its rows to table {target.name!r}: {gist(error)}",
            table=target.name,
        ) from error
    for failure in outcome.column("error").drop_null().to_pylist():
        raise pickle.loads(failure)
    return [
        WrittenFragment(row["fragment"], row["rows"], row["addresses"] or b"")
        for row in outcome.to_pylist()
    ]


def gist(error: BaseException) -> str:
    """The line of Spark's long messages that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # Of an error in a task, the first line says only that there was one.
    in_task = "Python worker" in lines[0] or "Job aborted" in lines[0]
    return lines[-1] if in_task else lines[0]


def write_part(
    batches: Iterator[pa.RecordBatch], *, target: FrameTarget, rows_per_file: int
) -> Iterator[pa.RecordBatch]:
    """On an executor: write one part of a frame."""
    try:
        written = _write(batches, target, rows_per_file)
    except TidelockError as error:
        yield _outcome(error=pickle.dumps(error))
        return
    for fragment in written:
        yield _outcome(json.dumps(fragment.to_json()), fragment.physical_rows)


def rewrite_part(
    batches: Iterator[pa.RecordBatch], *, target: FrameTarget, rows_per_file: int
) -> Iterator[pa.RecordBatch]:
    """On an executor: write one part of a frame whose rows keep their ids."""
    # Imported here and not above: Lance must not be loaded before Spark's daemon forks.
    from lance.fragment import RowIdSequence

    numbers: dict[str, list[pa.Array]] = {name: [] for name in _ROW_NUMBERS}

    def without_numbers() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in _ROW_NUMBERS:
                # Not a view: a view would keep the whole batch in memory.
                numbers[name].append(pa.concat_arrays([batch.column(name)]).cast(pa.uint64()))
            yield batch.drop_columns(list(_ROW_NUMBERS))

    try:
        written = _write(without_numbers(), target, rows_per_file)
    except TidelockError as error:
        yield _outcome(error=pickle.dumps(error))
        return
    ids, addresses = (pa.chunked_array(numbers[name], pa.uint64()) for name in _ROW_NUMBERS)
    begin = 0
    for fragment in written:
        rows = fragment.physical_rows
        fragment.row_id_meta = RowIdSequence(ids.slice(begin, rows)).to_inline_metadata()
        replaced = addresses.slice(begin, rows).to_numpy().astype("<u8").tobytes()
        yield _outcome(json.dumps(fragment.to_json()), rows, replaced)
        begin += rows


def _write(
    batches: Iterator[pa.RecordBatch], target: FrameTarget, rows_per_file: int
) -> list[FragmentMetadata]:
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return []
    # Imported here and not above: Lance must not be loaded before Spark's daemon forks.
    import lance

    given = read_input(chain([first], filled), target.schema, target.name, target.zone)
    source = Watched(given.batches())
    options = dict(target.storage_options) if target.storage_options else None
    dataset = lance.dataset(target.uri, version=target.version, storage_options=options)
    try:
        written = write_rows(
            source,
            target.schema.arrow,
            dataset,
            rows_per_file=rows_per_file,
            storage_options=options,
        )
    except Exception:
        if source.error is not None:
            raise source.error from None
        raise
    sum_on_executor(target.uri, target.storage_options, written)
    return written


def _outcome(
    fragment: str | None = None,
    rows: int = 0,
    addresses: bytes | None = None,
    error: bytes | None = None,
) -> pa.RecordBatch:
    row = {"fragment": fragment, "rows": rows, "addresses": addresses, "error": error}
    return pa.RecordBatch.from_pylist([row], schema=_OUTCOME)
