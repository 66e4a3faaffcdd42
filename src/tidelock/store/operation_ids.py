"""Operation ids: the identity of a commit before it exists.

Owns: one claim per operation id that a caller chose, saying from which version on its commit may be
found, and once it is known, where it is.
Invariant: a claim exists before the first attempt is staged, so that any later attempt, in any
process, finds the commit of an earlier one. Publishing an id twice returns the first commit. What
was published before a branch was forked is in the history of both, and so is its id.
After a crash: a claim without a version means that the log must be searched from `since` on. One
that cannot be read means that all of it must be.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from tidelock.errors import CorruptObject, ObjectExists, ObjectMissing, StoreError
from tidelock.model.arguments import check_text
from tidelock.model.commit import BranchRef, Commit
from tidelock.store import layout
from tidelock.store.faults import hit
from tidelock.store.log import Head, Log
from tidelock.store.objects import Objects
from tidelock.store.records import decode, encode

_OWN = re.compile(r"(\d+)-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Claim:
    operation_id: str
    since: int
    version: int | None = None
    format: int = 1


def new_operation_id(head: Head) -> str:
    """An id that says from which version on its commit may be found."""
    return f"{head.version}-{secrets.token_hex(8)}"


def find_commit(log: Log, head: Head, operation_id: str, since: int) -> Commit | None:
    """The commit of an operation among versions since + 1 … head."""
    for commit in log.walk(head.branch, head.version, since + 1):
        if commit.operation_id == operation_id:
            return commit
    return None


class OperationIds:
    def __init__(self, objects: Objects, log: Log) -> None:
        self._objects = objects
        self._log = log

    def claim(self, head: Head, operation_id: str) -> Commit | None:
        """Claim an id for a transaction that begins at a head; its commit if there is one."""
        key = layout.operation(head.branch.id, operation_id)
        claim: Claim | None = Claim(operation_id, self._oldest(head, operation_id))
        try:
            hit("claim.before_put")
            self._objects.put_new(key, encode(claim))
            hit("claim.after_put")
        except ObjectExists:
            claim = self._read(head.branch.id, operation_id)
        found = self._published(head.branch, claim, head.version)
        if found is None:
            found = self._inherited(head, operation_id)
            if found is not None:
                self.settle(head.branch, found, head.version)
        return found

    def look_up(self, head: Head, operation_id: str) -> Commit | None:
        """The commit of an operation, or None when it was not published on this branch."""
        check_text(operation_id, "An operation id")
        claim = self._read(head.branch.id, operation_id)
        if claim is None:
            own = _OWN.fullmatch(operation_id)
            claim = Claim(operation_id, min(int(own[1]), head.version) if own else 0)
        found = self._published(head.branch, claim, head.version)
        return found or self._inherited(head, operation_id)

    def _inherited(self, head: Head, operation_id: str) -> Commit | None:
        """The commit of an operation that was published before the branch was forked."""
        for branch_id, shared in head.branch.lineage:
            claim = self._read(branch_id, operation_id)
            found = self._published(head.branch, claim, shared)
            if found is not None:
                return found
        return None

    def _read(self, branch_id: str, operation_id: str) -> Claim | None:
        key = layout.operation(branch_id, operation_id)
        try:
            return decode(self._objects.get(key), Claim, key)
        except ObjectMissing:
            return None
        except CorruptObject:
            return Claim(operation_id, 0)

    def _published(self, branch: BranchRef, claim: Claim | None, until: int) -> Commit | None:
        """The commit that a claim leads to, if it is among a branch's versions up to one."""
        if claim is None:
            return None
        if claim.version is not None:
            return self._log.commit_at(branch, claim.version) if claim.version <= until else None
        for commit in self._log.walk(branch, until, claim.since + 1):
            if commit.operation_id == claim.operation_id:
                return commit
        return None

    def settle(self, branch: BranchRef, commit: Commit, since: int) -> None:
        """Note where a claimed operation was published."""
        key = layout.operation(branch.id, commit.operation_id)
        try:
            hit("claim.before_settle")
            self._objects.put(key, encode(Claim(commit.operation_id, since, commit.version)))
        except StoreError:
            # The commit stands; a later attempt searches the log instead.
            return

    def _oldest(self, head: Head, operation_id: str) -> int:
        own = _OWN.fullmatch(operation_id)
        return min(int(own[1]), head.version) if own else head.version
