"""What the changes of a transaction come to: the last state of each key, and nothing between.

Owns: which put of a key is the last, which keys are gone at the end, and from where a put gets the
values that it did not bring. Pure: what only the lake knows is asked of `rows_before`.

Law: the rows that are there afterwards are those that would be there if the changes were made one
by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.ingest.intake.changes import Carried, Places, TableChanges, unput
from tidelock.store.lookup.key_numbers import Numbering

RowsBefore: TypeAlias = Callable[[pa.Table], tuple[pa.Table, Places]]
"""Given keys that differ: the rows that have them, and for each of those the number of its key."""
Codes: TypeAlias = npt.NDArray[np.int64]
"""A number for each key, the same for keys that are equal."""
_NONE = -1


@dataclass(frozen=True)
class Net:
    """Rows that come, or replace those of their key, and keys whose rows leave."""

    puts: pa.Table
    removes: pa.Table


class UnknownRow(Exception):
    """Updates did not bring all values, and the rows that they change are not there."""

    def __init__(self, puts: Places, keys: pa.Table) -> None:
        """The numbers of the puts, and the keys that their rows had."""
        super().__init__(keys.slice(0, 3).to_pylist())
        self.puts = puts
        self.keys = keys


Unknown: TypeAlias = Callable[[pa.Table], None]
"""Told of the new keys of rows that are left out, because not all of them is known."""


@dataclass(frozen=True)
class Events:
    """Puts and then removes: of which key each is, and which came first.

    A remove comes after the put before it, and before the next one.
    """

    codes: Codes
    order: Places
    ranks: Places
    """All events by key, and those of one key in their order."""

    @classmethod
    def of(cls, codes: Codes, puts: Places, after: Places) -> Events:
        """`puts` are the numbers of the puts."""
        order = np.concatenate([2 * puts + 1, 2 * after])
        return cls(codes, order, np.lexsort((order, codes)))

    def last(self) -> Places:
        """The last event of each key, in the order of the events."""
        ordered = self.codes[self.ranks]
        ends = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]
        return np.sort(self.ranks[ends])

    def before(self, codes: Codes, puts: Places) -> Places:
        """The event on each of these keys that came last before the put; _NONE if none did."""
        # A put that changes its key removes the row under the key before just now.
        if not len(self.order):
            return np.full(len(codes), _NONE, np.int64)
        span = np.int64(int(self.order.max()) + 2)
        line = self.codes[self.ranks] * span + self.order[self.ranks]
        places = np.searchsorted(line, codes * span + 2 * puts) - 1
        found = np.full(len(codes), _NONE, np.int64)
        there = places >= 0
        there[there] = self.codes[self.ranks[places[there]]] == codes[there]
        found[there] = self.ranks[places[there]]
        return found


def net_by_key(
    changes: TableChanges,
    key: Sequence[str],
    rows_before: RowsBefore,
    unknown: Unknown | None = None,
    *,
    emptied: bool = False,
) -> Net:
    """The net of changes of a table with a key; `emptied` if it has no rows before them."""
    names = list(key)
    changes = fill_carried(changes, names, rows_before, unknown)
    count = changes.puts.num_rows
    keys = pa.concat_tables([changes.puts.select(names), changes.removes.select(names)])
    last = Events.of(codes_of(keys)[0], np.arange(count), changes.after).last()
    kept, gone = last[last < count], last[last >= count] - count
    removes = changes.removes.select(names)
    return Net(
        changes.puts if len(kept) == count else changes.puts.take(pa.array(kept)),
        removes.slice(0, 0) if emptied else removes.take(pa.array(gone)),
    )


def fill_carried(
    changes: TableChanges,
    names: Sequence[str],
    rows_before: RowsBefore,
    unknown: Unknown | None = None,
) -> TableChanges:
    """The changes with the values that puts lack: those of the put before on their key, or, where
    there is none, those that the rows have which `rows_before` knows.

    Rows of which nobody knows them raise UnknownRow; or, if there is somebody to tell, they are
    left out, and are gone.
    """
    while True:
        try:
            return _filled(changes, names, rows_before)
        except UnknownRow as error:
            if unknown is None:
                raise
            unknown(changes.puts.select(list(names)).take(pa.array(error.puts)))
            changes = unput(changes, error.puts)


def _filled(changes: TableChanges, names: Sequence[str], rows_before: RowsBefore) -> TableChanges:
    carried = changes.carried
    if carried is None:
        return changes
    count, own = changes.puts.num_rows, len(changes)
    keys = [changes.puts, changes.removes, carried.keys]
    codes, _ = codes_of(pa.concat_tables([one.select(names) for one in keys]))
    events = Events.of(codes[:own], np.arange(count), changes.after)
    before = events.before(codes[own:], carried.puts)
    if (before >= count).any():
        gone = before >= count
        raise UnknownRow(carried.puts[gone], carried.keys.filter(pa.array(gone)))
    puts = _with_carried(changes.puts, carried, before, rows_before)
    return replace(changes, puts=puts, carried=None)


def codes_of(keys: pa.Table) -> tuple[Codes, pa.Table]:
    """A number for each key, and the keys that differ, by their numbers."""
    if not keys.num_rows:
        return np.zeros(0, np.int64), keys
    inside = [str(number) for number in range(keys.num_columns)]
    row = pa.array(np.arange(keys.num_rows))
    first = (
        pa.table([*keys.columns, row], names=[*inside, "row"])
        .group_by(inside, use_threads=False)
        .aggregate([("row", "min")])
        .column("row_min")
        .to_numpy()
    )
    distinct = keys.take(pa.array(np.sort(first)))
    return Numbering(distinct).find(keys).to_numpy().astype(np.int64), distinct


def _with_carried(
    puts: pa.Table, carried: Carried, before: Places, rows_before: RowsBefore
) -> pa.Table:
    """The puts with the values that they lack; `before` are the puts that these rows were before,
    _NONE for those that are as the lake has them."""
    count = puts.num_rows
    rows = puts
    outside = before == _NONE
    if outside.any():
        asked = carried.keys.filter(pa.array(outside))
        codes, distinct = codes_of(asked)
        known, numbers = rows_before(distinct)
        places = np.full(distinct.num_rows, _NONE, np.int64)
        places[numbers] = np.arange(known.num_rows)
        missing = places[codes] == _NONE
        if missing.any():
            raise UnknownRow(carried.puts[outside][missing], asked.filter(pa.array(missing)))
        before = before.copy()
        before[outside] = count + places[codes]
        rows = pa.concat_tables([puts, known.select(puts.column_names)])
    origins: dict[str, Places] = {}
    for name, lacking in carried.columns.items():
        origin = np.arange(rows.num_rows)
        origin[carried.puts[lacking]] = before[lacking]
        # A row may have its value from one that lacks it too.
        while not np.array_equal(further := origin[origin], origin):
            origin = further
        origins[name] = origin[:count]
    columns = [
        rows.column(name).take(pa.array(origins[name])) if name in origins else puts.column(name)
        for name in puts.column_names
    ]
    if carried.beside is not None:
        place = puts.column_names.index(carried.beside)
        columns[place] = _kept_beside(rows.column(carried.beside), origins, count)
    return pa.Table.from_arrays(columns, schema=puts.schema)


def _kept_beside(
    beside: pa.ChunkedArray, origins: Mapping[str, Places], count: int
) -> pa.ChunkedArray:
    """What is kept beside the values of each row, those from other rows among them."""
    if beside.null_count == len(beside):
        return beside.slice(0, count)
    kept = beside.to_pylist()
    found: list[list[tuple[str, str]] | None] = kept[:count]
    for name, origin in origins.items():
        for row in np.flatnonzero(origin != np.arange(count)).tolist():
            come = [pair for pair in kept[origin[row]] or () if pair[0] == name]
            own = [pair for pair in found[row] or () if pair[0] != name]
            found[row] = [*own, *come] or None
    return pa.chunked_array([pa.array(found, beside.type)])
