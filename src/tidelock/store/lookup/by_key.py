"""Finding rows by key, or by the values of any columns that may be in a key.

Owns: the answer to "which of these keys are in the table, and where". Small sets are looked up
through the key index; large ones by passes over the key columns. Both read live rows of one pin
only, so results are right with partial or no index coverage.
Invariant: keys given are unique and have no NULL. Where the table's are unique too, every key
matches at most one row; else it matches every row that has it.
Cost: by passes, so long as there are keys and rows in the table together; in memory are the keys of
one range (wanted_keys.py) and as many rows of the table, and where the matches are.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.store.lookup.key_numbers import Numbering, is_among, slabs, whole
from tidelock.store.lookup.literals import in_list, quote_for_lance
from tidelock.store.lookup.wanted_keys import (
    PASS_BATCH_ROWS,
    GivenKeys,
    Positions,
    Range,
    WantedKeys,
    divide,
)
from tidelock.store.objects.parallel import in_parallel
from tidelock.store.tables.fragments import Addresses, Dataset, numbers

LOOKUP_KEYS_MAX = 20_000
"""Above this, an IN list costs more than a pass over the key columns."""
LOOKUP_FRACTION_MAX = 0.2
"""An index that gives a larger part of a table takes longer than reading all of it."""
LOOKUP_PART_KEYS = 256
"""Lists of more keys than this are looked up in parts, on several cores."""
DRIVER_SAMPLE_ROWS = 1024
DRIVERS_MAX = 1024


@dataclass(frozen=True)
class Match:
    """Rows of a table whose key is among the given ones, each with the given key's position."""

    positions: Positions
    row_ids: Addresses
    addresses: Addresses

    def __len__(self) -> int:
        return len(self.positions)


_NOTHING = np.array([], dtype=np.uint64)
NO_MATCH = Match(np.array([], dtype=np.int64), _NOTHING, _NOTHING)


def match_keys(dataset: Dataset, keys: pa.Table | WantedKeys, where: str | None = None) -> Match:
    """Match keys (the key columns only) with the rows of a pin; with those alone for which a
    condition in Lance's words is true."""
    wanted = GivenKeys(keys) if isinstance(keys, pa.Table) else keys
    if wanted.rows == 0 or dataset.count_rows() == 0:
        return NO_MATCH
    if _are_few(dataset, wanted.rows):
        parts = _look_up_keys(dataset, wanted, where)
    else:
        parts = [_match_range(dataset, wanted, one, where) for one in divide(wanted)]
    found = [part for part in parts if len(part)]
    if len(found) < 2:
        return found[0] if found else NO_MATCH
    return Match(
        np.concatenate([part.positions for part in found]),
        np.concatenate([part.row_ids for part in found]),
        np.concatenate([part.addresses for part in found]),
    )


def count_matches(dataset: Dataset, keys: pa.Table, where: str | None = None) -> int:
    """How many rows have one of these keys. For few keys of one column an index tells, and no value
    is read."""
    if not keys.num_rows or not dataset.count_rows():
        return 0
    if keys.num_columns > 1 or not _are_few(dataset, keys.num_rows):
        return len(match_keys(dataset, keys, where))
    (name,) = keys.column_names
    scanner = dataset.scanner(
        columns=[], filter=_both(in_list(name, whole(keys.column(0))), where), with_row_id=True
    )
    return int(scanner.to_table().num_rows)


def _are_few(dataset: Dataset, keys: int) -> bool:
    rows: int = dataset.count_rows()
    return keys <= min(LOOKUP_KEYS_MAX, max(64, rows * LOOKUP_FRACTION_MAX))


