"""What a handle reads: old versions and pins that stay readable while somebody holds them.

Owns: the list of what is in use, each entry for as long as the object lives that holds it, and the
short form of the list that a lease carries, by which garbage collection knows of it.

    Use    versions of a branch: all tables at each of them, or the changes of one table
    pin    one state of one table, as a transaction sees it, which no version may have

Invariants: the lease covers everything that is held; it has at most USES_LEASED_MAX entries for
each branch and table, however much is held: what lies close together becomes one entry, which
covers what is in between as well.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sized
from dataclasses import dataclass
from itertools import pairwise

USES_LEASED_MAX = 1000


@dataclass(frozen=True, slots=True)
class Use:
    """Versions first..last of a branch. With a table, its changes after the first of them."""

    branch_id: str
    first: int
    last: int
    table_id: str | None = None


class Reader:
    """Somebody who reads for as long as this lives, and is named as the holder of what is read."""


class Uses:
    """What is in use in this process, by its holder."""

    def __init__(self) -> None:
        self._held: weakref.WeakKeyDictionary[object, tuple[Use, ...]] = weakref.WeakKeyDictionary()
        self._pins: weakref.WeakKeyDictionary[object, tuple[str, int]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        """Held while they are listed: an entry that comes in between breaks the listing."""

    def hold(self, holder: object, uses: Iterable[Use]) -> None:
        """Note what a holder reads, in the place of what it read before, until it is gone."""
        with self._lock:
            self._held[holder] = tuple(uses)

    def hold_pin(self, holder: object, table_id: str, pin: int) -> None:
        with self._lock:
            self._pins[holder] = (table_id, pin)

    def listed(self) -> tuple[Use, ...]:
        """All of them, in short."""
        with self._lock:
            held = list(self._held.values())
        return cover({use for uses in held for use in uses})

    def pins(self) -> tuple[tuple[str, int], ...]:
        with self._lock:
            return tuple(sorted(set(self._pins.values())))


def are_many(versions: Sized) -> bool:
    """Whether they are too many to be listed one by one."""
    return len(versions) > USES_LEASED_MAX


def cover(uses: Iterable[Use], most: int | None = None) -> tuple[Use, ...]:
    """At most so many uses of each branch and table that hold all that the given ones do."""
    most = USES_LEASED_MAX if most is None else most
    grouped: defaultdict[tuple[str, str | None], list[Use]] = defaultdict(list)
    for use in uses:
        grouped[use.branch_id, use.table_id].append(use)
    found: list[Use] = []
    for (branch_id, table_id), group in grouped.items():
        spans = _joined([(use.first, use.last) for use in group], most)
        found.extend(Use(branch_id, first, last, table_id) for first, last in spans)
    return tuple(sorted(found, key=lambda use: (use.branch_id, use.table_id or "", use.first)))


def _joined(spans: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """The spans without overlaps, those with the least between them joined if there are more."""
    apart: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = (apart[-1][0], max(last, apart[-1][1]))
        else:
            apart.append((first, last))
    if len(apart) <= most:
        return apart
    gaps = [after[0] - before[1] for before, after in pairwise(apart)]
    widest = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)
    kept = set(widest[: most - 1])
    joined: list[tuple[int, int]] = []
    begin = apart[0][0]
    for number, (_, last) in enumerate(apart):
        if number in kept or number == len(apart) - 1:
            joined.append((begin, last))
            begin = apart[number + 1][0] if number + 1 < len(apart) else last
    return joined
