"""Staging Spark frames: the executors write fragments, the driver stages what they wrote.

Owns: how a frame becomes an append, an upsert or an overwrite, and how an update or a delete that
only Spark can evaluate finds its rows. Rows stay on the executors; keys (for a small frame), row
ids and addresses come to the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from tidelock.model.names import quote
from tidelock.model.sql.expressions import Assignment
from tidelock.store.engine import Engine
from tidelock.store.lookup.by_key import match_keys, rows_by_id
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.lookup.wanted_keys import StagedKeys
from tidelock.store.operations.counts import ByColumnId, Counts, Target
from tidelock.store.operations.operations import (
    Append,
    Mutation,
    Overwrite,
    added_fragments,
    duplicate_key,
    key_present,
    refuse_present,
)
from tidelock.store.operations.upserts import split_of
from tidelock.store.rows.refusals import OFFENDERS_MAX
from tidelock.store.spark.assignment import stored_columns
from tidelock.store.spark.row_hashes import Digest
from tidelock.store.spark.scan import ROW_ADDRESS, ROW_ID, FrameSource, scan_frame
from tidelock.store.spark.sessions import could_not, engine_errors
from tidelock.store.spark.write import (
    FrameTarget,
    WrittenFragment,
    write_frame,
    write_rewritten_frame,
)
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.unique_keys import refuse_repeated
from tidelock.store.table import Table
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.file_sums import data_files
from tidelock.store.tables.fragments import Addresses, Dataset, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER_KEYS_MAX = 100_000
"""Up to this many rows, a frame's keys are looked up by the driver, through the key index."""


def append_frame(view: Table, staged: StagedTable, frame: DataFrame) -> int:
    """Stage the rows of a frame; returns how many."""
    return _append(view, staged, _write(view, staged, frame))


def stage_batch(view: Table, staged: StagedTable, frame: DataFrame, *, upsert: bool) -> Digest:
    """Stage the rows of a frame, by key or as new ones; returns what tells them from others."""
    target = replace(frame_target(view), defaults=staged.defaults, hashed=True)
    written = write_frame(frame, target)
    fragments = _fragments(view.files, view.state.id, written)
    if upsert:
        _upsert(view, staged, fragments)
    else:
        _append(view, staged, fragments)
    return Digest(_rows(fragments), sum(one.hashes for one in written))


def _append(view: Table, staged: StagedTable, fragments: list[FragmentMetadata]) -> int:
    if not fragments:
        return 0
    if not staged.schema.key:
        staged.add(Append(fragments=fragments))
        return _rows(fragments)
    source = _Source.of(view, staged.target, fragments)
    source.refuse_duplicates()
    source.refuse_present_in(view.dataset)
    staged.add(Append(fragments=fragments, keys=[source.keys], checked_pin=view.dataset.version))
    return _rows(fragments)


def overwrite_frame(view: Table, staged: StagedTable, frame: DataFrame) -> int:
    """Stage the rows of a frame in the place of all that are there; returns how many come."""
    fragments = _write(view, staged, frame)
    if fragments and staged.schema.key:
        _Source.of(view, staged.target, fragments).refuse_duplicates()
    staged.add(Overwrite(fragments))
    return _rows(fragments)


def _rows(fragments: Sequence[FragmentMetadata]) -> int:
    return sum(fragment.physical_rows for fragment in fragments)


def upsert_frame(view: Table, staged: StagedTable, frame: DataFrame) -> None:
    _upsert(view, staged, _write(view, staged, frame))


def _upsert(view: Table, staged: StagedTable, fragments: list[FragmentMetadata]) -> None:
    if fragments:
        _Source.of(view, staged.target, fragments).refuse_duplicates()
        staged.add(FrameUpsert(fragments, view.engine))


def _write(view: Table, staged: StagedTable, frame: DataFrame) -> list[FragmentMetadata]:
    target = replace(frame_target(view), defaults=staged.defaults)
    return _fragments(view.files, view.state.id, write_frame(frame, target))


def _fragments(
    files: TableFiles, table_id: str, written: Sequence[WrittenFragment]
) -> list[FragmentMetadata]:
    """What executors wrote; they have kept its checksums."""
    fragments = [one.metadata for one in written]
    files.sums.note(table_id, data_files(fragments))
    return fragments


def frame_target(view: Table) -> FrameTarget:
    return FrameTarget(
        uri=view.path,
        version=view.dataset.version,
        storage_options=view.files.location.lance_options,
        schema=view.schema,
        name=view.name,
    )


