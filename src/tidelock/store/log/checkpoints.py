"""The past of a branch: checkpoints, which hold many commits in the place of their records.

Owns: the objects in which older commits are kept, and the arithmetic of which commits each holds.

    _tidelock/past/<branch id>/<last version>-<span>.json

A checkpoint has the form of a record (records.py): consecutive commits, and the snapshot after the
last; the snapshots before are told by the commits. One of span S ends at a multiple of S and holds
the S versions up to there, or those of them that the branch has of its own. Nothing is left out, so
that time travel, changes and the log are what they were.

Invariants: what a checkpoint holds never changes, whichever process writes it; a record, or a
checkpoint of a smaller span, is removed only where another holds its commits
(checkpoint_writer.py).
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tidelock.errors import ObjectExists, ObjectMissing
from tidelock.store.objects import layout
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import Record, decode, encode

SPANS = (32, 1024)
"""How many versions a checkpoint holds: first those of records, then those of checkpoints."""
LAG = 32
"""So many of the newest versions stay in their records."""
CACHED_MAX = 8

_NAME = re.compile(r"(\d{20})-(\d{1,9})\.json")
_NUMBER = re.compile(r"(\d{20})\.json")


@dataclass(frozen=True, slots=True, order=True)
class Checkpoint:
    """Where the versions last - span + 1 … last of a branch are kept."""

    last: int
    span: int

    @property
    def first(self) -> int:
        return self.last - self.span + 1

    @classmethod
    def holding(cls, version: int, span: int) -> Checkpoint:
        return cls(-(-version // span) * span, span)

    def key(self, branch_id: str) -> str:
        return layout.checkpoint(branch_id, self.last, self.span)


@dataclass(frozen=True, slots=True)
class Piece:
    """One object of the log: a checkpoint, or, with a span of 0, the record of that number."""

    first: int
    span: int = 0

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.first + self.span - 1, self.span)


def named(keys: Iterable[str]) -> list[Checkpoint]:
    """The checkpoints that these are the keys of, in order; other names are none of ours."""
    found = (_NAME.fullmatch(key.rsplit("/", 1)[1]) for key in keys)
    return sorted(Checkpoint(int(one[1]), int(one[2])) for one in found if one)


def numbered(keys: Iterable[str]) -> list[int]:
    """The numbers of the records that these are the keys of, in order."""
    found = (_NUMBER.fullmatch(key.rsplit("/", 1)[1]) for key in keys)
    return sorted(int(one[1]) for one in found if one)


def pieces_of(
    checkpoints: Sequence[Checkpoint], numbers: Sequence[int], oldest: int, newest: int
) -> list[Piece]:
    """What to read for some versions, newest first, as far down as it is there.

    Checkpoints before records: a record beside a checkpoint that holds it is a leftover, or was put
    by a writer that came too late.
    """
    there = set(checkpoints)
    found: list[Piece] = []
    version = newest
    while version >= oldest:
        holding = (Checkpoint.holding(version, span) for span in reversed(SPANS))
        checkpoint = next((one for one in holding if one in there), None)
        if checkpoint is not None:
            found.append(Piece(checkpoint.first, checkpoint.span))
        else:
            place = bisect_right(numbers, version)
            if not place:
                break
            found.append(Piece(numbers[place - 1]))
        version = found[-1].first - 1
    return found


class Past:
    """The checkpoints of every branch."""

    def __init__(self, objects: Objects, together: Together) -> None:
        self._objects = objects
        self._together = together
        self._cache: OrderedDict[tuple[str, Checkpoint], Record] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, branch_id: str, version: int) -> Record | None:
        """The checkpoint with a version if this handle has it at hand."""
        for span in reversed(SPANS):
            found = self._cache.get((branch_id, Checkpoint.holding(version, span)))
            if found is not None:
                return found
        return None

    def find(self, branch_id: str, version: int) -> Record | None:
        """The checkpoint that holds a version; None when its record was not folded yet."""
        asked = [Checkpoint.holding(version, span) for span in reversed(SPANS)]
        return self._together.first([lambda one=one: self.read(branch_id, one) for one in asked])  # type: ignore[misc]

    def read(self, branch_id: str, checkpoint: Checkpoint) -> Record | None:
        found = self._cache.get((branch_id, checkpoint))
        if found is not None:
            return found
        key = checkpoint.key(branch_id)
        try:
            record = decode(self._objects.get(key), Record, key)
        except ObjectMissing:
            return None
        self._keep(branch_id, checkpoint, record)
        return record

    def list(self, branch_id: str) -> list[Checkpoint]:
        return named(self._objects.keys(f"{layout.PAST}/{branch_id}"))

    def write(self, branch_id: str, checkpoint: Checkpoint, record: Record) -> None:
        # The process that was first wrote the same.
        with suppress(ObjectExists):
            self._objects.put_new(checkpoint.key(branch_id), encode(record))
        self._keep(branch_id, checkpoint, record)

    def _keep(self, branch_id: str, checkpoint: Checkpoint, record: Record) -> None:
        with self._lock:
            self._cache[branch_id, checkpoint] = record
            if len(self._cache) > CACHED_MAX:
                self._cache.popitem(last=False)
