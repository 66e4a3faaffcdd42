"""Healing: settling what writers that died left behind, from the branch's records alone.

    found                                done                              outcome
    its operation id is published        remove the intent                 rolled_forward
    sealed, its base and rules hold      publish it for its actor          rolled_forward
    anything else                        leave the files to be collected   discarded
    its branch is gone                   remove                            orphaned_branch_discarded
    unreadable, or of a newer format     refuse the write, name the file

Invariants: one audit object per operation of a branch, which says whether it was published; a live
lease is never touched; every step may be repeated by anyone after a crash at any point, and by
several processes at once.
Order: publish or fence, look, audit, remove. A crash after any of them is found again and finished.

`discarded` is final. Whether a writer is dead cannot be known: it may have been suspended between
looking at its lease and the put that seals its intent, which then lands after everybody has given
it up; or it lives, and a clock took a step. So an operation is discarded by a fence (fences.py)
that names its intent, and only then is the log searched for its commit: what is there was
published before the fence, and what is not never will be, neither by its writer, whose put loses
to the fence, nor by a healer that finds the intent again, sealed meanwhile. The pins of what is
published for others are opened first: garbage collection removes manifests before anything else,
so that a pin that can be opened has all its files.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal

from tidelock.errors import (
    BranchDeleted,
    CommitConflict,
    CorruptObject,
    EngineError,
    FormatError,
    InputError,
    LeaseLost,
    ObjectExists,
    SnapshotExpired,
)
from tidelock.model.history.commit import BranchRef, Commit, TableChange, Tables
from tidelock.model.listing import Listing
from tidelock.store.leases.intents import Intent, read_intent
from tidelock.store.leases.leases import expired, store_now
from tidelock.store.log.fences import fenced_since
from tidelock.store.log.line import Line
from tidelock.store.log.log import Head, Log
from tidelock.store.log.operation_ids import find_commit
from tidelock.store.log.pending import Pending
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.records import decode, encode
from tidelock.store.parts import Parts
from tidelock.store.rules.rule_checks import recheck

logger = logging.getLogger("tidelock")

Outcome = Literal["rolled_forward", "discarded", "orphaned_branch_discarded"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of one operation whose writer did not finish."""

    operation_id: str
    outcome: Outcome
    branch: str
    actor: str
    message: str
    version: int | None
    time: datetime
    owner: str
    format: int = 1


class SealedWork:
    """A sealed intent on its way into the log: published as it was staged, or not at all.

    Its tables are as they were when it was sealed. Others that rules compare them with may not be:
    then these are asked again.
    """

    def __init__(self, store: Parts, head: Head, intent: Intent, key: str) -> None:
        assert intent.sealed is not None
        self._sealed = intent.sealed
        self._sealed_at = intent.base_version + 1
        self._store = store
        self._branch = head.branch
        self._key = key

    def rebase(self, line: Line) -> tuple[TableChange, ...]:
        if not base_holds(self._sealed, line.tables):
            raise CommitConflict("The base of a sealed intent no longer holds.")
        then = partial(self._store.log.tables_at, self._branch, self._sealed_at - 1)
        recheck(self._store.files, self._store.engine, then, line.tables, self._sealed)
        version = line.next_version
        return tuple(_at_version(change, self._sealed_at, version) for change in self._sealed)

    def check(self) -> None:
        # The healer that removed it has decided; one that was suspended must not decide otherwise.
        if self._store.objects.info(self._key) is None:
            raise CommitConflict("A sealed intent was settled by another process.")


def base_holds(sealed: tuple[TableChange, ...], tables: Tables) -> bool:
    """Whether every table is as it was when the intent was sealed."""
    changed = tuple(change for change in sealed if change.before is not None)
    for change in changed:
        assert change.before is not None
        if tables.same(change.before) != change.before:
            return False
    others = tables.after(changed)
    return not any(change.table in others for change in sealed if change.before is None)


def _at_version(change: TableChange, sealed_at: int, version: int) -> TableChange:
    """The change with the version that publishes it in the place of the one it was sealed for.

    Nothing that the intent's writer read was newer than its base, so that number means this commit.
    """
    after = change.after
    if after is None:
        return change

    def moved(number: int) -> int:
        return version if number == sealed_at else number

    stream = after.stream
    if stream is not None:
        frontier = tuple(
            replace(one, changed=moved(one.changed), version=moved(one.version))
            for one in stream.frontier
        )
        stream = replace(
            stream,
            frontier=frontier,
            refreshed=moved(stream.refreshed),
            as_of=moved(stream.as_of),
        )
    return replace(change, after=replace(after, changed=moved(after.changed), stream=stream))


def heal(store: Parts) -> list[Recovery]:
    """Settle every expired intent. One list, which is empty in the steady state."""
    settled = _settle_expired(store)
    store.note_healed()
    return settled


def _settle_expired(store: Parts) -> list[Recovery]:
    found = [
        (info, intent)
        for info in entries(store.objects, layout.INTENTS)
        if (intent := read_intent(store.objects, info)) is not None
    ]
    if not any(expired(info, intent.lease_seconds, store.clock.now()) for info, intent in found):
        return []
    moment = store_now(store.objects)
    given_up = [
        _Given(intent, info.key)
        for info, intent in found
        if expired(info, intent.lease_seconds, moment)
    ]
    refs, all_are_known = _branches(store) if given_up else ({}, True)
    by_branch: defaultdict[str, list[_Given]] = defaultdict(list)
    for one in given_up:
        by_branch[one.intent.branch_id].append(one)
    settled: list[Recovery] = []
    for branch_id, intents in by_branch.items():
        if branch_id in refs or all_are_known:
            settled.extend(_settle(store, refs.get(branch_id), intents))
    return settled