@dataclass(frozen=True)
class _Source:
    """Rows that executors wrote, readable in a pin that only this transaction knows."""

    files: TableFiles
    engine: Engine
    target: Target
    dataset: Dataset
    own: tuple[int, ...]

    @classmethod
    def of(cls, view: Table, target: Target, fragments: Sequence[FragmentMetadata]) -> _Source:
        dataset = view.files.append(target.id, view.dataset, fragments)
        own = tuple(added_fragments(view.dataset, dataset))
        return cls(view.files, view.engine, target, dataset, own)

    @property
    def rows(self) -> int:
        return sum(self.dataset.get_fragment(one).count_rows() for one in self.own)

    @property
    def keys(self) -> StagedKeys:
        return StagedKeys(self.dataset, self.own, self.target.key)

    def frame(self, columns: Sequence[str] | None = None, ids: Iterable[int] | None = None) -> Any:
        """The rows of some fragments as a frame, with their ids and addresses."""
        chosen = self.own if ids is None else tuple(ids)
        source = FrameSource(
            uri=self.files.uri(self.target.id),
            version=self.dataset.version,
            storage_options=self.files.location.lance_options,
            fragments=tuple((one, self.dataset.get_fragment(one).count_rows()) for one in chosen),
            schema=self.target.schema.arrow,
            checksum=self.files.checksum(self.target.id, self.dataset),
        )
        return scan_frame(self.engine.get(), source, columns=columns, with_row_ids=True)

    def refuse_duplicates(self) -> None:
        """DuplicateKey when a key occurs twice among these rows."""
        target = self.target
        if self.rows <= DRIVER_KEYS_MAX:
            refuse_repeated(target, self.keys)
            return
        names = [quote(name) for name in target.key]
        counted = self.frame(target.key).groupBy(*names).count().where("count > 1")
        first, count = _first(counted.select(*names), target)
        if count:
            raise duplicate_key(target, first, count, "occurs more than once in the input")

    def refuse_present_in(self, base: Dataset) -> None:
        """DuplicateKey when one of these keys is in the table already."""
        target = self.target
        if self.rows <= DRIVER_KEYS_MAX:
            refuse_present(target, base, self.keys)
            return
        if not base.count_rows():
            return
        names = [quote(name) for name in target.key]
        existing = self.frame(target.key, ids=_ids(base)).select(*names)
        new = self.frame(target.key).select(*names)
        first, count = _first(new.join(existing, on=target.key, how="left_semi"), target)
        if count:
            raise key_present(target, first, count)


def refuse_colliding(
    view: Table,
    staged: StagedTable,
    fragments: Sequence[FragmentMetadata],
    leaving: Addresses,
) -> StagedKeys:
    """The keys of rows that come. DuplicateKey if two of them have the same, or one has that of a
    row that stays."""
    target = staged.target
    dataset = view.files.replace_rows(target.id, view.dataset, leaving, fragments)
    own = tuple(added_fragments(view.dataset, dataset))
    source = _Source(view.files, view.engine, target, dataset, own)
    source.refuse_duplicates()
    told = "would occur more than once after this statement"
    if source.rows <= DRIVER_KEYS_MAX:
        match = match_keys(view.dataset, source.keys)
        others = ~is_among(match.addresses, np.sort(leaving))
        if others.any():
            taken = source.keys.take(np.sort(match.positions[others])[:OFFENDERS_MAX])
            raise duplicate_key(target, taken, int(others.sum()), told)
        return source.keys
    names = [quote(name) for name in target.key]
    staying = source.frame(target.key, ids=set(_ids(dataset)) - set(own)).select(*names)
    new = source.frame(target.key).select(*names)
    first, count = _first(new.join(staying, on=target.key, how="left_semi"), target)
    if count:
        raise duplicate_key(target, first, count, told)
    return source.keys


def _first(keys: Any, target: Target) -> tuple[pa.Table, int]:
    """The first of some keys, and how many there are, which is only counted if there are any."""
    with query_failures(keys.sparkSession, target.name):
        first = keys.limit(OFFENDERS_MAX).toArrow()
        return first, keys.count() if first.num_rows else 0


@dataclass
class FrameUpsert(ByColumnId):
    """Rows that executors wrote; those whose key is in the table replace the row that is there.

    The fragments are appended as they are. Rows that replace others are written once more, with
    the ids that they take over, and taken out of the fragments they came in.
    """

    fragments: list[FragmentMetadata]
    engine: Engine
    survives_data_changes: bool = True
    split: bytes = b""

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        dataset = files.append(target.id, base, self.fragments)
        source = _Source(files, self.engine, target, dataset, tuple(added_fragments(base, dataset)))
        pairs = _matches(source, base)
        rows = source.rows
        rewritten = _rewrite_matched(source, pairs) if pairs is not None else []
        replaced = sum(one.rows for one in rewritten)
        counts.updated += replaced
        counts.inserted += rows - replaced
        if not replaced:
            self.split = split_of(np.array([], dtype=np.int64))
            return dataset
        ids, moved = _ids_and_addresses(rewritten)
        self.split = split_of(_places(source.own, moved))
        removed = np.concatenate([rows_by_id(base, ids), moved])
        added = _fragments(files, target.id, rewritten)
        return files.replace_rows(target.id, dataset, removed, added)


