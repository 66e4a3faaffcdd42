"""Identity: which rows and columns of a merge base are which at a branch that descends from it.

Along a branch, rows and columns keep their ids. A merge gives new ids to what it brings from the
source, and its commit tells which (`rows`, `columns`, by table id); what it does not tell kept its
id. So a base is followed to a commit by the merges that lie on the way from one to the other.

Invariants: along the line of a branch, from parent to first parent, the rows of a pin keep their
ids in every later one, and no id is given to another row. A merge adopts a pin only where that
holds (merge/plan.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tidelock.errors import ObjectExists, SnapshotExpired
from tidelock.model.history.ancestry import Place
from tidelock.model.history.commit import BranchRef, Tables
from tidelock.model.history.renumbering import IDENTITY, Renumbering, read_renumbering
from tidelock.store.kinship.bases import Tip, bases_of_all, collected
from tidelock.store.log.merges import merge_of, merges_on
from tidelock.store.objects import layout
from tidelock.store.objects.records import decode, encode
from tidelock.store.parts import Parts

INLINE_RANGES_MAX = 256
"""A renumbering of more ranges is an object of its own, so that records stay small."""


@dataclass(frozen=True, slots=True)
class _Kept:
    shared: int
    ranges: tuple[tuple[int, int, int], ...]
    format: int = 1


@dataclass(frozen=True)
class Path:
    """The way from a base to a commit that descends from it: what each merge on it tells."""

    store: Parts
    merges: tuple[dict[str, Any], ...] = ()
    """In the order in which they are passed."""
    _known: dict[str, Renumbering] = field(default_factory=dict, compare=False)

    def rows(self, table_id: str) -> Renumbering:
        """The row ids of a table at the base, as they are at the end."""
        if table_id not in self._known:
            found = IDENTITY
            for told in self.merges:
                found = found.then(self._read(told.get("rows", {}).get(table_id)))
            self._known[table_id] = found
        return self._known[table_id]

    def _read(self, told: dict[str, Any] | None) -> Renumbering:
        if told is None:
            return IDENTITY
        if "object" not in told:
            return read_renumbering(told)
        key = layout.renumbering(told["object"])
        kept = decode(self.store.objects.get(key), _Kept, key)
        return Renumbering(kept.shared, kept.ranges)

    def columns(self, table_id: str, ids: list[int]) -> dict[int, int]:
        """The columns of a table at the base by id, each with its id at the end; what is left out
        is not there any more."""
        found = {one: one for one in ids}
        for told in self.merges:
            pairs = told.get("columns", {}).get(table_id)
            if pairs is not None:
                known = dict(pairs)
                found = {one: known[now] for one, now in found.items() if now in known}
        return found

    def tables(self) -> set[str]:
        """The tables of which rows or columns have other ids at the end, or may have."""
        return {
            table_id
            for told in self.merges
            for what in ("rows", "columns")
            for table_id in told.get(what, {})
        }


def path_between(store: Parts, base: Tip, tip: Tip) -> Path:
    """The way from a base to a commit that descends from it."""
    return Path(store, tuple(_merges_between(store, base, tip)))


def _merges_between(store: Parts, base: Tip, tip: Tip) -> list[dict[str, Any]]:
    if base.place.is_on(tip.branch, tip.version):
        return []
    first: dict[str, Any] | None = None
    for commit in merges_on(store.log, tip.branch, tip.version):
        told = merge_of(commit)
        assert told is not None
        if not base.place.is_among(told["ancestry"]):
            break
        first = told
    assert first is not None, "a base is an ancestor"
    place = Place.named(first["commit"])
    branch = store.branches.by_id(place.branch_id)
    if branch is None:
        raise collected(place.commit)
    source = Tip(branch, place.version, base.tables)
    return [*_merges_between(store, base, source), first]


def branches_between(store: Parts, branches: Iterable[BranchRef]) -> set[str]:
    """The branches that merges of these would have to know of: those of merge bases, and those on
    the ways from there."""
    found: set[str] = set()
    for pair, bases in bases_of_all(store, branches).items():
        for base in bases:
            found.add(base.branch_id)
            for end in pair:
                found.update(_on_the_way(store, base, end))
    return found


def _on_the_way(store: Parts, base: Place, end: Place) -> set[str]:
    branches = [store.branches.by_id(place.branch_id) for place in (base, end)]
    if branches[0] is None or branches[1] is None:
        return set()
    tips = [
        Tip(branch, place.version, Tables({}))
        for branch, place in zip(branches, (base, end), strict=True)
        if branch is not None
    ]
    try:
        merges = _merges_between(store, *tips)
    except SnapshotExpired:
        # What is gone already keeps nothing.
        return set()
    return {Place.named(told["commit"]).branch_id for told in merges}


def keep_renumbering(store: Parts, renumbering: Renumbering) -> Mapping[str, Any]:
    """A renumbering as the property of a commit tells it."""
    if len(renumbering.ranges) <= INLINE_RANGES_MAX:
        return renumbering.plain()
    kept = _Kept(renumbering.shared, renumbering.ranges)
    name = hashlib.sha256(msgspec.json.encode(kept)).hexdigest()[:32]
    # Its name is the hash of its content: the process that was first wrote the same.
    with suppress(ObjectExists):
        store.objects.put_new(layout.renumbering(name), encode(kept))
    return {"object": name}
