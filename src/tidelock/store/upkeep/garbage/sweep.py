"""Sweeping: removing objects that nobody needs any more, beside the files of tables.

    a claim of an operation     when the index of its branch has it, or nobody can publish it now
    a deleted branch, its log   when nothing else has it in its history
    an announced collection     when its collector is dead
    an unpublished refresh      when it is not among the last of its table

Each has to be older than the cutoff of the collection as well: no live writer began before that.
Invariants: what is decided from is read before anything is removed; of a branch, its name goes
first and the record that ends its log last, so that what is left in between is known as such.
After a crash: what is left is found again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime

from tidelock.errors import (
    BranchDeleted,
    CorruptObject,
    IntentUnreadable,
    NewerFormat,
    ObjectMissing,
)
from tidelock.model.history.commit import BranchRef
from tidelock.store.kinship.identity import branches_between
from tidelock.store.leases.holds import holds
from tidelock.store.leases.intents import read_intent
from tidelock.store.leases.leases import Lease, expired
from tidelock.store.log.checkpoint_writer import OLD
from tidelock.store.log.log import REMOVE_AFTER_SECONDS
from tidelock.store.log.operation_ids import Claim
from tidelock.store.objects import layout
from tidelock.store.objects.boot_time import boot_seconds
from tidelock.store.objects.entries import entries
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.protocol import ObjectInfo
from tidelock.store.objects.records import decode
from tidelock.store.parts import Parts

ATTEMPTS_KEPT = 100
OF_A_BRANCH = (layout.PUBLISHED, layout.OPERATIONS, layout.ATTEMPTS, layout.PAST, layout.LOG)
"""The folders that have one of each branch, in the order in which they are removed."""
_BRANCH_ID = re.compile(r"[a-z0-9-]+-[0-9a-f]{12}")


def sweep_objects(store: Parts, cutoff: datetime, moment: datetime, dry_run: bool) -> int:
    """Remove what is not needed; how many objects that were, or would be."""
    planned = [
        *store.together.map(
            lambda plan: plan(store, cutoff, moment), [_collections, _claims, _attempts]
        ),
        *_branches(store, cutoff, moment),
    ]
    if not dry_run:
        for keys in planned:
            hit("sweep.before_delete")
            store.objects.delete_many(keys)
            hit("sweep.after_delete")
    return sum(map(len, planned))


def _collections(store: Parts, cutoff: datetime, moment: datetime) -> list[str]:
    """Those of collectors that died."""
    return [
        info.key
        for info in entries(store.objects, layout.COLLECTIONS)
        if expired(info, 2 * store.lease_seconds, moment) and info.modified < moment - OLD
    ]


def _attempts(store: Parts, cutoff: datetime, moment: datetime) -> list[str]:
    by_table: defaultdict[str, list[ObjectInfo]] = defaultdict(list)
    for info in entries(store.objects, layout.ATTEMPTS, depth=3):
        by_table[info.key.rpartition("/")[0]].append(info)
    return [
        info.key
        for infos in by_table.values()
        for info in infos[:-ATTEMPTS_KEPT]
        if info.modified < cutoff
    ]


# Claims


def _claims(store: Parts, cutoff: datetime, moment: datetime) -> list[str]:
    by_branch: defaultdict[str, list[ObjectInfo]] = defaultdict(list)
    for info in entries(store.objects, layout.OPERATIONS, depth=2):
        if info.modified < cutoff:
            by_branch[info.key.split("/")[-2]].append(info)
    refs = [ref for ref in store.branches.refs() if ref.id in by_branch] if by_branch else []
    found = store.together.map(lambda ref: _claims_of(store, ref, by_branch[ref.id]), refs)
    return [key for keys in found for key in keys]


def _claims_of(store: Parts, ref: BranchRef, infos: Sequence[ObjectInfo]) -> list[str]:
    """The claims of one branch that are not needed: those that the index has, and those that led to
    nothing, for the writers that made them would have published by now."""
    until = store.log_folder.settled(ref)
    told = store.together.map(lambda info: _operation_of(store, info), infos)
    names = {name: info for name, info in zip(told, infos, strict=True) if name is not None}
    indexed = store.published.among(ref.id, until, names) if until else set()
    others = [info for name, info in names.items() if name not in indexed]
    open_claims = [one for one in store.together.map(lambda i: _unsettled(store, i), others) if one]
    if open_claims:
        with suppress(BranchDeleted):
            head = store.log.head(ref)
            since = min(claim.since for _, claim in open_claims)
            ids = {claim.operation_id for _, claim in open_claims}
            published = {
                commit.operation_id
                for commit in store.log.walk(ref, head.version, max(since, until) + 1)
                if commit.operation_id in ids
            }
            open_claims = [one for one in open_claims if one[1].operation_id not in published]
    return [names[one].key for one in indexed] + [info.key for info, _ in open_claims]


def _operation_of(store: Parts, info: ObjectInfo) -> str | None:
    """The id that a claim is of: by its name, or, if it is too long for one, by what it says."""
    name = layout.decode(info.key.rsplit("/", 1)[1].removesuffix(".json"))
    if name is None and (claim := _read(store, info)) is not None:
        return claim.operation_id
    return name


def _unsettled(store: Parts, info: ObjectInfo) -> tuple[ObjectInfo, Claim] | None:
    claim = _read(store, info)
    return (info, claim) if claim is not None and claim.version is None else None


def _read(store: Parts, info: ObjectInfo) -> Claim | None:
    try:
        return decode(store.objects.get(info.key), Claim, info.key)
    except (ObjectMissing, CorruptObject, NewerFormat):
        # What cannot be read may stand for an operation that was published.
        return None


# Branches that were deleted


def _branches(store: Parts, cutoff: datetime, moment: datetime) -> list[list[str]]:
    """What is left of deleted branches, in the order in which it is removed."""
    # Logs before names: a branch has a name before it has a log.
    logs = store.objects.list_folders(layout.LOG)
    refs = store.branches.all_refs()
    named = {ref.id for ref in refs}
    over = store.together.map(lambda ref: _is_over(store, ref, cutoff, moment), refs)
    dead = [ref for ref, is_over in zip(refs, over, strict=True) if is_over]
    needed = _in_use(store, refs, {ref.id for ref in dead}) if dead else set()
    gone = [ref for ref in dead if ref.id not in needed]
    nameless = [one for one in logs if one not in named and _was_closed(store, one, cutoff)]
    ids = [*(ref.id for ref in gone), *nameless]
    found = [[layout.branch(ref.name, ref.incarnation) for ref in gone]]
    for place in OF_A_BRANCH:
        folders = [f"{place}/{branch_id}" for branch_id in ids]
        infos = store.together.map(store.objects.list, folders)
        # The record that ends a log goes last: it tells what the rest is left of.
        found.append([info.key for one in infos for info in one[:-1]])
        found.append([info.key for one in infos for info in one[-1:]])
    if store.location.kind == "file":
        found.append([f"{layout.TURNS}/{branch_id}.lock" for branch_id in ids])
    return [keys for keys in found if keys]


def _was_closed(store: Parts, branch_id: str, cutoff: datetime) -> bool:
    """Whether a log without a name is what is left of a branch that was deleted. One that was not
    has lost its name by somebody else's hand, and is left alone."""
    if not _BRANCH_ID.fullmatch(branch_id):
        return False
    end = store.log.end_of(BranchRef(branch_id, branch_id, 0, (), cutoff, ""))
    return end is not None and end.time < cutoff


