"""The commit log of every branch.

Owns: the numbered commit records of each branch. Older ones are kept in checkpoints
(checkpoints.py), and a reader that asks for a version need not know where it is.
Invariants: the versions of a branch are covered by its records and checkpoints without holes; a
record names the one before it; a record whose last commit is of kind `closed` is the last of its
branch; the newest record of a branch is never removed, and no checkpoint holds it.
After a crash: a record exists completely or not at all; there is no third state.

The newest record is the one with the highest number: one list finds it, whatever the history, for
older ones are removed once a checkpoint holds them, the oldest first. So that a number which has
become free again is never taken for one that is still to come,

    what was seen of a log is relied on for LOOK_SECONDS, by a clock that never steps;
    a record is removed REMOVE_AFTER_SECONDS after its checkpoint was written, or later.

Within LOOK_SECONDS after n was seen to be the newest, no record above n can have been removed: one
get tells whether there is a next one, and a put of the next one is a commit. What was seen earlier
is looked at again first. A put that was answered late, for its process was suspended in between, is
confirmed: had the number become free, the put is withdrawn, and has lost like any other.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice

from tidelock.errors import (
    Advice,
    BranchDeleted,
    CorruptObject,
    ObjectExists,
    ObjectMissing,
    StoreError,
    VersionNotFound,
)
from tidelock.model.history.commit import BranchRef, Commit, Tables
from tidelock.store.log.checkpoints import SPANS, Checkpoint, Past, Piece, numbered, pieces_of
from tidelock.store.objects import layout
from tidelock.store.objects.boot_time import boot_seconds
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import Record, decode, encode

GROUP_MAX = 64
"""How many commits one record may hold, and so how far back a version's record may begin."""
LOOK_SECONDS = 1.0
REMOVE_AFTER_SECONDS = 3.0
CACHED_VERSIONS_MAX = 256
READ_AHEAD = 32
FENCE = "fence"
"""The property of a commit that fences writers off (fences.py)."""
MERGE = "merge"
"""The property of a commit that merges another branch (merges.py)."""

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
    merge: int = 0
    """The version of the newest merge, on the branch or before its fork."""
    seen: float = field(default=0.0, compare=False)
    """When nothing newer was there, in seconds since the machine booted."""


