"""Adding the sums of a change to the groups that are kept.

Owns: both ways to do it. Counts and sums of exact numbers that are shown as they are are added
here, which spares a round trip to the engine; whatever else a view shows of its groups, only the
engine knows how to compute.

Law: both ways give the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.derive.plan.aggregates import AGGREGATES
from tidelock.derive.plan.column_types import Kept
from tidelock.derive.plan.segment_sql import AGAIN, added, group_rows
from tidelock.derive.plan.state_columns import COUNT, HASH, FinalMeasure, StateColumns
from tidelock.derive.refresh.delta.rows import IDS, comparable, conform, positions_of, signed
from tidelock.derive.spark.engine_query import EngineQuery
from tidelock.model.names import quote

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grown:
    """The touched groups after a change."""

    rows: pa.Table
    there: Positions
    """Where each was among the stored rows; -1 for a group that is new."""
    again: npt.NDArray[np.bool_]
    """Which of them lost what only their other rows can tell."""


def add_here(kept: Kept, sums: pa.Table, stored: pa.Table) -> Grown | None:
    """Add without the engine; None where that cannot be done, or where a sum does not fit."""
    state_columns = kept.state_columns
    simple = simple_columns(state_columns)
    if simple is None or any(
        pa.types.is_nested(sums.field(key).type) for _, key in state_columns.keys
    ):
        return None
    columns = [column for column, _ in state_columns.keys]
    names = [key for _, key in state_columns.keys]
    known = {
        key: position for position, key in enumerate(comparable(stored.select([HASH, *columns])))
    }
    found = [known.get(key, -1) for key in comparable(sums.select([HASH, *names]))]
    there = np.array(found, dtype=np.int64)
    place = pa.array(there, mask=there < 0)
    parts = [COUNT, *(one.column for one in state_columns.sums)]
    try:
        totals = {name: _add(stored.column(name).take(place), sums.column(name)) for name in parts}
        made = {
            **{column: sums.column(key) for column, key in state_columns.keys},
            **totals,
            HASH: sums.column(HASH),
            **{name: _shown(sums, totals, of) for name, of in simple.items()},
        }
        arrays = [made[field.name].cast(field.type) for field in kept.schema]
    except pa.ArrowInvalid:
        # It does not fit; the engine says so in its own words.
        return None
    rows = pa.table(arrays, schema=kept.schema)
    return Grown(rows, there, np.zeros(rows.num_rows, dtype=np.bool_))


def simple_columns(state_columns: StateColumns) -> dict[str, str | FinalMeasure] | None:
    """What each shown column is: a group's key, or a measure that can be computed here; None where
    one is neither."""
    if state_columns.extremes:
        return None
    known: dict[str, str | FinalMeasure] = {quote(key): key for _, key in state_columns.keys}
    for measure in state_columns.measures:
        if AGGREGATES[measure.function].final_here is not None:
            known[quote(measure.name)] = measure
    simple = {name: known[sql] for name, sql in state_columns.shown if sql in known}
    return simple if len(simple) == len(state_columns.shown) else None


def _shown(
    sums: pa.Table, totals: dict[str, pa.ChunkedArray], of: str | FinalMeasure
) -> pa.ChunkedArray:
    if isinstance(of, str):
        return sums.column(of)
    final = AGGREGATES[of.function].final_here
    assert final is not None
    return final([totals[part] for part in of.parts])


def _add(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_decimal(one.type):
        return pc.add_checked(pc.fill_null(one, 0), other)
    wide = pa.decimal256(one.type.precision + 1, one.type.scale)
    zero = pa.scalar(0, pa.int64()).cast(wide)
    total = pc.add(pc.fill_null(one.cast(wide), zero), other.cast(wide))
    return total.cast(one.type)


def add_by_engine(query: EngineQuery, kept: Kept, sums: str, stored: pa.Table) -> Grown:
    """Add in the engine, which also computes what is shown. `sums` is SQL over the query."""
    state_columns = kept.state_columns
    parts = [
        *(one.column for one in state_columns.sums),
        *(one.column for one in state_columns.extremes),
    ]
    needed = [HASH, COUNT, *parts, *(name for name, _ in state_columns.keys)]
    state = query.local(signed(stored.select([*dict.fromkeys(needed), *IDS])))
    along = (*IDS, AGAIN) if state_columns.extremes else IDS
    result = query.run(group_rows(state_columns, added(state_columns, sums, state, IDS), along))
    matched = pc.is_valid(result.column("_rowid")).to_numpy()
    there = np.full(result.num_rows, -1, dtype=np.int64)
    ids = pc.drop_null(result.column("_rowid")).to_numpy()
    there[matched] = positions_of(stored, ids)
    again = np.zeros(result.num_rows, dtype=np.bool_)
    if state_columns.extremes:
        again = result.column(AGAIN).to_numpy().astype(np.bool_)
    return Grown(conform(result, kept.schema), there, again)
