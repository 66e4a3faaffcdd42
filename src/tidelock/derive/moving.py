"""Moving a stage: from the changes of what it reads to the changes of its table.

Each head has its own way, and all end in the same value: the rows that leave the stage's table, the
rows that come, and where the leaving ones are. Everything here is small: it costs what changed.

Law: rows(after) = rows(before) - removed + added, as multisets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.derive.adding import add_by_engine, add_here, simple_columns
from tidelock.derive.analysing import Kept
from tidelock.derive.bodies import state_body
from tidelock.derive.heads import (
    bag_changes,
    bag_rows,
    group_rows,
    having,
    partition_keys,
    partition_rows,
    summed,
)
from tidelock.derive.layouts import COUNT, HASH, Layout
from tidelock.derive.provenance import trace
from tidelock.derive.relations import Query
from tidelock.derive.rows import comparable, conform
from tidelock.derive.sources import cancelled
from tidelock.derive.sql.operators import Aggregate
from tidelock.derive.stages import Bag, Groups, Partitions
from tidelock.derive.terms import Bound, state_at, terms
from tidelock.derive.weighted import WEIGHT
from tidelock.model.names import quote
from tidelock.store.keys import find_rows
from tidelock.store.reading import Engine, Table
from tidelock.store.tables import Addresses, numbers

STATE_ROWS_MAX = 2_000
"""A stage's table of at most this many rows goes along with the query as a whole."""


class RowsNotFound(Exception):
    """The stored rows are not those that the changes are of; computing everything anew helps."""


@dataclass(frozen=True)
class Move:
    """What becomes of a stage's table.

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
        """The changes as rows with weights, for whoever reads the stage."""
        sides = []
        for rows, weight in ((self.removed, -1), (self.added, 1)):
            weights = pa.array(np.full(rows.num_rows, weight, dtype=np.int64))
            sides.append(rows.select(columns).append_column(WEIGHT, weights))
        return pa.concat_tables(sides)


def move(engine: Engine, kept: Kept, leaves: Sequence[Bound], table: Table) -> Move | None:
    """How a stage's table changes; None when nothing that it reads changed."""
    query = Query(engine)
    found = terms(query, kept.stage.body, leaves)
    if not found:
        return None
    changes = " UNION ALL ".join(_typed(kept, term) for term in found)
    if isinstance(kept.stage.head, Bag):
        return _move_bag(query, kept, changes, table)
    if isinstance(kept.stage.head, Groups):
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


def _move_bag(query: Query, kept: Kept, changes: str, table: Table) -> Move:
    net = _net(query, kept, changes)
    weights = net.column(WEIGHT).to_numpy()
    rows = conform(net.drop_columns([WEIGHT]), kept.schema)
    gone, come = np.flatnonzero(weights < 0), np.flatnonzero(weights > 0)
    leaving = rows.take(pa.array(gone))
    there = stored(table, leaving.column(HASH).unique())
    positions = _choose(there, leaving, -weights[gone])
    repeated = np.repeat(come, weights[come])
    return Move(there.take(pa.array(positions, pa.int64())), rows.take(pa.array(repeated)))


def _net(query: Query, kept: Kept, changes: str) -> pa.Table:
    """The net changes of a bag. Few as they are, netting them here spares the engine a shuffle;
    nested values can only be told apart by the engine."""
    if any(pa.types.is_nested(field.type) for field in kept.schema):
        return query.run(bag_changes(kept.stage, kept.layout, changes))
    return cancelled(query.run(bag_rows(kept.layout, changes, WEIGHT)))


