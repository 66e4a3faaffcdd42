"""Maintenance: commits that change pins and no row.

Owns: folding small fragments, compaction, and the upkeep of indexes: of the key, and of the columns
by which rules look for rows. Rows keep their ids.
Invariants: the rows of a table are the same multiset before and after; a maintenance commit never
makes a writer's commit fail, and writers never starve it: rows that were deleted from a fragment
while it was being rewritten are deleted from the new one when it is published.
After a crash: what was rewritten and not published is garbage.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import lance
import numpy as np
from lance.fragment import FragmentMetadata

from tidelock.errors import CommitConflict
from tidelock.model.history.commit import BranchRef, Commit, TableChange, TableState
from tidelock.store.changes.changes import live_row_ids
from tidelock.store.log.line import Line
from tidelock.store.log.log import Head
from tidelock.store.log.operation_ids import new_operation_id
from tidelock.store.log.pending import Pending
from tidelock.store.objects.failpoints import hit
from tidelock.store.operations.counts import ByColumnId, Counts, Target
from tidelock.store.operations.operations import Operation
from tidelock.store.parts import Parts
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.table import Table
from tidelock.store.tables.damage import is_failure
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset, data_file, with_plain_paths
from tidelock.store.tables.indexes import IndexSegment, index_segments
from tidelock.store.tables.labelled import column_ids
from tidelock.store.tables.lance_writer import ROWS_PER_FILE_MAX
from tidelock.store.upkeep.fold_plan import (
    INDEX_ROWS_MIN,
    FragmentSize,
    SegmentSize,
    fold_is_due,
    is_backlogged,
    is_overdue,
    may_be_due,
    plan_compaction,
    plan_fold,
    plan_segment,
)
from tidelock.store.upkeep.rewrite import Rewritten, rewrite, rewrite_on_spark

logger = logging.getLogger("tidelock")

INDEX_NAME = "tidelock_key"
FOLD_LOCKS = 64
LOOK_ROWS = 4096
"""Where it takes a request to look at an index, commits of fewer rows leave that to folding."""
CLAIM_SECONDS_MAX = 1.0
"""How long maintenance waits for a moment in which nobody stages the table."""
CLAIM_SECONDS_NEAR = 0.02
"""The same where it costs little to be staged again: fragments that wait cost every commit more."""


@dataclass
class Compaction(ByColumnId):
    """Put rewritten fragments in the place of the old ones."""

    groups: list[Rewritten]
    survives_data_changes: bool = True

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        present = {data_file(f.metadata): f for f in base.get_fragments()}
        # Fragments that another process rewrote meanwhile are left to it; the rest goes on.
        groups = [group for group in self.groups if any(p in present for p in group.paths)]
        if not groups:
            raise CommitConflict(
                f"Another process maintained table {target.name!r} first.",
                table=target.name,
                expected=None,
                actual=base.version,
            )
        operations = [
            lance.LanceOperation.RewriteGroup(
                [
                    with_plain_paths(present[path].metadata)
                    for path in group.paths
                    if path in present
                ],
                list(group.fragments),
            )
            for group in groups
        ]
        stale = [_stale_offsets(base, present, group) for group in groups]
        dataset = files.commit(target.id, base, lance.LanceOperation.Rewrite(operations, []))
        if any(len(offsets) for offsets in stale):
            dataset = _delete_stale(files, target, dataset, groups, stale)
        return dataset


def _stale_offsets(
    base: Dataset, present: dict[str, lance.LanceFragment], group: Rewritten
) -> Addresses:
    """Positions among a group's rewritten rows of those that no longer live where they were."""
    kept = [present[path] for path in group.paths if path in present]
    whole = len(kept) == len(group.paths)
    if whole and tuple(fragment.num_deletions for fragment in kept) == group.deletions:
        return np.array([], dtype=np.uint64)
    live = [live_row_ids(base, fragment.fragment_id) for fragment in kept]
    return np.flatnonzero(~np.isin(group.row_ids, np.concatenate(live))).astype(np.uint64)


def _delete_stale(
    files: TableFiles,
    target: Target,
    dataset: Dataset,
    groups: Sequence[Rewritten],
    stale: Sequence[Addresses],
) -> Dataset:
    ids = {data_file(f.metadata): f.fragment_id for f in dataset.get_fragments()}
    addresses = []
    for group, offsets in zip(groups, stale, strict=True):
        owners = np.array([ids[data_file(fragment)] for fragment in group.fragments], np.uint64)
        ends = np.cumsum([fragment.physical_rows for fragment in group.fragments], dtype=np.uint64)
        places = np.searchsorted(ends, offsets, side="right")
        starts = np.concatenate([np.zeros(1, dtype=np.uint64), ends])[places]
        addresses.append((owners[places] << np.uint64(32)) | (offsets - starts))
    return files.replace_rows(target.id, dataset, np.concatenate(addresses), [])


