"""The ledger of a source: how far it was read, and what it remembers of it.

A hidden table of the lake. Its state has the position; its rows are entries, found by `item`, which
`mark` tells apart from an earlier state of the same item, and `entry` tells more of, as JSON.
Invariant: entries, position and the rows that were read are published by one commit. So whatever
dies, what the lake holds and what it knows of the source agree, on every snapshot and branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from tidelock.ingest.status import without_ledger
from tidelock.model.history.commit import TableState
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sources import SourceDefinition
from tidelock.store.log.log import Head
from tidelock.store.lookup.by_key import rows_of_keys
from tidelock.store.store import Store

ENTRIES = pa.schema(
    [
        pa.field("item", pa.string(), nullable=False),
        pa.field("mark", pa.string(), nullable=False),
        pa.field("entry", pa.string(), nullable=False),
    ]
)
SAMPLE_ITEMS = 512
SCHEMA = TableSchema(
    tuple(Column(field.name, field.type, field.nullable) for field in ENTRIES), ("item",)
)


@dataclass(frozen=True)
class Entry:
    """What is remembered of one item. An entry that is empty is forgotten."""

    item: str
    mark: str = ""
    told: Mapping[str, Any] | None = None


def entries_table(entries: Iterable[Entry]) -> pa.Table:
    rows = list(entries)
    return pa.table(
        [
            pa.array([one.item for one in rows], pa.string()),
            pa.array([one.mark for one in rows], pa.string()),
            pa.array([msgspec.json.encode(one.told or {}).decode() for one in rows], pa.string()),
        ],
        schema=ENTRIES,
    )


class Ledger:
    """The ledger of one source, as one head of its branch has it."""

    def __init__(self, store: Store, definition: SourceDefinition, head: Head) -> None:
        self._store = store
        self.head = head
        found = head.tables.find(definition.ledger)
        if found is None:
            raise without_ledger(definition, head.branch.name)
        self.state: TableState = found

    @property
    def position(self) -> str:
        """How far the source was read."""
        return self.state.position

    def entries(self) -> list[Entry]:
        """All entries: for a source that has few."""
        if not self.state.rows:
            return []
        with self._store.files.reading(self.state):
            rows = self._store.files.read(self.state).to_table(columns=ENTRIES.names)
        return [_entry(row) for row in rows.to_pylist()]

    def find(self, items: Iterable[str]) -> dict[str, Entry]:
        """The entries of these items."""
        rows = self.rows_of(pa.array(sorted(set(items)), pa.string()))
        return {row["item"]: _entry(row) for row in rows.to_pylist()}

    def some_items(self, count: int) -> list[str]:
        """Items that divide all of them into about equal parts, as far as a sample tells."""
        if self.state.rows < 2:
            return []
        rows = min(self.state.rows, SAMPLE_ITEMS)
        with self._store.files.reading(self.state):
            dataset = self._store.files.read(self.state)
            places = [number * self.state.rows // rows for number in range(rows)]
            items = sorted(dataset.take(places, columns=["item"]).column("item").to_pylist())
        return sorted({items[number * rows // (count + 1)] for number in range(1, count + 1)})

    def rows_of(self, items: pa.Array) -> pa.Table:
        """The entries of these items, which differ, as they are kept."""
        if not len(items) or not self.state.rows:
            return ENTRIES.empty_table()
        with self._store.files.reading(self.state):
            dataset = self._store.files.read(self.state)
            return rows_of_keys(dataset, pa.table({"item": items}), ENTRIES.names)[0]


def _entry(row: Mapping[str, str]) -> Entry:
    return Entry(row["item"], row["mark"], msgspec.json.decode(row["entry"]))
