"""Feeds: what there is to deliver of one table at one version, in the order of its positions.

Owns: the rows, their positions, and the columns that are added to them. Positions are told without
opening a data file.

    inserts    rows that are in the table, by their sequence: what was inserted and is still there,
               with the values that it has at this version. Updates and deletions are not carried.
    changes    every change of every commit: inserted and deleted rows, and updated ones twice, as
               they were and as they are, each with its operation and version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidelock.deliver.feeds.eras import Divided, divided_by, schema_at, sent_columns
from tidelock.deliver.feeds.row_pairs import PairedChanges
from tidelock.model.history.commit import BranchRef, TableChange, TableState
from tidelock.model.names import is_hidden
from tidelock.model.positions import end_of, position_of, version_of
from tidelock.model.sinks import Chunk, SentColumn, SinkDefinition
from tidelock.store.log.table_changes import changes_of
from tidelock.store.lookup.by_sequence import (
    SEQUENCE,
    Ids,
    Stretch,
    find_stretches,
    newest_fragment,
    read_rows,
    sequences_in,
)
from tidelock.store.store import Store

Positioned = tuple[pa.RecordBatch, Ids]

OPERATION = pa.field("_op", pa.string(), nullable=False)
VERSION = pa.field("_version", pa.int64(), nullable=False)
SEQUENCED = pa.field(SEQUENCE, pa.int64(), nullable=False)


class RowFeed(Protocol):
    """What is after a position, up to the newest."""

    schema: pa.Schema
    columns: tuple[SentColumn, ...]
    divided: Divided
    """What the columns are called that divide the rows."""
    newest: int
    fragment: int

    def positions(self, after: int, until: int) -> Iterator[Ids]:
        """The positions in (after, until], in order; a position repeats for each of its rows."""

    def read(self, after: int, until: int) -> Iterator[Positioned]:
        """The rows in (after, until], in order, with their positions."""


def open_feed(
    store: Store,
    definition: SinkDefinition,
    branch: BranchRef,
    version: int,
    after: int,
    newer_than: int = -1,
    shown: int = 0,
) -> RowFeed:
    """What a sink has still to deliver after a position, as of a version of the lake.

    `shown` is the version whose columns changes are given, if that is a later one.
    """
    state = _table_at(store, definition, branch, version)
    if definition.feed == "inserts":
        return InsertFeed(store, definition, state, after, newer_than)
    like = state if shown <= version else _table_at(store, definition, branch, shown)
    return ChangeFeed(store, definition, branch, state, after, like)


def _table_at(
    store: Store, definition: SinkDefinition, branch: BranchRef, version: int
) -> TableState:
    tables = store.log.tables_at(branch, version)
    return next(state for state in tables.states() if state.id == definition.table_id)


class InsertFeed:
    """The rows of a table at one version, by their sequence."""

    def __init__(
        self,
        store: Store,
        definition: SinkDefinition,
        state: TableState,
        after: int,
        newer_than: int,
    ) -> None:
        self._dataset = store.files.read(state)
        schema = schema_at(store, state)
        self.columns = sent_columns(schema)
        self.divided = divided_by(definition, schema)
        self._state = state
        self._files = store.files
        self._columns = [name for name in self._dataset.schema.names if not is_hidden(name)]
        fields = [self._dataset.schema.field(name) for name in self._columns]
        self.schema = pa.schema([*fields, SEQUENCED])
        self._stretches: tuple[Stretch, ...] = find_stretches(self._dataset, after, newer_than)
        self.newest = self._stretches[-1].last if self._stretches else after
        self.fragment = newest_fragment(self._dataset)

    def positions(self, after: int, until: int) -> Iterator[Ids]:
        for stretch in self._stretches:
            if stretch.last > after and stretch.first <= until:
                yield sequences_in(self._dataset, stretch, after, until)

    def read(self, after: int, until: int) -> Iterator[Positioned]:
        with self._files.reading(self._state):
            for batch in read_rows(self._dataset, self._stretches, after, until, self._columns):
                yield batch, batch.column(SEQUENCE).to_numpy()


class ChangeFeed:
    """The changes of every commit up to one version, by version and ordinal."""

    def __init__(
        self,
        store: Store,
        definition: SinkDefinition,
        branch: BranchRef,
        state: TableState,
        after: int,
        like: TableState,
    ) -> None:
        """`like` is the table with the columns that rows are given."""
        self._store = store
        self._state = state
        self._last: tuple[int, PairedChanges] | None = None
        """What was read last: a large commit is read in many parts."""
        self._shown = store.files.read(like)
        schema = schema_at(store, like)
        self.columns = sent_columns(schema)
        self.divided = divided_by(definition, schema)
        self._columns = [name for name in self._shown.schema.names if not is_hidden(name)]
        fields = [self._shown.schema.field(name) for name in self._columns]
        if like.schema:
            # What a row was before the columns were altered may be NULL where it may not be now.
            fields = [field.with_nullable(True) for field in fields]
            self.columns = tuple(replace(one, nullable=True) for one in self.columns)
        self.schema = pa.schema([*fields, OPERATION, VERSION, SEQUENCED])
        self.fragment = newest_fragment(store.files.read(state))
        self._changes = self._find(definition, branch, state, version_of(after + 1) - 1)
        self.newest = max(after, end_of(self._changes[-1][0])) if self._changes else after
        if self._changes and self._changes[0][1].before is not None:
            # SnapshotExpired, here and not half-way, when what is to be read is gone.
            store.files.read(self._changes[0][1].before)

    def _find(
        self, definition: SinkDefinition, branch: BranchRef, state: TableState, since: int
    ) -> list[tuple[int, TableChange]]:
        first = definition.snapshot
        since = since if first is None else max(since, first - 1)
        log = self._store.log
        changes = list(reversed(list(changes_of(log, branch, state.id, state.changed, since))))
        if first is not None and since < first:
            # What was there when the sink was made comes first, as if it had come all at once.
            then = log.tables_at(branch, first).same(state)
            assert then is not None
            changes = [(version, change) for version, change in changes if version > first]
            changes.insert(0, (first, TableChange(None, then, inserted=then.rows)))
        return changes

    def positions(self, after: int, until: int) -> Iterator[Ids]:
        for version, changes in self._commits(after, until):
            positions = position_of(version, 0) + changes.ordinals()
            yield positions[(positions > after) & (positions <= until)]

    def read(self, after: int, until: int) -> Iterator[Positioned]:
        for version, changes in self._commits(after, until):
            base = position_of(version, 0)
            for batch, ordinals in changes.read(self._columns, after - base, until - base):
                versions = pa.array(np.full(batch.num_rows, version, dtype=np.int64))
                columns = [*batch.columns[:-1], versions, batch.columns[-1]]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema), base + ordinals

    def _commits(self, after: int, until: int) -> Iterator[tuple[int, PairedChanges]]:
        files = self._store.files
        for version, change in self._changes:
            if end_of(version) <= after or position_of(version, 0) > until:
                continue
            if self._last is None or self._last[0] != version:
                before = change.before and files.read(change.before)
                now = change.after and files.read(change.after)
                read = files.reader(change.table_id)
                self._last = (
                    version,
                    PairedChanges(read, before, now, self._shown, may_have_moved=change.adopted),
                )
            with files.reading(change.before, change.after):
                yield self._last


def cut(positions: Iterable[Ids], after: int, end: int, rows_per_chunk: int) -> Iterator[Chunk]:
    """Chunks of at most so many rows that cover (after, end] without gaps."""
    rows = 0
    begin = after
    until = after
    for batch in positions:
        start = 0
        while start < len(batch):
            if rows >= rows_per_chunk:
                yield Chunk(begin, until, rows)
                begin, rows = until, 0
            stop = _whole(batch, start, min(len(batch), start + rows_per_chunk - rows))
            if stop == start and rows:
                yield Chunk(begin, until, rows)
                begin, rows = until, 0
                continue
            if stop == start:
                # One row at a time is too few for an update, which has two.
                stop += 2
            rows += stop - start
            until = int(batch[stop - 1])
            start = stop
    if rows:
        yield Chunk(begin, end, rows)


def _whole(batch: Ids, start: int, stop: int) -> int:
    """Where to end so that the two rows of an update stay together."""
    if start < stop < len(batch) and batch[stop - 1] == batch[stop]:
        return stop - 1
    return stop


def by_chunk(
    rows: Iterator[Positioned], chunks: Sequence[Chunk]
) -> Iterator[tuple[Chunk, Iterator[pa.RecordBatch]]]:
    """A stream of rows, divided at the chunks' ends. Each chunk is read before the next."""
    held: list[Positioned] = []

    def of(chunk: Chunk) -> Iterator[pa.RecordBatch]:
        while True:
            if held:
                batch, positions = held.pop()
            else:
                following = next(rows, None)
                if following is None:
                    return
                batch, positions = following
            stop = int(np.searchsorted(positions, chunk.until, side="right"))
            if stop < len(positions):
                held.append((batch.slice(stop), positions[stop:]))
                if stop:
                    yield batch.slice(0, stop)
                return
            yield batch

    for chunk in chunks:
        reader = of(chunk)
        yield chunk, reader
        for _ in reader:
            # A reader that did not come to the end of a chunk has not sent it: skip to the next.
            continue
