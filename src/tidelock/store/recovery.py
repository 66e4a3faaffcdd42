"""Healing: settling what writers that died left behind, from the branch's records alone.

    found                                done                              outcome
    its operation id is published        remove the intent                 rolled_forward
    sealed, and its base still holds     publish it for its actor          rolled_forward
    anything else                        leave the files to be collected   discarded
    its branch is gone                   remove                            orphaned_branch_discarded
    unreadable, or of a newer format     refuse the write, name the file

Invariants: one audit object per operation id, created only; a live lease is never touched; every
step may be repeated by anyone after a crash at any point, and by several processes at once.
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
from tidelock.store.intents import Intent, expired, now, read_intent
from tidelock.store.log import Head
from tidelock.store.objects import ObjectInfo
from tidelock.store.operation_ids import find_commit
from tidelock.store.publish import Pending
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

    def __init__(self, intent: Intent) -> None:
        assert intent.sealed is not None
        self._sealed = intent.sealed

    def rebase(self, tables: Tables, version: int) -> tuple[TableChange, ...]:
        if not base_holds(self._sealed, tables):
            raise CommitConflict("The base of a sealed intent no longer holds.")
        return tuple(_at_version(change, version) for change in self._sealed)

    def check(self) -> None:
        return


def base_holds(sealed: tuple[TableChange, ...], tables: Tables) -> bool:
    """Whether every table is as it was when the intent was sealed."""
    for change in sealed:
        if change.before is None:
            if change.table in tables:
                return False
        elif tables.same(change.before) != change.before:
            return False
    return True


def _at_version(change: TableChange, version: int) -> TableChange:
    if change.after is None:
        return change
    return replace(change, after=replace(change.after, changed=version))


def heal(store: Store) -> list[Recovery]:
    """Settle every expired intent. One list, which is empty in the steady state."""
    recoveries = []
    for info in store.objects.list(layout.INTENTS):
        intent = read_intent(store.objects, info)
        if intent is not None and expired(info, intent.lease_seconds, now()):
            recoveries.append(_settle(store, intent, info))
    return recoveries


def _settle(store: Store, intent: Intent, info: ObjectInfo) -> Recovery:
    hit("heal.before_settle")
    outcome, version = _outcome(store, intent)
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


def _outcome(store: Store, intent: Intent) -> tuple[Outcome, int | None]:
    branch = _branch(store, intent)
    try:
        head = store.log.head(branch) if branch else None
    except BranchDeleted:
        head = None
    if head is None:
        return "orphaned_branch_discarded", None
    published = find_commit(store.log, head, intent.operation_id, intent.base_version)
    if published is None and intent.sealed is not None and base_holds(intent.sealed, head.tables):
        published = _publish(store, intent, head)
    if published is None:
        return "discarded", None
    return "rolled_forward", published.version


def _publish(store: Store, intent: Intent, head: Head) -> Commit | None:
    pending = Pending(
        SealedWork(intent),
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
        return decode(store.objects.get(key), Recovery, key)
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
