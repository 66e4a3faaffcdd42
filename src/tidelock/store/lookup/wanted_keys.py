"""Keys that are looked for, however many: where they are, and how they fit in memory.

Owns: the two places that keys come from, rows in memory and fragments that were just written, and
the ranges of values in which they are compared with a table, one range at a time.
Invariant: every key lies in exactly one range; a range holds about KEYS_AT_ONCE keys and
KEYS_BYTES_AT_ONCE bytes at most. Two equal keys lie in the same range.

A range is read from the table's key columns by a pass of its own. Such a pass takes a small part of
the time that comparing the keys in it takes, so that all of them together hardly count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelock.store.lookup.key_numbers import Numbering, whole
from tidelock.store.lookup.literals import in_list, literals, quote_for_lance
from tidelock.store.tables.fragments import Dataset, numbers

KEYS_AT_ONCE = 2 * 1024 * 1024
KEYS_BYTES_AT_ONCE = 64 * 1024 * 1024
SAMPLE_ROWS = 65_536
LISTED_MAX = 4096
"""For more different values than this all rows are read."""
PASS_BATCH_ROWS = 65_536
"""Lance's own batches are small, and cost as much each as this many rows do."""

Positions: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Range:
    """Keys by the values of one column: from `low` up to `high`, with it only if it is the last."""

    column: str
    low: pa.Scalar
    high: pa.Scalar
    last: bool

    def for_lance(self) -> str:
        low, high = literals(pa.concat_arrays([pa.repeat(one, 1) for one in (self.low, self.high)]))
        column = quote_for_lance(self.column)
        return f"{column} >= {low} AND {column} {'<=' if self.last else '<'} {high}"

    def holds(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        below = pc.less_equal if self.last else pc.less
        return pc.and_(pc.greater_equal(values, self.low), below(values, self.high))


class WantedKeys(Protocol):
    @property
    def names(self) -> list[str]: ...

    @property
    def rows(self) -> int: ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All keys, in their order."""

    def within(self, one: Range | None) -> tuple[pa.Table, Positions]:
        """The keys in a range, or all of them, and their positions."""

    def take(self, positions: Positions) -> pa.Table:
        """The keys at some positions, in this order. For few of them."""

    def relabelled(self, labels: Mapping[str, str]) -> WantedKeys:
        """The same keys, whose columns are called otherwise."""


@dataclass(frozen=True)
class GivenKeys:
    """Keys of rows in memory: the key columns alone."""

    table: pa.Table

    @property
    def names(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.table.to_batches())

    def within(self, one: Range | None) -> tuple[pa.Table, Positions]:
        if one is None:
            return self.table, np.arange(self.rows)
        mask = one.holds(self.table.column(one.column))
        return self.table.filter(mask), np.flatnonzero(mask.to_numpy())

    def take(self, positions: Positions) -> pa.Table:
        return self.table.take(pa.array(positions))

    def relabelled(self, labels: Mapping[str, str]) -> GivenKeys:
        return GivenKeys(self.table.rename_columns([labels[one] for one in self.names]))


@dataclass(frozen=True)
class StagedKeys:
    """Keys of rows in fragments that were written just now, of which none is deleted yet."""

    dataset: Dataset
    fragments: tuple[int, ...]
    columns: list[str]
    """What the key is called in the fragments."""
    labels: tuple[str, ...] = ()
    """What it is called now, if that is something else."""

    @property
    def names(self) -> list[str]:
        return list(self.labels or self.columns)

    @property
    def rows(self) -> int:
        return int(self._starts()[-1])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._scanner(scan_in_order=True).to_batches():
            yield batch.rename_columns(self.names) if self.labels else batch

    def within(self, one: Range | None) -> tuple[pa.Table, Positions]:
        options: dict[str, Any] = {}
        if one is not None:
            here = self.columns[self.names.index(one.column)]
            filter = replace(one, column=here).for_lance()
            options = {"filter": filter, "use_scalar_index": False}
        found = self._scanner(with_row_address=True, **options).to_table()
        keys = found.select(self.columns).rename_columns(self.names)
        return keys, self._positions(found)

    def rows_of(
        self, keys: pa.Table, columns: Sequence[str]
    ) -> tuple[pa.Table, Positions, Positions]:
        """The rows that have one of some keys, which differ: for each the number of its key, and
        its position. A key may have several."""
        values = whole(keys.column(0).unique())
        options: dict[str, Any] = {"use_scalar_index": False}
        if len(values) <= LISTED_MAX:
            options["filter"] = in_list(self.columns[0], values)
        fragments = [self.dataset.get_fragment(one) for one in self.fragments]
        wanted = list(dict.fromkeys([*columns, *self.columns]))
        scanner = self.dataset.scanner(
            columns=wanted, fragments=fragments, with_row_address=True, **options
        )
        numbering = Numbering(keys)
        parts: list[pa.Table] = [scanner.projected_schema.empty_table()]
        for batch in scanner.to_batches():
            rows = pa.Table.from_batches([batch])
            found = numbering.find(rows.select(self.columns)).is_valid()
            parts.append(rows.filter(found))
        found = pa.concat_tables(parts)
        numbers_of = numbering.find(found.select(self.columns))
        positions = self._positions(found)
        return found.select(list(columns)), whole(numbers_of).to_numpy().astype(np.int64), positions

    def _positions(self, found: pa.Table) -> Positions:
        """Where rows are among all, by their addresses."""
        addresses = numbers(found.column("_rowaddr"))
        order = np.argsort(np.array(self.fragments))
        place = order[
            np.searchsorted(np.array(self.fragments)[order], (addresses >> np.uint64(32)))
        ]
        offsets = (addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)
        return self._starts()[place] + offsets

    def take(self, positions: Positions) -> pa.Table:
        starts = self._starts()
        parts = []
        for position in positions.tolist():
            place = int(np.searchsorted(starts, position, side="right")) - 1
            fragment = self.dataset.get_fragment(self.fragments[place])
            parts.append(fragment.take([position - int(starts[place])], columns=self.columns))
        return pa.concat_tables(parts).select(self.columns).rename_columns(self.names)

    def relabelled(self, labels: Mapping[str, str]) -> StagedKeys:
        return replace(self, labels=tuple(labels[one] for one in self.names))

    def _scanner(self, **options: Any) -> Any:
        fragments = [self.dataset.get_fragment(one) for one in self.fragments]
        return self.dataset.scanner(
            columns=self.columns, fragments=fragments, batch_size=PASS_BATCH_ROWS, **options
        )

    def _starts(self) -> Positions:
        """Where each fragment begins among all rows, and the number of rows last."""
        rows = [self.dataset.get_fragment(one).count_rows() for one in self.fragments]
        return np.cumsum([0, *rows])


def divide(keys: WantedKeys) -> list[Range]:
    """Ranges that hold all keys; one if they fit in memory at once."""
    survey = _survey(keys)
    column = widest(survey.sample)
    low, high = survey.bounds[column]
    parts = max(-(-keys.rows // KEYS_AT_ONCE), -(-survey.size_bytes // KEYS_BYTES_AT_ONCE))
    values = survey.sample.column(column)
    ordered = values.take(pc.sort_indices(values))
    edges = [low]
    for part in range(1, parts):
        edge = ordered[len(ordered) * part // parts]
        if not edge.equals(edges[-1]):
            edges.append(edge)
    # A range that begins and ends with the greatest value holds that value alone.
    ends = [*edges[1:], high]
    return [
        Range(column, start, end, last=number == len(edges) - 1)
        for number, (start, end) in enumerate(zip(edges, ends, strict=True))
    ]


def widest(keys: pa.Table) -> str:
    """The column with the most values, which narrows down most."""
    distinct: dict[str, int] = {
        name: pc.count_distinct(keys.column(name)).as_py() for name in keys.column_names
    }
    return max(distinct, key=lambda name: distinct[name])


@dataclass(frozen=True)
class _Survey:
    size_bytes: int
    sample: pa.Table
    """Keys at even distances."""
    bounds: dict[str, tuple[pa.Scalar, pa.Scalar]]
    """The least and the greatest value of each column."""


def _survey(keys: WantedKeys) -> _Survey:
    step = max(1, keys.rows // SAMPLE_ROWS)
    parts: list[pa.RecordBatch] = []
    ends: dict[str, list[pa.Array]] = {name: [] for name in keys.names}
    size_bytes = seen = 0
    for batch in keys.batches():
        if not batch.num_rows:
            continue
        size_bytes += batch.nbytes
        first = -seen % step
        parts.append(batch.take(pa.array(np.arange(first, batch.num_rows, step))))
        seen += batch.num_rows
        for name, found in ends.items():
            found.extend(_ends(batch.column(name)))
    bounds = {name: _ends(pa.chunked_array(found)) for name, found in ends.items()}
    return _Survey(
        size_bytes,
        pa.Table.from_batches(parts),
        {name: (low[0], high[0]) for name, (low, high) in bounds.items()},
    )


def _ends(values: pa.Array | pa.ChunkedArray) -> Sequence[pa.Array]:
    """The least and the greatest value, each as an array: Python does not hold all of them."""
    found = pc.min_max(values)
    return [pa.repeat(found["min"], 1), pa.repeat(found["max"], 1)]
