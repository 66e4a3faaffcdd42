"""Moving a segment: from the changes of what it reads to the changes of its table.

Each content has its own way, and all end in the same value: the rows that leave the segment's
table, the rows that come, and where the leaving ones are. Everything here is small: it costs what
changed.

Law: rows(after) = rows(before) - removed + added, as multisets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.derive.algebra.operators import Aggregate
from tidelock.derive.plan.bodies import state_body
from tidelock.derive.plan.body_sql import WEIGHT
from tidelock.derive.plan.column_origins import trace
from tidelock.derive.plan.column_types import Kept
from tidelock.derive.plan.segment_sql import (
    bag_changes,
    bag_rows,
    group_rows,
    having,
    partition_keys,
    partition_rows,
    summed,
)
from tidelock.derive.plan.segments import Bag, Groups, Partitions, Segment
from tidelock.derive.plan.state_columns import COUNT, HASH, StateColumns
from tidelock.derive.refresh.delta.input_changes import cancelled
from tidelock.derive.refresh.delta.rows import comparable, conform, identical
from tidelock.derive.refresh.delta.sums import add_by_engine, add_here, simple_columns
from tidelock.derive.refresh.delta.terms import Bound, state_at, terms
from tidelock.derive.spark.engine_query import EngineQuery
from tidelock.model.names import quote
from tidelock.store.engine import Engine
from tidelock.store.lookup.by_key import find_rows
from tidelock.store.table import Table
from tidelock.store.tables.fragments import Addresses, numbers

STATE_ROWS_MAX = 2_000
"""A segment's table of at most this many rows goes along with the query as a whole."""


class RowsNotFound(Exception):
    """The stored rows are not those that the changes are of; computing everything anew helps."""


@dataclass(frozen=True)
class Move:
    """What becomes of a segment's table.

    `removed` rows leave (all columns, with their ids and addresses), `added` rows come. The first
    `replaced` of both belong together: those rows keep their identity.
    """

    removed: pa.Table
    added: pa.Table
    replaced: int = 0

    @property
    def row_ids(self) -> Addresses:
        return numbers(self.removed.column("_rowid"))

    @property
    def addresses(self) -> Addresses:
        return numbers(self.removed.column("_rowaddr"))

    def changes(self, columns: Sequence[str]) -> pa.Table:
        """The changes as rows with weights, for the readers of the segment."""
        sides = []
        for rows, weight in ((self.removed, -1), (self.added, 1)):
            weights = pa.array(np.full(rows.num_rows, weight, dtype=np.int64))
            sides.append(rows.select(columns).append_column(WEIGHT, weights))
        return pa.concat_tables(sides)


def move(engine: Engine, kept: Kept, leaves: Sequence[Bound], table: Table) -> Move | None:
    """How a segment's table changes; None when nothing that it reads changed."""
    query = EngineQuery(engine)
    changed_terms = terms(query, kept.segment.body, leaves)
    if not changed_terms:
        return None
    changes = " UNION ALL ".join(_typed(kept, term) for term in changed_terms)
    if isinstance(kept.segment.content, Bag):
        return _move_bag(query, kept, changes, table)
    if isinstance(kept.segment.content, Groups):
        return _move_groups(engine, query, kept, changes, leaves, table)
    return _move_partitions(engine, query, kept, changes, leaves, table)


def _typed(kept: Kept, sql: str) -> str:
    """The columns in types that may be NULL to any engine, which is why the cast is one that may
    fail: Sail 0.7.2 refuses a UNION ALL one of whose terms can be NULL only after it was optimized.
    """
    columns = [
        f"TRY_CAST({quote(name)} AS {kind}) AS {quote(name)}"
        for name, kind in kept.types.items()
        if name != WEIGHT
    ]
    return f"SELECT {', '.join([*columns, WEIGHT])} FROM ({sql})"


def _move_bag(query: EngineQuery, kept: Kept, changes: str, table: Table) -> Move:
    net = _net(query, kept, changes)
    weights = net.column(WEIGHT).to_numpy()
    rows = conform(net.drop_columns([WEIGHT]), kept.schema)
    gone, come = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
    leaving = rows.take(pa.array(gone))
    there = stored(table, leaving.column(HASH).unique())
    positions = _choose(there, leaving, -weights[gone])
    repeated = np.repeat(come, weights[come])
    return Move(there.take(pa.array(positions, pa.int64())), rows.take(pa.array(repeated)))


