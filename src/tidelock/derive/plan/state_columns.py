"""State columns: which columns the table of a segment has, and the SQL that computes them.

Beside the columns that are shown, a segment's table holds columns of its own, which readers never
see:

    __tidelock_hash   a hash of the key (of all columns for a bag); how rows are found again
    __tidelock_k0…    the columns of the key that are not among those shown
    __tidelock_n      Groups: how many rows the group has
    __tidelock_s0…    Groups: the sums and counts that its measures are made of
    __tidelock_e0…    Groups: the least and greatest values that its measures are made of

Invariant: a row is found by its hash and then compared, so that equal hashes never mix up rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidelock.derive.plan.aggregates import (
    AGGREGATES,
    Extreme,
    Part,
    Sum,
    digits_of,
    parts_of,
)
from tidelock.derive.plan.segments import Bag, Groups, Partitions, Segment
from tidelock.model.names import HIDDEN, ROW_HASH, quote

HASH = ROW_HASH
COUNT = f"{HIDDEN}n"


@dataclass(frozen=True)
class FinalMeasure:
    """A measure and how it is computed from what is kept of a group."""

    name: str
    function: str
    sql: str
    """Over the columns that hold its parts."""
    parts: tuple[str, ...]
    """Those columns."""


@dataclass(frozen=True)
class StateColumns:
    """The columns of a segment's table.

    `shown` are (column of the table, SQL over what the content gives); `keys` are (column of the
    table, column of the content).
    """

    shown: tuple[tuple[str, str], ...]
    keys: tuple[tuple[str, str], ...]
    hash: str
    """SQL over what the content gives."""
    sums: tuple[Sum, ...] = ()
    extremes: tuple[Extreme, ...] = ()
    measures: tuple[FinalMeasure, ...] = ()


def hash_sql(columns: Mapping[str, str]) -> str:
    """A hash of columns, given with their types, that every engine computes alike."""
    parts = []
    for column, kind in columns.items():
        if kind.startswith(("array", "map", "struct", "variant")):
            continue
        wide = kind.startswith("decimal") and digits_of(kind)[0] > 18
        parts.append(f"CAST({quote(column)} AS STRING)" if wide else quote(column))
    return f"xxhash64({', '.join(parts)})" if parts else "0L"


def plan_state_columns(
    segment: Segment, names: tuple[str, ...], types: Mapping[str, str], results: Mapping[str, str]
) -> StateColumns:
    """The columns of a segment whose table shows `names`.

    `types` are the Spark types of the columns that the content gives, `results` those of the
    arguments of the measures, by the measure's name.
    """
    if segment.finish is None:
        shown = tuple(
            (name, quote(column)) for name, column in zip(names, segment.output, strict=True)
        )
        passed = dict(zip(segment.output, names, strict=True))
    else:
        columns = segment.finish.columns
        shown = tuple((name, one.sql) for name, one in zip(names, columns, strict=True))
        passed = {one.passed: name for name, one in zip(names, columns, strict=True) if one.passed}
    if isinstance(segment.content, Bag):
        return StateColumns(shown, (), hash_sql({name: types[name] for name in segment.given}))
    keys = segment.content.groups if isinstance(segment.content, Groups) else segment.content.keys
    named = tuple((passed.get(key, f"{HIDDEN}k{number}"), key) for number, key in enumerate(keys))
    hashed = hash_sql({key: types[key] for key in keys})
    if isinstance(segment.content, Partitions):
        return StateColumns(shown, named, hashed)
    held = _Held()
    measures = []
    for measure in segment.content.measures:
        parts = tuple(held.column_of(part) for part in parts_of(measure, results))
        aggregate = AGGREGATES[measure.function]
        final = aggregate.final(tuple(map(quote, parts)), results.get(measure.name, ""))
        sql = f"CAST({final} AS {types[measure.name]})"
        measures.append(FinalMeasure(measure.name, measure.function, sql, parts))
    return StateColumns(
        shown, named, hashed, tuple(held.sums), tuple(held.extremes), tuple(measures)
    )


class _Held:
    """The parts that a group holds, each once: measures of one value share them."""

    def __init__(self) -> None:
        self.sums: list[Sum] = []
        self.extremes: list[Extreme] = []
        self._columns: dict[Part, str] = {}

    def column_of(self, part: Part) -> str:
        known = self._columns.get(part)
        if known is None:
            if isinstance(part, Sum):
                known = f"{HIDDEN}s{len(self.sums)}"
                self.sums.append(replace(part, column=known))
            else:
                known = f"{HIDDEN}e{len(self.extremes)}"
                self.extremes.append(replace(part, column=known))
            self._columns[part] = known
        return known
