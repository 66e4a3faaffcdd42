"""The commit log of every branch.

Owns: the numbered commit records of each branch, and the hints that make a head quick to find.
Invariants: the versions of a branch are covered by its records without holes or overlaps; a record
names the one before it; a record whose last commit is of kind `closed` is the last of its branch.
After a crash: a record exists completely or not at all; there is no third state. A hint may be
missing or old, never ahead: it only says where to begin looking.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tidelock.errors import BranchDeleted, FormatError, ObjectMissing, StoreError, VersionNotFound
from tidelock.model.commit import BranchRef, Commit, Tables
from tidelock.store import layout
from tidelock.store.entries import number_of, numbered
from tidelock.store.faults import hit
from tidelock.store.objects import Objects
from tidelock.store.records import Record, decode, encode

GROUP_MAX = 64
"""How many commits one record may hold, and so how far back a version's record may begin."""
HINT_EVERY = 8
WALK_MAX = 64
"""How many records a head may be ahead of its hint before the folder is listed instead."""
CACHED_VERSIONS_MAX = 128
FENCE = "fence"
"""The property of a commit that fences writers off (fences.py)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Head:
    """The newest state of a branch: its version, its newest record's number, and its tables."""

    branch: BranchRef
    version: int
    record: int
    tables: Tables
    time: datetime
    closed: bool = False
    fence: int = 0
    """The version of the newest fence."""


@dataclass(frozen=True, slots=True)
class _Hint:
    record: int
    format: int = 1


