"""Garbage collection: mark what is needed, sweep the rest.

Needed are the pins that are marked (marks.py), and every file that is younger than the cutoff,
because somebody may be staging it.

    cutoff = min(now - older_than, the beginning of the oldest transaction of any live lease)

Invariants: nothing that is needed is removed, also while writers run; a table whose marking failed
is left alone and reported; running again converges. A lease tells how long its oldest transaction
had been running when it was written; it became visible up to `lease_seconds` later (after that its
writer gives up), so that much is added. It also tells the earliest date that a file of that
transaction can have, which is longer ago if a clock took a step since. A writer whose lease ran out
may wake up late, or may never have slept, if the clock by which it is judged took a step. Before
anything is marked, every branch it may be writing to gets one more record that names it
(log/fences.py): its put came before, and is marked, or it publishes nothing any more. So a writer
that is taken for dead by mistake loses what it had staged, and nobody else notices. After a crash:
some garbage is gone and some is left; the next run finds the rest.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import lance

from tidelock.errors import (
    BranchDeleted,
    LeaseLost,
    SnapshotExpired,
    StoreError,
    StoreFull,
    TidelockError,
)
from tidelock.store.leases.leases import Held, Lease, expired, store_now
from tidelock.store.leases.recovery import heal
from tidelock.store.objects import layout
from tidelock.store.objects.disk_space import keep_reserve, use_reserve
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.protocol import ObjectInfo, Objects
from tidelock.store.parts import Parts
from tidelock.store.tables.datasets import FIRST_PIN, manifest_file
from tidelock.store.tables.file_sums import summed_path
from tidelock.store.tables.fragments import Dataset, fragment_files
from tidelock.store.tables.indexes import index_segments
from tidelock.store.upkeep.garbage.announcements import announced
from tidelock.store.upkeep.garbage.marks import Marks, leases, mark
from tidelock.store.upkeep.garbage.sweep import sweep_objects
from tidelock.store.upkeep.repair.inventory import Finding

DELETED_AT_ONCE = 1000
DATE_SECONDS = 1.0
"""S3 dates objects by whole seconds."""
ALWAYS_KEPT = "_versions/latest_version_hint.json"


@dataclass(frozen=True, slots=True)
class TableGarbage:
    """What was, or would be, removed of one table."""

    table_id: str
    files: int
    size_bytes: int
    error: str | None = None

    @classmethod
    def of(cls, doomed: _Doomed) -> TableGarbage:
        size_bytes = sum(info.size_bytes for info in doomed.infos)
        return cls(doomed.table_id, len(doomed.infos), size_bytes, doomed.error)


@dataclass(frozen=True, slots=True)
class GarbageReport:
    tables: tuple[TableGarbage, ...]
    dry_run: bool
    cutoff: datetime
    objects: int = 0
    """What was, or would be, removed beside the files of tables (sweep.py)."""
    damaged: tuple[Finding, ...] = ()
    """What was found damaged among some files that were looked at by chance."""

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
    store: Parts,
    older_than: timedelta,
    versions: int = 1,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> GarbageReport:
    try:
        return _collect(store, older_than, versions, dry_run, progress)
    except StoreFull:
        # It was said before anything was removed: removing needs no room.
        if dry_run or not use_reserve(store.objects):
            raise
    return _collect(store, older_than, versions, dry_run, progress)


def _collect(
    store: Parts,
    older_than: timedelta,
    versions: int,
    dry_run: bool,
    progress: Callable[[int, int], None] | None,
) -> GarbageReport:
    if not dry_run:
        # Nothing of another lake is garbage because this handle knows nothing of it.
        store.refuse_unusable()
        heal(store)
        store.keeper.renew_all()
    with announced(store, dry_run) as held:
        moment = store.clock.now() if dry_run else store_now(store.objects)
        listed, failed = _list_files(store) if _has_history(store) else ({}, [])
        cutoff, dead = _cutoff(store, moment - older_than, moment)
        if dead and not dry_run:
            _fence(store, dead)
        marks = mark(store, cutoff, versions, moment)
        tell = _Progress(progress, len(listed))
        plans = _plan_all(store, listed, marks, cutoff, tell)
        swept = [*failed, *(plans if held is None else _sweep_all(store, plans, held))]
        objects = sweep_objects(store, cutoff, moment, dry_run)
    if not dry_run:
        if store.location.kind == "file":
            keep_reserve(store.objects)
        # A log that there is no room to fold is folded next time.
        with suppress(StoreFull):
            store.log_folder.fold_whole(store.branches.refs())
    touched = [one for one in swept if one.files or one.error]
    return GarbageReport(tuple(map(TableGarbage.of, touched)), dry_run, cutoff, objects)


class _Progress:
    """Tells how many tables were looked at."""

    def __init__(self, told: Callable[[int, int], None] | None, total: int) -> None:
        self._told = told
        self._total = total
        self._lock = threading.Lock()
        self._done = 0

    def step(self) -> None:
        with self._lock:
            self._done += 1
            if self._told is not None:
                self._told(self._done, self._total)


def _has_history(store: Parts) -> bool:
    """Whether the log tells what is needed. One that was lost looks like one that never began, and
    everything would be garbage."""
    return store.branches.head(layout.MAIN).version > 0


def _list_files(store: Parts) -> tuple[dict[str, list[ObjectInfo]], list[_Doomed]]:
    """The files of every table, and the tables whose files could not be listed."""
    objects = store.files.objects
    by_table: defaultdict[str, list[ObjectInfo]] = defaultdict(list)
    if not store.together.far:
        try:
            for info in objects.list(layout.TABLES):
                if layout.is_table_file(info.key):
                    by_table[info.key.split("/")[1]].append(info)
            return by_table, []
        except StoreError:
            by_table.clear()
    failed: list[_Doomed] = []

    def list_one(table_id: str) -> None:
        try:
            infos = objects.list(layout.table(table_id))
            by_table[table_id] = [info for info in infos if layout.is_table_file(info.key)]
        except StoreError as error:
            failed.append(_Doomed(table_id, error=f"{table_id}: {error}"))

    store.together.map(list_one, objects.list_folders(layout.TABLES))
    return by_table, failed


def _cutoff(store: Parts, wanted: datetime, moment: datetime) -> tuple[datetime, list[str]]:
    """How young a file must be to be left alone, and the keys of leases that ran out."""
    cutoff = wanted
    dead = []
    own_key = store.lease.key
    own = store.lease.content("")
    if own.active_seconds:
        cutoff = min(cutoff, _began(own, moment, DATE_SECONDS))
    for info, lease in leases(store):
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


def _fence(store: Parts, dead: list[str]) -> None:
    for ref in store.branches.refs():
        hit("garbage.before_fence")
        try:
            store.publisher.publish_fence(
                ref, dead, store.actor, "fence off writers whose lease ran out"
            )
        except BranchDeleted:
            continue
    hit("garbage.after_fence")
    for key in dead:
        store.objects.delete(key)


@dataclass(frozen=True)
class _Doomed:
    """What becomes of the files of one table."""

    table_id: str
    infos: tuple[ObjectInfo, ...] = ()
    error: str | None = None

    @property
    def files(self) -> int:
        return len(self.infos)

    def failed(self, error: Exception) -> _Doomed:
        return _Doomed(self.table_id, error=f"{self.table_id}: {error}")


_TABLE_FAILURES = (TidelockError, OSError, ValueError, RuntimeError)
Found = set[str] | Exception
"""The files that a version needs, or why that is not known."""


def _plan_all(
    store: Parts,
    listed: Mapping[str, Sequence[ObjectInfo]],
    marks: Marks,
    cutoff: datetime,
    tell: _Progress,
) -> list[_Doomed]:
    """What is to be removed of each table. A table without an old file is not looked at."""
    old = {
        table_id: [info for info in files if info.modified < cutoff]
        for table_id, files in sorted(listed.items())
    }
    pins = [(one, pin) for one, files in old.items() if files for pin in marks.pins(one)]
    opened = dict(zip(pins, store.together.map(lambda one: _open(store, *one), pins), strict=True))

    def plan(table_id: str) -> _Doomed:
        try:
            live: set[str] = set()
            for pin in marks.pins(table_id) if old[table_id] else ():
                found = opened[table_id, pin]
                if isinstance(found, set):
                    live |= found
                elif pin in marks.required[table_id] or not isinstance(found, SnapshotExpired):
                    raise found
            if live:
                live |= _lance_head(store, table_id, listed[table_id])
            return _Doomed(table_id, tuple(_doomed(table_id, old[table_id], live)))
        except _TABLE_FAILURES as error:
            return _Doomed(table_id).failed(error)
        finally:
            tell.step()

    return store.together.map(plan, list(old))


def _open(store: Parts, table_id: str, pin: int) -> Found:
    try:
        return _files_of(store.files.open(table_id, pin))
    except _TABLE_FAILURES as error:
        return error


def _doomed(table_id: str, old: Iterable[ObjectInfo], live: set[str]) -> list[ObjectInfo]:
    root = layout.table(table_id) + "/"
    return [info for info in old if not _needed(info.key.removeprefix(root), live)]


def _needed(path: str, live: set[str]) -> bool:
    if not live:
        return False
    path = summed_path(path) or path
    if path.startswith("_indices/"):
        return "/".join(path.split("/")[:2]) in live
    return path in live or path == ALWAYS_KEPT


def _lance_head(store: Parts, table_id: str, files: Iterable[ObjectInfo]) -> set[str]:
    """What Lance's own HEAD of a table needs. Its first version, made with the table, is empty."""
    first = layout.table(table_id) + "/" + manifest_file(FIRST_PIN)
    others = (info.key for info in files if _LANCE_VERSION.search(info.key))
    if all(key == first for key in others):
        return {manifest_file(FIRST_PIN)}
    head = lance.dataset(store.files.uri(table_id), storage_options=store.location.lance_options)
    return _files_of(head)


