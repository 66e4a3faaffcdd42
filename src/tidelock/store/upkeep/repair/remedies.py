"""Mending: what can be done about damaged objects, by itself or on an explicit word.

Owns: removing what nobody needs, and making anew what follows from something else: a claim of an
operation and the index of them from the log, a branch from its own commits, a checkpoint from the
records that are still beside it. What is left endangers something that only
an operator can judge. It is given up on an explicit word, and then kept under `discarded/`.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelock.errors import Advice, FormatError, InvalidOption, ObjectMissing
from tidelock.model.history.commit import BranchRef
from tidelock.model.names import fold
from tidelock.store.log.checkpoints import named, pieces_of
from tidelock.store.log.operation_ids import Claim
from tidelock.store.objects import layout
from tidelock.store.objects.entries import number_of, numbered
from tidelock.store.objects.records import Record, content, decode, encode
from tidelock.store.parts import Parts
from tidelock.store.upkeep.repair.inventory import ROOT, Finding, kind_of

GIVEN_UP = ("record", "branch", "tag", "hold", "intent")
"""The kinds that can be given up on an explicit word."""


def mend(store: Parts, finding: Finding) -> bool:
    """Deal with a damaged object, if that harms nobody; whether it was."""
    act = _MENDS.get(finding.kind)
    return finding.what == "damaged" and act is not None and act(store, finding.key)


def _remove(store: Parts, key: str) -> bool:
    store.objects.delete(key)
    return True


def _remove_lease(store: Parts, key: str) -> bool:
    # Its owner may live, and have something staged.
    for ref in store.branches.refs():
        store.publisher.publish_fence(
            ref, [key], store.actor, "fence off a writer whose lease is damaged"
        )
    return _remove(store, key)


def _claim_anew(store: Parts, key: str) -> bool:
    branch_id, segment = key.split("/")[-2:]
    operation_id = layout.decode(segment.removesuffix(".json"))
    refs = [ref for ref in store.branches.all_refs(whole=False) if ref.id == branch_id]
    if operation_id is None or not refs:
        return False
    newest = store.log.newest_version(refs[0])
    commits = store.log.walk(refs[0], newest)
    found = next((one for one in commits if one.operation_id == operation_id), None)
    claim = Claim(operation_id, newest, None if found is None else found.version)
    store.objects.put(key, encode(claim))
    return True


def _branch_anew(store: Parts, key: str) -> bool:
    """Make the object of a branch from its own first record, which names what it was forked at."""
    known = {ref.id: ref for ref in store.branches.all_refs(whole=False)}
    segment = key.split("/")[-2]
    found = []
    for branch_id in store.objects.list_folders(layout.LOG):
        first = _first_record(store, branch_id) if branch_id not in known else None
        if first is not None and layout.encode(fold(first.commits[0].branch)) == segment:
            found.append((branch_id, first.commits[0]))
    if len(found) != 1:
        return False
    branch_id, commit = found[0]
    home, _, number = commit.parents[0].rpartition("-") if commit.parents else ("", "", "")
    if commit.parents and home not in known:
        return False
    lineage = tuple(one for one in known[home].lineage if one[1] < int(number)) if home else ()
    ref = BranchRef(
        name=commit.branch,
        id=branch_id,
        incarnation=number_of(key) or 1,
        lineage=(*lineage, (home, int(number))) if home else (),
        created=commit.time,
        actor=commit.actor,
    )
    store.objects.put(key, encode(ref))
    return True


def _first_record(store: Parts, branch_id: str) -> Record | None:
    keys = [one.key(branch_id) for one in store.log.past.list(branch_id)]
    keys += [info.key for info in numbered(store.objects, f"{layout.LOG}/{branch_id}")]
    if not keys:
        return None
    try:
        return decode(store.objects.get(keys[0]), Record, keys[0])
    except (FormatError, ObjectMissing):
        return None


def _checkpoint_anew(store: Parts, key: str) -> bool:
    """Remove a checkpoint whose commits are told by others too: it is written again in time."""
    branch_id = key.split("/")[-2]
    (damaged,) = named([key])
    ref = next((one for one in store.branches.all_refs(whole=False) if one.id == branch_id), None)
    if ref is None:
        return False
    first = max(damaged.first, ref.fork_version + 1)
    others = [one for one in store.log.past.list(branch_id) if one != damaged]
    found: set[int] = set()
    try:
        last = min(damaged.last, store.log.newest_version(ref))
        pieces = pieces_of(others, store.log.numbers(ref), first, last)
        for piece in pieces:
            place = piece.checkpoint.key(branch_id) if piece.span else ""
            place = place or layout.record(branch_id, piece.first)
            record = decode(store.objects.get(place), Record, place)
            found.update(range(record.first, record.last + 1))
    except (FormatError, ObjectMissing):
        return False
    return found.issuperset(range(first, last + 1)) and _remove(store, key)


def _index_anew(store: Parts, key: str) -> bool:
    branch_id, name = key.split("/")[-2:]
    ref = next((one for one in store.branches.all_refs(whole=False) if one.id == branch_id), None)
    if ref is None:
        return False
    until = int(name.split("-")[0])
    try:
        if until > store.log.newest_version(ref):
            return _remove(store, key)
        store.published.build(ref, 0, until)
    except FormatError:
        # A part of the log is damaged too, and is among what is left.
        return False
    return True


_MENDS: dict[str, Callable[[Parts, str], bool]] = {
    "checkpoint": _checkpoint_anew,
    "published": _index_anew,
    "recovery": _remove,
    "attempt": _remove,
    "post": _remove,
    "collection": _remove,
    "lease": _remove_lease,
    "operation": _claim_anew,
    "branch": _branch_anew,
}


def discard_object(store: Parts, name: str) -> str:
    """Give up a damaged object on an explicit word; its key."""
    key = name if name.startswith(f"{ROOT}/") else f"{ROOT}/{name}"
    kind = kind_of(key)
    if store.objects.info(key) is None or kind is None:
        raise InvalidOption(
            f"There is no object {name!r} of Tidelock's.",
            Advice(
                "lake.verify() names what is damaged.", "`tidelock verify` names what is damaged."
            ),
            key=key,
        )
    if kind.name not in GIVEN_UP:
        raise InvalidOption(
            f"A damaged object of kind {kind.name!r} is not given up like this. "
            f"{kind.advice.format(key)}",
            key=key,
        )
    data = store.objects.get(key)
    try:
        content(data, key)
    except FormatError:
        pass
    else:
        raise InvalidOption(f"The object {key!r} is whole. Nothing was discarded.", key=key)
    if kind.name == "record":
        _refuse_older(store, key)
    store.objects.put(f"{layout.DISCARDED}/{layout.encode(key)}", data)
    store.objects.delete(key)
    return key


def _refuse_older(store: Parts, key: str) -> None:
    newest = numbered(store.objects, key.rsplit("/", 1)[0])[-1].key
    if key != newest:
        raise InvalidOption(
            f"The object {key!r} is not the newest record of its branch: those after it stand on "
            "it. Restore it from a copy of the lake.",
            key=key,
            newest=newest,
        )