class Log:
    def __init__(
        self, objects: Objects, recent: Callable[[str], int] = lambda branch_id: 0
    ) -> None:
        """`recent` may give the number of a recent record of a branch."""
        self._objects = objects
        self._recent = recent
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._put_began: dict[str, float] = {}
        self._records: OrderedDict[tuple[str, int], Record] = OrderedDict()

    def head(self, branch: BranchRef, hint: int = 0) -> Head:
        """The newest head, other processes' commits included; BranchDeleted when it is closed.

        `hint` may be the number of a recent record, so that those before it are not read.
        """
        return _open(self._newest(branch, hint))

    def is_closed(self, branch: BranchRef) -> bool:
        return self._newest(branch).closed

    def newest_version(self, branch: BranchRef) -> int:
        """The version of the last commit, also of a branch that was deleted."""
        head = self._newest(branch)
        return head.version - 1 if head.closed else head.version

    def newer_of(self, head: Head) -> Head:
        """This head, or the newer one that this handle has seen since."""
        known = self._heads.get(head.branch.id)
        if known is None or known.version <= head.version:
            return head
        return replace(_open(known), branch=head.branch)

    def known(self, branch: BranchRef) -> Head:
        """The newest head that this handle has seen: no call to the store in the usual case."""
        known = self._heads.get(branch.id)
        return self.head(branch) if known is None else _open(known)

    def _newest(self, branch: BranchRef, hint: int = 0) -> Head:
        head = self._look_up(branch, hint)
        # A tag's line of commits and its branch are one log under two names.
        return head if head.branch == branch else replace(head, branch=branch)

    def _look_up(self, branch: BranchRef, hint: int) -> Head:
        asked = time.monotonic()
        head = self._skip_to(hint, self._heads.get(branch.id) or self._find(branch))
        steps = 0
        while not head.closed:
            record = self._read(branch.id, head.version + 1)
            if record is None:
                break
            head = self._remember(_head_at(branch, record))
            if self._put_began.get(branch.id, 0.0) > asked:
                # A put of ours that began after the question won, so nothing older is missing.
                return head
            steps += 1
            if steps == 1:
                # Where there is one that we did not know, there may be many.
                head = self._skip_to(self._recent(branch.id), head)
            if steps == WALK_MAX:
                head = self._find_by_listing(branch) or head
        return self._remember(head)

    def _skip_to(self, number: int, head: Head) -> Head:
        """The head at a record of this number, if it is there and that is not the next anyway."""
        if number <= head.version + 1:
            return head
        record = self._read(head.branch.id, number)
        return head if record is None else self._remember(_head_at(head.branch, record))

    def append(self, head: Head, commits: tuple[Commit, ...]) -> Head:
        """Publish commits on top of a head: the one create-only put that makes them visible.

        Raises ObjectExists when another record has that number.
        """
        tables = head.tables
        fence = head.fence
        for commit in commits:
            tables = tables.after(commit.tables)
            fence = commit.version if FENCE in commit.properties else fence
        record = Record(head.record, commits, tables.states(), fence)
        hit("publish.before_put")
        began = time.monotonic()
        self._objects.put_new(layout.record(head.branch.id, record.first), encode(record))
        hit("publish.after_put")
        self._cache(head.branch.id, record)
        after = self._remember(_head_at(head.branch, record, tables))
        self._put_began[head.branch.id] = began
        return after

    def record_if_ours(
        self, head: Head, commits: tuple[Commit, ...]
    ) -> tuple[Head, tuple[Commit, ...]] | None:
        """The head after the record on top of `head` and what it holds, when its operations are
        these: ours, or those of another process that ran the same ones and was first."""
        record = self._read(head.branch.id, head.version + 1)
        ours = [commit.operation_id for commit in commits]
        if record is None or [commit.operation_id for commit in record.commits] != ours:
            return None
        return self._remember(_head_at(head.branch, record)), record.commits

    def commits_in(self, branch: BranchRef, number: int) -> tuple[Commit, ...]:
        """The commits of the record of this number; none if it is not there."""
        record = self._read(branch.id, number)
        if record is None:
            return ()
        self._remember(_head_at(branch, record))
        return record.commits

    def leave_hint(self, before: Head, after: Head) -> None:
        """Say where the head is, now and then, for whoever opens the lake next."""
        if before.version // HINT_EVERY == after.version // HINT_EVERY:
            return
        try:
            data = encode(_Hint(after.record))
            self._objects.put(layout.hint(after.branch.id), data)
        except StoreError:
            # The commit stands without it, and the next hint makes up for this one.
            return

    def record_at(self, branch: BranchRef, version: int) -> Record:
        """The record that holds a version, looked for in the branch that it belongs to."""
        home = branch.home_of(version)
        cached = self._records.get((home, version))
        if cached is not None:
            return cached
        for number in range(version, max(0, version - GROUP_MAX), -1):
            record = self._read(home, number)
            if record is not None:
                if record.last >= version:
                    return record
                break
        raise VersionNotFound(
            f"Branch {branch.name!r} has no version {version}. See `tidelock log`.",
            branch=branch.name,
            version=version,
        )

    def commit_at(self, branch: BranchRef, version: int) -> Commit:
        record = self.record_at(branch, version)
        return record.commits[version - record.first]

    def tables_at(self, branch: BranchRef, version: int) -> Tables:
        if version == 0:
            return Tables({})
        return self.record_at(branch, version).snapshot_after(version)

    def walk(self, branch: BranchRef, newest: int, oldest: int = 1) -> Iterator[Commit]:
        """The commits newest, newest - 1, …, oldest, through the forks."""
        version = newest
        while version >= max(oldest, 1):
            record = self.record_at(branch, version)
            for commit in reversed(record.commits):
                if oldest <= commit.version <= version:
                    yield commit
            version = record.first - 1

    def version_at(self, branch: BranchRef, moment: datetime) -> int:
        """The last version that was published at or before a moment; 0 when there was none."""
        low, high = 0, self.head(branch).version
        while low < high:
            middle = (low + high + 1) // 2
            if self.commit_at(branch, middle).time <= moment:
                low = middle
            else:
                high = middle - 1
        return low

    def _find(self, branch: BranchRef) -> Head:
        """A head to begin walking from: by the hint, else from where the branch began."""
        try:
            key = layout.hint(branch.id)
            hint = decode(self._objects.get(key), _Hint, key)
        except (ObjectMissing, FormatError):
            # Whatever became of it: it only says where to begin.
            hint = None
        if hint is not None:
            record = self._read(branch.id, hint.record)
            if record is not None:
                return _head_at(branch, record)
        fork = branch.fork_version
        time = self.commit_at(branch, fork).time if fork else _EPOCH
        return Head(branch, fork, 0, self.tables_at(branch, fork), time)

    def _find_by_listing(self, branch: BranchRef) -> Head | None:
        infos = numbered(self._objects, f"{layout.LOG}/{branch.id}")
        if not infos:
            return None
        record = self._read(branch.id, number_of(infos[-1].key) or 0)
        return _head_at(branch, record) if record else None

    def _remember(self, head: Head) -> Head:
        with self._lock:
            known = self._heads.get(head.branch.id)
            if known is not None and known.version > head.version:
                return known
            self._heads[head.branch.id] = head
            return head

    def _read(self, branch_id: str, number: int) -> Record | None:
        cached = self._records.get((branch_id, number))
        if cached is not None and cached.first == number:
            return cached
        key = layout.record(branch_id, number)
        try:
            data = self._objects.get(key)
        except ObjectMissing:
            return None
        return self._cache(branch_id, decode(data, Record, key))

    def _cache(self, branch_id: str, record: Record) -> Record:
        """Keep a record under each of its versions: records never change."""
        with self._lock:
            for version in range(record.first, record.last + 1):
                self._records[branch_id, version] = record
            while len(self._records) > CACHED_VERSIONS_MAX:
                self._records.popitem(last=False)
        return record


def _open(head: Head) -> Head:
    if head.closed:
        name = head.branch.name
        raise BranchDeleted(
            f"The branch {name!r} was deleted. "
            "Open it by name again if another of that name was created since.",
            branch=name,
            branch_id=head.branch.id,
        )
    return head


def _head_at(branch: BranchRef, record: Record, tables: Tables | None = None) -> Head:
    newest = record.commits[-1]
    return Head(
        branch=branch,
        version=record.last,
        record=record.first,
        tables=tables or Tables.of(record.tables),
        time=newest.time,
        closed=newest.kind == "closed",
        fence=record.fence,
    )