@dataclass
class IndexSegments(ByColumnId):
    """Add segments to indexes, in the place of those that they replace."""

    added: list[lance.Index]
    replaced: list[str]
    covered: dict[str, int]
    columns: tuple[str, ...]
    survives_data_changes: bool = True

    def apply(self, files: TableFiles, target: Target, base: Dataset, counts: Counts) -> Dataset:
        present = {data_file(f.metadata): f.fragment_id for f in base.get_fragments()}
        moved = any(present.get(path, number) != number for path, number in self.covered.items())
        if moved or self._are_covered(base):
            raise CommitConflict(
                f"Another process maintained table {target.name!r} first.",
                table=target.name,
                expected=None,
                actual=base.version,
            )
        removed = [index for index in _segments(base) if index.uuid in self.replaced]
        operation = lance.LanceOperation.CreateIndex(self.added, removed)
        return files.commit(target.id, base, operation)

    def _are_covered(self, base: Dataset) -> bool:
        """Whether another has built a segment over the same fragments meanwhile. Lance would keep
        both, and take long for every commit that follows."""
        kept = [index for index in _segments(base) if index.uuid not in self.replaced]
        return any(
            index.name == added.name and not added.fragment_ids.isdisjoint(index.fragment_ids)
            for index in kept
            for added in self.added
        )


class Maintenance:
    """Maintenance of one table on its way into the log."""

    def __init__(self, store: Parts, head: Head, staged: StagedTable) -> None:
        self._store = store
        self.head = head
        self.staged = staged
        self._footing = store.lease.begin_work(self, head)

    def rebase(self, line: Line) -> tuple[TableChange, ...]:
        self.staged.rebase(line, "maintenance")
        return (self.staged.change(line.next_version, "maintenance"),)

    def check(self) -> None:
        self._store.lease.check(self._footing)

    def publish(self, operation: Operation, what: str) -> Commit | None:
        """Publish; None when others rewrote or dropped all of it first, so nothing is left."""
        self.staged.add(operation)
        publisher = self._store.publisher
        hit("maintenance.before_publish")
        pending = Pending(
            self,
            self.head,
            new_operation_id(self.head),
            self._store.actor,
            "maintenance",
            f"{what} of {self.staged.state.name}",
            names=(self._footing.lease,),
            own_id=True,
        )
        try:
            far = self._store.together.far
            wait_seconds = CLAIM_SECONDS_MAX if far else CLAIM_SECONDS_NEAR
            with publisher.claim(self.head.branch.id, [self.staged.state.id], wait_seconds):
                if far:
                    # Staged here, so that nobody who commits meanwhile waits for it.
                    newest = self._store.log.known(self.head.branch)
                    self.staged.rebase(Line.up_to(self._store.log, newest), "maintenance")
                    self.staged.current()
                return publisher.publish(pending)
        except CommitConflict as error:
            logger.debug("maintenance was done by another process: %s", error)
            return None


