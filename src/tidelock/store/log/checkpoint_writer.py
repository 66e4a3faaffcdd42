"""Folding the log: records become checkpoints, and small checkpoints large ones.

    1. list the records and the checkpoints of a branch
    2. write the checkpoints that are missing, from what is there, and before the large ones the
       index of their operations (operation_index.py)
    3. remove what a checkpoint holds that was written REMOVE_AFTER_SECONDS ago (log.py tells why)

Invariants: nothing is removed before another object holds it; the newest record stays; a process
that folds at the same time writes the same and removes the same. After a crash: what was written is
right, and what was not removed is removed the next time.

So a branch of n versions has at most

    LAG + 2 * 32 records, 2 * 32 checkpoints of 32 versions, and n / 1,024 of 1,024

beside those of the last seconds, once its log was folded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from tidelock.errors import BranchDeleted, CorruptObject, NewerFormat
from tidelock.model.history.commit import BranchRef, Commit
from tidelock.store.log.checkpoints import LAG, SPANS, Checkpoint, named
from tidelock.store.log.clock import own_time
from tidelock.store.log.log import FENCE, REMOVE_AFTER_SECONDS, Log
from tidelock.store.log.operation_index import STEP, Published
from tidelock.store.objects import layout
from tidelock.store.objects.boot_time import boot_seconds
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import Record

logger = logging.getLogger("tidelock")

RECORDS_MAX = LAG + 2 * SPANS[0]
OLD = timedelta(hours=1)
"""A checkpoint of this age was written long enough ago, however clocks differ."""


class LogFolder:
    """Folds the logs of one lake on behalf of its writers."""

    def __init__(
        self,
        objects: Objects,
        log: Log,
        published: Published,
        now: Callable[[], datetime] = own_time,
        together: Together | None = None,
    ) -> None:
        self._objects = objects
        self._together = together or Together()
        self._published = published
        self._now = now
        self._log = log
        self._seen: dict[str, float] = {}
        """When each checkpoint was first seen to be there."""
        self._indexed: dict[str, int] = {}
        """For each branch, up to where the index of operations is that no older one is beside."""

    def fold(self, branch: BranchRef) -> float | None:
        """Fold what is due; in how many seconds there is something to remove, None if there is
        nothing."""
        try:
            head = self._log.head(branch)
        except BranchDeleted:
            return None
        (settled, waiting), numbers = self._together.both(
            lambda: self._checkpoints(branch), lambda: self._log.numbers(branch)
        )
        there = {*settled, *waiting}
        for span in SPANS:
            smaller = [one.last for one in there if one.span < span]
            unfolded = numbers if span == SPANS[0] else smaller
            missing = [
                checkpoint
                for checkpoint in due(min(unfolded, default=head.version), head.version, span)
                if not there & {checkpoint, *_larger(checkpoint)}
            ]
            written = self._write_all(branch, missing, there)
            there.update(written)
            waiting.extend(written)
        self._remove(branch, numbers, settled)
        left = any(_replaces(one, numbers, there) for one in waiting)
        return REMOVE_AFTER_SECONDS if left else None

    def fold_whole(self, branches: Iterable[BranchRef]) -> None:
        """Fold all that is due of some branches, and wait until what is held elsewhere can be
        removed, where that is much."""
        left = list(branches)
        for attempt in range(3):
            if attempt:
                time.sleep(REMOVE_AFTER_SECONDS)
            waits = self._together.map(self.fold, left)
            left = [
                branch
                for branch, wait in zip(left, waits, strict=True)
                if wait is not None and len(self._log.numbers(branch)) > RECORDS_MAX
            ]
            if not left:
                return

    def settled(self, branch: BranchRef) -> int:
        """Up to which version the index of operations has everything, for all to see."""
        settled, _ = self._checkpoints(branch)
        return max((one.last for one in settled if one.span == STEP), default=0)

    def _checkpoints(self, branch: BranchRef) -> tuple[list[Checkpoint], list[Checkpoint]]:
        """Those that were written long enough ago to rely on, and the others."""
        asked, moment = boot_seconds(), self._now()
        settled: list[Checkpoint] = []
        waiting: list[Checkpoint] = []
        for info in self._objects.list(f"{layout.PAST}/{branch.id}"):
            seen = self._seen.setdefault(info.key, asked)
            old = asked - seen >= REMOVE_AFTER_SECONDS or info.modified < moment - OLD
            (settled if old else waiting).extend(named([info.key]))
        return settled, waiting

    def _write_all(
        self, branch: BranchRef, missing: Sequence[Checkpoint], there: Iterable[Checkpoint]
    ) -> list[Checkpoint]:
        """Write checkpoints of one span; those that were written. What cannot be read is left as it
        is, and the rest is folded."""
        written = []
        try:
            if missing and missing[-1].span == STEP:
                known = max((one.last for one in there if one.span == STEP), default=0)
                self._published.build(branch, known, missing[-1].last)
        except (CorruptObject, NewerFormat) as error:
            logger.warning("operations of %r were not indexed: %s", branch.name, error)
            return []
        for checkpoint in missing:
            try:
                self._write(branch, checkpoint)
            except (CorruptObject, NewerFormat) as error:
                logger.warning("versions up to %d were not folded: %s", checkpoint.last, error)
            else:
                written.append(checkpoint)
        return written

    def _write(self, branch: BranchRef, checkpoint: Checkpoint) -> None:
        first = max(checkpoint.first, branch.fork_version + 1)
        commits = tuple(self._log.walk(branch, checkpoint.last, first))[::-1]
        tables = self._log.tables_at(branch, checkpoint.last)
        fence, merge = self._fence(branch, commits), self._log.newest_merge(branch, checkpoint.last)
        record = Record(first - 1, commits, tables.states(), fence, merge)
        hit("fold_log.before_put")
        self._log.past.write(branch.id, checkpoint, record)
        hit("fold_log.after_put")
        self._seen[checkpoint.key(branch.id)] = boot_seconds()

    def _fence(self, branch: BranchRef, commits: Sequence[Commit]) -> int:
        """The version of the newest fence up to the last of some commits."""
        for commit in reversed(commits):
            if FENCE in commit.properties:
                return commit.version
        before = commits[0].version - 1
        return self._log.record_at(branch, before).fence if before > branch.fork_version else 0

    def _remove(
        self, branch: BranchRef, numbers: Sequence[int], settled: Iterable[Checkpoint]
    ) -> None:
        held = set(settled)
        self._forget_index(branch, held)
        keys = [layout.record(branch.id, number) for number in held_records(numbers, held)]
        keys += [one.key(branch.id) for one in held if _larger(one) & held]
        if not keys:
            return
        hit("fold_log.before_remove")
        self._objects.delete_many(keys)
        hit("fold_log.after_remove")
        for key in keys:
            self._seen.pop(key, None)

    def _forget_index(self, branch: BranchRef, settled: Iterable[Checkpoint]) -> None:
        until = max((one.last for one in settled if one.span == STEP), default=0)
        if until > self._indexed.get(branch.id, 0):
            self._published.forget_before(branch.id, until)
            self._indexed[branch.id] = until


def due(oldest: int, newest: int, span: int) -> list[Checkpoint]:
    """The checkpoints of a span that are to be there, from the oldest version on that is elsewhere
    yet. A record may reach over several of them."""
    first = Checkpoint.holding(oldest, span).last
    return [Checkpoint(last, span) for last in range(first, newest - LAG + 1, span)]


def held_records(numbers: Sequence[int], held: set[Checkpoint]) -> list[int]:
    """The records of which checkpoints hold every commit; never the newest.

    A record ends where the next begins, which may be several versions later.
    """
    return [number for number, following in pairwise(numbers) if _hold(held, number, following - 1)]


def _hold(held: set[Checkpoint], first: int, last: int) -> bool:
    version = first
    while version <= last:
        spans = (Checkpoint.holding(version, span) for span in SPANS)
        checkpoint = next((one for one in spans if one in held), None)
        if checkpoint is None:
            return False
        version = checkpoint.last + 1
    return True


def _larger(checkpoint: Checkpoint) -> set[Checkpoint]:
    """The checkpoints of larger spans that hold what this one does."""
    larger = [span for span in SPANS if span > checkpoint.span]
    return {Checkpoint.holding(checkpoint.last, span) for span in larger}


def _replaces(one: Checkpoint, numbers: Sequence[int], there: Iterable[Checkpoint]) -> bool:
    """Whether something is there that a checkpoint holds as well."""
    if any(one.first <= number <= one.last for number in numbers):
        return True
    return any(one in _larger(other) for other in there)
