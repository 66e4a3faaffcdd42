"""Snapshots: the complete set of pins at one commit.

Invariant: everything read through one snapshot is of one commit, whatever is published meanwhile.
While a snapshot object is alive, garbage collection keeps its pins.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from tidelock.model.commit import BranchRef, Tables, TableState, commit_id
from tidelock.model.listing import Listing
from tidelock.store.reading import Engine, Table
from tidelock.store.tables import TableFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Snapshot:
    """One state of the lake."""

    def __init__(
        self,
        files: TableFiles,
        engine: Engine,
        branch: BranchRef,
        version: int,
        tables: Tables,
        time: datetime | None,
    ) -> None:
        self._files = files
        self._engine = engine
        self._branch = branch
        self._tables = tables
        self._version = version
        self._time = time

    @property
    def version(self) -> int:
        return self._version

    @property
    def branch(self) -> str:
        return self._branch.name

    @property
    def branch_id(self) -> str:
        return self._branch.id

    @property
    def commit(self) -> str | None:
        """The id of the commit that this snapshot shows; None for the empty lake."""
        home = self._branch.home_of(self.version)
        return commit_id(home, self.version) if self.version else None

    @property
    def time(self) -> datetime | None:
        return self._time

    def tables(self) -> Listing[TableState]:
        """The tables, with their row counts and keys."""
        states = sorted(self._tables.states(), key=lambda state: state.name)
        return list_tables(states)

    def states(self) -> Tables:
        return self._tables

    def table(self, name: str) -> Table:
        state = self._tables[name]
        dataset = self._files.open(state.id, state.pin)
        return Table(self._files, self._engine, state, dataset, self)

    def sql(self, query: str) -> DataFrame:
        """Run a Spark SQL query over this snapshot, and over nothing else."""
        return run_query(query, self._tables, self.table, self._engine)

    def __repr__(self) -> str:
        count = len(self._tables)
        return f"Snapshot(branch={self.branch!r}, version={self.version}, tables={count})"

    def _repr_html_(self) -> str:
        return self.tables()._repr_html_()


def list_tables(states: list[TableState]) -> Listing[TableState]:
    return Listing.of(
        "Tables",
        states,
        {
            "name": lambda s: s.name,
            "rows": lambda s: s.rows,
            "key": lambda s: s.key,
            "changed": lambda s: s.changed,
            "id": lambda s: s.id,
        },
    )


def run_query(query: str, tables: Tables, table: object, engine: Engine) -> DataFrame:
    raise NotImplementedError
