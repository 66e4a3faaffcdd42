"""Snapshots: the complete set of pins at one commit.

Invariant: everything read through one snapshot is of one commit, whatever is published meanwhile.
While a snapshot object is alive, garbage collection keeps its pins.

What reads rows is imported when a table is asked for: a snapshot tells which tables there are, and
how many rows they have, from the log alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tidelock.model.history.commit import BranchRef, Tables, TableState, commit_id
from tidelock.model.listing import Listing
from tidelock.model.names import is_hidden
from tidelock.store.parts import Parts

if TYPE_CHECKING:
    from tidelock.store.rules.listing import RuleInfo
    from tidelock.store.spark.types import DataFrame
    from tidelock.store.table import Table


class Snapshot:
    """One state of the lake."""

    def __init__(
        self,
        store: Parts,
        branch: BranchRef,
        version: int,
        tables: Tables,
        time: datetime | None,
    ) -> None:
        self._store = store
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
        self._store.refuse_unusable()
        states = sorted(self._tables.states(), key=lambda state: state.name)
        return list_tables([state for state in states if not is_hidden(state.name)])

    def states(self) -> Tables:
        return self._tables

    def table(self, name: str) -> Table:
        from tidelock.store.table import Table

        state = self._tables[name]
        files = self._store.files
        return Table(files, self._store.engine, state, files.read(state), self)

    def rules(self, table: str) -> Listing[RuleInfo]:
        """What must hold of the rows of a table: its key, NOT NULL, and its other rules."""
        from tidelock.store.rules.listing import list_rules

        self._store.refuse_unusable()
        return list_rules(self._store.files, self._tables, table)

    def sql(self, query: str, params: Mapping[str, Any] | Sequence[Any] | None = None) -> DataFrame:
        """Run a Spark SQL query over this snapshot, and over nothing else.

        `params` are the values of its parameters: a mapping for `:name`, a list for `?`.
        """
        from tidelock.store.queries import QuerySources, query_text

        self._store.refuse_unusable()
        return query_text(query, QuerySources(self._tables, self.table, self._store.engine), params)

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
            "changed in": lambda s: f"version {s.changed}",
        },
    )
