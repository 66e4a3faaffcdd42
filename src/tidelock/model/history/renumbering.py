"""Renumberings: which id a row has on one branch, by the id that it has on another.

Branches give out row ids on their own, each from where they parted. So two rows may have one id,
one on each branch; and when a merge brings a row to a branch that has moved, the row gets a new id
there. A renumbering says which rows are the same:

    ids below `shared`    were given out before the branches parted: the same on both
    ranges                (first id here, first id there, how many): brought from one to the other
    any other id          is of a row that the other branch does not have

Laws: no two ids here have one id there; `inverse` and `then` are those of partial functions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Range = tuple[int, int, int]
EVERY = 1 << 62
"""More than any id."""
ABSENT = -1


@dataclass(frozen=True)
class Renumbering:
    """Owns the pairs of ids of rows that two branches both have."""

    shared: int = EVERY
    ranges: tuple[Range, ...] = ()
    """In order of the ids here."""

    @property
    def is_identity(self) -> bool:
        return self.shared >= EVERY

    @cached_property
    def _table(self) -> tuple[Ids, Ids, Ids]:
        columns = list(zip(*self.pieces, strict=True))
        return tuple(np.array(column, dtype=np.int64) for column in columns)  # type: ignore[return-value]

    @property
    def pieces(self) -> list[Range]:
        whole = [(0, 0, self.shared)] if self.shared else []
        return [*whole, *self.ranges] or [(0, 0, 0)]

    def there(self, ids: Ids) -> Ids:
        """The ids that rows have there; ABSENT for rows that are not."""
        if self.is_identity:
            return ids
        here, there, counts = self._table
        place = np.searchsorted(here, ids, side="right") - 1
        known = place >= 0
        place = np.maximum(place, 0)
        known &= ids - here[place] < counts[place]
        return np.where(known, there[place] + (ids - here[place]), ABSENT)

    def inverse(self) -> Renumbering:
        flipped = sorted((there, here, count) for here, there, count in self.ranges)
        return Renumbering(self.shared, tuple(flipped))

    def then(self, other: Renumbering) -> Renumbering:
        """First this one, then another."""
        if self.is_identity:
            return other
        if other.is_identity:
            return self
        following = other.pieces
        starts = [one[0] for one in following]
        found: list[Range] = []
        for here, there, count in self.pieces:
            at = max(0, bisect_right(starts, there) - 1)
            while at < len(following) and starts[at] < there + count:
                begin = max(there, starts[at])
                end = min(there + count, starts[at] + following[at][2])
                if begin < end:
                    target = following[at][1] + begin - starts[at]
                    found.append((here + begin - there, target, end - begin))
                at += 1
        return renumbering(found)

    def below(self, bound: int) -> Renumbering:
        """The same for ids below a bound alone."""
        if self.shared >= bound:
            return Renumbering(bound)
        kept = [(h, t, min(count, bound - h)) for h, t, count in self.ranges if h < bound]
        return Renumbering(self.shared, tuple(kept))

    def union(self, others: Iterable[Range]) -> Renumbering:
        """With more ranges, where they say of ids what is not known yet."""
        fresh: list[Range] = []
        for here, there, count in others:
            known = max(0, min(self.shared - here, count))
            here, there, count = here + known, there + known, count - known
            ids = np.arange(here, here + count, dtype=np.int64)
            unknown = ids[self.there(ids) == ABSENT]
            fresh.extend(ranges_of(unknown, unknown - here + there))
        return renumbering([*self.pieces, *fresh]) if fresh else self

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {"shared": self.shared, "ranges": [list(one) for one in self.ranges]}


IDENTITY = Renumbering()


def read_renumbering(told: dict[str, Any]) -> Renumbering:
    return Renumbering(told["shared"], tuple((h, t, n) for h, t, n in told["ranges"]))


def renumbering(pieces: Iterable[Range]) -> Renumbering:
    """From ranges in any order, which become as few as they can be."""
    joined: list[Range] = []
    for here, there, count in sorted(one for one in pieces if one[2]):
        if joined:
            first, target, length = joined[-1]
            if here == first + length and there == target + length:
                joined[-1] = (first, target, length + count)
                continue
        joined.append((here, there, count))
    if joined and joined[0][:2] == (0, 0):
        return Renumbering(joined[0][2], tuple(joined[1:]))
    return Renumbering(0, tuple(joined))


def ranges_of(here: Ids, there: Ids) -> list[Range]:
    """Rows by the ids that they have here and there, in any order."""
    if not len(here):
        return []
    order = np.argsort(here, kind="stable")
    here, there = here[order], there[order]
    breaks = np.flatnonzero((np.diff(here) != 1) | (np.diff(there) != 1)) + 1
    starts = np.concatenate([[0], breaks])
    counts = np.diff(np.concatenate([starts, [len(here)]]))
    return list(zip(here[starts].tolist(), there[starts].tolist(), counts.tolist(), strict=True))
