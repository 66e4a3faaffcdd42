"""Publication: turning what is staged into commits.

Owns: the order in which the transactions of this process reach the log. Transactions that wait for
one branch at the same time share a put (group commit): one of them leads, rebases each onto the one
before, and publishes all in one record, each with a version of its own.

    1. rebase every waiting transaction onto the head; one that conflicts fails alone
    2. one create-only put of the next record
    3. lost: read what won, look for our own operation ids in it, and begin again on top of it

Invariants: an operation id is published at most once; a transaction that was told its version is
in the log; a put whose answer was lost is settled by reading or by repeating that very put.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from tidelock.errors import (
    LeaseLost,
    ObjectExists,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
    TidelockError,
)
from tidelock.model.history.commit import BranchRef, Commit, TableChange
from tidelock.store.log.fences import fenced_since, refuse_fenced
from tidelock.store.log.line import Line
from tidelock.store.log.log import FENCE, GROUP_MAX, MERGE, Head, Log
from tidelock.store.log.merges import with_parents
from tidelock.store.log.operation_ids import find_commit, new_operation_id
from tidelock.store.log.pending import Pending, look_up
from tidelock.store.log.precedence import Precedence
from tidelock.store.log.turns import Turn, Turns
from tidelock.store.objects import layout
from tidelock.store.objects.followers import Followers
from tidelock.store.objects.presence import Presence

PUT_ATTEMPTS_MAX = 4
PUT_PAUSE_SECONDS = 0.05
LOST_PAUSE_SECONDS = 0.002
RIVALS_EXPECTED = 8


class Publisher:
    """Owns the order in which the transactions of this process reach the log, and which tables are
    being staged right now. One for each handle; safe to use from several threads.
    """

    def __init__(
        self,
        log: Log,
        turns: Turns,
        moment: Callable[[datetime], datetime],
        presence: Presence,
        moved: Callable[[Head, Head], None] = lambda before, after: None,
    ) -> None:
        """`moment` gives the time for a commit on top of one of another time; `moved` is told from
        where to where a branch was moved from here."""
        self._moment = moment
        self._presence = presence
        self._log = log
        self._moved = moved
        self._turns = turns
        self.precedence = Precedence(turns)
        self._followers: defaultdict[str, Followers[Pending]] = defaultdict(Followers)
        self._busy: Counter[tuple[str, str]] = Counter()
        self._idle = threading.Condition()
        self._rivals: dict[str, int] = {}
        """Per branch, for how many more commits other processes are expected to interfere."""

    def has_rivals(self, branch_id: str) -> bool:
        """Whether other processes published on a branch just now."""
        return bool(self._rivals.get(branch_id))

    @contextmanager
    def claim(
        self, branch_id: str, table_ids: list[str], wait_seconds: float = 0.0
    ) -> Iterator[bool]:
        """Announce tables that are about to be staged; True when none is contended.

        What is staged on a contended table would have to be staged again on top of the other
        transaction, so it is left to the leader, which does it once, in order. Who is in no hurry
        waits for a moment in which nobody else stages them.
        """
        keys = [(branch_id, table_id) for table_id in table_ids]
        with self._idle:
            if wait_seconds:
                self._idle.wait_for(lambda: not any(map(self._busy.get, keys)), wait_seconds)
            free = not self.has_rivals(branch_id) and not any(map(self._busy.get, keys))
            self._busy.update(keys)
        try:
            yield free
        finally:
            with self._idle:
                self._busy.subtract(keys)
                for key in keys:
                    if not self._busy[key]:
                        del self._busy[key]
                self._idle.notify_all()

    def publish(self, pending: Pending) -> Commit:
        """Publish, alone or with those that wait; returns when the commit is durable."""
        followers = self._followers[pending.base.branch.id]
        heads: list[tuple[Head, Head]] = []
        self.precedence.give_way(pending.base.branch.id)
        try:
            followers.join(pending)
            while not pending.settled:
                self._lead(pending, followers, heads)
        finally:
            # Also when interrupted: nobody may publish what its caller was told has failed.
            followers.leave(pending)
        for before, after in heads:
            self._moved(before, after)
        return pending.result()

    def publish_alone(self, branch: BranchRef, pending: Callable[[Head], Pending]) -> Head:
        """Publish what changes no row, in a record of its own; the head that it makes."""
        while True:
            head = self._log.head(branch)
            one = pending(head)
            commit = one.committed(head.version + 1, head, (), self._moment(head.time))
            try:
                return self._put(head, (commit,))[0]
            except ObjectExists:
                continue

    def publish_fence(self, branch: BranchRef, names: Iterable[str], actor: str, why: str) -> None:
        """Take from these the right to publish on a branch what they have begun."""
        named = sorted(names)

        def pending(head: Head) -> Pending:
            properties = {FENCE: {"names": named, "before": head.fence}}
            operation_id = new_operation_id(head)
            return Pending(_Nothing(), head, operation_id, actor, "maintenance", why, properties)

        self.publish_alone(branch, pending)

    def _lead(
        self, pending: Pending, followers: Followers[Pending], heads: list[tuple[Head, Head]]
    ) -> None:
        """Publish what waits, in a turn of this process."""
        with self._turns.taken(pending.base.branch.id) as turn:
            self._publish_group(followers.take(GROUP_MAX), heads, turn)

    def _publish_group(
        self, group: list[Pending], heads: list[tuple[Head, Head]], turn: Turn
    ) -> None:
        try:
            self._run(group, heads, turn)
        except OutcomeUnknown as error:
            for pending in _unsettled(group):
                pending.error = _unknown(pending, error.message)
        except TidelockError as error:
            for pending in _unsettled(group):
                pending.error = error
        except BaseException as error:
            # The leader was interrupted: whether its put was applied is for the log to say.
            for pending in _unsettled(group):
                pending.error = _unknown(pending, f"publishing was interrupted ({error!r})")
            raise
        finally:
            for pending in group:
                pending.call()

    def _run(self, group: list[Pending], heads: list[tuple[Head, Head]], turn: Turn) -> None:
        head = self._log.newer_of(max((p.base for p in group), key=lambda base: base.version))
        newest = turn.newest()
        others = turn.waited or newest > head.record
        if others:
            # Another process published meanwhile: a put on top of what we know would lose.
            head = self._log.head(head.branch, newest)
        lost = 0
        looked_until = {pending: pending.base.version for pending in group}
        while True:
            for pending in _unsettled(group):
                # Whatever was published since this transaction began may be its own commit.
                if not pending.is_new and looked_until[pending] < head.version:
                    since = looked_until[pending]
                    pending.commit = find_commit(self._log, head, pending.operation_id, since)
                    looked_until[pending] = head.version
            commits = self._prepare(head, _unsettled(group))
            if not commits:
                return
            try:
                after, stored = self._put(head, tuple(commits.values()))
            except ObjectExists:
                head = self._log.head(head.branch)
                lost += 1
                if lost > 1:
                    # Rivals that wait a random while meet less often.
                    time.sleep(random.uniform(0, LOST_PAUSE_SECONDS * min(lost, 10)))
                continue
            turn.leave(after.record)
            for pending, commit in zip(commits, stored, strict=True):
                pending.commit, pending.published_here = commit, True
            branch_id = head.branch.id
            expected = self._rivals.get(branch_id, 0) - 1
            self._rivals[branch_id] = RIVALS_EXPECTED if others or lost else max(0, expected)
            heads.append((head, after))
            if not _unsettled(group):
                return
            head = after

    def _prepare(self, head: Head, waiting: list[Pending]) -> dict[Pending, Commit]:
        commits: dict[Pending, Commit] = {}
        line = Line.up_to(self._log, head)
        moment = self._moment(head.time)
        operation_ids = set()
        merging = False
        for pending in waiting:
            if pending.operation_id in operation_ids:
                # The same operation twice in one group: the second finds the first in the log.
                continue
            if merging and MERGE in pending.properties:
                # A merge names the merge before it, which is to be in the log by then.
                continue
            try:
                refuse_fenced(self._log, head, pending.base, pending.names)
            except TidelockError as error:
                pending.error = error
                continue
            try:
                pending.staged.check()
                changes = pending.staged.rebase(line)
            except LeaseLost as error:
                self._settle_lost(pending, error)
                continue
            except Exception as error:  # noqa: BLE001
                # Whatever is wrong with one transaction, the others of its group go on.
                pending.error = error
                continue
            commit = pending.committed(line.next_version, head, changes, moment)
            commit = with_parents(self._log, head, commit)
            commits[pending] = commit
            operation_ids.add(pending.operation_id)
            merging = merging or MERGE in pending.properties
            line = line.then(commit)
        return commits

    def _settle_lost(self, pending: Pending, error: LeaseLost) -> None:
        """What others made of sealed work whose writer was given up: published, or discarded, or
        unknown yet."""
        discarded = not pending.sealed
        if pending.sealed:
            with suppress(TidelockError):
                head = self._log.head(pending.base.branch)
                since = pending.base.version
                pending.commit = find_commit(self._log, head, pending.operation_id, since)
                discarded = not fenced_since(self._log, head, since).isdisjoint(pending.names)
        if pending.commit is None:
            pending.error = error if discarded else _unknown(pending, error.message)

    def _put(self, head: Head, commits: tuple[Commit, ...]) -> tuple[Head, tuple[Commit, ...]]:
        """One create-only put, repeated as it is while its outcome is unknown.

        The key is create-only and the bytes are the same, so repeating is safe: it succeeds, or it
        finds a record there, which is either ours (the first put was applied) or another's.
        """
        for attempt in range(PUT_ATTEMPTS_MAX):
            try:
                return self._put_once(head, commits)
            except StoreUnavailable as error:
                if isinstance(error, StoreFull) and not attempt:
                    raise
                if attempt == PUT_ATTEMPTS_MAX - 1:
                    raise OutcomeUnknown(error.message) from error
                time.sleep(PUT_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")

    def _put_once(self, head: Head, commits: tuple[Commit, ...]) -> tuple[Head, tuple[Commit, ...]]:
        try:
            head = self._log.look_again(head)
            below = layout.record(head.branch.id, head.record) if head.record else None
            with self._presence.on_top_of(below):
                return self._log.append(head, commits), commits
        except ObjectExists:
            stored = self._log.record_if_ours(head, commits)
            if stored is None:
                raise
            return stored


def _unknown(pending: Pending, cause: str) -> OutcomeUnknown:
    branch = pending.base.branch.name
    return OutcomeUnknown(
        f"The store did not answer whether the commit on branch {branch!r} was written: {cause}",
        look_up(pending.operation_id),
        operation_id=pending.operation_id,
        branch=branch,
        cause=cause,
    )


def _unsettled(group: list[Pending]) -> list[Pending]:
    return [pending for pending in group if not pending.settled]


class _Nothing:
    """Changes no table."""

    def rebase(self, line: Line) -> tuple[TableChange, ...]:
        return ()

    def check(self) -> None:
        return
