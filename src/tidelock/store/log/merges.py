"""Merges in the log: commits with two parents, and how the ancestors of any commit are found.

A commit that merges another branch has the head of that branch as its second parent, and tells:

    {"merge": {"source": "dev", "commit": "dev-3f9a1c0b22d1-57", "ancestry": {…}, "before": 23, …}}

`ancestry` is that of all merged branches so far, this one included; `before` the version of the
merge before this one on the branch or before its fork, 0 if there is none. Every record carries the
version of the newest (records.py). So the ancestors of a commit are told by its branch, whose
lineage is known, and by one commit: nothing is walked, however long the history is.

What grows is the vector, by one entry for each branch that was ever merged. Beyond ENTRIES_MAX,
entries are left out whose branches' logs were collected: nobody can descend from those any more
but by what is already merged. `forgotten` says that this happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tidelock.model.history.ancestry import Ancestry, joined, line_of
from tidelock.model.history.commit import BranchRef, Commit
from tidelock.store.log.log import MERGE, Head, Log

ENTRIES_MAX = 1024


def merge_of(commit: Commit) -> dict[str, Any] | None:
    """What a commit tells of the branch that it merged; None if it merged none."""
    told: dict[str, Any] | None = commit.properties.get(MERGE)
    return told


def ancestry_of(log: Log, branch: BranchRef, version: int) -> dict[str, int]:
    """All ancestors of a version of a branch, itself included."""
    line = line_of(branch, version)
    merge = log.newest_merge(branch, version)
    if not merge:
        return line
    return joined(line, log.commit_at(branch, merge).properties[MERGE]["ancestry"])


def has_forgotten(log: Log, branch: BranchRef, version: int) -> bool:
    """Whether ancestors were left out whose logs are gone."""
    merge = log.newest_merge(branch, version)
    return bool(merge) and "forgotten" in log.commit_at(branch, merge).properties[MERGE]


def with_parents(log: Log, head: Head, commit: Commit) -> Commit:
    """A commit on top of a head; if it merges, with its second parent, and all that it descends
    from."""
    told = merge_of(commit)
    if told is None:
        return commit
    ancestry: Ancestry = joined(ancestry_of(log, head.branch, head.version), told["ancestry"])
    complete = {**told, "ancestry": ancestry, "before": head.merge}
    if has_forgotten(log, head.branch, head.version):
        complete["forgotten"] = True
    if len(ancestry) > ENTRIES_MAX:
        there = set(log.branch_ids())
        complete["ancestry"] = {one: v for one, v in ancestry.items() if one in there}
        complete["forgotten"] = True
    return replace(
        commit,
        parents=(*commit.parents, told["commit"]),
        properties={**commit.properties, MERGE: complete},
    )


def merges_on(log: Log, branch: BranchRef, version: int) -> Iterator[Commit]:
    """The merges on a line up to a version, newest first, each read when it is asked for."""
    merge = log.newest_merge(branch, version)
    while merge:
        commit = log.commit_at(branch, merge)
        yield commit
        merge = int(commit.properties[MERGE]["before"])
