"""Where rows are at the target, by the keys by which both sides know them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidelock.model.history.renumbering import ABSENT, Ids
from tidelock.store.changes.alike import same_rows
from tidelock.store.lookup.by_key import LOOKUP_KEYS_MAX, match_keys
from tidelock.store.lookup.key_numbers import is_among
from tidelock.store.lookup.wanted_keys import PASS_BATCH_ROWS
from tidelock.store.merge.rows.sides import FRESH, ROW, ById, ByKey, Shown
from tidelock.store.tables.fragments import Dataset, numbers


@dataclass(frozen=True)
class Located:
    """For each key the id and the address of its row; ABSENT where there is none."""

    ids: Ids
    addresses: Ids

    def at(self, chosen: Ids) -> Located:
        return Located(self.ids[chosen], self.addresses[chosen])


def locate(dataset: Dataset, by: ByKey | ById, shown: Shown, keys: pa.Table) -> Located:
    """The rows of a pin that have these keys. `shown` is how its rows are shown."""
    found = np.full((2, keys.num_rows), ABSENT, dtype=np.int64)
    if isinstance(by, ByKey):
        _by_key(dataset, shown.of(by.names), keys, found)
    else:
        _by_id(dataset, at_side(by, keys.column(ROW).to_numpy()), found)
    return Located(found[0], found[1])


def _by_key(dataset: Dataset, shown: Shown, keys: pa.Table, found: Ids) -> None:
    kept = pa.schema(
        [pa.field(name, dataset.schema.field(name).type) for name in map(str, shown.names)]
    )
    # A key that the pin's narrower type cannot hold is not in it.
    narrow = pa.Table.from_arrays(
        [one.cast(field.type, safe=False) for one, field in zip(keys.columns, kept, strict=True)],
        schema=kept,
    )
    places = np.arange(keys.num_rows)
    if narrow.schema.types != keys.schema.types:
        back = pa.Table.from_arrays(
            [one.cast(f.type) for one, f in zip(narrow.columns, keys.schema, strict=True)],
            schema=keys.schema,
        )
        places = np.flatnonzero(same_rows(keys, back, keys.column_names))
        narrow = narrow.take(pa.array(places))
    match = match_keys(dataset, narrow)
    found[0, places[match.positions]] = match.row_ids.astype(np.int64)
    found[1, places[match.positions]] = match.addresses.astype(np.int64)


def at_side(by: ById, numbers_: Ids) -> Ids:
    """The ids that rows have at a side, by their numbers."""
    ids = by.numbering.there(np.where(numbers_ < _START, numbers_, ABSENT))
    for start, numbering in by.others:
        mine = (numbers_ >= start) & (numbers_ < start + _START)
        ids = np.where(mine, numbering.there(np.where(mine, numbers_ - start, ABSENT)), ids)
    fresh = numbers_ >= FRESH
    own = fresh & (numbers_ % 2 == by.parity)
    return np.where(own, (numbers_ - FRESH) // 2, np.where(fresh, ABSENT, ids))


_START = 1 << 52


def start_of(number: int) -> int:
    """Where the numbers of rows of a further base begin."""
    return number * _START


def _by_id(dataset: Dataset, ids: Ids, found: Ids) -> None:
    wanted = ids[ids != ABSENT]
    if not len(wanted):
        return
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    filter = None
    if len(wanted) <= LOOKUP_KEYS_MAX:
        filter = f"_rowid IN ({', '.join(map(str, wanted.tolist()))})"
    scanner = dataset.scanner(
        columns=[],
        filter=filter,
        with_row_id=True,
        with_row_address=True,
        batch_size=PASS_BATCH_ROWS,
    )
    for batch in scanner.to_batches():
        here = numbers(batch.column("_rowid")).astype(np.int64)
        mask = is_among(here, ordered)
        places = order[np.searchsorted(ordered, here[mask])]
        found[0, places] = here[mask]
        found[1, places] = numbers(batch.column("_rowaddr")).astype(np.int64)[mask]
