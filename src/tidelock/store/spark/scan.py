"""Reading a pinned table as a Spark DataFrame.

Owns: how the rows of one Lance version are divided over tasks, and the function that reads a part
of them on an executor. Columns and filters are applied by Lance, where the data is read.

Invariants: the parts cover every live row exactly once, whatever their sizes; a task holds a few
batches in memory, never a fragment. Only PySpark that Spark Connect has is used, and columns are
named by strings alone, because a process may hold sessions of both kinds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelock.store.spark.sessions import engine_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
ROW_ID_FIELDS = (
    pa.field(ROW_ID, pa.int64(), nullable=False),
    pa.field(ROW_ADDRESS, pa.int64(), nullable=False),
)
# Large enough that per-batch costs vanish, small enough that 1,000 columns still fit in memory.
BATCH_ROWS = 32_768
BATCH_BYTES_MAX = 64 << 20
# Below this many rows a further task costs more than it saves.
TASK_ROWS_MIN = 65_536
# Where the engine does not say how wide it is: a task per this many rows, up to a limit.
TASK_ROWS_UNKNOWN = 1 << 20
TASKS_MAX_UNKNOWN = 64
# A cut this close to the edge of a fragment moves to the edge, and saves opening the file twice.
EDGE_SNAP = 0.05


@dataclass(frozen=True)
class FragmentSlice:
    """Live rows of one fragment, by position: from `start` up to `stop`, `None` being its end."""

    fragment: int
    start: int = 0
    stop: int | None = None


@dataclass(frozen=True)
class FrameSource:
    """What an executor needs to read one pin: plain values, small enough to be sent along.

    `fragments` are (id, live rows).
    """

    uri: str
    version: int
    storage_options: Mapping[str, str] | None
    fragments: tuple[tuple[int, int], ...]
    schema: pa.Schema
    checksum: int = 0
    """Of its manifest; 0 if that is not known."""


def divide(
    fragments: Sequence[tuple[int, int]], tasks: int
) -> tuple[tuple[FragmentSlice, ...], ...]:
    """Parts of about equal size for up to `tasks` tasks, in the order of the fragments.

    `fragments` are (id, live rows). The last part of every fragment is open-ended, so that rows
    are never lost to a count that was off.
    """
    filled = [(fragment, rows) for fragment, rows in fragments if rows > 0]
    total = sum(rows for _, rows in filled)
    if not total:
        return ()
    groups: list[list[FragmentSlice]] = [[]]
    cuts = iter(_cuts([rows for _, rows in filled], total, tasks))
    cut = next(cuts, total)
    begin = 0
    for fragment, rows in filled:
        start = 0
        while begin + start < cut < begin + rows:
            groups[-1].append(FragmentSlice(fragment, start, cut - begin))
            start = cut - begin
            groups.append([])
            cut = next(cuts, total)
        groups[-1].append(FragmentSlice(fragment, start))
        begin += rows
        if begin == cut and begin < total:
            groups.append([])
            cut = next(cuts, total)
    return tuple(tuple(group) for group in groups)


def _cuts(rows: Sequence[int], total: int, tasks: int) -> list[int]:
    """Where to cut the sequence of all rows: evenly, but at the edge of a fragment that is near."""
    wanted = max(1, min(tasks, -(-total // TASK_ROWS_MIN)))
    near = total / wanted * EDGE_SNAP
    edges = [0]
    for count in rows:
        edges.append(edges[-1] + count)
    cuts: list[int] = []
    position = 0
    for task in range(1, wanted):
        ideal = total * task // wanted
        while position + 1 < len(edges) and edges[position + 1] <= ideal:
            position += 1
        nearest = min(edges[position : position + 2], key=lambda edge: abs(edge - ideal))
        cut = nearest if abs(nearest - ideal) <= near else ideal
        if 0 < cut < total and (not cuts or cut > cuts[-1]):
            cuts.append(cut)
    return cuts


def tasks_for(spark: SparkSession, unknown: int) -> int:
    """How many tasks the engine runs at once; `unknown` if it does not say."""
    for key in ("spark.sql.leafNodeDefaultParallelism", "spark.default.parallelism"):
        told = spark.conf.get(key, None)
        if told and told.isdigit():
            return int(told)
    return _local_cores(spark.conf.get("spark.master", None)) or unknown


def _local_cores(master: str | None) -> int | None:
    match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", master or "")
    if match is None:
        return None
    cores = match.group(1)
    return (os.cpu_count() or 1) if cores == "*" else int(cores or 1)


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark types of an Arrow schema, with its nullability and without its metadata."""
    from pyspark.sql.pandas.types import from_arrow_schema

    plain = pa.schema([field.remove_metadata() for field in schema])
    return from_arrow_schema(plain, prefer_timestamp_ntz=True)


