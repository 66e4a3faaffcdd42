"""Where operations were published: an index of the past of each branch by operation id.

Owns: for each branch, which operation ids its versions up to a multiple of 1,024 have. All of it
follows from the checkpoints, and is written anew as they grow, so that one get answers for any
number of commits.

    _tidelock/published/<branch id>/<last version>-<bucket>.json      {"operations": {id: version}}

An id belongs to one bucket, by its checksum; there are as many buckets as keep each short.
Invariant: while the checkpoint of 1,024 versions that ends at E is there, every bucket of E, or of
a later version, is. So what the index does not have up to there was not published.
After a crash: of a version whose checkpoint is not there yet, some buckets may be; each is right.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from tidelock.errors import CorruptObject, ObjectMissing
from tidelock.model.history.commit import BranchRef
from tidelock.store.log.checkpoints import LAG, SPANS
from tidelock.store.log.log import Log
from tidelock.store.objects import layout
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode

STEP = SPANS[-1]
BUCKET_MAX = 4096
"""About so many ids are in one bucket at most."""

_NAME = re.compile(r"(\d{20})-(\d{6})\.json")


@dataclass(frozen=True, slots=True)
class _Bucket:
    operations: dict[str, int]
    format: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """What the index of a branch says of an operation: its version, None if it has it not, among
    those up to `until`."""

    until: int
    version: int | None


def bucket_count(until: int) -> int:
    """A power of two, so that a bucket of twice as many comes from one of these."""
    count = 1
    while count * BUCKET_MAX < until:
        count *= 2
    return count


def bucket_of(operation_id: str, count: int) -> int:
    return zlib.crc32(operation_id.encode()) % count


class Published:
    """Owns the index objects: which version of a branch has which operation id."""

    def __init__(self, objects: Objects, log: Log, together: Together) -> None:
        self._objects = objects
        self._log = log
        self._together = together

    def look_up(self, branch_id: str, newest: int, operation_id: str) -> Answer:
        """What the index says of an operation, on a branch that has come to `newest` at least."""
        latest = (newest - LAG) // STEP * STEP
        if latest > 0 and (found := self._ask(branch_id, latest, operation_id)) is not None:
            return found
        # Nobody has folded as far yet, or the branch has gone on since.
        for until in sorted(self.listed(branch_id), reverse=True):
            if (found := self._ask(branch_id, until, operation_id)) is not None:
                return found
        return Answer(0, None)

    def covered(self, branch_id: str) -> int:
        """Up to which version the index has everything."""
        large = [one.last for one in self._log.past.list(branch_id) if one.span == STEP]
        return max(large, default=0)

    def among(self, branch_id: str, until: int, operation_ids: Iterable[str]) -> set[str]:
        """Those of some operations that the index up to a version has."""
        count = bucket_count(until)
        by_bucket: defaultdict[int, list[str]] = defaultdict(list)
        for one in operation_ids:
            by_bucket[bucket_of(one, count)].append(one)

        def ask(bucket: int) -> list[str]:
            with suppress(ObjectMissing, CorruptObject):
                known = self._bucket(branch_id, until, bucket)
                return [one for one in by_bucket[bucket] if one in known]
            return []

        return {one for found in self._together.map(ask, list(by_bucket)) for one in found}

    def build(self, branch: BranchRef, since: int, until: int) -> None:
        """Write the index up to a version; `since` is up to where there is one, 0 if there is none.

        An index that is gone or cannot be read is made anew from the log.
        """
        hit("fold_log.before_index")
        try:
            self._write(branch, since, until)
        except (CorruptObject, ObjectMissing):
            self._write(branch, 0, until)
        hit("fold_log.after_index")

    def forget_before(self, branch_id: str, until: int) -> None:
        """Remove what an index up to a version replaces."""
        self._objects.delete_many([key for key, last in self._keys(branch_id) if last < until])

    def listed(self, branch_id: str) -> set[int]:
        """The versions up to which there are indexes, or parts of one."""
        return {until for _, until in self._keys(branch_id)}

    def _write(self, branch: BranchRef, since: int, until: int) -> None:
        count = bucket_count(until)
        first = max(since, branch.fork_version) + 1
        new: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for commit in self._log.walk(branch, until, first):
            new[bucket_of(commit.operation_id, count)][commit.operation_id] = commit.version

        def write(bucket: int) -> None:
            known = self._bucket(branch.id, since, bucket % bucket_count(since)) if since else {}
            earlier = {one: at for one, at in known.items() if bucket_of(one, count) == bucket}
            content = _Bucket({**earlier, **new[bucket]})
            self._objects.put(_key(branch.id, until, bucket), encode(content))

        self._together.map(write, range(count))

    def _ask(self, branch_id: str, until: int, operation_id: str) -> Answer | None:
        with suppress(ObjectMissing):
            bucket = bucket_of(operation_id, bucket_count(until))
            return Answer(until, self._bucket(branch_id, until, bucket).get(operation_id))
        return None

    def _bucket(self, branch_id: str, until: int, bucket: int) -> dict[str, int]:
        key = _key(branch_id, until, bucket)
        return decode(self._objects.get(key), _Bucket, key).operations

    def _keys(self, branch_id: str) -> Iterable[tuple[str, int]]:
        for key in self._objects.keys(f"{layout.PUBLISHED}/{branch_id}"):
            name = _NAME.fullmatch(key.rsplit("/", 1)[1])
            if name is not None:
                yield key, int(name[1])


def _key(branch_id: str, until: int, bucket: int) -> str:
    return f"{layout.PUBLISHED}/{branch_id}/{until:020d}-{bucket:06d}.json"
