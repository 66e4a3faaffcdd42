"""Reducing: reading of a body's tables only the rows that can meet a change.

A row on one side of a join matters only if its join values occur on the other side; of an outer
join that is true of the right. Starting from the changes of one table, or from the keys that are
computed again, the values are followed from table to table along the edges of the body, and each
table is read by looking those values up. What cannot be reached this way is read whole, by the
engine.

Law: a body over the reduced tables gives the same rows as over the whole ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tidelock.derive.plan.column_origins import Edge, Origin, Trace, Traced
from tidelock.derive.plan.leaf_filters import may_pass
from tidelock.store.lookup.by_key import find_rows
from tidelock.store.tables.fragments import Dataset

KEYS_MAX = 200_000
"""Above this many values the engine reads the table. Below, even where the values are found by a
pass over the table, that costs less than the engine's own scan of it."""
ROWS_MAX = 500_000
WHOLE_ROWS_MAX = 2_000
"""A table of at most this many rows is read here rather than by the engine."""


@dataclass(frozen=True)
class LeafTable:
    """One scan of a body at one pin: its dataset and the columns that are read."""

    dataset: Dataset
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    reading: Callable[[], AbstractContextManager[None]] = nullcontext
    """Around reading its rows: says what is wrong when that fails."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the dataset calls columns; those that are not named here as they are called."""

    def name(self, column: str) -> str:
        return self.names.get(column, column)

    @property
    def read(self) -> list[str]:
        return [self.name(column) for column in self.columns]

    def shown(self, rows: pa.Table) -> pa.Table:
        """Rows of these columns as they are called."""
        return rows.rename_columns(list(self.columns)) if self.names else rows


@dataclass(frozen=True)
class _Option:
    leaf: int
    column: str
    values: pa.Array


def reduce(
    traced: Traced,
    leaves: Callable[[int], LeafTable],
    seeds: Mapping[int, pa.Table],
    wanted: Sequence[tuple[Trace, pa.Array]] = (),
) -> dict[int, pa.Table | None]:
    """The rows of each leaf that can matter; None for a leaf that must be read whole.

    `seeds` are leaves whose rows are given. `wanted` are traces with the values that matter.
    """
    loaded: dict[int, pa.Table | None] = {
        leaf: may_pass(rows, traced.tests_of(leaf)) for leaf, rows in seeds.items()
    }
    refused: set[tuple[int, str]] = set()
    while waiting := [leaf for leaf in traced.leaves if leaf not in loaded]:
        options = [
            option
            for option in _options(traced.edges, wanted, loaded)
            if (option.leaf, option.column) not in refused
        ]
        if not options:
            # What nothing leads to; what it leads to is known once it is read.
            near = next((leaf for leaf in waiting if _is_small(leaves(leaf))), None)
            if near is None:
                loaded.update(dict.fromkeys(waiting))
                break
            loaded[near] = may_pass(_whole(leaves(near)), traced.tests_of(near))
            continue
        best = min(options, key=lambda o: (o.column not in leaves(o.leaf).key, len(o.values)))
        rows = _look_up(leaves(best.leaf), best)
        if rows is None:
            refused.add((best.leaf, best.column))
            continue
        for other in options:
            if other.leaf == best.leaf and other is not best:
                rows = _narrow(rows, other)
        loaded[best.leaf] = may_pass(rows, traced.tests_of(best.leaf))
    return {leaf: loaded[leaf] for leaf in traced.leaves}


def _options(
    edges: Sequence[Edge],
    wanted: Sequence[tuple[Trace, pa.Array]],
    loaded: Mapping[int, pa.Table | None],
) -> list[_Option]:
    options: list[_Option] = []
    for trace, values in wanted:
        options.extend(_to(trace, values, loaded))
    for edge in edges:
        ways = [(edge.left, edge.right)]
        if not edge.to_right_only:
            ways.append((edge.right, edge.left))
        for known_side, target in ways:
            if not any(o and not o.padded and o.leaf not in loaded for o in target):
                continue
            known = values_of(known_side, loaded)
            if known is not None:
                met = known if edge.null_safe else known.drop_null()
                options.extend(_to(target, met, loaded))
    return options


def _to(target: Trace, values: pa.Array, loaded: Mapping[int, pa.Table | None]) -> list[_Option]:
    return [
        _Option(origin.leaf, origin.column, values)
        for origin in target
        if origin is not None and not origin.padded and origin.leaf not in loaded
    ]


def values_of(trace: Trace, loaded: Mapping[int, pa.Table | None]) -> pa.Array | None:
    """The distinct values of a traced column among the rows that are loaded; None if unknown."""
    parts = [_column(origin, loaded) for origin in trace]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({part.type for part in known}) > 1:
        return None
    if any(pa.types.is_nested(part.type) for part in known):
        return None
    kind = known[0].type
    chunks = [chunk for part in known for chunk in part.chunks]
    if any(origin is not None and origin.padded for origin in trace):
        chunks.append(pa.nulls(1, kind))
    return pa.chunked_array(chunks, kind).unique()


def _column(origin: Origin | None, loaded: Mapping[int, pa.Table | None]) -> pa.ChunkedArray | None:
    rows = None if origin is None else loaded.get(origin.leaf)
    return None if rows is None or origin is None else rows.column(origin.column)


def _look_up(leaf: LeafTable, option: _Option) -> pa.Table | None:
    name = leaf.name(option.column)
    values = _fitting(option.values, leaf.dataset.schema.field(name).type)
    if values is None or len(values) > KEYS_MAX:
        return None
    with leaf.reading():
        rows = find_rows(leaf.dataset, name, values, leaf.read, ROWS_MAX)
    return None if rows is None else leaf.shown(rows)


def _is_small(leaf: LeafTable) -> bool:
    return int(leaf.dataset.count_rows()) <= WHOLE_ROWS_MAX


def _whole(leaf: LeafTable) -> pa.Table:
    return leaf.shown(leaf.dataset.scanner(columns=leaf.read).to_table())


def _narrow(rows: pa.Table, option: _Option) -> pa.Table:
    values = _fitting(option.values, rows.column(option.column).type)
    if values is None:
        return rows
    return rows.filter(pc.is_in(rows.column(option.column), value_set=values))


def _fitting(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The values in the type of the column that they are looked up in, if that is safe to say."""
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        # A filter has no literals for these, and NaN and -0.0 equal more than themselves.
        return None
    if values.type == kind:
        return values
    if pa.types.is_integer(values.type) and pa.types.is_integer(kind):
        try:
            return values.cast(kind)
        except pa.ArrowInvalid:
            return None
    return None
