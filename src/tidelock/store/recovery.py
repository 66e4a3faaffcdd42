"""Healing: settling what writers that died left behind, from the branch's records alone.

    found                                done                              outcome
    its operation id is published        remove the intent                 rolled_forward
    sealed, and its base still holds     publish it for its actor          rolled_forward
    anything else                        leave the files to be collected   discarded
    its branch is gone                   remove                            orphaned_branch_discarded
    unreadable, or of a newer format     refuse the write, name the file

Invariants: one audit object per operation id, which says whether it was published; a live lease is
never touched; every step may be repeated by anyone after a crash at any point, and by several
processes at once.
Order: publish, audit, remove. A crash after any of them is found again and finished.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from tidelock.errors import BranchDeleted, CommitConflict, ObjectExists
from tidelock.model.commit import BranchRef, Commit, TableChange, Tables
from tidelock.model.listing import Listing
from tidelock.store import layout
from tidelock.store.faults import hit
from tidelock.store.intents import Intent, expired, now, read_intent, store_now
from tidelock.store.log import Head
from tidelock.store.objects import ObjectInfo, Objects
from tidelock.store.operation_ids import find_commit
from tidelock.store.pending import Pending
from tidelock.store.records import decode, encode

if TYPE_CHECKING:
    from tidelock.store.store import Store

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
    """A sealed intent on its way into the log: published as it was staged, or not at all."""

    def __init__(self, intent: Intent, objects: Objects, key: str) -> None:
        assert intent.sealed is not None
        self._sealed = intent.sealed
        self._sealed_at = intent.base_version + 1
        self._objects = objects
        self._key = key

    def rebase(self, tables: Tables, version: int) -> tuple[TableChange, ...]:
        if not base_holds(self._sealed, tables):
            raise CommitConflict("The base of a sealed intent no longer holds.")
        return tuple(_at_version(change, self._sealed_at, version) for change in self._sealed)

    def check(self) -> None:
        # Whoever removed it has decided; a healer that was suspended must not decide otherwise.
        if self._objects.info(self._key) is None:
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
        frontier = tuple(replace(one, changed=moved(one.changed)) for one in stream.frontier)
        stream = replace(stream, frontier=frontier, refreshed=moved(stream.refreshed))
    return replace(change, after=replace(after, changed=moved(after.changed), stream=stream))


def heal(store: Store) -> list[Recovery]:
    """Settle every expired intent. One list, which is empty in the steady state."""
    found = [
        (info, intent)
        for info in store.objects.list(layout.INTENTS)
        if (intent := read_intent(store.objects, info)) is not None
    ]
    if not any(expired(info, intent.lease_seconds, now()) for info, intent in found):
        return []
    moment = store_now(store.objects)
    return [
        _settle(store, intent, info)
        for info, intent in found
        if expired(info, intent.lease_seconds, moment)
    ]


def _settle(store: Store, intent: Intent, info: ObjectInfo) -> Recovery:
    hit("heal.before_settle")
    outcome, version = _outcome(store, intent, info.key)
    hit("heal.after_settle")
    recovery = Recovery(
        intent.operation_id,
        outcome,
        intent.branch,
        intent.actor,
        intent.message,
        version,
        datetime.now(UTC),
        intent.owner,
    )
    recovery = _audit(store, recovery)
    hit("heal.after_audit")
    store.objects.delete(info.key)
    hit("heal.after_remove")
    return recovery


def _outcome(store: Store, intent: Intent, key: str) -> tuple[Outcome, int | None]:
    branch = _branch(store, intent)
    if branch is None:
        return "orphaned_branch_discarded", None
    try:
        head = store.log.head(branch)
        published = find_commit(store.log, head, intent.operation_id, intent.base_version)
        sealed = intent.sealed
        if published is None and sealed is not None and base_holds(sealed, head.tables):
            published = _publish(store, intent, key, head)
    except BranchDeleted:
        return "orphaned_branch_discarded", None
    if published is None:
        return "discarded", None
    return "rolled_forward", published.version


def _publish(store: Store, intent: Intent, key: str, head: Head) -> Commit | None:
    pending = Pending(
        SealedWork(intent, store.objects, key),
        head,
        intent.operation_id,
        intent.actor,
        intent.kind,
        intent.message,
        intent.properties,
    )
    try:
        return store.publisher.publish(pending)
    except CommitConflict:
        return None


def _branch(store: Store, intent: Intent) -> BranchRef | None:
    refs = (ref for ref in store.branches.all_refs() if ref.id == intent.branch_id)
    return next(refs, None)


def _audit(store: Store, recovery: Recovery) -> Recovery:
    key = layout.recovery(recovery.operation_id)
    hit("heal.before_audit")
    try:
        store.objects.put_new(key, encode(recovery))
    except ObjectExists:
        earlier = decode(store.objects.get(key), Recovery, key)
        if earlier.version is not None or recovery.version is None:
            return earlier
        # An earlier attempt of this operation was discarded; this one was published.
        store.objects.put(key, encode(recovery))
    return recovery


def recoveries(store: Store) -> Listing[Recovery]:
    found = [
        decode(store.objects.get(info.key), Recovery, info.key)
        for info in store.objects.list(layout.RECOVERIES)
    ]
    return Listing.of(
        "Recoveries",
        sorted(found, key=lambda recovery: recovery.time),
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
