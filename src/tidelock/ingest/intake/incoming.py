"""A transaction of a source on its way in: what it does to tables, until it ends.

Owns: its changes, in memory while they are few, else in storage (spool.py). Several may be open at
once. Nothing of one is visible before it is published, and of one that is given up nothing is left
but files that garbage collection sweeps.
Invariant: memory in use <= `spill_bytes` and what was handed over last, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tidelock.errors import InvalidOption
from tidelock.ingest.intake.changes import Collected, TableChanges, with_all_columns
from tidelock.ingest.intake.net import Unknown
from tidelock.ingest.intake.spool import Spool
from tidelock.model.schema.alterations import AddColumn
from tidelock.model.schema.schema import TableSchema
from tidelock.store.store import Store

SPILL_BYTES = 32 * 1024 * 1024


@dataclass
class TableWork:
    """What a transaction does to one table."""

    name: str
    alterations: list[AddColumn] = field(default_factory=list)
    """Columns that came before its rows."""
    collected: Collected = field(default_factory=Collected)
    spool: Spool | None = None
    puts: int = 0
    removes: int = 0


class Incoming:
    """One transaction of a source, or several small ones that are published together."""

    def __init__(
        self,
        store: Store,
        branch: str,
        table_of: Callable[[str], tuple[str, TableSchema]],
        spill_bytes: int = SPILL_BYTES,
        unknown: Callable[[Incoming, str, pa.Table], None] | None = None,
    ) -> None:
        """`table_of` gives what the lake calls a table of the source, and its columns; of changes
        that take more than `spill_bytes`, those that came first go to storage. `unknown` is told
        of keys whose rows are left out; without it they are an error."""
        self._unknown = unknown
        self._spill_bytes = spill_bytes
        self._store = store
        self._branch = branch
        self._table_of = table_of
        self.tables: dict[str, TableWork] = {}
        self.undone: set[int] = set()
        """Subtransactions that were rolled back."""
        self.rows = 0
        self.size_bytes = 0
        self.position = ""
        self.time: datetime | None = None
        """When it was committed at the source."""
        self.transactions = 1
        self.properties: dict[str, Any] = {}
        self.entries: list[pa.Table] = []
        """What the ledger keeps of it."""
        self.message = ""

    # What a source of one's own says

    def insert(self, table: str, rows: Any, part: int = 0) -> None:
        """Rows that come; in a table with a key they replace those of their key."""
        self.upsert(table, rows, part)

    def upsert(self, table: str, rows: Any, part: int = 0) -> None:
        """Rows that come, or take the place of those that have their key. They leave again when
        their part of the transaction is undone."""
        name, schema = self.table(table)
        puts = with_all_columns(_as_table(rows, schema.arrow), schema.arrow)
        parts = np.full(puts.num_rows, part, np.uint32)
        self.add(name, TableChanges(puts, removes_of(schema), _none(np.int64), parts, _none()))

    def delete(self, table: str, rows: Any) -> None:
        """Rows that leave: their keys, or all of their values in a table without a key."""
        name, schema = self.table(table)
        told = removes_of(schema).schema
        removes = with_all_columns(_as_table(rows, told), told)
        after = np.zeros(removes.num_rows, np.int64)
        parts = np.zeros(removes.num_rows, np.uint32)
        nothing = schema.arrow.empty_table()
        self.add(name, TableChanges(nothing, removes, after, _none(), parts))

    def truncate(self, table: str) -> None:
        """All rows leave."""
        name, schema = self.table(table)
        rows, none = schema.arrow.empty_table(), _none(np.int64)
        told = ((0, 0),)
        self.add(name, TableChanges(rows, removes_of(schema), none, _none(), _none(), None, told))

    def note(self, entries: pa.Table) -> None:
        """What the ledger of the source is to keep of this transaction."""
        self.entries.append(entries)

    def finish(
        self,
        position: str,
        *,
        time: datetime | None = None,
        properties: Mapping[str, Any] | None = None,
        message: str = "",
    ) -> Incoming:
        """It has ended; `position` is how far the source was read by it."""
        self.position, self.time, self.message = position, time, message
        self.properties.update(properties or {})
        return self

    # What is done with it

    def table(self, table: str) -> tuple[str, TableSchema]:
        """What the lake calls a table of the source, and the columns that it has by now."""
        name, schema = self._table_of(table)
        work = self.tables.get(name)
        if work is None or not work.alterations:
            return name, schema
        came = tuple(one.column for one in work.alterations)
        return name, replace(schema, columns=(*schema.columns, *came))

    def work(self, table: str) -> TableWork:
        return self.tables.setdefault(table, TableWork(table))

    def add(self, table: str, changes: TableChanges) -> None:
        """Take changes; where there are many, those that came first go to storage."""
        work = self.work(table)
        work.collected.add(changes)
        work.puts += changes.puts.num_rows
        work.removes += changes.removes.num_rows
        self.rows += len(changes)
        self.size_bytes += changes.size_bytes
        if sum(one.collected.size_bytes for one in self.tables.values()) > self._spill_bytes:
            self.spill()

    def alter(self, table: str, alteration: AddColumn) -> None:
        """A column comes before what follows; rows from before have NULL in it."""
        work = self.work(table)
        work.alterations.append(alteration)
        if work.collected:
            keyed = bool(self._table_of(table)[1].key)
            work.collected.widen(alteration.column, keyed=keyed)
        if work.spool is not None:
            work.spool.alter(alteration)

    def undo(self, part: int) -> None:
        """What a subtransaction did is undone."""
        self.undone.add(part)

    def unknown(self, table: str) -> Unknown | None:
        """Who is told of keys of a table whose rows are left out."""
        told = self._unknown
        return None if told is None else lambda keys: told(self, table, keys)

    def spill(self) -> None:
        """Write what is in memory to storage."""
        for work in self.tables.values():
            if work.collected:
                if work.spool is None:
                    work.spool = Spool(
                        self._store,
                        self._branch,
                        work.name,
                        work.alterations,
                        self.unknown(work.name),
                    )
                work.spool.add(work.collected.joined(), self.undone)
                work.collected = Collected()

    @property
    def is_empty(self) -> bool:
        """Whether publishing it would change nothing but the position."""
        return not self.entries and not any(
            work.collected or work.alterations or work.spool for work in self.tables.values()
        )

    def forget(self, table: str) -> None:
        """Give up what it does to one table."""
        work = self.tables.pop(table, None)
        if work is not None and work.spool is not None:
            work.spool.drop()

    def drop(self) -> None:
        """Give it up."""
        for work in self.tables.values():
            if work.spool is not None:
                work.spool.drop()
        self.tables.clear()


def removes_of(schema: TableSchema) -> pa.Table:
    """No removes of a table, in the columns that tell them: its key, or all of them."""
    return schema.arrow.empty_table().select(list(schema.key or schema.arrow.names))


def _as_table(rows: Any, schema: pa.Schema) -> pa.Table:
    """Rows as the columns that they have of a schema."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        names = [name for name in schema.names if name in rows.column_names]
        fields = [schema.field(name) for name in names]
        return rows.select(names).cast(pa.schema(fields))
    if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
        given = {name for row in rows for name in row}
        fields = [field for field in schema if field.name in given]
        return pa.Table.from_pylist(list(rows), pa.schema(fields))
    raise InvalidOption(
        f"Rows of a source are Arrow tables, record batches or lists of dicts, not "
        f"{type(rows).__name__}."
    )


def _none(kind: Any = np.uint32) -> Any:
    return np.zeros(0, kind)
