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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime

from tidelock.errors import (
    LeaseLost,
    ObjectExists,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TidelockError,
)
from tidelock.model.commit import BranchRef, Commit
from tidelock.store import layout
from tidelock.store.fences import fenced_since, refuse_fenced
from tidelock.store.handover import Handover, Visit, take_offers
from tidelock.store.log import GROUP_MAX, Head, Log
from tidelock.store.offers import Offers
from tidelock.store.operation_ids import find_commit
from tidelock.store.pending import Pending
from tidelock.store.precedence import Precedence
from tidelock.store.presence import Presence
from tidelock.store.tables import TableFiles
from tidelock.store.turns import Turn, Turns

PUT_ATTEMPTS_MAX = 4
PUT_PAUSE_SECONDS = 0.05
LOST_PAUSE_SECONDS = 0.002
RIVALS_EXPECTED = 8


class _Queue:
    """The transactions that wait for one branch, of which one at a time leads.

    Whoever waits sleeps on a lock of its own until it is settled or is to lead: passed from one to
    the next, a lock for all would wake them one after the other.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: list[Pending] = []
        self._leader: Pending | None = None

    def join(self, pending: Pending) -> None:
        """Wait until it is settled or leads, which it does at once when nobody else does."""
        with self._mutex:
            self._waiting.append(pending)
            if self._leader is None:
                self._leader = pending
                return
        while not (pending.settled or self._leader is pending):
            pending.called.acquire()

    def waiting(self) -> list[Pending]:
        with self._mutex:
            return self._waiting[:GROUP_MAX]

    def dismiss_settled(self) -> None:
        """Wake those that another process published, but whoever leads."""
        with self._mutex:
            settled = [pending for pending in self._waiting if pending.settled]
            self._waiting = [pending for pending in self._waiting if not pending.settled]
        for pending in settled:
            pending.call()

    def take(self) -> list[Pending]:
        with self._mutex:
            taken, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
            return taken

    def leave(self, pending: Pending) -> None:
        """No longer wait, and no longer lead: the next one that waits does."""
        with self._mutex:
            if pending in self._waiting:
                self._waiting.remove(pending)
            if self._leader is pending:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.call()


class Publisher:
    def __init__(
        self,
        log: Log,
        turns: Turns,
        offers: Offers,
        files: TableFiles,
        moment: Callable[[datetime], datetime],
        presence: Presence,
    ) -> None:
        """`moment` gives the time for a commit on top of one of another time."""
        self._moment = moment
        self._presence = presence
        self._log = log
        self._turns = turns
        self._offers = offers
        self._files = files
        self.precedence = Precedence(turns)
        self._queues: defaultdict[str, _Queue] = defaultdict(_Queue)
        self._busy: Counter[tuple[str, str]] = Counter()
        self._busy_lock = threading.Lock()
        self._rivals: dict[str, int] = {}
        """Per branch, for how many more commits other processes are expected to interfere."""

    def has_rivals(self, branch_id: str) -> bool:
        """Whether other processes published on a branch just now."""
        return bool(self._rivals.get(branch_id))

    @contextmanager
    def claim(self, branch_id: str, table_ids: list[str]) -> Iterator[bool]:
        """Announce tables that are about to be staged; True when none is contended.

        What is staged on a contended table would have to be staged again on top of the other
        transaction, so it is left to the leader, which does it once, in order.
        """
        keys = [(branch_id, table_id) for table_id in table_ids]
        with self._busy_lock:
            free = not self.has_rivals(branch_id) and not any(self._busy[key] for key in keys)
            self._busy.update(keys)
        try:
            yield free
        finally:
            with self._busy_lock:
                self._busy.subtract(keys)
                for key in keys:
                    if not self._busy[key]:
                        del self._busy[key]

    def publish(self, pending: Pending) -> Commit:
        """Publish, alone or with whoever waits; returns when the commit is durable."""
        queue = self._queues[pending.base.branch.id]
        heads: list[tuple[Head, Head]] = []
        self.precedence.give_way(pending.base.branch.id)
        try:
            queue.join(pending)
            while not pending.settled:
                self._lead(pending, queue, heads)
        finally:
            # Also when interrupted: nobody may publish what its caller was told has failed.
            queue.leave(pending)
        for before, after in heads:
            self._log.leave_hint(before, after)
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

    def _lead(self, pending: Pending, queue: _Queue, heads: list[tuple[Head, Head]]) -> None:
        """Publish what waits, in a turn, unless whoever had the turn before did."""
        branch = pending.base.branch
        handover = Handover(self._offers, branch.id, queue.waiting)
        record = 0
        try:
            with self._turns.taken(branch.id, handover) as turn:
                record = handover.end(turn.held)
                if not record:
                    pending.hosted = self._publish_group(queue.take(), heads, turn)
        finally:
            handover.end(False)
        if record:
            self._rivals[branch.id] = RIVALS_EXPECTED
            # What cannot be read now is looked for again, in a turn.
            with suppress(StoreError):
                handover.accept(self._log.commits_in(branch, record))
            queue.dismiss_settled()

    def _publish_group(
        self, group: list[Pending], heads: list[tuple[Head, Head]], turn: Turn
    ) -> list[Commit]:
        """Publish a group; what was published for other processes along with it."""
        visits: list[Visit] = []
        try:
            self._run(group, heads, turn, visits)
        except OutcomeUnknown as error:
            for pending in _unsettled(group):
                pending.error = _unknown(pending, error.message)
        except TidelockError as error:
            for pending in _unsettled(group):
                _fail(pending, error)
        except BaseException as error:
            # The leader was interrupted: whether its put was applied is for the log to say.
            for pending in _unsettled(group):
                pending.error = _unknown(pending, f"publishing was interrupted ({error!r})")
            raise
        finally:
            for visit in visits:
                visit.answer()
            for pending in group:
                pending.call()
        guests = (guest for visit in visits for guest in visit.guests)
        return [guest.commit for guest in guests if guest.commit is not None]

    def _run(
        self,
        group: list[Pending],
        heads: list[tuple[Head, Head]],
        turn: Turn,
        visits: list[Visit],
    ) -> None:
        head = self._log.newer_of(max((p.base for p in group), key=lambda base: base.version))
        newest = turn.newest()
        others = turn.waited or newest > head.record
        if others:
            # Another process published meanwhile: a put on top of what we know would lose.
            head = self._log.head(head.branch, newest)
            if turn.held:
                room = GROUP_MAX - len(group)
                visits.extend(take_offers(self._offers, self._files, head, room))
                group.extend(guest for visit in visits for guest in visit.guests)
        lost = 0
        looked_until = {pending: pending.base.version for pending in group}
        while True:
            for pending in _unsettled(group):
                # Whatever was published since this transaction began may be its own commit.
                if not pending.is_new and looked_until[pending] < head.version:
                    since = looked_until[pending]
                    pending.commit = find_commit(self._log, head, pending.operation_id, since)
                    looked_until[pending] = head.version
                # Whoever took it has ended its turn before this one began.
                pending.handed = pending.handed and not turn.held
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
                pending.commit, pending.record = commit, after.record
            branch_id = head.branch.id
            expected = self._rivals.get(branch_id, 0) - 1
            self._rivals[branch_id] = RIVALS_EXPECTED if others or lost else max(0, expected)
            heads.append((head, after))
            if not _unsettled(group):
                return
            head = after

    def _prepare(self, head: Head, waiting: list[Pending]) -> dict[Pending, Commit]:
        commits: dict[Pending, Commit] = {}
        tables = head.tables
        moment = self._moment(head.time)
        operation_ids = set()
        for pending in waiting:
            if pending.operation_id in operation_ids:
                # The same operation twice in one group: the second finds the first in the log.
                continue
            version = head.version + len(commits) + 1
            try:
                refuse_fenced(self._log, head, pending.base, pending.names)
            except LeaseLost as error:
                # Whatever else is unknown: what is not in the log by now never will be.
                pending.error = error
                continue
            except TidelockError as error:
                _fail(pending, error)
                continue
            try:
                pending.staged.check()
                changes = pending.staged.rebase(tables, version)
            except LeaseLost as error:
                self._settle_lost(pending, error)
                continue
            except Exception as error:  # noqa: BLE001
                # Whatever is wrong with one transaction, the others of its group go on.
                _fail(pending, error)
                continue
            commits[pending] = pending.committed(version, head, changes, moment)
            operation_ids.add(pending.operation_id)
            tables = tables.after(changes)
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
                if attempt == PUT_ATTEMPTS_MAX - 1:
                    raise OutcomeUnknown(error.message) from error
                time.sleep(PUT_PAUSE_SECONDS * 2**attempt * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")

    def _put_once(self, head: Head, commits: tuple[Commit, ...]) -> tuple[Head, tuple[Commit, ...]]:
        below = layout.record(head.branch.id, head.record) if head.record else None
        try:
            with self._presence.on_top_of(below):
                return self._log.append(head, commits), commits
        except ObjectExists:
            stored = self._log.record_if_ours(head, commits)
            if stored is None:
                raise
            return stored


def _fail(pending: Pending, error: Exception) -> None:
    pending.error = _unknown(pending, str(error)) if pending.handed else error


def _unknown(pending: Pending, cause: str) -> OutcomeUnknown:
    branch = pending.base.branch.name
    return OutcomeUnknown(
        f"The store did not answer whether the commit on branch {branch!r} was written: {cause} "
        f"Look the outcome up with lake.find_operation({pending.operation_id!r}), or run the "
        "transaction again with the same operation_id: it is never published twice.",
        operation_id=pending.operation_id,
        branch=branch,
        cause=cause,
    )


def _unsettled(group: list[Pending]) -> list[Pending]:
    return [pending for pending in group if not pending.settled]
