"""Merge bases: the newest commits that two others both descend from.

Owns: finding them, by ancestries alone (model/history/ancestry.py): what it costs depends on how
many branches were merged, and not on how many commits there are.

    one base         the usual case: a fork, or the last merge between the two
    several          histories that crossed; what they make together is the base (merge/rows/)
    none             nothing is shared: every table is new to the other side
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from tidelock.errors import Advice, SnapshotExpired
from tidelock.model.history.ancestry import Ancestry, Place, in_common, newest_of
from tidelock.model.history.commit import BranchRef, Tables, TableState, origin_of
from tidelock.store.log.log import Head
from tidelock.store.log.merges import ancestry_of, has_forgotten
from tidelock.store.parts import Parts


@dataclass(frozen=True)
class Tip:
    """A commit that is merged, compared, or a base of that: one version of one branch."""

    branch: BranchRef
    version: int
    tables: Tables

    @classmethod
    def of(cls, head: Head) -> Tip:
        return cls(head.branch, head.version, head.tables)

    @property
    def place(self) -> Place:
        return Place.of(self.branch, self.version)

    @property
    def told(self) -> str:
        """The commit as a sentence names it."""
        return f"version {self.version} of {self.branch.name!r}"

    def origin(self, state: TableState) -> str:
        """The commit that made a table of this version what it is."""
        return origin_of(self.branch, state)

    def has_on_its_line(self, origin: str) -> bool:
        """Whether what a commit made is what this version's table of the same id was made from,
        step by step: its rows have the ids that they had there."""
        return Place.named(origin).is_on(self.branch, self.version)


def tip_at(store: Parts, place: Place) -> Tip:
    """The commit at a place, also of a branch that was deleted."""
    branch = store.branches.by_id(place.branch_id)
    if branch is None:
        raise collected(place.commit)
    return Tip(branch, place.version, store.log.tables_at(branch, place.version))


def ancestry(store: Parts, tip: Tip) -> Ancestry:
    return ancestry_of(store.log, tip.branch, tip.version)


def find_bases(store: Parts, one: Tip, other: Tip) -> list[Tip]:
    """The newest commits that both descend from."""
    return [tip_at(store, place) for place in base_places(store, one, other)]


def base_places(store: Parts, one: Tip, other: Tip) -> list[Place]:
    """Where the merge bases are, in order."""
    left, right = ancestry(store, one), ancestry(store, other)
    _refuse_forgotten(store, (one, left), (other, right))
    shared = in_common(left, right)
    refs = {ref.id: ref for ref in (one.branch, other.branch)}

    def ancestry_at(place: Place) -> Ancestry:
        branch = refs.get(place.branch_id) or store.branches.by_id(place.branch_id)
        if branch is None:
            raise collected(place.commit)
        return ancestry_of(store.log, branch, place.version)

    return newest_of(shared, ancestry_at)


def bases_of_all(
    store: Parts, branches: Iterable[BranchRef]
) -> dict[tuple[Place, Place], list[Place]]:
    """The merge bases of all branches with each other, and, where there are several, of those:
    what a merge of any two of them may have to read."""
    ancestries: dict[Place, Ancestry] = {}

    def ancestry_at(place: Place) -> Ancestry:
        if place not in ancestries:
            branch = store.branches.by_id(place.branch_id)
            # Of one that is gone nothing is left to keep.
            known = {} if branch is None else ancestry_of(store.log, branch, place.version)
            ancestries[place] = known
        return ancestries[place]

    found: dict[tuple[Place, Place], list[Place]] = {}
    heads = []
    for branch in branches:
        version = store.log.newest_version(branch)
        if version:
            place = Place.of(branch, version)
            ancestries[place] = ancestry_of(store.log, branch, version)
            heads.append(place)
    left = list(combinations(sorted(set(heads)), 2))
    while left:
        pair = left.pop()
        if pair not in found:
            bases = newest_of(in_common(*map(ancestry_at, pair)), ancestry_at)
            found[pair] = bases
            left.extend(combinations(bases, 2))
    return found


def _refuse_forgotten(store: Parts, *sides: tuple[Tip, Ancestry]) -> None:
    """Where one side was told to forget branches that are gone, the other must not know of one that
    it may have had."""
    (one, left), (other, right) = sides
    doubtful: set[str] = set()
    if has_forgotten(store.log, one.branch, one.version):
        doubtful |= right.keys() - left.keys()
    if has_forgotten(store.log, other.branch, other.version):
        doubtful |= left.keys() - right.keys()
    gone = doubtful - set(store.log.branch_ids()) if doubtful else set()
    if gone:
        raise collected(min(gone))


def collected(what: str) -> SnapshotExpired:
    return SnapshotExpired(
        f"The merge base cannot be read: {what!r} was removed by garbage collection, so that "
        "nobody can tell which side changed what. Nothing was written.",
        Advice(
            "Compare the two with lake.diff, and carry over what is wanted in a transaction.",
            "Compare the two with `tidelock branch diff`, and carry over what is wanted.",
        ),
        commit=what,
    )