_LANCE_VERSION = re.compile(r"/_versions/\d+\.manifest\Z")


def _files_of(dataset: Dataset) -> set[str]:
    files = {manifest_file(dataset.version)}
    for fragment in dataset.get_fragments():
        files.update(fragment_files(fragment.metadata))
    files.update(f"_indices/{segment.uuid}" for segment in index_segments(dataset))
    return files


def _sweep_all(store: Parts, plans: Sequence[_Doomed], announced: Held) -> list[_Doomed]:
    """Remove what is doomed: all of it together, or, should that fail, table by table."""
    objects = store.files.objects
    try:
        _delete(store, objects, [info for plan in plans for info in plan.infos], announced)
        done = list(plans)
    except LeaseLost:
        raise
    except StoreError:
        done = [_sweep_one(store, objects, plan, announced) for plan in plans]
    for plan in done:
        if plan.infos:
            store.files.forget(plan.table_id)
    return done


def _sweep_one(store: Parts, objects: Objects, plan: _Doomed, announced: Held) -> _Doomed:
    try:
        _delete(store, objects, plan.infos, announced)
    except LeaseLost:
        raise
    except _TABLE_FAILURES as error:
        return plan.failed(error)
    return plan


def _delete(store: Parts, objects: Objects, doomed: Sequence[ObjectInfo], announced: Held) -> None:
    """Manifests first: a version that can be opened has all of its files."""
    manifests = [info.key for info in doomed if "/_versions/" in info.key]
    others = [info.key for info in doomed if "/_versions/" not in info.key]

    def delete(keys: list[str]) -> None:
        # A reader that saw no collection running may rely on what was left by then.
        announced.check(lapses=0)
        objects.delete_many(keys)
        hit("garbage.after_delete")

    hit("garbage.before_sweep")
    for keys in (manifests, others):
        parts = [keys[at : at + DELETED_AT_ONCE] for at in range(0, len(keys), DELETED_AT_ONCE)]
        store.together.map(delete, parts)
