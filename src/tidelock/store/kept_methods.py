"""The part of a transaction that is about tables that are kept: stream tables, and internal ones.

Users do not change these by hand; refreshes, definitions and merges do.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from tidelock.model.schema.schema import Column, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelock.model.history.commit import TableState
    from tidelock.model.streams import StreamState
    from tidelock.store.staging.staged_table import StagedTable
    from tidelock.store.staging.staged_tables import StagedTables


class KeptMethods:
    """Tables that are kept, as a transaction stages them."""

    _tables: StagedTables
    _lock: Any

    @abstractmethod
    def _begins(self) -> bool: ...

    def stage(self, name: str) -> StagedTable:
        """A table with what is staged on it, for a refresh of stream tables."""
        with self._lock:
            self._begins()
            return self._tables.stage(name)

    def create_kept(self, name: str, schema: pa.Schema, stream: StreamState | None) -> StagedTable:
        """Create a table that is kept up to date: a stream table, or an internal one."""
        with self._lock:
            self._begins()
            declared = TableSchema(tuple(Column(f.name, f.type, f.nullable) for f in schema))
            return self._tables.create(name, declared, stream)

    def drop_kept(self, table: str | TableState) -> None:
        """Drop a table that create_kept made; or, by its state, any that the transaction began
        with, though another may have taken its name by now."""
        with self._lock:
            self._begins()
            self._tables.drop_kept(table)
