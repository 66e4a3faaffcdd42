"""Which fragments to fold, and when to index: the decisions of maintenance, without I/O.

Fragments fall into tiers by their live rows. When a tier holds FANOUT fragments or more, they and
all smaller ones are folded into one. A row is rewritten a bounded number of times per tier, and the
number of fragments stays below FANOUT * number of tiers + full fragments, however a table is
written: one row at a time or a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FANOUT = 8
OVERDUE = 4 * FANOUT
BACKLOG = 8 * FANOUT
TIER_ROWS = (64, 4096, 32_768, 262_144)
"""The upper bounds of the tiers; a fragment with more rows is full."""
FULL_BYTES = 64 * 1024 * 1024
"""A fragment of this size is full, however few rows it has."""
DELETED_FRACTION_MAX = 0.2
"""`optimize` rewrites a fragment in which more rows than this are deleted."""

INDEX_ROWS_MIN = 32_768
"""Fewer rows outside the key index are found quicker by reading them."""
SEGMENT_GROWTH = 4


@dataclass(frozen=True, slots=True)
class FragmentSize:
    id: int
    rows: int
    deleted: int
    size_bytes: int

    @property
    def tier(self) -> int:
        """The tier of a fragment; len(TIER_ROWS) when it is full."""
        if self.size_bytes >= FULL_BYTES:
            return len(TIER_ROWS)
        return next((t for t, rows in enumerate(TIER_ROWS) if self.rows < rows), len(TIER_ROWS))


def may_be_due(fragments: int, shared: int = 0) -> bool:
    """Whether a table with so many fragments is worth a look at their sizes.

    Among processes, the one that folds needs what the others wrote: it is done less often, and one
    commit in FANOUT looks. `shared` is how many commits were just made, where others commit too.
    """
    return fragments >= FANOUT and (not shared or fragments % FANOUT < shared)


def fold_is_due(sizes: Sequence[FragmentSize], among_rivals: bool = False) -> bool:
    """Whether the writer of the last commit is the one to fold.

    Of many writers of one table, the one whose commit filled a tier does it, so that they do not
    all do the same work; when it did not, the next one to fill the tier once more does.
    """
    counts = _by_tier(sizes)
    if among_rivals:
        return any(count >= 2 * FANOUT for count in counts)
    return any(count and (count % FANOUT == 0 or count >= OVERDUE) for count in counts)


def is_overdue(sizes: Sequence[FragmentSize]) -> bool:
    """Whether the writer that was to fold did not, so that any does."""
    return any(count >= OVERDUE for count in _by_tier(sizes))


def is_backlogged(sizes: Sequence[FragmentSize]) -> bool:
    """Whether so much is left that a writer folds before it goes on: nobody else did."""
    return any(count >= BACKLOG for count in _by_tier(sizes))


def _by_tier(sizes: Sequence[FragmentSize]) -> list[int]:
    """How many fragments each tier holds, without those that are full."""
    counts = [0] * (len(TIER_ROWS) + 1)
    for size in sizes:
        counts[size.tier] += 1
    return counts[:-1]


def plan_fold(sizes: Sequence[FragmentSize]) -> list[int]:
    """The fragments that a writer folds now; none when no tier is full."""
    if len(sizes) < FANOUT:
        return []
    full = [tier for tier, count in enumerate(_by_tier(sizes)) if count >= FANOUT]
    if not full:
        return []
    highest = full[-1]
    return [size.id for size in sizes if size.tier <= highest]


def plan_compaction(sizes: Sequence[FragmentSize], rows_max: int) -> list[list[int]]:
    """What `optimize` rewrites: groups of fragments, each to become one of about rows_max rows.

    Fragments that are not full are joined; full ones are rewritten alone when much of them is
    deleted.
    """
    groups: list[list[int]] = []
    joined: list[FragmentSize] = []
    for size in sizes:
        worn = size.deleted > DELETED_FRACTION_MAX * (size.rows + size.deleted)
        if size.rows * 2 > rows_max or size.size_bytes >= 2 * FULL_BYTES:
            if worn:
                groups.append([size.id])
            continue
        if sum(one.rows for one in joined) + size.rows > rows_max:
            groups.append([one.id for one in joined])
            joined = []
        joined.append(size)
    if len(joined) > 1 or any(one.deleted for one in joined):
        groups.append([one.id for one in joined])
    return [group for group in groups if group]


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """One segment of an index, with the live rows of the fragments that it covers."""

    uuid: str
    fragments: frozenset[int]
    rows: int


def plan_segment(
    sizes: Sequence[FragmentSize], segments: Sequence[SegmentSize], rows_min: int = INDEX_ROWS_MIN
) -> tuple[list[int], list[str]]:
    """Which fragments a new segment covers, and which segments it replaces.

    A new segment swallows those that are not much larger than itself, so that their number grows
    with the logarithm of the table.
    """
    rows_of = {size.id: size.rows for size in sizes}
    covered = {fragment for segment in segments for fragment in segment.fragments}
    fragments = [size.id for size in sizes if size.id not in covered]
    rows = sum(rows_of[fragment] for fragment in fragments)
    replaced = [segment.uuid for segment in segments if not segment.rows]
    if rows < rows_min:
        return [], []
    for segment in sorted(segments, key=lambda segment: segment.rows):
        if segment.rows and segment.rows <= SEGMENT_GROWTH * rows:
            fragments.extend(one for one in segment.fragments if one in rows_of)
            rows += segment.rows
            replaced.append(segment.uuid)
    return sorted(fragments), replaced
