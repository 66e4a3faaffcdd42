"""What becomes of rows that are known at a base, a source and a target, decided for many at once.

Pure: three tables of the same columns whose rows stand side by side, and which of them are there.
Per row, with b, s, t for "is there":

    b s t    each column: whichever side changed it; both changed it otherwise: divergent update
    b s -    the source changed it: delete against update; else it stays deleted
    b - t    the target changed it: delete against update; else it is deleted
    - s t    the same, or divergent insert
    - s -    inserted
    b - -, - - t    nothing is to be done

Where the base is not known, because two bases disagree about it, s and t must be the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tidelock.model.history.conflicts import ConflictKind
from tidelock.model.history.merges import Granularity, Resolution
from tidelock.store.changes.alike import Mask, same_values
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults


@dataclass(frozen=True)
class Triples:
    """Rows side by side. Values of a row that is not there mean nothing."""

    base: pa.Table
    source: pa.Table
    target: pa.Table
    in_base: Mask
    in_source: Mask
    in_target: Mask
    unknown: Mask
    """Rows whose base is not known."""

    def __len__(self) -> int:
        return len(self.in_base)

    def choose(self, columns: Mapping[str, Mask], names: Sequence[str]) -> pa.Table:
        """Rows of which each column is the source's where its mask says so, else the target's."""
        chosen = []
        places = np.arange(len(self))
        for name in names:
            pair = pa.chunked_array(
                [*self.target.column(name).chunks, *self.source.column(name).chunks]
            )
            chosen.append(pair.take(pa.array(places + len(self) * columns[name])))
        return pa.Table.from_arrays(chosen, schema=self.target.schema)


@dataclass
class Decided:
    """What becomes of each row."""

    write: Mask
    """Rows that the target gets, in the place of its own or anew."""
    delete: Mask
    from_source: dict[str, Mask]
    """Per column, the rows that take the source's value."""
    conflicts: dict[str, Mask]
    """Per column, the rows in which both sides changed it otherwise."""
    kinds: dict[ConflictKind, Mask] = field(default_factory=dict)
    """Rows in conflict that nobody resolved, by kind."""
    resolved: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    computed: dict[str, Mask] = field(default_factory=dict)
    """Per column, the rows whose value an expression gives."""


def decide_rows(
    rows: Triples,
    columns: Sequence[str],
    granularity: Granularity,
    resolution: Resolution,
    filled: Defaults = NO_DEFAULTS,
) -> Decided:
    """What becomes of rows; `columns` are those that may differ, which leaves out the key.

    `filled` are defaults of columns that came since the base: a row that got nothing but those was
    not updated by anybody.
    """
    nothing = np.zeros(len(rows), dtype=np.bool_)
    compared = {name: _Column.of(rows, name) for name in columns}
    here = _any([~one.source_same for one in compared.values()], nothing)
    updated_here = _any(
        [~one.source_same & ~_is_filled(rows.source, n, filled) for n, one in compared.items()],
        nothing,
    )
    updated_there = _any(
        [~one.target_same & ~_is_filled(rows.target, n, filled) for n, one in compared.items()],
        nothing,
    )
    apart = _any([~one.sides_same for one in compared.values()], nothing)
    in_base = rows.in_base & ~rows.unknown
    every = in_base & rows.in_source & rows.in_target
    both = rows.in_source & rows.in_target

    conflicts = {
        name: every & ~one.source_same & ~one.target_same & ~one.sides_same
        for name, one in compared.items()
    }
    update = _any(conflicts.values(), nothing)
    if granularity == "row":
        update = every & updated_here & updated_there & apart
        conflicts = {name: update & ~one.sides_same for name, one in compared.items()}
    insert = ~rows.in_base & ~rows.unknown & both & apart
    doubtful = rows.unknown & both & apart
    for name, one in compared.items():
        conflicts[name] = conflicts[name] | ((insert | doubtful) & ~one.sides_same)
    alone = rows.in_source ^ rows.in_target
    deletion = (in_base & rows.in_source & ~rows.in_target & updated_here) | (
        in_base & ~rows.in_source & rows.in_target & updated_there
    )
    deletion |= rows.unknown & alone

    kinds: dict[ConflictKind, Mask] = {
        "divergent update": update | doubtful,
        "divergent insert": insert,
        "delete against update": deletion,
    }
    anew = ~rows.in_base & ~rows.unknown & rows.in_source & ~rows.in_target
    decided = Decided(
        write=(every & here & apart) | anew,
        delete=in_base & ~rows.in_source & rows.in_target & ~updated_there,
        from_source={name: (every & ~one.source_same) | anew for name, one in compared.items()},
        conflicts=conflicts,
        kinds=kinds,
        resolved=nothing.copy(),
    )
    if any(mask.any() for mask in kinds.values()):
        _resolve(decided, rows, resolution, deletion)
    else:
        decided.kinds = {}
    both_now = _any(
        [decided.from_source[name] & ~one.sides_same for name, one in compared.items()], nothing
    )
    both_now = _any([both_now, *decided.computed.values()], nothing)
    decided.write &= both_now | ~both
    return decided


@dataclass(frozen=True)
class _Column:
    """Where the values of one column are the same."""

    source_same: Mask
    target_same: Mask
    sides_same: Mask

    @classmethod
    def of(cls, rows: Triples, name: str) -> _Column:
        base, source, target = (one.column(name) for one in (rows.base, rows.source, rows.target))
        return cls(
            same_values(base, source), same_values(base, target), same_values(source, target)
        )


def _is_filled(rows: pa.Table, name: str, filled: Defaults) -> Mask:
    """Which rows have the default of a column in it."""
    if name not in filled:
        return np.zeros(rows.num_rows, dtype=np.bool_)
    values = rows.column(name)
    if filled.values[name] is None:
        # Each row got one of its own.
        found: Mask = values.is_valid().to_numpy()
        return found
    return same_values(values, filled.column(name, values.type, rows.num_rows))


def _resolve(decided: Decided, rows: Triples, resolution: Resolution, deletion: Mask) -> None:
    """Apply what was said of conflicts, and leave those that it does not settle."""
    nothing = np.zeros(len(rows), dtype=np.bool_)
    apart = _any(decided.kinds.values(), nothing)
    expressions = dict(resolution.expressions)
    left = nothing.copy()
    for name, mask in decided.conflicts.items():
        if name in expressions:
            decided.computed[name] = mask
        elif resolution.side == "fail":
            left |= mask
        else:
            take = resolution.side == "source"
            decided.from_source[name] = np.where(mask, take, decided.from_source[name])
    if resolution.side == "fail":
        left |= deletion
    elif resolution.side == "source":
        come = deletion & rows.in_source
        decided.write |= come
        decided.delete |= deletion & ~rows.in_source
        decided.from_source = {name: one | come for name, one in decided.from_source.items()}
    decided.resolved = apart & ~left
    decided.write |= decided.resolved & rows.in_source & rows.in_target
    decided.write &= ~left
    decided.delete &= ~left
    decided.kinds = {
        kind: mask & left for kind, mask in decided.kinds.items() if (mask & left).any()
    }
    decided.computed = {name: mask & ~left for name, mask in decided.computed.items()}


def _any(masks: Iterable[Mask], nothing: Mask) -> Mask:
    found = nothing.copy()
    for mask in masks:
        found |= mask
    return found
