"""Snapshots: the complete set of pins at one commit.

Invariant: everything read through one snapshot is of one commit, whatever is published meanwhile.
While a snapshot object is alive, garbage collection keeps its pins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from tidelock.model.arguments import check_text
from tidelock.model.commit import BranchRef, Tables, TableState, commit_id
from tidelock.model.listing import Listing
from tidelock.model.names import is_hidden
from tidelock.model.schema import TableSchema
from tidelock.model.sql.expressions import parse_filter
from tidelock.store.spark.kept_frames import keep_for
from tidelock.store.spark.query import find_reads, run_query
from tidelock.store.spark.scan import scan_frame
from tidelock.store.table import Engine, Table
from tidelock.store.tables.datasets import TableFiles

if TYPE_CHECKING:
    from tidelock.store.spark.types import DataFrame


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
        return list_tables([state for state in states if not is_hidden(state.name)])

    def states(self) -> Tables:
        return self._tables

    def table(self, name: str) -> Table:
        state = self._tables[name]
        dataset = self._files.read(state)
        return Table(self._files, self._engine, state, dataset, self)

    def sql(self, query: str) -> DataFrame:
        """Run a Spark SQL query over this snapshot, and over nothing else."""
        self._files.refuse_unusable()
        return query_tables(query, self._tables, self.table, self._engine)

    def __repr__(self) -> str:
        count = len(list(self._tables.shown()))
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


def query_tables(
    query: str, tables: Tables, table: Callable[[str], Table], engine: Engine
) -> DataFrame:
    """Run a query over some tables, each read with the columns and rows that it needs."""
    plan = find_reads(
        check_text(query, "A query"),
        _Schemas(tables, table),
        lambda sql, schema: parse_filter(sql, schema, zone=engine.zone).lance,
    )
    session = engine.get()
    read = {one.name: table(one.name) for one in plan.reads}
    frames = {
        one.name: scan_frame(
            session, read[one.name].source(), columns=one.columns, filter=one.filter
        )
        for one in plan.reads
    }
    return keep_for(run_query(session, plan, frames), [one.owner for one in read.values()])


class _Schemas(Mapping[str, TableSchema]):
    """The schemas of all tables, of which only those are opened that are asked for."""

    def __init__(self, tables: Tables, table: Callable[[str], Table]) -> None:
        self._tables = tables
        self._table = table

    def __getitem__(self, name: str) -> TableSchema:
        return self._table(name).schema

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)