def _move_groups(
    engine: Engine,
    query: Query,
    kept: Kept,
    changes: str,
    leaves: Sequence[Bound],
    table: Table,
) -> Move:
    totals = summed(kept.stage, kept.layout, changes)
    small = table.count() <= STATE_ROWS_MAX
    if small and simple_columns(kept.layout) is None:
        there = stored(table)
        grown = add_by_engine(query, kept, totals, there)
    else:
        sums = query.run(totals)
        there = stored(table, None if small else sums.column(HASH).unique())
        adding = Query(engine)
        grown = add_here(kept, sums, there) or add_by_engine(
            adding, kept, f"SELECT * FROM {adding.local(sums)}", there
        )
    rows, matched = grown.rows, grown.there >= 0
    live = np.full(rows.num_rows, True)
    if kept.layout.keys:
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
    stage, layout = kept.stage, kept.layout
    columns, names = [column for column, _ in layout.keys], [key for _, key in layout.keys]
    keys = rows.take(pa.array(again)).select(columns).rename_columns(names)
    query = Query(engine)
    traced = trace(state_body(stage.body)).columns
    wanted = [
        (traced[name], keys.column(name).unique())
        for name in names
        if not pa.types.is_nested(keys.schema.field(name).type)
    ]
    body = state_at(query, stage.body, leaves, wanted)
    if names:
        body = having(body, names, query.local(keys))
    fresh = conform(query.run(group_rows(layout, summed(stage, layout, body))), kept.schema)
    place = {key: position for position, key in enumerate(comparable(fresh.select(columns)))}
    chosen = np.arange(rows.num_rows)
    for position, key in zip(again, comparable(keys), strict=True):
        if key not in place:
            raise RowsNotFound(f"the group {key!r} was to stay, and has no rows.")
        chosen[position] = rows.num_rows + place[key]
    return pa.concat_tables([rows, fresh]).take(pa.array(chosen))


def _move_partitions(
    engine: Engine,
    query: Query,
    kept: Kept,
    changes: str,
    leaves: Sequence[Bound],
    table: Table,
) -> Move:
    stage, layout = kept.stage, kept.layout
    assert isinstance(stage.head, Partitions)
    paired = isinstance(stage.head.operator, Aggregate)
    names = [key for _, key in layout.keys]
    if not names:
        there = stored(table)
        query = Query(engine)
        rows = query.run(partition_rows(stage, layout, state_at(query, stage.body, leaves, ())))
        return difference(there, conform(rows, kept.schema), paired)
    keys = query.run(partition_keys(stage, layout, changes))
    there = _having(stored(table, keys.column(HASH).unique()), keys, layout)
    query = Query(engine)
    traced = trace(state_body(stage.body)).columns
    wanted = [
        (traced[name], keys.column(name).unique())
        for name in names
        if not pa.types.is_nested(keys.schema.field(name).type)
    ]
    body = state_at(query, stage.body, leaves, wanted)
    listed = query.local(keys.select(names))
    rows = query.run(partition_rows(stage, layout, body, listed))
    return difference(there, conform(rows, kept.schema), paired)


def difference(there: pa.Table, rows: pa.Table, paired: bool = False) -> Move:
    """What leaves and what comes when `rows` take the place of the stored ones.

    Rows that are the same on both sides stay where they are. With `paired`, a key has one row on
    each side at most, and the new one takes the old one's identity.
    """
    waiting: dict[object, list[int]] = defaultdict(list)
    for position, row in enumerate(comparable(there.select(rows.column_names))):
        waiting[row].append(position)
    fresh: list[int] = []
    for position, row in enumerate(comparable(rows)):
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
        found = copies.get(row, [])
        if len(found) < count:
            raise RowsNotFound(f"{count} rows {row!r} were to leave; {len(found)} are there.")
        chosen.extend(found.pop() for _ in range(count))
    return chosen


def _having(there: pa.Table, keys: pa.Table, layout: Layout) -> pa.Table:
    """Of rows that were found by their hash, those that have one of the keys."""
    wanted = set(comparable(keys.select([key for _, key in layout.keys])))
    found = comparable(there.select([column for column, _ in layout.keys]))
    return there.filter(pa.array([row in wanted for row in found], pa.bool_()))


def stored(table: Table, hashes: pa.Array | None = None) -> pa.Table:
    """Rows of a stage's table with their ids and addresses: all of them, or those with a hash."""
    names = table.dataset.schema.names
    if hashes is None:
        return table.dataset.scanner(with_row_id=True, with_row_address=True).to_table()
    found = find_rows(table.dataset, HASH, hashes, names, with_row_ids=True)
    assert found is not None
    return found