def scan_frame(
    spark: SparkSession,
    source: FrameSource,
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,
    with_row_ids: bool = False,
    tasks: int | None = None,
) -> DataFrame:
    """One pin as a frame.

    `columns` prunes and orders, `None` being all of them; `filter` is in Lance's words.
    `with_row_ids` adds `_rowid` and `_rowaddr` as BIGINT.
    """
    with engine_errors(spark):
        return _scan(spark, source, columns, filter, with_row_ids, tasks)


def _scan(
    spark: SparkSession,
    source: FrameSource,
    columns: Sequence[str] | None,
    filter: str | None,
    with_row_ids: bool,
    tasks: int | None,
) -> DataFrame:
    names = list(source.schema.names if columns is None else columns)
    rows = sum(count for _, count in source.fragments)
    wide = max(2, min(TASKS_MAX_UNKNOWN, -(-rows // TASK_ROWS_UNKNOWN)))
    groups = divide(source.fragments, tasks or tasks_for(spark, unknown=wide))
    fields = [source.schema.field(name) for name in names]
    out = pa.schema([*fields, *(ROW_ID_FIELDS if with_row_ids else ())])
    counting = len(out) == 0
    if counting and (filter is None or not groups):
        # Nothing but the number of rows is asked for, and that is known.
        return spark.range(0, rows, 1, max(1, len(groups))).select()
    if not groups:
        return spark.createDataFrame(out.empty_table(), schema=spark_schema(out))
    if counting:
        out = pa.schema([pa.field("counted", pa.bool_(), nullable=False)])
    read: Any = partial(
        read_parts,
        uri=source.uri,
        version=source.version,
        storage_options=dict(source.storage_options) if source.storage_options else None,
        groups=[[(part.fragment, part.start, part.stop) for part in group] for group in groups],
        columns=names,
        filter=filter,
        with_row_ids=with_row_ids,
        schema=out,
        checksum=source.checksum,
    )
    # `range` gives exactly one row to each partition, so that every group is a task of its own.
    frame = spark.range(0, len(groups), 1, len(groups)).mapInArrow(read, spark_schema(out))
    return frame.select() if counting else frame


def read_parts(
    batches: Iterator[pa.RecordBatch],
    *,
    uri: str,
    version: int,
    storage_options: dict[str, str] | None,
    groups: Sequence[Sequence[tuple[int, int, int | None]]],
    columns: list[str],
    filter: str | None,
    with_row_ids: bool,
    schema: pa.Schema,
    checksum: int = 0,
) -> Iterator[pa.RecordBatch]:
    """On an executor: the rows of the groups whose numbers arrive in `batches`."""
    # Imported here and not above: Lance must not be loaded before Spark's daemon forks.
    from tidelock.store.spark.executor_reads import opened, reading
    from tidelock.store.tables.fragments import projection

    dataset = opened(uri, version, storage_options, checksum)
    names = projection(dataset, columns)
    for batch in batches:
        for group in batch.column(0).to_pylist():
            for fragment, start, stop in groups[group]:
                with reading(dataset, fragment, storage_options):
                    scanner = dataset.get_fragment(fragment).scanner(
                        columns=names,
                        batch_size=BATCH_ROWS,
                        batch_size_bytes=BATCH_BYTES_MAX,
                        with_row_id=with_row_ids or not columns,
                        with_row_address=with_row_ids,
                        **_range(fragment, start, stop, filter),
                    )
                    if columns or with_row_ids:
                        yield from (_conform(rows, schema) for rows in scanner.to_reader())
                    else:
                        yield from _count(scanner.count_rows(), schema)


def _range(fragment: int, start: int, stop: int | None, filter: str | None) -> dict[str, Any]:
    """How a scanner is told to read a part. Lance applies a limit after a filter, so that under a
    filter the part is given by row addresses instead: other rows, but again each exactly once."""
    if filter is None:
        return {"offset": start or None, "limit": None if stop is None else stop - start}
    base = fragment << 32
    bounds = [f"({filter})"]
    if start:
        bounds.append(f"{ROW_ADDRESS} >= {base + start}")
    if stop is not None:
        bounds.append(f"{ROW_ADDRESS} < {base + stop}")
    return {"filter": " AND ".join(bounds)}


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.types == schema.types and batch.schema.names == schema.names:
        return batch
    arrays = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _count(rows: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """So many rows of next to nothing: what a count needs."""
    for begin in range(0, rows, BATCH_ROWS):
        array = pa.repeat(False, min(BATCH_ROWS, rows - begin))
        yield pa.RecordBatch.from_arrays([array], schema=schema)