class Maintainer:
    """Maintains the tables of one lake on behalf of its writers, one at a time per table."""

    def __init__(self, store: Parts) -> None:
        self._store = store
        self._turns: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)

    def after_commits(self, branch: BranchRef, commits: Sequence[Commit]) -> None:
        """Let be folded and indexed what commits of a branch left behind, when it is time to.

        None of them waits for it, unless so much was left that others did not do it.
        """
        # What was adopted from another branch was looked after by its writer.
        changes = [change for commit in commits for change in commit.tables if not change.adopted]
        changed = Counter(change.table_id for change in changes)
        states = {change.table_id: change.after for change in changes}
        written: Counter[str] = Counter()
        for change in changes:
            written[change.table_id] += change.inserted + change.updated
        concerned = {one.table_id for one in changes if self._may_leave_work(one)}
        overdue: list[TableState] = []
        for state in states.values():
            if state is None or state.id not in concerned:
                continue
            dataset = self._store.files.opened(state)
            if dataset is None:
                continue
            rivals = changed[state.id] if self._store.publisher.has_rivals(branch.id) else 0
            try:
                due = _fold_due(dataset, rivals)
                due = due or (written[state.id] >= LOOK_ROWS and self._may_be_indexed(state))
                due = due or (not self._store.together.far and self._index_due(dataset, state))
            except BaseException as error:
                if not is_failure(error):
                    raise
                # The commit that led here stands; the next one finds the same work to do.
                logger.warning("maintenance of %r was put off: %s", state.name, error)
                continue
            if due and is_backlogged(fragment_sizes(dataset)):
                overdue.append(state)
            elif due:
                key = ("maintenance of", state.id, "on", branch.id)
                self._store.chores.ask(key, partial(self._upkeep, branch, state))
        self._store.together.map(partial(self._catch_up, branch), overdue)

    def _may_leave_work(self, change: TableChange) -> bool:
        """Whether a commit may have left something to be folded or indexed. One that altered
        columns alone has not, and to look at all fragments would be much of what it costs."""
        before, after = change.before, change.after
        if before is None or after is None or not change.altered:
            return True
        if change.inserted or change.updated or change.deleted:
            return True
        files = self._store.files
        return set(indexed_columns(files, before)) != set(indexed_columns(files, after))

    def _may_be_indexed(self, state: TableState) -> bool:
        """Whether it is worth asking if a table's index is to grow, where that takes a request."""
        return self._store.together.far and self._is_indexed(state)

    def _is_indexed(self, state: TableState) -> bool:
        return state.rows >= INDEX_ROWS_MIN and bool(indexed_columns(self._store.files, state))

    def _index_due(self, dataset: Dataset, state: TableState) -> bool:
        if not self._is_indexed(state):
            return False
        sizes, known = fragment_sizes(dataset), index_segments(dataset)
        return any(
            plan_segment(sizes, _covering(known, sizes, column))[0]
            for column in indexed_columns(self._store.files, state)
        )

    def _catch_up(self, branch: BranchRef, state: TableState) -> None:
        try:
            self._upkeep(branch, state)
        except Exception as error:  # noqa: BLE001
            # The commit that led here stands; the next one finds the same work to do.
            logger.warning("maintenance of %r was put off: %s", state.name, error)

    def _upkeep(self, branch: BranchRef, state: TableState) -> None:
        turn = self._turns[branch.id, state.id]
        if not turn.acquire(blocking=False):
            return
        try:
            with self._store.turns.alone(_fold_lock(branch, state)) as alone:
                self.fold(branch, state.name, alone)
            self.index(branch, state.name)
        finally:
            turn.release()

    def fold(self, branch: BranchRef, name: str, alone: bool = True) -> Commit | None:
        """Fold the small fragments of a table, if a tier of them is full.

        What another process is folding is left to it, unless it seems to have given up.
        """
        with self._work(branch, name) as work:
            sizes = fragment_sizes(work.staged.base) if work else []
            ids = plan_fold(sizes) if alone or is_overdue(sizes) else []
            if work is None or not ids:
                return None
            state, base = work.staged.state, work.staged.base
            groups = [rewrite(self._store.files, state.id, base, ids)]
            return work.publish(Compaction(groups), f"fold {len(ids)} fragments")

    def compact(self, branch: BranchRef, name: str, on_spark: bool = False) -> Commit | None:
        """Rewrite small and worn fragments to full ones."""
        with self._work(branch, name) as work:
            base = work.staged.base if work else None
            plan = plan_compaction(fragment_sizes(base), ROWS_PER_FILE_MAX) if work else []
            if work is None or not plan:
                return None
            if on_spark:
                state = work.staged.state
                view = Table(self._store.files, self._store.engine, state, base, self)
                groups = rewrite_on_spark(view, plan)
            else:
                table_id = work.staged.state.id
                groups = [rewrite(self._store.files, table_id, base, ids) for ids in plan]
            count = sum(map(len, plan))
            return work.publish(Compaction(groups), f"compact {count} fragments")

    def index(self, branch: BranchRef, name: str, rows_min: int | None = None) -> Commit | None:
        """Bring a table's indexes up to date, if enough rows lie outside of them."""
        with self._work(branch, name) as work:
            columns = indexed_columns(self._store.files, work.staged.state) if work else ()
            if work is None or not columns:
                return None
            operation = build_segments(work.staged.base, columns, rows_min)
            if operation is None:
                return None
            return work.publish(operation, f"index {', '.join(operation.columns)}")

    @contextmanager
    def _work(self, branch: BranchRef, name: str) -> Iterator[Maintenance | None]:
        """Maintenance of a table that is about to begin; None when there is no such table."""
        head = self._store.log.head(branch)
        state = head.tables.find(name)
        if state is None:
            yield None
            return
        dataset = self._store.files.read(state)
        work = Maintenance(self._store, head, StagedTable(self._store.files, state, dataset))
        try:
            with self._store.files.reading(state, trusting=True):
                yield work
        finally:
            self._store.lease.end_work(work)