def _matches(source: _Source, base: Dataset) -> Any:
    """A frame of (address of a source row, id of the row it replaces); None when there is none."""
    target = source.target
    if source.rows <= DRIVER_KEYS_MAX:
        keys = source.dataset.scanner(
            columns=target.key,
            fragments=[source.dataset.get_fragment(one) for one in source.own],
            with_row_address=True,
        ).to_table()
        match = match_keys(base, keys.select(target.key))
        if not len(match):
            return None
        moved = numbers(keys.column(ROW_ADDRESS))[match.positions]
        pairs = pa.table(
            {ROW_ADDRESS: moved.astype(np.int64), "_replaced": match.row_ids.astype(np.int64)}
        )
        session = source.engine.get()
        with engine_errors(session):
            return session.createDataFrame(pairs)
    if not base.count_rows():
        return None
    names = [quote(name) for name in target.key]
    existing = source.frame(target.key, ids=_ids(base)).withColumnRenamed(ROW_ID, "_replaced")
    new = source.frame(target.key).select(*names, ROW_ADDRESS)
    joined = new.join(existing.select(*names, "_replaced"), on=target.key, how="inner")
    return joined.select(ROW_ADDRESS, "_replaced")


def _places(own: Sequence[int], addresses: Addresses) -> npt.NDArray[np.int64]:
    """Where rows are, by the number of their fragment among these, and not by its id, which is
    another on every base."""
    numbered = np.searchsorted(np.array(sorted(own)), (addresses >> np.uint64(32)).astype(np.int64))
    return np.sort((numbered << 32) + (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64))


def _rewrite_matched(source: _Source, pairs: Any) -> list[WrittenFragment]:
    names = [quote(name) for name in source.target.schema.names]
    rows = source.frame().drop(ROW_ID).join(pairs, on=ROW_ADDRESS, how="inner")
    rows = rows.withColumnRenamed("_replaced", ROW_ID).select(*names, ROW_ID, ROW_ADDRESS)
    target = FrameTarget(
        uri=source.files.uri(source.target.id),
        version=source.dataset.version,
        storage_options=source.files.location.lance_options,
        schema=source.target.schema,
        name=source.target.name,
    )
    return write_rewritten_frame(rows, target)


def update_on_spark(
    view: Table, assignments: Sequence[Assignment], where: str | None
) -> Mutation | None:
    """Evaluate new values on the executors, which write the rows under the ids that they have."""
    session = view.engine.get()
    frame = scan_frame(session, view.source(), with_row_ids=True)
    assigned = {one.column.name: one.sql for one in assignments}
    with query_failures(session, view.name):
        frame = frame.alias(view.name)
        if where is not None:
            frame = frame.where(where)
        frame = frame.selectExpr(
            *[_select(name, assigned.get(name)) for name in view.schema.names],
            ROW_ID,
            ROW_ADDRESS,
        )
        return rewrite_rows(view, frame, assigned)


def _select(name: str, value: str | None) -> str:
    return quote(name) if value is None else f"({value}) AS {quote(name)}"


def rewrite_rows(view: Table, frame: DataFrame, assigned: Mapping[str, str]) -> Mutation | None:
    """Write other contents of rows that are there, under the ids that they have; None for no rows.

    `frame` has the columns of the table, ROW_ID and ROW_ADDRESS. `assigned` are the columns that
    have new values, of any type, and what these were made from.
    """
    with query_failures(frame.sparkSession, view.name):
        stored = frame.selectExpr(
            *stored_columns(frame, view.schema, view.name, assigned), ROW_ID, ROW_ADDRESS
        )
        written = write_rewritten_frame(stored, frame_target(view))
    if not written:
        return None
    row_ids, addresses = _ids_and_addresses(written)
    fragments = _fragments(view.files, view.state.id, written)
    return Mutation(row_ids, addresses, fragments, view.dataset.version)


def find_rows(view: Table, where: str) -> tuple[Addresses, Addresses]:
    """The ids and addresses of the rows for which a condition of Spark's is true."""
    columns = list(view.condition(where).columns)
    session = view.engine.get()
    frame = scan_frame(session, view.source(), columns=columns, with_row_ids=True)
    with query_failures(session, view.name):
        return numbers_of(view, frame.alias(view.name).where(where))


def numbers_of(view: Table, frame: DataFrame) -> tuple[Addresses, Addresses]:
    """The ids and addresses of the rows of a frame, which has ROW_ID and ROW_ADDRESS."""
    with query_failures(frame.sparkSession, view.name):
        found = frame.select(ROW_ID, ROW_ADDRESS).toArrow()
    return (
        numbers(found.column(ROW_ID)).astype(np.uint64),
        numbers(found.column(ROW_ADDRESS)).astype(np.uint64),
    )


def _ids_and_addresses(written: Sequence[WrittenFragment]) -> tuple[Addresses, Addresses]:
    ids = [
        numbers(RowIdSequence.from_inline_metadata(one.metadata.row_id_meta).to_pyarrow())
        for one in written
    ]
    addresses = [np.frombuffer(one.replaces, dtype="<u8") for one in written]
    return np.concatenate(ids).astype(np.uint64), np.concatenate(addresses).astype(np.uint64)


def _ids(dataset: Dataset) -> list[int]:
    return [fragment.fragment_id for fragment in dataset.get_fragments()]


def query_failures(session: SparkSession, table: str) -> AbstractContextManager[None]:
    """What the engine raises while a query runs becomes the error of our tree."""
    doing = f"could not evaluate the expression on table {table!r}"
    return engine_errors(session, could_not(doing, " Nothing was written.", table=table))
