"""Writing Spark frames as Lance fragments, on the executors.

Owns: the function that an executor runs over its part of a frame, and what comes back from it.
Rows never pass through the driver: it sees the metadata of fragments, counts, and for rewritten
rows the addresses of the rows that they replace.

Nothing that is written here is visible: fragments belong to nobody until they are committed. A
task that runs twice leaves a fragment that nobody names, and garbage collection removes it. So a
result holds each row exactly once, whatever Spark had to repeat.

Rows are matched, converted and checked by `rows/inputs.py`, as on every other write path: columns
and types on the driver before anything runs, values in the tasks. What a task refuses comes back
as a row and is raised here as the error that it was; raising it in the task would make Spark repeat
the task and bury the error in a message.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelock.errors import TidelockError
from tidelock.model.names import is_hidden
from tidelock.model.schema.schema import TableSchema
from tidelock.model.time.zones import UTC, ZONE_SETTING
from tidelock.store.rows.batch_stream import BatchStream
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults
from tidelock.store.rows.inputs import read_input
from tidelock.store.spark.row_hashes import ROW_HASH, hash_sql
from tidelock.store.spark.scan import ROW_ADDRESS, ROW_ID, spark_schema, tasks_for
from tidelock.store.spark.sessions import could_not, engine_errors
from tidelock.store.tables.damage import is_of_the_store, unavailable
from tidelock.store.tables.file_sums import sum_on_executor
from tidelock.store.tables.lance_writer import write_rows

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
        pa.field("hashes", pa.int64()),
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
    defaults: Defaults = NO_DEFAULTS
    """What rows get that do not name a column."""
    hashed: bool = False
    """Whether the hashes of the rows are summed up on the way (row_hashes.py)."""


@dataclass(frozen=True)
class WrittenFragment:
    """One fragment that was written and not yet committed.

    `replaces` are the addresses of the rows that its rows take the place of, as packed
    little-endian unsigned 64-bit numbers in the order of the rows; empty for new rows.
    """

    json: str
    rows: int
    replaces: bytes = b""
    hashes: int = 0
    """The sum of the hashes of the rows of its part; the first fragment of a part tells it."""

    @property
    def metadata(self) -> FragmentMetadata:
        from lance.fragment import FragmentMetadata

        return FragmentMetadata.from_json(self.json)


def write_frame(
    frame: DataFrame, target: FrameTarget, *, rows_per_file: int = ROWS_PER_FILE
) -> list[WrittenFragment]:
    """Write the rows of `frame` as new fragments; none if it has no rows."""
    with _errors(frame, target):
        _check_columns(_arrow_schema(frame), target)
        target = replace(target, zone=frame.sparkSession.conf.get(ZONE_SETTING) or UTC)
        if target.hashed:
            frame = frame.selectExpr("*", f"{hash_sql(frame)} AS {ROW_HASH}")
        return _run(frame, partial(write_part, target=target, rows_per_file=rows_per_file))


def write_rewritten_frame(
    frame: DataFrame, target: FrameTarget, *, rows_per_file: int = ROWS_PER_FILE
) -> list[WrittenFragment]:
    """Write new contents of existing rows. `frame` has `_rowid` and `_rowaddr` besides the columns
    of the table; the rows keep their ids, and the addresses that they leave are handed back."""
    with _errors(frame, target):
        given = [field for field in _arrow_schema(frame) if field.name not in _ROW_NUMBERS]
        _check_columns(pa.schema(given), target)
        return _run(frame, partial(rewrite_part, target=target, rows_per_file=rows_per_file))


def _errors(frame: DataFrame, target: FrameTarget) -> AbstractContextManager[None]:
    """The engine that speaks is the frame's, which may not be the lake's."""
    if is_hidden(target.name):
        # A part of a stream table, whose name says nothing to anybody.
        return engine_errors(frame.sparkSession)
    doing = f"did not write its rows to table {target.name!r}"
    return engine_errors(frame.sparkSession, could_not(doing, table=target.name))


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    # With this zone every TIMESTAMP is an instant, which is all that the check looks at.
    return to_arrow_schema(frame.schema, timezone="UTC")


def _check_columns(given: pa.Schema, target: FrameTarget) -> None:
    """Names and types, by the rules of all writes, before a task starts."""
    rows = pa.RecordBatchReader.from_batches(given, [])
    read_input(rows, target.schema, target.name, defaults=target.defaults)


def _run(frame: DataFrame, write: Any) -> list[WrittenFragment]:
    tasks = tasks_for(frame.sparkSession, unknown=CORES_UNKNOWN)
    # Without a shuffle; a frame of fewer partitions stays as it is.
    joined = frame.coalesce(tasks * TASKS_PER_CORE)
    outcome = joined.mapInArrow(write, spark_schema(_OUTCOME)).toArrow()
    for failure in outcome.column("error").drop_null().to_pylist():
        raise pickle.loads(failure)
    return [
        WrittenFragment(row["fragment"], row["rows"], row["addresses"] or b"", row["hashes"])
        for row in outcome.to_pylist()
    ]


def write_part(
    batches: Iterator[pa.RecordBatch], *, target: FrameTarget, rows_per_file: int
) -> Iterator[pa.RecordBatch]:
    """On an executor: write one part of a frame."""
    hashes = 0

    def without_hashes() -> Iterator[pa.RecordBatch]:
        nonlocal hashes
        for batch in batches:
            # It goes around at 64 bits, as the sum that it is compared with does.
            hashes += int(batch.column(ROW_HASH).to_numpy().sum())
            yield batch.drop_columns([ROW_HASH])

    try:
        rows = without_hashes() if target.hashed else batches
        written = write_batches(rows, target, rows_per_file)
    except TidelockError as error:
        yield _outcome(error=pickle.dumps(error))
        return
    for fragment in written:
        yield _outcome(json.dumps(fragment.to_json()), fragment.physical_rows, hashes=_ring(hashes))
        hashes = 0


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
        written = write_batches(without_numbers(), target, rows_per_file)
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


def write_batches(
    batches: Iterator[pa.RecordBatch], target: FrameTarget, rows_per_file: int
) -> list[FragmentMetadata]:
    """On an executor: write rows as fragments that belong to no version yet."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return []
    # Imported here and not above: Lance must not be loaded before Spark's daemon forks.
    import lance

    rows = chain([first], filled)
    given = read_input(rows, target.schema, target.name, target.zone, target.defaults)
    source = BatchStream(given.batches())
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
    except Exception as error:
        if source.error is not None:
            raise source.error from None
        if is_of_the_store(error):
            raise unavailable(f"Lance could not write to {target.uri}", error) from error
        raise
    sum_on_executor(target.uri, target.storage_options, written)
    return written


def _outcome(
    fragment: str | None = None,
    rows: int = 0,
    addresses: bytes | None = None,
    error: bytes | None = None,
    hashes: int = 0,
) -> pa.RecordBatch:
    row = {
        "fragment": fragment,
        "rows": rows,
        "addresses": addresses,
        "hashes": hashes,
        "error": error,
    }
    return pa.RecordBatch.from_pylist([row], schema=_OUTCOME)


def _ring(number: int) -> int:
    """A number as one of 64 bits with a sign, to which it is equal modulo 2^64."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
