"""The tables as they would be once something is published, and how rows are looked up in them.

Owns: the pin, the schema and the name of each table as a commit would leave them, and which changes
are so large that Spark looks at them. Rules read nothing but this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidelock.model.history.commit import TableChange, Tables, TableState
from tidelock.model.schema.schema import TableSchema
from tidelock.store.engine import Engine
from tidelock.store.lookup.by_key import Match, count_matches, match_keys
from tidelock.store.rules.deltas import ROW_ADDRESS, TableDelta
from tidelock.store.rules.limits import LIMITS, Limits
from tidelock.store.rules.related import schema_of_state
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset, numbers

TAKEN_AT_ONCE = 1000


@dataclass(frozen=True, eq=False)
class Prospect:
    """The tables as they would be."""

    files: TableFiles
    engine: Engine
    tables: Tables
    limits: Limits = LIMITS
    passed: set[tuple[str, str, str]] = field(default_factory=set)
    """Conditions that hold for all rows of a file, whatever else there is: declaration, rule and
    file."""

    @cached_property
    def _by_id(self) -> Mapping[str, TableState]:
        return {state.id: state for state in self.tables.states()}

    def find_state(self, table_id: str) -> TableState | None:
        return self._by_id.get(table_id)

    def state(self, table_id: str) -> TableState:
        return self._by_id[table_id]

    def name(self, table_id: str) -> str:
        return self.state(table_id).name

    def schema(self, table_id: str) -> TableSchema:
        return schema_of_state(self.files, self.state(table_id))

    def dataset(self, table_id: str) -> Dataset:
        return self.files.read(self.state(table_id))

    def labels(self, table_id: str, columns: Sequence[int]) -> list[str]:
        return list(self.schema(table_id).labels(columns))

    def reading(self, table_id: str) -> AbstractContextManager[None]:
        """Around reading a table: what is damaged is said so. What was just staged is trusted."""
        return self.files.reading(self.state(table_id), trusting=True)

    def is_large(self, rows: int) -> bool:
        limits = self.limits
        spark = self.engine.peek() is not None
        return rows > (limits.driver_rows if spark else limits.alone_rows)

    def whole(self, table_id: str) -> TableDelta:
        """Every row of a table, as if it came now."""
        return TableDelta(self.files, table_id, None, self.dataset(table_id))

    def find(
        self, table_id: str, columns: Sequence[int], values: pa.Table, where: str | None = None
    ) -> Match:
        """The rows that have one of some values, which are distinct and without NULL."""
        named = values.rename_columns(self.labels(table_id, columns))
        with self.reading(table_id):
            return match_keys(self.dataset(table_id), named, where)

    def count(
        self, table_id: str, columns: Sequence[int], values: pa.Table, where: str | None = None
    ) -> int:
        """How many rows have one of some values."""
        named = values.rename_columns(self.labels(table_id, columns))
        with self.reading(table_id):
            return count_matches(self.dataset(table_id), named, where)

    def typed(self, table_id: str, columns: Sequence[str], values: pa.Table) -> pa.Table:
        """Values that an engine gave, in the types and under the names of columns."""
        arrow = self.schema(table_id).arrow
        fields = [arrow.field(name).with_nullable(True) for name in columns]
        return values.rename_columns(list(columns)).cast(pa.schema(fields))

    def rows_at(self, table_id: str, addresses: Addresses, columns: Sequence[str]) -> pa.Table:
        """The rows at some addresses, in this order, which has none twice."""
        dataset = self.dataset(table_id)
        parts = []
        with self.reading(table_id):
            for start in range(0, len(addresses), TAKEN_AT_ONCE):
                some = addresses[start : start + TAKEN_AT_ONCE]
                ids = np.unique(some >> np.uint64(32)).tolist()
                scanner = dataset.scanner(
                    columns=list(columns),
                    filter=f"_rowaddr IN ({', '.join(map(str, some.tolist()))})",
                    fragments=[dataset.get_fragment(one) for one in ids],
                    with_row_address=True,
                )
                found = scanner.to_table()
                places = np.argsort(numbers(found.column(ROW_ADDRESS)))
                wanted = np.searchsorted(numbers(found.column(ROW_ADDRESS))[places], some)
                parts.append(found.take(pa.array(places[wanted])).select(list(columns)))
        if not parts:
            return pa.schema([dataset.schema.field(name) for name in columns]).empty_table()
        return pa.concat_tables(parts)


def delta_of(files: TableFiles, change: TableChange) -> TableDelta:
    """The rows that a change brings and takes."""
    before = None if change.before is None else files.read(change.before)
    after = None if change.after is None else files.read(change.after)
    return TableDelta(files, change.table_id, before, after)
