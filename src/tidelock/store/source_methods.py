"""The part of a transaction that is for sources: rows by key, fragments, and how far was read.

A source has a ledger: a hidden table, which keeps what the source has to remember, and whose state
has the source's position. What was read and how far are published by one commit.
Invariant: a commit moves a position on from the one that its reader expects, or is not published.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidelock.model.names import check_table_name
from tidelock.store.rows.refusals import without_key

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelock.model.schema.schema import TableSchema
    from tidelock.store.lookup.wanted_keys import Positions as Places
    from tidelock.store.spark.row_hashes import Digest
    from tidelock.store.staging.staged_table import StagedTable
    from tidelock.store.staging.staged_tables import StagedTables


class SourceMethods:
    """What a source does with the tables that it feeds."""

    _tables: StagedTables
    _lock: Any

    @abstractmethod
    def _begins(self) -> bool: ...

    @abstractmethod
    def _view(self, staged: StagedTable) -> Any: ...

    @abstractmethod
    def _evolved(self, staged: StagedTable, data: Any) -> Any: ...

    @abstractmethod
    def _announce(self) -> None: ...

    def write_batch(self, table: str, frame: Any, *, upsert: bool, evolve: bool) -> Digest | None:
        """Append or upsert the rows of a Spark frame; what tells them from other rows. None if
        the operation was published before."""
        with self._lock:
            if not self._begins():
                return None
            from tidelock.store.spark.stage import stage_batch

            staged = self._tables.stage_by_hand(table)
            if upsert and not staged.schema.key:
                raise without_key(staged.name)
            frame = self._evolved(staged, frame) if evolve else frame
            self._announce()
            return stage_batch(self._view(staged), staged, frame, upsert=upsert)

    def remove_keys(self, table: str, keys: pa.Table) -> None:
        """Remove the rows that have these keys, which differ; of those that are not there, none."""
        with self._lock:
            if self._begins() and keys.num_rows:
                from tidelock.store.operations.removals import KeyRemoval

                staged = self._tables.stage(table)
                staged.add(KeyRemoval(keys.select(staged.schema.key)))

    def remove_rows(self, table: str, rows: pa.Table) -> None:
        """Remove as many rows as are given that have just these values in all columns."""
        with self._lock:
            if self._begins() and rows.num_rows:
                from tidelock.store.operations.removals import RowRemoval

                staged = self._tables.stage(table)
                staged.add(RowRemoval(rows.select(staged.schema.names)))

    def rows_of(self, table: str, keys: pa.Table) -> tuple[pa.Table, Places]:
        """The rows that have these keys, which differ, and the number of each row's key."""
        from tidelock.store.lookup.by_key import rows_of_keys

        with self._lock:
            self._begins()
            staged = self._tables.stage(table)
            with staged.files.reading(staged.state):
                return rows_of_keys(staged.current(), keys, staged.schema.names)

    def create_fed(self, name: str, schema: object, key: Sequence[str], hidden: pa.Schema) -> None:
        """Create a table that a source feeds, with columns that it keeps for itself."""
        with self._lock:
            if self._begins():
                from tidelock.model.ddl import parse_schema
                from tidelock.model.schema.schema import Column

                wanted = parse_schema(schema, list(key) or None)
                own = tuple(Column(one.name, one.type) for one in hidden)
                self._tables.create(
                    check_table_name(name), replace(wanted, columns=(*wanted.columns, *own))
                )

    def create_ledger(self, name: str, schema: TableSchema) -> None:
        """Create the hidden table of a source."""
        with self._lock:
            if self._begins():
                self._tables.create(name, schema)

    def drop_ledger(self, name: str) -> None:
        with self._lock:
            if self._begins():
                self._tables.drop(self._tables.stage(name))

    def move_position(self, ledger: str, expected: str, position: str) -> None:
        """Say how far a source was read by what this transaction holds; SourceMoved when it is
        published, unless the source was read up to `expected` just before it."""
        with self._lock:
            if self._begins():
                self._tables.stage(ledger).advance = (expected, position)

    def note_entries(self, ledger: str, entries: pa.Table) -> None:
        """Write entries of a ledger, in the place of those of the same key."""
        with self._lock:
            if self._begins() and entries.num_rows:
                from tidelock.store.staging.writes import upsert_table

                upsert_table(self._tables.stage(ledger), entries)