def _branches(store: Parts) -> tuple[dict[str, BranchRef], bool]:
    """The branches by their ids, and whether that is all of them: of one that is damaged nobody
    knows the id, so that what is staged for it waits."""
    try:
        return {ref.id: ref for ref in store.branches.all_refs()}, True
    except FormatError:
        return {ref.id: ref for ref in store.branches.all_refs(whole=False)}, False


@dataclass(frozen=True, slots=True)
class _Given:
    """An intent whose writer is given up."""

    intent: Intent
    key: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.key, self.intent.lease


def _settle(store: Parts, branch: BranchRef | None, intents: list[_Given]) -> list[Recovery]:
    """Settle the expired intents of one branch."""
    hit("heal.before_settle")
    try:
        versions = _publish_or_fence(store, branch, intents)
    except BranchDeleted:
        versions = None
    hit("heal.after_settle")
    settled = []
    for one in intents:
        outcome: Outcome = "orphaned_branch_discarded"
        version = None
        if versions is not None:
            version = versions[one.key]
            outcome = "discarded" if version is None else "rolled_forward"
        settled.append(_conclude(store, one, outcome, version))
    return settled


def _publish_or_fence(
    store: Parts, branch: BranchRef | None, intents: list[_Given]
) -> dict[str, int | None] | None:
    """The versions of what was published, by intent; None if there is no such branch."""
    if branch is None:
        return None
    versions: dict[str, int | None] = {}
    left = []
    for one in intents:
        versions[one.key] = _publish(store, branch, one)
        if versions[one.key] is None and not _is_fenced(store, branch, one):
            left.append(one)
    if left:
        hit("heal.before_fence")
        names = [one.key for one in left]
        store.publisher.publish_fence(branch, names, store.actor, "discard what writers left")
        hit("heal.after_fence")
        # A writer that was given up too early may have published just before the fence.
        head = store.log.head(branch)
        for one in left:
            versions[one.key] = _version(find(store.log, head, one.intent))
    return versions


def _publish(store: Parts, branch: BranchRef, one: _Given) -> int | None:
    """The version in which an operation is published, if it is or can be."""
    intent = one.intent
    head = store.log.head(branch)
    published = find(store.log, head, intent)
    if published is not None or intent.sealed is None or _is_fenced(store, branch, one):
        return _version(published)
    if not base_holds(intent.sealed, head.tables) or not _can_be_read(store, intent.sealed):
        return None
    pending = Pending(
        SealedWork(store, head, intent, one.key),
        head,
        intent.operation_id,
        intent.actor,
        intent.kind,
        intent.message,
        intent.properties,
        names=one.names,
    )
    try:
        return store.publisher.publish(pending).version
    except (CommitConflict, LeaseLost, InputError, EngineError) as error:
        # Also what rules no longer allow, and what nobody is there to compare with them.
        logger.info("the work of %s was not published: %s", intent.actor, error)
        return None


def find(log: Log, head: Head, intent: Intent) -> Commit | None:
    return find_commit(log, head, intent.operation_id, intent.base_version)


def _version(commit: Commit | None) -> int | None:
    return None if commit is None else commit.version


def _is_fenced(store: Parts, branch: BranchRef, one: _Given) -> bool:
    head = store.log.head(branch)
    return not fenced_since(store.log, head, one.intent.base_version).isdisjoint(one.names)


def _can_be_read(store: Parts, sealed: tuple[TableChange, ...]) -> bool:
    """Whether the pins are there, whatever this handle remembers of them."""
    for change in sealed:
        if change.after is not None:
            store.files.forget(change.after.id)
            try:
                store.files.open(change.after.id, change.after.pin)
            except (SnapshotExpired, FormatError):
                return False
    return True


def _conclude(store: Parts, one: _Given, outcome: Outcome, version: int | None) -> Recovery:
    intent = one.intent
    recovery = Recovery(
        intent.operation_id,
        outcome,
        intent.branch,
        intent.actor,
        intent.message,
        version,
        store.clock.now(),
        intent.owner,
    )
    recovery = _audit(store, intent.branch_id, recovery)
    hit("heal.after_audit")
    store.objects.delete(one.key)
    hit("heal.after_remove")
    return recovery


def _audit(store: Parts, branch_id: str, recovery: Recovery) -> Recovery:
    key = layout.recovery(branch_id, recovery.operation_id)
    hit("heal.before_audit")
    try:
        store.objects.put_new(key, encode(recovery))
    except ObjectExists:
        try:
            earlier = decode(store.objects.get(key), Recovery, key)
        except CorruptObject:
            earlier = recovery
            store.objects.put(key, encode(recovery))
        if earlier.version is not None or recovery.version is None:
            return earlier
        # An earlier attempt of this operation was discarded; this one was published.
        store.objects.put(key, encode(recovery))
    return recovery


def recoveries(store: Parts) -> Listing[Recovery]:
    found = []
    for info in entries(store.objects, layout.RECOVERIES, depth=2):
        try:
            found.append(decode(store.objects.get(info.key), Recovery, info.key))
        except CorruptObject as error:
            # Told for the record: nothing depends on it.
            logger.warning("%s", error.message)
    return list_recoveries(sorted(found, key=lambda recovery: recovery.time))


def list_recoveries(found: Iterable[Recovery]) -> Listing[Recovery]:
    return Listing.of(
        "Recoveries",
        found,
        {
            "time": lambda r: r.time,
            "outcome": lambda r: r.outcome,
            "branch": lambda r: r.branch,
            "version": lambda r: r.version,
            "actor": lambda r: r.actor,
            "message": lambda r: r.message,
            "operation": lambda r: r.operation_id,
        },
    )