def _net(query: EngineQuery, kept: Kept, changes: str) -> pa.Table:
    """The net changes of a bag. Few as they are, netting them here spares the engine a shuffle;
    nested values can only be told apart by the engine."""
    if any(pa.types.is_nested(field.type) for field in kept.schema):
        return query.run(bag_changes(kept.segment, kept.state_columns, changes))
    return cancelled(query.run(bag_rows(kept.state_columns, changes, WEIGHT)))


def _move_groups(
    engine: Engine,
    query: EngineQuery,
    kept: Kept,
    changes: str,
    leaves: Sequence[Bound],
    table: Table,
) -> Move:
    totals = summed(kept.segment, kept.state_columns, changes)
    small = table.count() <= STATE_ROWS_MAX
    if small and simple_columns(kept.state_columns) is None:
        there = stored(table)
        grown = add_by_engine(query, kept, totals, there)
    else:
        sums = query.run(totals)
        there = stored(table, None if small else sums.column(HASH).unique())
        adding = EngineQuery(engine)
        grown = add_here(kept, sums, there) or add_by_engine(
            adding, kept, f"SELECT * FROM {adding.local(sums)}", there
        )
    rows, matched = grown.rows, grown.there >= 0
    live = np.full(rows.num_rows, True)
    if kept.state_columns.keys:
        live = rows.column(COUNT).to_numpy() > 0
    rows = _computed_again(engine, kept, leaves, rows, np.flatnonzero(live & grown.again))
    replaced, gone = np.flatnonzero(matched & live), np.flatnonzero(matched & ~live)
    fresh = np.flatnonzero(~matched & live)
    return Move(
        there.take(pa.array(grown.there[np.concatenate([replaced, gone])])),
        rows.take(pa.array(np.concatenate([replaced, fresh]))),
        len(replaced),
    )


def _computed_again(
    engine: Engine,
    kept: Kept,
    leaves: Sequence[Bound],
    rows: pa.Table,
    again: npt.NDArray[np.int64],
) -> pa.Table:
    """The rows with those at some positions computed from everything that their groups hold."""
    if not len(again):
        return rows
    segment, state_columns = kept.segment, kept.state_columns
    columns, names = (
        [column for column, _ in state_columns.keys],
        [key for _, key in state_columns.keys],
    )
    keys = rows.take(pa.array(again)).select(columns).rename_columns(names)
    query = EngineQuery(engine)
    body = _body_at(query, segment, leaves, keys, names)
    if names:
        body = having(body, names, query.local(keys))
    fresh = conform(
        query.run(group_rows(state_columns, summed(segment, state_columns, body))), kept.schema
    )
    place = {key: position for position, key in enumerate(comparable(fresh.select(columns)))}
    chosen = np.arange(rows.num_rows)
    for position, key in zip(again, comparable(keys), strict=True):
        if key not in place:
            raise RowsNotFound(f"the group {key!r} was to stay, and has no rows.")
        chosen[position] = rows.num_rows + place[key]
    return pa.concat_tables([rows, fresh]).take(pa.array(chosen))


def _body_at(
    query: EngineQuery,
    segment: Segment,
    leaves: Sequence[Bound],
    keys: pa.Table,
    names: Sequence[str],
) -> str:
    """The state of a segment's body, as far as it can have to do with some keys of the segment."""
    traced = trace(state_body(segment.body)).columns
    wanted = [
        (traced[name], keys.column(name).unique())
        for name in names
        if not pa.types.is_nested(keys.schema.field(name).type)
    ]
    return state_at(query, segment.body, leaves, wanted)


