"""The error of a merge that is refused: all conflicts, and what can be done about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelock.errors import Advice, MergeConflict
from tidelock.model.history.conflicts import Conflict, tell_conflicts


def as_error(
    source: str,
    target: str,
    conflicts: Sequence[Conflict],
    counts: Mapping[tuple[str, str], int],
) -> MergeConflict:
    """`counts` tells how many there are, of which the first are told."""
    total = sum(counts.values())
    return MergeConflict(
        f"Branch {source!r} cannot be merged into {target!r}: {total:,} "
        f"conflict{'' if total == 1 else 's'}. {tell_conflicts(conflicts, counts)}. Nothing was "
        "written.",
        Advice(
            "Look at error.conflicts and change one of the two branches; or, where both changed "
            "the same, say on_conflict='source', 'target' or, by table, SQL for each column. "
            "What a rule forbids is settled on a branch alone.",
            "Change one of the two branches; or, where both changed the same, say --on-conflict "
            "TABLE=source or TABLE=target. What a rule forbids is settled on a branch alone.",
        ),
        source=source,
        target=target,
        conflicts=tuple(conflicts),
        count=total,
    )
