"""Garbage collection: mark what is needed, sweep the rest.

Needed are the pins of
    every head; every commit that was superseded after the cutoff, and the last `versions` of each
    branch; tags; holds; snapshots in use by this process and by those that hold a lease; intents;
and every file that is younger than the cutoff, because somebody may be staging it.

    cutoff = min(now - older_than, the beginning of the oldest transaction of any live lease)

Invariants: nothing that is needed is removed, also while writers run; a table whose marking failed
is left alone and reported; running again converges.
A writer whose lease ran out may wake up late. Before its files are swept, every branch it may be
writing to gets one more record (a fence), so that its put loses and it finds its lease gone.
After a crash: some garbage is gone and some is left; the next run finds the rest.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import lance

from tidelock.errors import BranchDeleted, SnapshotExpired, TidelockError
from tidelock.model.commit import BranchRef, TableChange, Tables
from tidelock.store import layout
from tidelock.store.faults import hit
from tidelock.store.holds import holds
from tidelock.store.intents import Lease, expired, now, read_intent
from tidelock.store.objects import ObjectInfo, Objects
from tidelock.store.operation_ids import new_operation_id
from tidelock.store.publish import Pending
from tidelock.store.records import decode, encode
from tidelock.store.tables import Dataset, fragment_files, manifest_file

if TYPE_CHECKING:
    from tidelock.store.store import Store

DELETE_THREADS = 16
ALWAYS_KEPT = "_versions/latest_version_hint.json"

Pins = dict[str, set[int]]


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
    with _announced(store, dry_run):
        listed = _list_files(store)
        cutoff, dead = _cutoff(store, now() - older_than)
        pins = mark(store, cutoff, versions)
        if dead and not dry_run:
            _fence(store, dead)
        swept = []
        for number, (table_id, files) in enumerate(sorted(listed.items())):
            swept.append(_sweep(store, table_id, files, pins.get(table_id), cutoff, dry_run))
            if progress is not None:
                progress(number + 1, len(listed))
    touched = [one for one in swept if one.files or one.error]
    return GarbageReport(tuple(touched), dry_run, cutoff)


@contextmanager
def _announced(store: Store, dry_run: bool) -> Iterator[None]:
    """Say that a collection runs: whoever names an old commit now checks that it is still there."""
    if dry_run:
        yield
        return
    key = f"{layout.COLLECTIONS}/{secrets.token_hex(8)}.json"
    store.objects.put(key, encode({"format": 1}))
    try:
        yield
    finally:
        store.objects.delete(key)


def collection_runs(objects: Objects, lease_seconds: float) -> bool:
    infos = objects.list(layout.COLLECTIONS)
    return any(not expired(info, max(lease_seconds, 600), now()) for info in infos)


def _list_files(store: Store) -> dict[str, list[ObjectInfo]]:
    by_table: defaultdict[str, list[ObjectInfo]] = defaultdict(list)
    for info in store.location.table_objects().list(layout.TABLES):
        by_table[info.key.split("/")[1]].append(info)
    return by_table


def _cutoff(store: Store, wanted: datetime) -> tuple[datetime, list[str]]:
    """How young a file must be to be left alone, and the keys of leases that ran out."""
    cutoff = wanted
    dead = []
    for info in store.objects.list(layout.LEASES):
        lease = decode(store.objects.get(info.key), Lease, info.key)
        if expired(info, lease.lease_seconds, now()):
            dead.append(info.key)
        else:
            cutoff = min(cutoff, info.modified - timedelta(seconds=lease.active_seconds))
    return cutoff, dead


def mark(store: Store, cutoff: datetime, versions: int) -> Pins:
    """The pins that must stay readable."""
    pins: Pins = defaultdict(set)

    def keep(tables: Tables) -> None:
        for state in tables.states():
            pins[state.id].add(state.pin)

    for ref in store.branches.refs():
        try:
            _mark_branch(store, ref, cutoff, versions, keep)
        except BranchDeleted:
            continue
    for tag in store.branches.tags():
        keep(store.log.tables_at(tag.as_branch(), tag.version))
    for hold in holds(store.objects):
        keep(store.log.tables_at(hold.as_branch(), hold.version))
    for snapshot in store.snapshots_in_use():
        keep(snapshot.states())
    _mark_leased(store, keep)
    _mark_intents(store, keep, pins)
    return pins


def _mark_branch(
    store: Store,
    ref: BranchRef,
    cutoff: datetime,
    versions: int,
    keep: Callable[[Tables], None],
) -> None:
    head = store.log.head(ref)
    keep(head.tables)
    superseded = head.time
    tables = head.tables
    for kept, commit in enumerate(store.log.walk(ref, head.version), start=1):
        # `tables` is the state after this commit; `superseded` when the next one replaced it.
        if kept > max(versions, 1) and superseded < cutoff:
            break
        keep(tables)
        superseded = commit.time
        tables = tables.before(commit.tables)


def _mark_leased(store: Store, keep: Callable[[Tables], None]) -> None:
    refs = {ref.id: ref for ref in store.branches.all_refs()}
    for info in store.objects.list(layout.LEASES):
        lease = decode(store.objects.get(info.key), Lease, info.key)
        if expired(info, lease.lease_seconds, now()):
            continue
        for branch_id, version in lease.versions:
            if branch_id in refs:
                keep(store.log.tables_at(refs[branch_id], version))


def _mark_intents(store: Store, keep: Callable[[Tables], None], pins: Pins) -> None:
    refs = {ref.id: ref for ref in store.branches.all_refs()}
    for info in store.objects.list(layout.INTENTS):
        intent = read_intent(store.objects, info)
        if intent is None:
            continue
        if intent.branch_id in refs:
            keep(store.log.tables_at(refs[intent.branch_id], intent.base_version))
        for change in intent.sealed or ():
            if change.after is not None:
                pins[change.after.id].add(change.after.pin)


def _fence(store: Store, dead: list[str]) -> None:
    for ref in store.branches.refs():
        hit("garbage.before_fence")
        head = store.log.head(ref)
        pending = Pending(
            _Fence(),
            head,
            new_operation_id(head),
            store.actor,
            "maintenance",
            "fence off writers whose lease ran out",
        )
        store.publisher.publish(pending)
    for key in dead:
        store.objects.delete(key)


class _Fence:
    def rebase(self, tables: Tables, version: int) -> tuple[TableChange, ...]:
        return ()

    def check(self) -> None:
        return


def _sweep(
    store: Store,
    table_id: str,
    files: list[ObjectInfo],
    pins: set[int] | None,
    cutoff: datetime,
    dry_run: bool,
) -> TableGarbage:
    root = layout.table(table_id) + "/"
    try:
        live = _live_files(store, table_id, pins) if pins else set()
        doomed = [
            info
            for info in files
            if info.modified < cutoff and not _needed(info.key.removeprefix(root), live)
        ]
        if not dry_run:
            _delete(store.location.table_objects(), doomed)
            if doomed:
                store.files.forget(table_id)
    except (TidelockError, OSError, ValueError) as error:
        return TableGarbage(table_id, 0, 0, f"{table_id}: {error}")
    return TableGarbage(table_id, len(doomed), sum(info.size_bytes for info in doomed))


def _needed(path: str, live: set[str]) -> bool:
    if not live:
        return False
    if path.startswith("_indices/"):
        return "/".join(path.split("/")[:2]) in live
    return path in live or path == ALWAYS_KEPT


def _live_files(store: Store, table_id: str, pins: set[int]) -> set[str]:
    """Every file that a pin of the table, or its Lance HEAD, needs."""
    live: set[str] = set()
    for pin in pins:
        live |= _files_of(store.files.open(table_id, pin))
    head = lance.dataset(store.files.uri(table_id), storage_options=store.location.lance_options)
    return live | _files_of(head)


def _files_of(dataset: Dataset) -> set[str]:
    files = {manifest_file(dataset.version)}
    for fragment in dataset.get_fragments():
        files.update(fragment_files(fragment.metadata))
    files.update(f"_indices/{index['uuid']}" for index in dataset.list_indices())
    return files


def _delete(objects: Objects, doomed: list[ObjectInfo]) -> None:
    """Manifests first: a version that can be opened has all of its files."""
    manifests = [info.key for info in doomed if "/_versions/" in info.key]
    others = [info.key for info in doomed if "/_versions/" not in info.key]
    hit("garbage.before_sweep")
    with ThreadPoolExecutor(DELETE_THREADS) as pool:
        for keys in (manifests, others):
            for _ in pool.map(objects.delete, keys):
                hit("garbage.after_delete")


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
