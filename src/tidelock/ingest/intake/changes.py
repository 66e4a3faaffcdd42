"""What a transaction of a source did to one table, in its order, as columns.

A put is a row as it is from then on: inserted, or updated. A remove is a row that is there no
longer: told by its key, or by all of its values in a table without a key. An update that changes
the key is a remove and a put.

Order: puts are numbered as they come. A remove says how many puts came before it, so that two
removes between the same puts have no order, and need none.

A put may lack values that its update did not change, and that the source did not send: `carried`.
They are those of the row before, which had the key that is told with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.model.schema.schema import Column

Places = npt.NDArray[np.int64]
Parts = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Carried:
    """Values that puts lack."""

    puts: Places
    """The numbers of the puts that lack some, ascending."""
    keys: pa.Table
    """The key that the row of each had before."""
    columns: Mapping[str, Mask]
    """For each column that some lack: which of these puts."""
    beside: str | None = None
    """A column of maps, by column, of what is kept beside values, and goes with them."""


@dataclass(frozen=True)
class TableChanges:
    """Changes of one table. `parts` are subtransactions, by which some may be undone later."""

    puts: pa.Table
    removes: pa.Table
    after: Places
    """For each remove, how many puts came before it."""
    put_parts: Parts
    remove_parts: Parts
    carried: Carried | None = None
    emptied: tuple[tuple[int, int], ...] = ()
    """For each time that all rows were removed at once: how many puts came before, and the part."""

    @property
    def size_bytes(self) -> int:
        return int(self.puts.nbytes + self.removes.nbytes)

    def __len__(self) -> int:
        return int(self.puts.num_rows + self.removes.num_rows)


@dataclass
class Collected:
    """Changes of one table that are still in memory, in the order in which they came."""

    _changes: list[TableChanges] = field(default_factory=list)
    puts: int = 0
    size_bytes: int = 0

    def add(self, changes: TableChanges) -> None:
        self._changes.append(changes)
        self.puts += changes.puts.num_rows
        self.size_bytes += changes.size_bytes

    def __bool__(self) -> bool:
        return bool(self._changes)

    def widen(self, column: Column, *, keyed: bool) -> None:
        """Give the rows that there are a column, which is NULL in them; so too the removes of a
        table without a key, which are told by all of their values."""
        field = pa.field(column.name, column.type, column.nullable)
        self._changes = [
            replace(
                one,
                puts=_widened(one.puts, field),
                removes=one.removes if keyed else _widened(one.removes, field),
            )
            for one in self._changes
        ]

    def joined(self) -> TableChanges:
        """All of them as one."""
        return join(self._changes)


def _widened(rows: pa.Table, field: pa.Field) -> pa.Table:
    return rows.append_column(field, pa.nulls(rows.num_rows, field.type))


def join(changes: Sequence[TableChanges]) -> TableChanges:
    """Changes that came one after the other, as one. All have the same columns."""
    if len(changes) == 1:
        return changes[0]
    starts = np.cumsum([0, *(one.puts.num_rows for one in changes)])[:-1].tolist()
    pairs = list(zip(changes, starts, strict=True))
    return TableChanges(
        pa.concat_tables([one.puts for one in changes]),
        pa.concat_tables([one.removes for one in changes]),
        np.concatenate([one.after + start for one, start in pairs]),
        np.concatenate([one.put_parts for one in changes]),
        np.concatenate([one.remove_parts for one in changes]),
        _join_carried([(one.carried, start) for one, start in pairs if one.carried is not None]),
        tuple((count + start, part) for one, start in pairs for count, part in one.emptied),
    )


def _join_carried(given: list[tuple[Carried, int]]) -> Carried | None:
    if not given:
        return None
    names = dict.fromkeys(name for one, _ in given for name in one.columns)
    nothing = [np.zeros(len(one.puts), np.bool_) for one, _ in given]
    return Carried(
        np.concatenate([one.puts + start for one, start in given]),
        pa.concat_tables([one.keys for one, _ in given]),
        {
            name: np.concatenate(
                [one.columns.get(name, none) for (one, _), none in zip(given, nothing, strict=True)]
            )
            for name in names
        },
        given[0][0].beside,
    )


def without_parts(changes: TableChanges, undone: Parts) -> TableChanges:
    """The changes but those of subtransactions that were undone."""
    if not len(undone):
        return changes
    kept = ~np.isin(changes.put_parts, undone)
    emptied = tuple(one for one in changes.emptied if one[1] not in undone)
    return chosen(changes, kept, ~np.isin(changes.remove_parts, undone), emptied)


def since_emptied(changes: TableChanges) -> tuple[TableChanges, bool]:
    """The changes that came after all rows were removed at once, and whether they ever were."""
    if not changes.emptied:
        return changes, False
    last = max(count for count, _ in changes.emptied)
    kept = np.arange(changes.puts.num_rows) >= last
    return chosen(changes, kept, changes.after >= last, ()), True


def chosen(
    changes: TableChanges,
    puts: Mask,
    removes: Mask,
    emptied: tuple[tuple[int, int], ...],
) -> TableChanges:
    """Some of the changes, numbered anew."""
    if puts.all() and removes.all():
        return TableChanges(
            changes.puts,
            changes.removes,
            changes.after,
            changes.put_parts,
            changes.remove_parts,
            changes.carried,
            emptied,
        )
    numbers = np.concatenate([[0], np.cumsum(puts)])
    carried = changes.carried
    if carried is not None:
        kept = puts[carried.puts]
        carried = Carried(
            numbers[carried.puts[kept]],
            carried.keys.filter(pa.array(kept)),
            {name: mask[kept] for name, mask in carried.columns.items()},
            carried.beside,
        )
        carried = carried if len(carried.puts) else None
    return TableChanges(
        changes.puts.filter(pa.array(puts)),
        changes.removes.filter(pa.array(removes)),
        numbers[changes.after[removes]],
        changes.put_parts[puts],
        changes.remove_parts[removes],
        carried,
        tuple((int(numbers[count]), part) for count, part in emptied),
    )


def unput(changes: TableChanges, puts: Places) -> TableChanges:
    """The changes with removes in the place of some puts."""
    kept = np.ones(changes.puts.num_rows, np.bool_)
    kept[puts] = False
    told = changes.removes.schema
    gone = changes.puts.take(pa.array(puts)).select(told.names).cast(told)
    both = replace(
        changes,
        removes=pa.concat_tables([changes.removes, gone]),
        after=np.concatenate([changes.after, puts]),
        remove_parts=np.concatenate([changes.remove_parts, changes.put_parts[puts]]),
    )
    return chosen(both, kept, np.ones(both.removes.num_rows, np.bool_), changes.emptied)


def with_all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with all columns; those that were not given are NULL."""
    if rows.column_names == schema.names:
        return rows
    columns = [
        rows.column(field.name)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