def _fold_lock(branch: BranchRef, state: TableState) -> str:
    """One of a few locks, so that they do not pile up; tables that share one take turns."""
    return f"fold-{zlib.crc32(f'{branch.id} {state.id}'.encode()) % FOLD_LOCKS}"


def _fold_due(dataset: Dataset, shared: int) -> bool:
    """Asked after every commit, so the common answer, no, is found with little work.

    `shared` is, among processes, how many commits on the table it is asked after; else 0.
    """
    fragments = dataset.get_fragments()
    if not may_be_due(len(fragments), shared):
        return False
    return fold_is_due([_size(fragment.metadata) for fragment in fragments], bool(shared))


def indexed_columns(files: TableFiles, state: TableState) -> tuple[str, ...]:
    """The columns of a table by which rows are found: of its key, and of rules that compare rows.
    What others refer to is its key, or is unique."""
    if not state.schema:
        return state.looked_up
    schema = files.declarations.read(state.schema)
    ids = [one for rule in schema.rules if rule.kind != "check" for one in rule.columns]
    return tuple(dict.fromkeys([*state.looked_up, *schema.labels(ids)]))


def fragment_sizes(dataset: Dataset) -> list[FragmentSize]:
    return [_size(fragment.metadata) for fragment in dataset.get_fragments()]


def _size(fragment: FragmentMetadata) -> FragmentSize:
    # Asked of its metadata: each question to Lance's own fragment gives the interpreter away.
    deleted = fragment.num_deletions
    size_bytes = sum(file.file_size_bytes or 0 for file in fragment.files)
    return FragmentSize(fragment.id, fragment.physical_rows - deleted, deleted, size_bytes)


def _segments(dataset: Dataset) -> list[lance.Index]:
    """The segments of our indexes in the form in which Lance takes them out."""
    return [
        lance.Index(
            uuid=segment.uuid,
            name=segment.name,
            fields=[segment.field],
            dataset_version=segment.built_at,
            fragment_ids=set(segment.fragments),
            index_version=0,
        )
        for segment in index_segments(dataset)
        if segment.name.startswith(INDEX_NAME)
    ]


def segments_of(dataset: Dataset, column: str) -> list[SegmentSize]:
    """The segments of one column's index, with the rows that they cover."""
    return _covering(index_segments(dataset), fragment_sizes(dataset), column)


def _covering(
    known: Sequence[IndexSegment], sizes: Sequence[FragmentSize], column: str
) -> list[SegmentSize]:
    rows = {size.id: size.rows for size in sizes}
    return [
        SegmentSize(
            segment.uuid,
            segment.fragments,
            sum(rows.get(fragment, 0) for fragment in segment.fragments),
        )
        for segment in known
        if segment.name.startswith(INDEX_NAME) and segment.column == column
    ]


def build_segments(
    base: Dataset, columns: tuple[str, ...], rows_min: int | None = None
) -> IndexSegments | None:
    """Build what is missing of indexes: one segment for each column."""
    sizes, known = fragment_sizes(base), index_segments(base)
    names = {one.column: one.name for one in known if one.name.startswith(INDEX_NAME)}
    ids = column_ids(base)
    built: list[str] = []
    added: list[lance.Index] = []
    replaced: list[str] = []
    covered: set[int] = set()
    for column in columns:
        options = {} if rows_min is None else {"rows_min": rows_min}
        fragments, uuids = plan_segment(sizes, _covering(known, sizes, column), **options)
        if not fragments:
            continue
        # Of a handle of its own: while Lance builds, the handle cannot be used for anything else.
        index = base.checkout_version(base.version).create_index_uncommitted(
            column,
            "BTREE",
            # An index keeps its name, whatever its column was in the key when it was begun.
            name=names.get(column) or f"{INDEX_NAME}_c{ids[column]}",
            fragment_ids=fragments,
            replace=True,
        )
        added.append(index)
        built.append(column)
        replaced.extend(uuids)
        covered.update(fragments)
    if not added:
        return None
    paths = {
        data_file(f.metadata): f.fragment_id
        for f in base.get_fragments()
        if f.fragment_id in covered
    }
    return IndexSegments(added, replaced, paths, tuple(built))
