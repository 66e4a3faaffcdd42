"""Operation ids: the identity of a commit before it exists.

Owns: one claim per operation id that a caller chose, saying from which version on its commit may be
found, and once it is known, where it is. Invariant: a claim exists before the first attempt is
staged, so that any later attempt, in any process, finds the commit of an earlier one. Publishing an
id twice returns the first commit, as long ago as it may be. What was published before a branch was
forked is in the history of both, and so is its id. A claim is removed once an index of the log
(operation_index.py) has its operation, or when nobody is left who could publish it
(upkeep/garbage/sweep.py). After a crash: a claim without a version means that the log must be
searched from `since` on. One that cannot be read means that all of it must be.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidelock.errors import CorruptObject, ObjectExists, ObjectMissing, StoreError
from tidelock.model.arguments import check_text
from tidelock.model.history.commit import BranchRef, Commit
from tidelock.store.log.checkpoints import LAG
from tidelock.store.log.log import LOOK_SECONDS, Head, Log
from tidelock.store.log.operation_index import STEP, Answer, Published
from tidelock.store.objects import layout
from tidelock.store.objects.boot_time import boot_seconds
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode

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
    """Owns the claims of operation ids that users give, and the search for their commits."""

    def __init__(
        self, objects: Objects, log: Log, published: Published, together: Together
    ) -> None:
        self._objects = objects
        self._log = log
        self._published = published
        self._together = together

    def claim(self, head: Head, operation_id: str) -> Commit | None:
        """Claim an id for a transaction that begins at a head; its commit if there is one."""
        claim = Claim(operation_id, self._oldest(head, operation_id))

        def put() -> Claim | None:
            key = layout.operation(head.branch.id, operation_id)
            try:
                hit("claim.before_put")
                self._objects.put_new(key, encode(claim))
                hit("claim.after_put")
            except ObjectExists:
                return self._read(head.branch.id, operation_id)
            # Nobody else has claimed it, or it was so long ago that the index has it.
            return None

        found = self._find(head, operation_id, put)
        if found is not None and found.branch != head.branch.name:
            self.settle(head.branch, found, head.version)
        return found

    def look_up(self, head: Head, operation_id: str) -> Commit | None:
        """The commit of an operation, or None when it was not published on this branch."""
        check_text(operation_id, "An operation id")
        return self._find(head, operation_id, lambda: self._read(head.branch.id, operation_id))

    def _find(
        self, head: Head, operation_id: str, claim: Callable[[], Claim | None]
    ) -> Commit | None:
        """The commit of an operation on the line that ends in a head.

        `claim` gives the claim on the branch itself; before the fork, there may be another one.
        """
        branch = head.branch
        line: list[tuple[str, int, Callable[[], Claim | None]]] = [
            (home, shared, partial(self._read, home, operation_id))
            for home, shared in branch.lineage
        ]
        line.append((branch.id, head.version, claim))
        versions = self._together.map(lambda one: self._version(branch, operation_id, *one), line)
        version = next((one for one in versions if one is not None), None)
        return None if version is None else self._log.commit_at(branch, version)

    def _version(
        self,
        branch: BranchRef,
        operation_id: str,
        home: str,
        newest: int,
        read: Callable[[], Claim | None],
    ) -> int | None:
        """The version of an operation on one of the branches that a line of commits runs through,
        among those up to `newest`."""
        asked = boot_seconds()
        claim, answer = self._together.both(read, lambda: self._answer(home, newest, operation_id))
        if boot_seconds() - asked > LOOK_SECONDS:
            # A claim that is gone by now may have gone because the index has it since.
            answer = self._answer(home, newest, operation_id)
        version = answer.version if claim is None or claim.version is None else claim.version
        if version is not None:
            return version if version <= newest else None
        first, last = self._unanswered(home, newest, operation_id, claim, answer.until)
        for commit in self._log.walk(branch, last, first):
            if commit.operation_id == operation_id:
                return commit.version
        return None

    def _unanswered(
        self, home: str, newest: int, operation_id: str, claim: Claim | None, until: int
    ) -> tuple[int, int]:
        """The first and the last version among which an operation may be that is neither in its
        claim nor in the index up to a version."""
        if claim is not None:
            return max(claim.since, until) + 1, newest
        own = _OWN.fullmatch(operation_id)
        if own is not None:
            return max(int(own[1]), until) + 1, newest
        # It has no claim, so that it was never published, or the index is to have it. Should that
        # be gone, the log still tells.
        covered = until if until >= newest - LAG - STEP else self._published.covered(home)
        return until + 1, min(covered, newest)

    def _answer(self, home: str, newest: int, operation_id: str) -> Answer:
        try:
            return self._published.look_up(home, newest, operation_id)
        except CorruptObject:
            return Answer(0, None)

    def _read(self, branch_id: str, operation_id: str) -> Claim | None:
        key = layout.operation(branch_id, operation_id)
        try:
            return decode(self._objects.get(key), Claim, key)
        except ObjectMissing:
            return None
        except CorruptObject:
            return Claim(operation_id, 0)

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