def _is_over(store: Parts, ref: BranchRef, cutoff: datetime, moment: datetime) -> bool:
    """Whether a branch was deleted so long ago that no writer of it is left who has not noticed."""
    end = None if ref.id == layout.MAIN else store.log.end_of(ref)
    if end is None or end.time >= cutoff:
        return False
    seen = store.closed_seen.setdefault(ref.id, boot_seconds())
    if boot_seconds() - seen >= REMOVE_AFTER_SECONDS:
        return True
    info = store.objects.info(layout.record(ref.id, end.record))
    return info is None or info.modified < moment - OLD


def _in_use(store: Parts, refs: Sequence[BranchRef], dead: set[str]) -> set[str]:
    """The branches that something else has in its history."""
    lines: list[tuple[str, Iterable[tuple[str, int]]]] = [
        (ref.id, ref.lineage) for ref in refs if ref.id not in dead
    ]
    lines += [(tag.branch_id, tag.lineage) for tag in store.branches.tags()]
    lines += [(one.branch_id, one.lineage) for one in holds(store.objects, store.together)]
    used = {branch_id for line in lines for branch_id in (line[0], *(one[0] for one in line[1]))}
    # What live branches would be merged from.
    live = [ref for ref in refs if ref.id not in dead]
    used |= branches_between(store, live)
    used |= {snapshot.branch_id for snapshot in store.lease.snapshots()}
    used |= {use.branch_id for use in store.uses.listed()}
    for info in entries(store.objects, layout.LEASES):
        # The owner of one that is damaged is fenced off.
        with suppress(ObjectMissing, CorruptObject):
            lease = decode(store.objects.get(info.key), Lease, info.key)
            used |= {branch_id for branch_id, _ in lease.versions}
            used |= {use.branch_id for use in lease.uses}
    for info in entries(store.objects, layout.INTENTS):
        with suppress(IntentUnreadable):
            intent = read_intent(store.objects, info)
            used |= {intent.branch_id} if intent is not None else set()
    # What a deleted branch that is kept was forked from is kept as well.
    by_id = {ref.id: ref for ref in refs}
    for branch_id in list(used & dead):
        used |= {one for one, _ in by_id[branch_id].lineage}
    return used