class Log:
    """Owns the records of every branch, and what this handle remembers of them: heads that it has
    seen, and commits that it has read. Nothing here is changed but by appending a record.
    """

    def __init__(
        self,
        objects: Objects,
        recent: Callable[[str], int] = lambda branch_id: 0,
        together: Together | None = None,
    ) -> None:
        """`recent` may give the number of a recent record of a branch."""
        self._objects = objects
        self._recent = recent
        self._together = together or Together()
        self.past = Past(objects, self._together)
        self._lock = threading.Lock()
        self._heads: dict[str, Head] = {}
        self._put_began: dict[str, float] = {}
        self._records: OrderedDict[tuple[str, int], Record] = OrderedDict()

    # The newest

    def head(self, branch: BranchRef, hint: int = 0) -> Head:
        """The newest head, other processes' commits included; BranchDeleted when it is closed.

        `hint` may be the number of a recent record, so that those before it are not read.
        """
        return _open(self._newest(branch, hint))

    def is_closed(self, branch: BranchRef) -> bool:
        return self._newest(branch).closed

    def end_of(self, branch: BranchRef) -> Head | None:
        """Where a branch was closed; None while it is open."""
        head = self._newest(branch)
        return head if head.closed else None

    def newest_version(self, branch: BranchRef) -> int:
        """The version of the last commit, also of a branch that was deleted."""
        head = self._newest(branch)
        return head.version - 1 if head.closed else head.version

    def newer_of(self, head: Head) -> Head:
        """This head, or the newer one that this handle has seen since."""
        known = self._heads.get(head.branch.id)
        if known is None or known.version < head.version:
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
        known = self._heads.get(branch.id)
        if known is not None and known.closed:
            return known
        asked = boot_seconds()
        if known is None or asked - known.seen > LOOK_SECONDS:
            head = self._find(branch, known)
        else:
            head = self._follow(self._skip_to(hint, known), asked)
        return self._remember(replace(head, seen=asked))

    def _follow(self, head: Head, asked: float) -> Head:
        """The newest from a head on that was the newest a moment ago."""
        branch = head.branch
        record = None if head.closed else self._read(branch.id, head.version + 1)
        if record is None:
            return head
        head = self._remember(_head_at(branch, record, seen=head.seen))
        if self._put_began.get(branch.id, 0.0) > asked:
            # A put of ours that began after the question won, so nothing older is missing.
            return head
        # Where there is one that we did not know, there may be many.
        ahead = self._skip_to(self._recent(branch.id), head)
        if ahead is not head and self._read(branch.id, ahead.version + 1) is None:
            return ahead
        return self._find(branch, ahead)

    def _skip_to(self, number: int, head: Head) -> Head:
        """The head at a record of this number, if it is there and that is not the next anyway."""
        if number <= head.version + 1:
            return head
        record = self._read(head.branch.id, number)
        if record is None:
            return head
        return self._remember(_head_at(head.branch, record, seen=head.seen))

    def _find(self, branch: BranchRef, known: Head | None) -> Head:
        """The newest by a list of what is there; `known` may be a head from which on to look."""
        hinted = self._at_hint(branch)
        if hinted is not None:
            return hinted
        oldest = known.record if known is not None else 0
        while True:
            numbers = self._numbers(branch.id, oldest)
            if not numbers:
                return self._without_records(branch, oldest)
            if known is not None and numbers[-1] == known.record:
                return known
            record = self._read(branch.id, numbers[-1])
            # One that was removed since it was listed is not the newest any more.
            if record is not None:
                return _head_at(branch, record)

    def _at_hint(self, branch: BranchRef) -> Head | None:
        """The newest head, if the record that was published last on this machine still is it.

        It is, if there is no next one: a record is removed only when a checkpoint holds it, after
        all that are older, so that nothing above it can have been removed while it is there and no
        checkpoint holds it. The record is looked for once more at the end, because this process may
        have been suspended in between.
        """
        number = self._recent(branch.id)
        record = self._read(branch.id, number) if number else None
        if record is None:
            return None
        head = _head_at(branch, record)
        next_one = layout.record(branch.id, head.version + 1)
        holders = [Checkpoint.holding(number, span).key(branch.id) for span in SPANS]
        if any(self._objects.info(key) is not None for key in (next_one, *holders)):
            return None
        return head if self._objects.info(layout.record(branch.id, number)) is not None else None

    def _without_records(self, branch: BranchRef, oldest: int) -> Head:
        """Where a branch stands that has no record: where it was forked, unless it is gone."""
        if not self._is_there(branch):
            return Head(branch, branch.fork_version, 0, Tables({}), _EPOCH, closed=True)
        if not oldest and (checkpoints := self.past.list(branch.id)):
            # The newest record is never removed, whatever checkpoints hold.
            oldest = checkpoints[-1].last
        if oldest:
            raise CorruptObject(
                f"The log of branch {branch.name!r} is gone: there was a record of version "
                f"{oldest}, and now there is none. Nothing was written. Restore the lake from a "
                "copy, or open it again if it was moved.",
                key=f"{layout.LOG}/{branch.id}",
                cause="no record",
            )
        fork = branch.fork_version
        if not fork:
            return Head(branch, 0, 0, Tables({}), _EPOCH)
        record = self.record_at(branch, fork)
        merge = self.newest_merge(branch, fork)
        tables, time = record.snapshot_after(fork), record.commit(fork).time
        return Head(branch, fork, 0, tables, time, merge=merge)

    def _is_there(self, branch: BranchRef) -> bool:
        """Whether a branch that was listed once still is: the log of a deleted one may be gone."""
        if not branch.incarnation or branch.id == layout.MAIN:
            return True
        key = layout.branch(branch.name, branch.incarnation)
        try:
            return decode(self._objects.get(key), BranchRef, key).id == branch.id
        except ObjectMissing:
            return False

    # Publication

    def append(self, head: Head, commits: tuple[Commit, ...]) -> Head:
        """Publish commits on top of a head: the one create-only put that makes them visible.

        Raises ObjectExists when another record has that number.
        """
        head = self.look_again(head)
        tables = head.tables
        fence, merge = head.fence, head.merge
        for commit in commits:
            tables = tables.after(commit.tables)
            fence = commit.version if FENCE in commit.properties else fence
            merge = commit.version if MERGE in commit.properties else merge
        record = Record(head.record, commits, tables.states(), fence, merge)
        hit("publish.before_put")
        began = boot_seconds()
        self._objects.put_new(layout.record(head.branch.id, record.first), encode(record))
        hit("publish.after_put")
        if boot_seconds() - head.seen > LOOK_SECONDS:
            self._confirm(head.branch, record)
        self._cache(head.branch.id, record)
        after = self._remember(_head_at(head.branch, record, tables, began))
        self._put_began[head.branch.id] = began
        return after

    def look_again(self, head: Head) -> Head:
        """A head on top of which the next record may be put: one that was seen just now.

        ObjectExists when there is a newer one.
        """
        if boot_seconds() - head.seen < LOOK_SECONDS / 2:
            return head
        newest = self.head(head.branch)
        if newest.version != head.version:
            raise _taken(head.branch, head.version + 1)
        return newest

    def _confirm(self, branch: BranchRef, record: Record) -> None:
        """Withdraw a record whose number had become free; ObjectExists says that it lost."""
        hit("publish.before_confirm")
        found = self.past.find(branch.id, record.first)
        if found is None and self._is_there(branch):
            return
        if found is not None and _operations(found, record) == _operations(record, record):
            return
        with suppress(StoreError):
            # Nobody sees it: what cannot be removed now is swept with other leftovers.
            self._objects.delete(layout.record(branch.id, record.first))
        raise _taken(branch, record.first)

    def record_if_ours(
        self, head: Head, commits: tuple[Commit, ...]
    ) -> tuple[Head, tuple[Commit, ...]] | None:
        """The head after the commits on top of `head` and what they are, when their operations are
        these: ours, or those of another process that ran the same ones and was first."""
        try:
            record = self.record_at(head.branch, head.version + 1)
        except VersionNotFound:
            return None
        start = head.version + 1 - record.first
        held = record.commits[start : start + len(commits)]
        if [one.operation_id for one in held] != [one.operation_id for one in commits]:
            return None
        if held == record.commits:
            return self._pass(head.branch, record), held
        last = held[-1]
        tables = record.snapshot_after(last.version)
        return Head(head.branch, last.version, head.version + 1, tables, last.time), held

    def _pass(self, branch: BranchRef, record: Record) -> Head:
        """The head at a record that was come upon; there may be newer ones."""
        known = self._heads.get(branch.id)
        return self._remember(_head_at(branch, record, seen=known.seen if known else 0.0))

    # Any version

    def record_at(self, branch: BranchRef, version: int) -> Record:
        """The record or checkpoint that holds a version, of whichever branch it belongs to."""
        home = branch.home_of(version)
        found = self._records.get((home, version)) or self.past.known(home, version)
        found = found or self._ask_for(home, version)
        if found is None or not found.first <= version <= found.last:
            self._refuse_hole(branch, version)
            raise VersionNotFound(
                f"Branch {branch.name!r} has no version {version}.",
                Advice("See lake.log().", "See `tidelock log`."),
                branch=branch.name,
                version=version,
            )
        return found

    def _refuse_hole(self, branch: BranchRef, version: int) -> None:
        """CorruptObject for a version that must be there, since a later one is, or a branch was
        forked from it."""
        head = self._heads.get(branch.id)
        if 0 < version <= max(branch.fork_version, 0 if head is None else head.version):
            key = layout.record(branch.home_of(version), version)
            raise CorruptObject(
                f"Version {version} of branch {branch.name!r} is missing from the log: neither "
                f"{key!r} nor a checkpoint of it is there, so that it was removed by something "
                "other than Tidelock. Restore it from a copy of the lake.",
                key=key,
                cause="it is not there",
            )

    def commit_at(self, branch: BranchRef, version: int) -> Commit:
        return self.record_at(branch, version).commit(version)

    def tables_at(self, branch: BranchRef, version: int) -> Tables:
        if version == 0:
            return Tables({})
        return self.record_at(branch, version).snapshot_after(version)

    def newest_merge(self, branch: BranchRef, version: int) -> int:
        """The version of the newest merge up to a version, 0 if there is none."""
        if not version:
            return 0
        record = self.record_at(branch, version)
        merge = record.merge
        while merge > version:
            # Of the same record, whose last commits come after the version.
            merge = int(record.commit(merge).properties[MERGE]["before"])
        return merge

    def _ask_for(self, branch_id: str, version: int) -> Record | None:
        """What holds a version, a checkpoint before a record (past.pieces_of tells why)."""
        if self._is_recent(branch_id, version):
            found = self._read(branch_id, version)
        else:
            found = self._together.first(
                [
                    lambda: self.past.find(branch_id, version),
                    lambda: self._read(branch_id, version),
                ]
            )
        if found is not None:
            return found
        numbers = self._numbers(branch_id, max(1, version - GROUP_MAX + 1))
        below = [number for number in numbers if number <= version]
        group = self._read(branch_id, below[-1]) if below else None
        if group is not None and group.last >= version:
            return group
        # Its record may have been folded and removed since it was asked for.
        return self.past.find(branch_id, version)

    def _is_recent(self, branch_id: str, version: int) -> bool:
        """Whether a version is known to be in a record still."""
        head = self._heads.get(branch_id)
        if head is None or boot_seconds() - head.seen > LOOK_SECONDS:
            return False
        return Checkpoint.holding(version, SPANS[0]).last > head.version

    def walk(self, branch: BranchRef, newest: int, oldest: int = 1) -> Iterator[Commit]:
        """The commits newest, newest - 1, …, oldest, through the forks."""
        version = newest
        while version >= max(oldest, 1):
            for record in self._records_down(branch, version, max(oldest, 1)):
                if record.last < version:
                    # What was between was not listed: asked for by itself, it is found or missed.
                    break
                for commit in reversed(record.commits):
                    if oldest <= commit.version <= version:
                        yield commit
                version = record.first - 1

    def _records_down(self, branch: BranchRef, newest: int, oldest: int) -> Iterator[Record]:
        """What holds these versions, newest first, at least the newest of them."""
        first = self.record_at(branch, newest)
        yield first
        home = branch.home_of(newest)
        if not self._together.far or first.first <= oldest or home != branch.home_of(oldest):
            return
        checkpoints, numbers = self._together.both(
            lambda: self.past.list(home), lambda: self._numbers(home)
        )
        pieces = iter(pieces_of(checkpoints, numbers, oldest, first.first - 1))
        while part := list(islice(pieces, READ_AHEAD)):
            for record in self._together.map(lambda piece: self._read_piece(home, piece), part):
                if record is None:
                    # Removed since it was listed: what is left is listed again.
                    return
                yield record

    def _read_piece(self, branch_id: str, piece: Piece) -> Record | None:
        if piece.span:
            return self.past.read(branch_id, piece.checkpoint)
        return self._read(branch_id, piece.first)

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

    # Objects

    def branch_ids(self) -> list[str]:
        """The branches whose logs are there, the deleted ones too."""
        return self._objects.list_folders(layout.LOG)

    def numbers(self, branch: BranchRef) -> list[int]:
        """The numbers of the records that are there, in order."""
        return self._numbers(branch.id)

    def _numbers(self, branch_id: str, oldest: int = 0) -> list[int]:
        after = layout.record(branch_id, oldest - 1) if oldest > 1 else ""
        return numbered(self._objects.keys(f"{layout.LOG}/{branch_id}", after))

    def _remember(self, head: Head) -> Head:
        with self._lock:
            known = self._heads.get(head.branch.id)
            if known is not None and (known.version, known.seen) > (head.version, head.seen):
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


def _head_at(
    branch: BranchRef, record: Record, tables: Tables | None = None, seen: float = 0.0
) -> Head:
    newest = record.commits[-1]
    return Head(
        branch=branch,
        version=record.last,
        record=record.first,
        tables=tables or Tables.of(record.tables),
        time=newest.time,
        closed=newest.kind == "closed",
        fence=record.fence,
        merge=record.merge,
        seen=seen,
    )


def _operations(held: Record, of: Record) -> list[str]:
    """The operations that one record has for the versions of another."""
    start = of.first - held.first
    return [commit.operation_id for commit in held.commits[start : start + len(of.commits)]]


def _taken(branch: BranchRef, number: int) -> ObjectExists:
    return ObjectExists(
        f"Another process published version {number} of branch {branch.name!r} first.",
        key=layout.record(branch.id, number),
        operation="put_new",
    )
