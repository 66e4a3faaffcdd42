"""Finding rows by key.

Owns: the answer to "which of these keys are in the table, and where". Small sets are looked up
through the key index; large ones by one streaming pass over the key columns. Both read live rows of
one pin only, so results are right with partial or no index coverage.
Invariant: keys given are unique and have no NULL; the table's keys are unique too, so every key
matches at most one row.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.store.tables import Addresses, Dataset, in_parallel, numbers

LOOKUP_KEYS_MAX = 20_000
"""Above this, an IN list costs more than a pass over the key columns."""
LOOKUP_FRACTION_MAX = 0.2
LOOKUP_PART_KEYS = 256
"""Lists of more keys than this are looked up in parts, on several cores."""


Positions: TypeAlias = npt.NDArray[np.int64]


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


def match_keys(dataset: Dataset, keys: pa.Table) -> Match:
    """Match a table of keys (the key columns only) with the rows of a pin."""
    if keys.num_rows == 0 or dataset.count_rows() == 0:
        return NO_MATCH
    if keys.num_columns == 1:
        return _match_single(dataset, keys)
    return _match_composite(dataset, keys)


def _match_single(dataset: Dataset, keys: pa.Table) -> Match:
    name = keys.column_names[0]
    wanted = _whole(keys.column(0))
    found = [
        batch for batch in _candidates(dataset, keys.column_names, name, wanted) if batch.num_rows
    ]
    if not found:
        return NO_MATCH
    rows = pa.Table.from_batches(found)
    positions = pc.index_in(rows.column(name), value_set=wanted)
    present = pc.is_valid(positions)
    if not pc.all(present).as_py():
        rows, positions = rows.filter(present), positions.filter(present)
    return _match(rows, _whole(positions).to_numpy(zero_copy_only=False))


def _match_composite(dataset: Dataset, keys: pa.Table) -> Match:
    names = keys.column_names
    # The column with the most distinct values narrows the candidates most.
    distinct = {name: pc.count_distinct(keys.column(name)).as_py() for name in names}
    driver = max(names, key=lambda name: distinct[name])
    wanted = _whole(keys.column(driver).unique())
    numbered = keys.append_column("_position", pa.array(np.arange(keys.num_rows)))
    parts = []
    for batch in _candidates(dataset, names, driver, wanted):
        candidates = pa.Table.from_batches([batch])
        candidates = candidates.filter(pc.is_in(candidates.column(driver), value_set=wanted))
        if candidates.num_rows:
            parts.append(candidates.join(numbered, keys=names, join_type="inner"))
    if not parts:
        return NO_MATCH
    rows = pa.concat_tables(parts)
    return _match(rows, _whole(rows.column("_position")).to_numpy())


def _candidates(
    dataset: Dataset, names: list[str], driver: str, wanted: pa.Array
) -> Iterator[pa.RecordBatch]:
    few = len(wanted) <= min(LOOKUP_KEYS_MAX, max(64, dataset.count_rows() * LOOKUP_FRACTION_MAX))
    if few:
        parts = max(1, min(os.cpu_count() or 1, len(wanted) // LOOKUP_PART_KEYS))
        lists = [wanted.take(pa.array(range(part, len(wanted), parts))) for part in range(parts)]
        found = in_parallel(lambda one: _look_up(dataset, names, driver, one), lists)
        yield from (batch for table in found for batch in table.to_batches())
        return
    scanner = dataset.scanner(
        columns=names,
        filter=_between(driver, wanted),
        with_row_id=True,
        with_row_address=True,
    )
    for batch in scanner.to_batches():
        yield batch.filter(pc.is_in(batch.column(driver), value_set=wanted))


def _look_up(dataset: Dataset, names: list[str], driver: str, wanted: pa.Array) -> pa.Table:
    return dataset.scanner(
        columns=names, filter=_in_list(driver, wanted), with_row_id=True, with_row_address=True
    ).to_table()


def _match(rows: pa.Table, positions: npt.NDArray[Any]) -> Match:
    return Match(
        positions.astype(np.int64),
        numbers(rows.column("_rowid")),
        numbers(rows.column("_rowaddr")),
    )


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _in_list(name: str, wanted: pa.Array) -> str:
    column = quote_for_lance(name)
    values = [literal_for_lance(value, wanted.type) for value in wanted.to_pylist()]
    if len(values) == 1:
        return f"{column} = {values[0]}"
    return f"{column} IN ({', '.join(values)})"


def _between(name: str, wanted: pa.Array) -> str | None:
    if pa.types.is_boolean(wanted.type) or pa.types.is_binary(wanted.type):
        return None
    bounds = pc.min_max(wanted)
    low = literal_for_lance(bounds["min"].as_py(), wanted.type)
    high = literal_for_lance(bounds["max"].as_py(), wanted.type)
    column = quote_for_lance(name)
    return f"{column} >= {low} AND {column} <= {high}"


def rows_by_id(dataset: Dataset, row_ids: Addresses) -> Addresses:
    """The addresses of the rows with these ids, in no particular order; gone rows are left out."""
    if len(row_ids) == 0:
        return _NOTHING
    if len(row_ids) <= LOOKUP_KEYS_MAX:
        listed = ", ".join(map(str, row_ids.tolist()))
        scanner = dataset.scanner(
            columns=[], filter=f"_rowid IN ({listed})", with_row_id=True, with_row_address=True
        )
        return numbers(scanner.to_table().column("_rowaddr"))
    wanted = pa.array(row_ids)
    found = []
    scanner = dataset.scanner(columns=[], with_row_id=True, with_row_address=True)
    for batch in scanner.to_batches():
        mask = pc.is_in(batch.column("_rowid"), value_set=wanted)
        found.append(batch.column("_rowaddr").filter(mask).to_numpy())
    return np.concatenate(found) if found else _NOTHING


def quote_for_lance(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal_for_lance(value: Any, kind: pa.DataType) -> str:
    """A value of a key column as a literal of Lance's filter language."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, decimal.Decimal):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if isinstance(value, dt.datetime):
        text = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        zone = ", 'UTC'" if value.tzinfo else ""
        return f"arrow_cast('{text.isoformat()}', 'Timestamp(Microsecond, {_zone(zone)})')"
    if isinstance(value, dt.date):
        return f"CAST('{value.isoformat()}' AS DATE)"
    raise TypeError(f"{kind} cannot be part of a key")


def _zone(suffix: str) -> str:
    return 'Some("UTC")' if suffix else "None"


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
        parts.append(_candidates(dataset, names, column, present))
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
