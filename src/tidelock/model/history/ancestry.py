"""Ancestry: which commits come before a commit, over all branches, as one small vector.

A branch is a line: whoever descends from its version 9 descends from its versions up to 9. So the
ancestors of a commit are, for each branch, the versions up to one, and what is before a merge is
the greater of both parents, branch by branch:

    {"main": 41, "dev-3f9a1c0b22d1": 57}

A `Place` is one commit, by the branch whose log holds it.

Laws, for ancestries a and b:
    a commit is among its own ancestors;
    ancestors(merge of p and q) = joined(ancestors(p), ancestors(q)) and the merge itself;
    what a and b have in common is the lesser of both, branch by branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidelock.model.history.commit import BranchRef, commit_id

Ancestry: TypeAlias = Mapping[str, int]
"""For each branch id, the last version that is an ancestor."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One commit: a version in the log of the branch that it was made on."""

    branch_id: str
    version: int

    @property
    def commit(self) -> str:
        return commit_id(self.branch_id, self.version)

    @classmethod
    def of(cls, branch: BranchRef, version: int) -> Place:
        """The commit that a branch has at a version."""
        return cls(branch.home_of(version), version)

    @classmethod
    def named(cls, commit: str) -> Place:
        branch_id, _, version = commit.rpartition("-")
        return cls(branch_id, int(version))

    def is_among(self, ancestry: Ancestry) -> bool:
        return ancestry.get(self.branch_id, 0) >= self.version

    def is_on(self, branch: BranchRef, version: int) -> bool:
        """Whether it is on the line of a branch up to a version: reached by first parents alone."""
        return self.version <= version and branch.home_of(self.version) == self.branch_id


def line_of(branch: BranchRef, version: int) -> dict[str, int]:
    """The ancestors of a branch's version that are on its own line."""
    found: dict[str, int] = {}
    before = 0
    for branch_id, shared_until in (*branch.lineage, (branch.id, version)):
        until = min(shared_until, version)
        if until > before:
            found[branch_id] = until
            before = until
    return found


def joined(*parts: Ancestry) -> dict[str, int]:
    """The ancestors of whatever has all of these."""
    found: dict[str, int] = {}
    for part in parts:
        for branch_id, version in part.items():
            found[branch_id] = max(version, found.get(branch_id, 0))
    return found


def in_common(one: Ancestry, other: Ancestry) -> list[Place]:
    """The newest of each branch that both descend from, in order."""
    return sorted(
        Place(branch_id, min(version, other[branch_id]))
        for branch_id, version in one.items()
        if branch_id in other
    )


def newest_of(places: Iterable[Place], ancestry_of: Callable[[Place], Ancestry]) -> list[Place]:
    """Those places that no other of them descends from, in order."""
    given = sorted(set(places))
    if len(given) < 2:
        return given
    known = {place: ancestry_of(place) for place in given}
    return [
        place
        for place in given
        if not any(other != place and place.is_among(known[other]) for other in given)
    ]
