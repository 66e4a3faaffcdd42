"""Marking: the pins that garbage collection leaves alone.

Needed are those of
    every head; every commit that was superseded after the cutoff, and the last `versions` of each
    branch; what live branches would be merged from; tags; holds; intents; and whatever this process
    reads, or one that holds a lease.

Invariant: what a mark is taken from is asked for after the files were listed (garbage.py), so that
whatever is published in between is younger than the list.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidelock.errors import BranchDeleted, CorruptObject, ObjectMissing, VersionNotFound
from tidelock.model.history.commit import BranchRef, Tables, TableState
from tidelock.store.branches import Tag
from tidelock.store.kinship.bases import bases_of_all
from tidelock.store.leases.holds import Hold, holds
from tidelock.store.leases.intents import read_intent
from tidelock.store.leases.leases import Lease, expired
from tidelock.store.leases.uses import Use
from tidelock.store.log.clock import published
from tidelock.store.log.table_changes import changes_of
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries
from tidelock.store.objects.protocol import ObjectInfo, Objects
from tidelock.store.objects.records import decode
from tidelock.store.parts import Parts

NEVER = -1e9
"""How many seconds a lease lives that is damaged."""

Pins = defaultdict[str, set[int]]


@dataclass(frozen=True)
class Marks:
    """The pins that are needed, noted by several threads.

    Those `required` are always there: when one cannot be opened, its table is left alone. Those
    `retained` are kept for as long as nobody collected them: an earlier run may have kept less.
    """

    required: Pins = field(default_factory=lambda: defaultdict(set))
    retained: Pins = field(default_factory=lambda: defaultdict(set))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pins(self, table_id: str) -> set[int]:
        return self.required.get(table_id, set()) | self.retained.get(table_id, set())

    def require(self, states: Iterable[TableState]) -> None:
        with self._lock:
            for state in states:
                self.required[state.id].add(state.pin)

    def retain(self, states: Iterable[TableState]) -> None:
        self.retain_pins((state.id, state.pin) for state in states)

    def retain_pins(self, pins: Iterable[tuple[str, int]]) -> None:
        with self._lock:
            for table_id, pin in pins:
                self.retained[table_id].add(pin)

    def keep_frontiers(self, tables: Tables) -> None:
        """What stream tables were computed from: their next refresh begins there."""
        streams = [state.stream for state in tables.states() if state.stream]
        self.retain_pins((one.table_id, one.pin) for stream in streams for one in stream.frontier)


def leases(store: Parts) -> list[tuple[ObjectInfo, Lease]]:
    def read(info: ObjectInfo) -> list[tuple[ObjectInfo, Lease]]:
        # A handle that is closed meanwhile takes its lease along.
        with suppress(ObjectMissing):
            return [(info, read_lease(store.objects, info.key))]
        return []

    infos = entries(store.objects, layout.LEASES)
    return [one for found in store.together.map(read, infos) for one in found]


def read_lease(objects: Objects, key: str) -> Lease:
    """A lease; one that is damaged has run out, for its owner is fenced off by its name."""
    try:
        return decode(objects.get(key), Lease, key)
    except CorruptObject:
        return Lease("", "", NEVER, 0.0)


def mark(store: Parts, cutoff: datetime, versions: int, moment: datetime) -> Marks:
    """The pins that must stay readable."""
    marks = Marks()

    def branch(ref: BranchRef) -> None:
        with suppress(BranchDeleted):
            _mark_branch(store, ref, cutoff, versions, marks, moment)

    def tag(one: Tag) -> None:
        marks.require(store.log.tables_at(one.as_branch(), one.version).states())

    def hold(one: Hold) -> None:
        if not one.onward:
            marks.require(store.log.tables_at(one.as_branch(), one.version).states())
        else:
            _mark_onward(store, one, moment, marks)

    together = store.together
    named: list[Callable[[], object]] = [
        lambda: together.map(branch, store.branches.refs()),
        lambda: together.map(tag, store.branches.tags()),
        lambda: together.map(hold, holds(store.objects, together)),
    ]
    together.map(lambda ask: ask(), named)
    _mark_bases(store, marks)
    for snapshot in store.lease.snapshots():
        marks.retain(snapshot.states().states())
    refs = {ref.id: ref for ref in store.branches.all_refs()}
    together.both(
        lambda: _mark_leased(store, refs, marks, moment),
        lambda: _mark_intents(store, refs, marks),
    )
    return marks


def _mark_branch(
    store: Parts, ref: BranchRef, cutoff: datetime, versions: int, marks: Marks, moment: datetime
) -> None:
    head = store.log.head(ref)
    marks.require(head.tables.states())
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
        marks.retain(tables.states())
        superseded = times.get(commit.version, commit.time)
        tables = tables.before(commit.tables)


def _mark_bases(store: Parts, marks: Marks) -> None:
    """What merges of live branches compare with."""
    bases = bases_of_all(store, store.branches.refs()).values()
    for place in {place for some in bases for place in some}:
        branch = store.branches.by_id(place.branch_id)
        if branch is not None:
            with suppress(VersionNotFound):
                marks.retain(store.log.tables_at(branch, place.version).states())


def _mark_onward(store: Parts, hold: Hold, moment: datetime, marks: Marks) -> None:
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
    _retain_span(store, branch, hold.version, newest, marks)


def _mark_leased(store: Parts, refs: dict[str, BranchRef], marks: Marks, moment: datetime) -> None:
    """What this process reads, and what those with a lease do."""
    live = [
        lease for info, lease in leases(store) if not expired(info, lease.lease_seconds, moment)
    ]
    versions = {one for lease in live for one in lease.versions}
    uses = {use for lease in live for use in lease.uses}.union(store.uses.listed())
    pins = {pin for lease in live for pin in lease.pins}.union(store.uses.pins())
    marks.retain_pins(pins)
    asks = [Use(branch_id, version, version) for branch_id, version in versions]
    store.together.map(
        lambda use: _mark_use(store, refs[use.branch_id], marks, use),
        [use for use in {*asks, *uses} if use.branch_id in refs],
    )


def _mark_use(store: Parts, branch: BranchRef, marks: Marks, use: Use) -> None:
    """Keep a span of versions, or what the changes of one table are between."""
    if use.table_id is None:
        _retain_span(store, branch, use.first, use.last, marks)
        return
    for _, change in changes_of(store.log, branch, use.table_id, use.last, use.first):
        marks.retain(state for state in (change.before, change.after) if state is not None)


def _retain_span(store: Parts, branch: BranchRef, first: int, last: int, marks: Marks) -> None:
    tables = store.log.tables_at(branch, last)
    for commit in store.log.walk(branch, last, first + 1):
        marks.retain(tables.states())
        tables = tables.before(commit.tables)
    marks.retain(tables.states())


def _mark_intents(store: Parts, refs: dict[str, BranchRef], marks: Marks) -> None:
    infos = entries(store.objects, layout.INTENTS)
    for intent in store.together.map(lambda info: read_intent(store.objects, info), infos):
        if intent is None:
            continue
        if intent.branch_id in refs:
            base = store.log.tables_at(refs[intent.branch_id], intent.base_version)
            marks.retain(base.states())
        sealed = (change.after for change in intent.sealed or ())
        marks.require(state for state in sealed if state is not None)