def _look_up_keys(dataset: Dataset, wanted: WantedKeys, where: str | None) -> list[Match]:
    """Match few keys, by an IN list for the column that narrows down most."""
    keys, positions = wanted.within(None)
    driver = _driver(dataset, keys)
    parts = max(1, min(os.cpu_count() or 1, keys.num_rows // LOOKUP_PART_KEYS))
    if parts == 1:
        places = [np.arange(keys.num_rows)]
    else:
        # Neighbours together: an index keeps them in one page, which is then read once.
        places = np.array_split(numbers(pc.sort_indices(keys.column(driver))), parts)

    def look_up(chosen: Positions) -> Match:
        mine = keys if parts == 1 else keys.take(pa.array(chosen))
        listed = whole(mine.column(driver).unique())
        rows = _look_up(dataset, keys.column_names, driver, listed, where)
        return _match(Numbering(mine), rows, positions[chosen])

    return in_parallel(look_up, places)


def _driver(dataset: Dataset, keys: pa.Table) -> str:
    """The key column to look up by. Where the keys do not tell, a few rows of the table do."""
    names = keys.column_names
    if len(names) == 1:
        return str(names[0])
    distinct = {name: pc.count_distinct(keys.column(name)).as_py() for name in names}
    best = [name for name in names if distinct[name] == max(distinct.values())]
    if len(best) == 1:
        return str(best[0])
    place = (dataset.uri, tuple(best))
    if place not in _drivers:
        sample = dataset.scanner(columns=best, limit=DRIVER_SAMPLE_ROWS).to_table()
        _drivers[place] = max(best, key=lambda name: pc.count_distinct(sample.column(name)).as_py())
        if len(_drivers) > DRIVERS_MAX:
            _drivers.popitem(last=False)
    return _drivers[place]


_drivers: OrderedDict[tuple[str, tuple[str, ...]], str] = OrderedDict()
"""What was found for a table; it is a guess in any case, and only costs time where it is wrong."""


def _match_range(dataset: Dataset, wanted: WantedKeys, one: Range, where: str | None) -> Match:
    """Match the keys of one range by a pass over the key columns."""
    keys, positions = wanted.within(one)
    if not keys.num_rows:
        return NO_MATCH
    numbering = Numbering(keys)
    batches = _pass(dataset, wanted.names, one, where)
    parts = [_match(numbering, rows, positions) for rows in slabs(batches, keys.num_rows)]
    return Match(
        np.concatenate([part.positions for part in parts] or [NO_MATCH.positions]),
        np.concatenate([part.row_ids for part in parts] or [_NOTHING]),
        np.concatenate([part.addresses for part in parts] or [_NOTHING]),
    )


def _match(numbering: Numbering, rows: pa.Table, positions: Positions) -> Match:
    """The rows that have a numbered key; `positions` are those of the keys."""
    if not rows.num_rows:
        return NO_MATCH
    found = numbering.find(rows)
    if found.null_count:
        present = found.is_valid()
        rows, found = rows.filter(present), found.filter(present)
    return Match(
        positions[whole(found).to_numpy()],
        numbers(rows.column("_rowid")),
        numbers(rows.column("_rowaddr")),
    )


def _pass(
    dataset: Dataset, names: Sequence[str], one: Range, where: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a table whose value in a column lies in a range."""
    return iter(
        dataset.scanner(
            columns=list(names),
            filter=_both(one.for_lance(), where),
            with_row_id=True,
            with_row_address=True,
            batch_size=PASS_BATCH_ROWS,
            use_scalar_index=_is_narrow(one, dataset.count_rows()),
        ).to_batches()
    )


def _is_narrow(one: Range, rows: int) -> bool:
    """Whether a range surely holds a small part of a table's keys, so that an index finds them
    sooner than reading does."""
    if not pa.types.is_integer(one.low.type):
        return False
    return bool(one.high.as_py() - one.low.as_py() < rows * LOOKUP_FRACTION_MAX)


def _look_up(
    dataset: Dataset,
    names: Sequence[str],
    column: str,
    wanted: pa.Array,
    where: str | None = None,
) -> pa.Table:
    return dataset.scanner(
        columns=list(names),
        filter=_both(in_list(column, wanted), where),
        with_row_id=True,
        with_row_address=True,
    ).to_table()


def _both(filter: str, where: str | None) -> str:
    return filter if where is None else f"({filter}) AND ({where})"


def rows_by_id(dataset: Dataset, row_ids: Addresses) -> Addresses:
    """The addresses of the rows with these ids, in no particular order; gone rows are left out."""
    return places_by_id(dataset, row_ids)[1]


def places_by_id(dataset: Dataset, row_ids: Addresses) -> tuple[Addresses, Addresses]:
    """The ids and the addresses of the rows with these ids, in no particular order; gone rows are
    left out."""
    if len(row_ids) == 0:
        return _NOTHING, _NOTHING
    if len(row_ids) <= LOOKUP_KEYS_MAX:
        listed = ", ".join(map(str, row_ids.tolist()))
        rows = dataset.scanner(
            columns=[], filter=f"_rowid IN ({listed})", with_row_id=True, with_row_address=True
        ).to_table()
        return numbers(rows.column("_rowid")), numbers(rows.column("_rowaddr"))
    wanted = np.sort(row_ids)
    ids, addresses = [_NOTHING], [_NOTHING]
    scanner = dataset.scanner(
        columns=[], with_row_id=True, with_row_address=True, batch_size=PASS_BATCH_ROWS
    )
    for batch in scanner.to_batches():
        found = batch.column("_rowid").to_numpy()
        mask = is_among(found, wanted)
        ids.append(found[mask])
        addresses.append(batch.column("_rowaddr").to_numpy()[mask])
    return np.concatenate(ids), np.concatenate(addresses)


def find_rows(
    dataset: Dataset,
    column: str,
    wanted: pa.Array,
    columns: Sequence[str],
    rows_max: int | None = None,
    *,
    with_row_ids: bool = False,
) -> pa.Table | None:
    """The rows whose value in a column is among the wanted ones, a NULL being one of them if it is
    wanted. None when there are more than `rows_max`."""
    names = list(dict.fromkeys([*columns, column]))
    extra = ["_rowid", "_rowaddr"] if with_row_ids else []
    present = wanted.drop_null()
    batches: list[pa.RecordBatch] = []
    found = 0
    parts: list[Iterator[pa.RecordBatch]] = []
    if len(present) and dataset.count_rows():
        parts.append(_having(dataset, names, column, present))
    if wanted.null_count:
        scanner = dataset.scanner(
            columns=names,
            filter=f"{quote_for_lance(column)} IS NULL",
            with_row_id=True,
            with_row_address=True,
        )
        parts.append(scanner.to_batches())
    for part in parts:
        for batch in part:
            found += batch.num_rows
            if rows_max is not None and found > rows_max:
                return None
            batches.append(batch.select([*columns, *extra]))
    kinds = [dataset.schema.field(name) for name in columns]
    ids = [pa.field(name, pa.uint64()) for name in extra]
    return pa.Table.from_batches(batches, pa.schema([*kinds, *ids]))


def rows_of_keys(
    dataset: Dataset, keys: pa.Table, columns: Sequence[str]
) -> tuple[pa.Table, Positions]:
    """The rows that have these keys, which differ, and the position of each row's key."""
    driver = _driver(dataset, keys)
    wanted = whole(keys.column(driver).unique())
    found = find_rows(dataset, driver, wanted, list(dict.fromkeys([*columns, *keys.column_names])))
    assert found is not None
    if not found.num_rows:
        return found.select(columns), np.array([], np.int64)
    numbers_of = Numbering(keys).find(found.select(keys.column_names))
    present = numbers_of.is_valid()
    rows = found.filter(present).select(columns)
    return rows, whole(numbers_of.filter(present)).to_numpy().astype(np.int64)


def _having(
    dataset: Dataset, names: list[str], column: str, wanted: pa.Array
) -> Iterator[pa.RecordBatch]:
    """The rows whose value in a column is one of the wanted ones."""
    if _are_few(dataset, len(wanted)):
        parts = max(1, min(os.cpu_count() or 1, len(wanted) // LOOKUP_PART_KEYS))
        lists = [wanted.take(pa.array(range(part, len(wanted), parts))) for part in range(parts)]
        for table in in_parallel(lambda one: _look_up(dataset, names, column, one), lists):
            yield from table.to_batches()
        return
    bounds = pc.min_max(wanted)
    batches = _pass(dataset, names, Range(column, bounds["min"], bounds["max"], last=True))
    for rows in slabs(batches, len(wanted)):
        mask = pc.is_in(rows.column(column), value_set=wanted)
        yield from rows.filter(mask).to_batches()