def _move_partitions(
    engine: Engine,
    query: EngineQuery,
    kept: Kept,
    changes: str,
    leaves: Sequence[Bound],
    table: Table,
) -> Move:
    segment, state_columns = kept.segment, kept.state_columns
    assert isinstance(segment.content, Partitions)
    paired = isinstance(segment.content.operator, Aggregate)
    names = [key for _, key in state_columns.keys]
    if not names:
        there = stored(table)
        query = EngineQuery(engine)
        rows = query.run(
            partition_rows(segment, state_columns, state_at(query, segment.body, leaves, ()))
        )
        return difference(there, conform(rows, kept.schema), paired)
    keys = query.run(partition_keys(segment, state_columns, changes))
    there = _having(stored(table, keys.column(HASH).unique()), keys, state_columns)
    query = EngineQuery(engine)
    body = _body_at(query, segment, leaves, keys, names)
    listed = query.local(keys.select(names))
    rows = query.run(partition_rows(segment, state_columns, body, listed))
    return difference(there, conform(rows, kept.schema), paired)


def difference(there: pa.Table, rows: pa.Table, paired: bool = False) -> Move:
    """What leaves and what comes when `rows` take the place of the stored ones.

    Rows that are the same on both sides stay where they are. With `paired`, a key has one row on
    each side at most, and the new one takes the old one's identity.
    """
    waiting: dict[object, list[int]] = defaultdict(list)
    for position, row in enumerate(identical(there.select(rows.column_names))):
        waiting[row].append(position)
    fresh: list[int] = []
    for position, row in enumerate(identical(rows)):
        same = waiting.get(row)
        if same:
            same.pop()
        else:
            fresh.append(position)
    gone = sorted(position for positions in waiting.values() for position in positions)
    removed, come = there.take(pa.array(gone, pa.int64())), rows.take(pa.array(fresh, pa.int64()))
    return _pair(removed, come) if paired else Move(removed, come)


def _pair(removed: pa.Table, come: pa.Table) -> Move:
    """Put rows with the same hash first on both sides. A hash that is not unique pairs nothing."""
    old, new = removed.column(HASH).to_pylist(), come.column(HASH).to_pylist()
    if len(set(old)) < len(old) or len(set(new)) < len(new):
        return Move(removed, come)
    place = {value: position for position, value in enumerate(new)}
    pairs = [(position, place[value]) for position, value in enumerate(old) if value in place]
    return Move(
        _first(removed, [one for one, _ in pairs]),
        _first(come, [other for _, other in pairs]),
        len(pairs),
    )


def _first(rows: pa.Table, positions: list[int]) -> pa.Table:
    chosen = np.array(positions, dtype=np.int64)
    rest = np.setdiff1d(np.arange(rows.num_rows), chosen)
    return rows.take(pa.array(np.concatenate([chosen, rest])))


def _choose(there: pa.Table, leaving: pa.Table, counts: npt.NDArray[np.int64]) -> list[int]:
    """Positions among the stored rows of as many copies of each leaving row as its count says."""
    copies: dict[object, list[int]] = defaultdict(list)
    for position, row in enumerate(comparable(there.select(leaving.column_names))):
        copies[row].append(position)
    chosen: list[int] = []
    for row, count in zip(comparable(leaving), counts.tolist(), strict=True):
        positions = copies.get(row, [])
        if len(positions) < count:
            raise RowsNotFound(f"{count} rows {row!r} were to leave; {len(positions)} are there.")
        chosen.extend(positions.pop() for _ in range(count))
    return chosen


def _having(there: pa.Table, keys: pa.Table, state_columns: StateColumns) -> pa.Table:
    """Of rows that were found by their hash, those that have one of the keys."""
    wanted = set(comparable(keys.select([key for _, key in state_columns.keys])))
    present = comparable(there.select([column for column, _ in state_columns.keys]))
    return there.filter(pa.array([row in wanted for row in present], pa.bool_()))


def stored(table: Table, hashes: pa.Array | None = None) -> pa.Table:
    """Rows of a segment's table with their ids and addresses: all of them, or those with a hash."""
    names = table.dataset.schema.names
    with table.files.reading(table.state):
        if hashes is None:
            return table.dataset.scanner(with_row_id=True, with_row_address=True).to_table()
        rows = find_rows(table.dataset, HASH, hashes, names, with_row_ids=True)
    assert rows is not None
    return rows
