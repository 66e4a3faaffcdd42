"""Garbage collection: mark what is needed, sweep the rest.

Needed are the pins of
    every head; every commit that was superseded after the cutoff, and the last `versions` of each
    branch; tags; holds; snapshots in use by this process and by those that hold a lease; intents;
and every file that is younger than the cutoff, because somebody may be staging it.

    cutoff = min(now - older_than, the beginning of the oldest transaction of any live lease)

Invariants: nothing that is needed is removed, also while writers run; a table whose marking failed
is left alone and reported; running again converges.
A lease tells how long its oldest transaction had been running when it was written; it became
visible up to `lease_seconds` later (after that its writer gives up), so that much is added. It
also tells the earliest date that a file of that transaction can have, which is longer ago if a
clock took a step since.
A writer whose lease ran out may wake up late, or may never have slept, if the clock by which it is
judged took a step. Before anything is marked, every branch it may be writing to gets one more
record that names it (fences.py): its put came before, and is marked, or it publishes nothing any
more. So whoever is taken for dead by mistake loses what it had staged, and nobody else notices.
After a crash: some garbage is gone and some is left; the next run finds the rest.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import lance

from tidelock.errors import (
    BranchDeleted,
    CorruptObject,
    LeaseLost,
    ObjectMissing,
    SnapshotExpired,
    StoreError,
    TidelockError,
)
from tidelock.model.commit import BranchRef, Tables
from tidelock.store import layout
from tidelock.store.clock import published
from tidelock.store.entries import entries
from tidelock.store.faults import hit
from tidelock.store.fences import publish_fence
from tidelock.store.holds import Hold, holds
from tidelock.store.intents import (
    LEASE_SECONDS,
    Held,
    Lease,
    expired,
    read_intent,
    store_now,
)
from tidelock.store.objects import ObjectInfo, Objects
from tidelock.store.records import decode
from tidelock.store.sums import summed_path
from tidelock.store.tables import Dataset, fragment_files, index_segments, manifest_file

if TYPE_CHECKING:
    from tidelock.store.store import Store

DELETE_THREADS = 16
NEVER = -1e9
"""How many seconds a lease lives that is damaged."""
DATE_SECONDS = 1.0
"""S3 dates objects by whole seconds."""
ALWAYS_KEPT = "_versions/latest_version_hint.json"

Pins = defaultdict[str, set[int]]


@dataclass(frozen=True)
class Marks:
    """The pins that are needed.

    Those `required` are always there: when one cannot be opened, its table is left alone. Those
    `retained` are kept for as long as nobody collected them: an earlier run may have kept less.
    """

    required: Pins
    retained: Pins

    @classmethod
    def none(cls) -> Marks:
        return cls(defaultdict(set), defaultdict(set))

    def require(self, tables: Tables) -> None:
        for state in tables.states():
            self.required[state.id].add(state.pin)

    def keep_frontiers(self, tables: Tables) -> None:
        """What stream tables were computed from: their next refresh begins there."""
        for state in tables.states():
            for source in state.stream.frontier if state.stream else ():
                self.retained[source.table_id].add(source.pin)

    def retain(self, tables: Tables) -> None:
        for state in tables.states():
            self.retained[state.id].add(state.pin)


@dataclass(frozen=True, slots=True)
class TableGarbage:
    """What was, or would be, removed of one table."""

    table_id: str
    files: int
    size_bytes: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class GarbageReport:
    tables: tuple[TableGarbage, ...]
    dry_run: bool
    cutoff: datetime

    @property
    def files(self) -> int:
        return sum(table.files for table in self.tables)

    @property
    def size_bytes(self) -> int:
        return sum(table.size_bytes for table in self.tables)

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(table.error for table in self.tables if table.error)

    def __repr__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        failed = f", {len(self.errors)} tables failed" if self.errors else ""
        return f"GarbageReport({verb} {self.files} files, {self.size_bytes} bytes{failed})"


def collect(
    store: Store,
    older_than: timedelta,
    versions: int = 1,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> GarbageReport:
    if not dry_run:
        store.heal()
        store.keeper.renew_all()
    with _announced(store, dry_run) as announced:
        moment = store.clock.now() if dry_run else store_now(store.objects)
        listed, failed = _list_files(store)
        cutoff, dead = _cutoff(store, moment - older_than, moment)
        if dead and not dry_run:
            _fence(store, dead)
        marks = mark(store, cutoff, versions, moment)
        swept = list(failed)
        for number, (table_id, files) in enumerate(sorted(listed.items())):
            doomed = _Sweep(store, table_id, files, marks, cutoff)
            swept.append(doomed.plan() if announced is None else doomed.run(announced))
            if progress is not None:
                progress(number + 1, len(listed))
    touched = [one for one in swept if one.files or one.error]
    return GarbageReport(tuple(touched), dry_run, cutoff)


@dataclass(frozen=True, slots=True)
class _Collection:
    lease_seconds: float
    format: int = 1


@contextmanager
def _announced(store: Store, dry_run: bool) -> Iterator[Held | None]:
    """Say that a collection runs: whoever names an old commit now checks that it is still there."""
    if dry_run:
        yield None
        return
    key = f"{layout.COLLECTIONS}/{secrets.token_hex(8)}.json"
    content = _Collection(store.lease_seconds)
    held = Held(key, store.lease_seconds, lambda: content, final=True)
    store.keeper.hold(held)
    try:
        yield held
    finally:
        # What cannot be removed expires.
        with suppress(StoreError):
            store.keeper.release(held)


def collection_runs(store: Store) -> bool:
    objects = store.objects
    infos = entries(objects, layout.COLLECTIONS)
    now = store.clock.now()
    return any(not expired(info, _announced_seconds(objects, info), now) for info in infos)


def _announced_seconds(objects: Objects, info: ObjectInfo) -> float:
    try:
        return decode(objects.get(info.key), _Collection, info.key).lease_seconds
    except ObjectMissing:
        return 0.0
    except CorruptObject:
        return LEASE_SECONDS


def _list_files(store: Store) -> tuple[dict[str, list[ObjectInfo]], list[TableGarbage]]:
    """The files of every table, and the tables whose files could not be listed."""
    objects = store.location.table_objects()
    by_table: defaultdict[str, list[ObjectInfo]] = defaultdict(list)
    try:
        for info in objects.list(layout.TABLES):
            if layout.is_table_file(info.key):
                by_table[info.key.split("/")[1]].append(info)
        return by_table, []
    except StoreError:
        by_table.clear()
    failed = []
    for table_id in objects.list_folders(layout.TABLES):
        try:
            infos = objects.list(layout.table(table_id))
            by_table[table_id] = [info for info in infos if layout.is_table_file(info.key)]
        except StoreError as error:
            failed.append(TableGarbage(table_id, 0, 0, f"{table_id}: {error}"))
    return by_table, failed


def _cutoff(store: Store, wanted: datetime, moment: datetime) -> tuple[datetime, list[str]]:
    """How young a file must be to be left alone, and the keys of leases that ran out."""
    cutoff = wanted
    dead = []
    own_key = store._lease.key if store._lease is not None else None
    own = store._lease_content("")
    if own.active_seconds:
        cutoff = min(cutoff, _began(own, moment, DATE_SECONDS))
    for info, lease in _leases(store):
        if info.key == own_key:
            continue
        if expired(info, lease.lease_seconds, moment):
            dead.append(info.key)
        else:
            # One that was renewed in the future was renewed before the clock went back.
            renewed = min(info.modified, moment)
            cutoff = min(cutoff, _began(lease, renewed, lease.lease_seconds))
    return cutoff, dead


def _began(lease: Lease, written: datetime, seconds: float) -> datetime:
    """What the files of a lease's transactions are younger than, if it was written at most so many
    seconds before it is dated."""
    began = written - timedelta(seconds=lease.active_seconds + seconds)
    if lease.since is None:
        return began
    return min(began, lease.since - timedelta(seconds=DATE_SECONDS))


def _leases(store: Store) -> Iterator[tuple[ObjectInfo, Lease]]:
    for info in entries(store.objects, layout.LEASES):
        # A handle that is closed meanwhile takes its lease along.
        with suppress(ObjectMissing):
            yield info, _lease(store.objects, info.key)


def _lease(objects: Objects, key: str) -> Lease:
    """A lease; one that is damaged has run out, for whoever has it is fenced off by its name."""
    try:
        return decode(objects.get(key), Lease, key)
    except CorruptObject:
        return Lease("", "", NEVER, 0.0)


def mark(store: Store, cutoff: datetime, versions: int, moment: datetime) -> Marks:
    """The pins that must stay readable."""
    marks = Marks.none()
    for ref in store.branches.refs():
        try:
            _mark_branch(store, ref, cutoff, versions, marks, moment)
        except BranchDeleted:
            continue
    for tag in store.branches.tags():
        marks.require(store.log.tables_at(tag.as_branch(), tag.version))
    for hold in holds(store.objects):
        if not hold.onward:
            marks.require(store.log.tables_at(hold.as_branch(), hold.version))
        else:
            _mark_onward(store, hold, moment, marks)
    for snapshot in store.snapshots_in_use():
        marks.retain(snapshot.states())
    refs = {ref.id: ref for ref in store.branches.all_refs()}
    _mark_leased(store, refs, marks, moment)
    _mark_intents(store, refs, marks)
    return marks


def _mark_branch(
    store: Store, ref: BranchRef, cutoff: datetime, versions: int, marks: Marks, moment: datetime
) -> None:
    head = store.log.head(ref)
    marks.require(head.tables)
    marks.keep_frontiers(head.tables)
    times = published(store.objects, store.log, ref, head.version, moment)
    superseded = head.time
    tables = head.tables
    kept = 0
    for commit in store.log.walk(ref, head.version):
        # `tables` is the state after this commit; `superseded` when the next one replaced it.
        # A commit that changed no pin, such as a fence, does not use up a version.
        kept += bool(commit.tables)
        if kept > max(versions, 1) and superseded < cutoff:
            break
        marks.retain(tables)
        superseded = times.get(commit.version, commit.time)
        tables = tables.before(commit.tables)


def _mark_onward(store: Store, hold: Hold, moment: datetime, marks: Marks) -> None:
    """Keep a version and all since, unless what follows it is older than was allowed."""
    branch = hold.as_branch()
    try:
        newest = store.log.head(branch).version
    except BranchDeleted:
        return
    if newest > hold.version and hold.allowed_seconds is not None:
        first = hold.version + 1
        times = published(store.objects, store.log, branch, newest, moment)
        waiting = moment - times.get(first, store.log.commit_at(branch, first).time)
        if waiting > timedelta(seconds=hold.allowed_seconds):
            return
    tables = store.log.tables_at(branch, newest)
    for commit in store.log.walk(branch, newest, hold.version + 1):
        marks.retain(tables)
        tables = tables.before(commit.tables)
    marks.retain(tables)


def _mark_leased(store: Store, refs: dict[str, BranchRef], marks: Marks, moment: datetime) -> None:
    for info, lease in _leases(store):
        if expired(info, lease.lease_seconds, moment):
            continue
        for branch_id, version in lease.versions:
            if branch_id in refs:
                marks.retain(store.log.tables_at(refs[branch_id], version))


def _mark_intents(store: Store, refs: dict[str, BranchRef], marks: Marks) -> None:
    for info in entries(store.objects, layout.INTENTS):
        intent = read_intent(store.objects, info)
        if intent is None:
            continue
        if intent.branch_id in refs:
            marks.retain(store.log.tables_at(refs[intent.branch_id], intent.base_version))
        for change in intent.sealed or ():
            if change.after is not None:
                marks.required[change.after.id].add(change.after.pin)


def _fence(store: Store, dead: list[str]) -> None:
    for ref in store.branches.refs():
        hit("garbage.before_fence")
        try:
            publish_fence(store, ref, dead, "fence off writers whose lease ran out")
        except BranchDeleted:
            continue
    hit("garbage.after_fence")
    for key in dead:
        store.objects.delete(key)


@dataclass(frozen=True)
class _Sweep:
    """What becomes of the files of one table."""

    store: Store
    table_id: str
    files: list[ObjectInfo]
    marks: Marks
    cutoff: datetime

    def plan(self) -> TableGarbage:
        try:
            doomed = self._doomed()
        except _TABLE_FAILURES as error:
            return self._failed(error)
        return self._removed(doomed)

    def run(self, announced: Held) -> TableGarbage:
        try:
            doomed = self._doomed()
            _delete(self.store.location.table_objects(), doomed, announced)
            if doomed:
                self.store.files.forget(self.table_id)
        except LeaseLost:
            raise
        except _TABLE_FAILURES as error:
            return self._failed(error)
        return self._removed(doomed)

    def _doomed(self) -> list[ObjectInfo]:
        root = layout.table(self.table_id) + "/"
        live = _live_files(self.store, self.table_id, self.marks)
        return [
            info
            for info in self.files
            if info.modified < self.cutoff and not _needed(info.key.removeprefix(root), live)
        ]

    def _removed(self, doomed: list[ObjectInfo]) -> TableGarbage:
        return TableGarbage(self.table_id, len(doomed), sum(info.size_bytes for info in doomed))

    def _failed(self, error: Exception) -> TableGarbage:
        return TableGarbage(self.table_id, 0, 0, f"{self.table_id}: {error}")


_TABLE_FAILURES = (TidelockError, OSError, ValueError, RuntimeError)


def _needed(path: str, live: set[str]) -> bool:
    if not live:
        return False
    path = summed_path(path) or path
    if path.startswith("_indices/"):
        return "/".join(path.split("/")[:2]) in live
    return path in live or path == ALWAYS_KEPT


def _live_files(store: Store, table_id: str, marks: Marks) -> set[str]:
    """Every file that a pin of the table, or its Lance HEAD, needs."""
    live: set[str] = set()
    required = marks.required.get(table_id, set())
    for pin in required | marks.retained.get(table_id, set()):
        try:
            live |= _files_of(store.files.open(table_id, pin))
        except SnapshotExpired:
            if pin in required:
                raise
    if not live:
        return live
    head = lance.dataset(store.files.uri(table_id), storage_options=store.location.lance_options)
    return live | _files_of(head)


def _files_of(dataset: Dataset) -> set[str]:
    files = {manifest_file(dataset.version)}
    for fragment in dataset.get_fragments():
        files.update(fragment_files(fragment.metadata))
    files.update(f"_indices/{segment.uuid}" for segment in index_segments(dataset))
    return files


def _delete(objects: Objects, doomed: list[ObjectInfo], announced: Held) -> None:
    """Manifests first: a version that can be opened has all of its files."""
    manifests = [info.key for info in doomed if "/_versions/" in info.key]
    others = [info.key for info in doomed if "/_versions/" not in info.key]

    def delete(key: str) -> None:
        # Whoever saw no collection running may rely on what was left by then.
        announced.check(lapses=0)
        objects.delete(key)
        hit("garbage.after_delete")

    hit("garbage.before_sweep")
    with ThreadPoolExecutor(DELETE_THREADS) as pool:
        for keys in (manifests, others):
            for _ in pool.map(delete, keys):
                continue


def check_readable(store: Store, branch: BranchRef, version: int) -> None:
    """SnapshotExpired unless every pin of a version can be opened."""
    for state in store.log.tables_at(branch, version).states():
        try:
            store.files.forget(state.id)
            store.files.open(state.id, state.pin)
        except SnapshotExpired as error:
            raise SnapshotExpired(
                f"Version {version} is no longer readable: the data of {state.name!r} was "
                "removed by garbage collection.",
                table=state.name,
                version=version,
            ) from error
