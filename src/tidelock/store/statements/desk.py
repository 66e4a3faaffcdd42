"""What a statement works with: the tables of its transaction, what was given with its text, and the
engine, which is started when something is first asked of it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelock.model.ddl.statements import Statement
from tidelock.model.names import HIDDEN
from tidelock.model.sql.expressions import Assignment, Filter, parse_assignment, parse_filter
from tidelock.model.sql.expressions.constants import PythonValue
from tidelock.store.engine import Engine
from tidelock.store.queries import Numbered, QuerySources, query_tables
from tidelock.store.spark.sessions import Refused
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.staged_tables import StagedTables
from tidelock.store.statements.defaults import DefaultOf
from tidelock.store.statements.relations import Relations
from tidelock.store.table import Table

if TYPE_CHECKING:
    from tidelock.store.spark.types import DataFrame

TARGET = f"{HIDDEN}target"
"""By this name a query reads the table that its statement changes, with the ids of its rows."""


@dataclass(frozen=True)
class Desk:
    tables: StagedTables
    engine: Engine
    view: Callable[[StagedTable], Table]
    """A staged table as its transaction sees it."""
    table: Callable[[str], Table]
    declare: Callable[[Statement], None]
    """Stages what declares tables."""
    default: DefaultOf
    """The default of a column, at the moment of the transaction."""
    announce: Callable[[], None]
    """Says that work begins which may take long."""
    relations: Relations
    values: Mapping[str, PythonValue]
    """Of all parameters of the text."""

    def stage(self, name: str) -> StagedTable:
        """The table that a statement changes."""
        self.refuse_clash()
        return self.tables.stage_by_hand(name)

    def refuse_clash(self) -> None:
        """InvalidOption for a relation that would hide a table."""
        self.relations.refuse_clash(lambda one: self.tables.find(one) is not None)

    def query(
        self,
        text: str,
        refused: Refused | None = None,
        *,
        target: Numbered | None = None,
        frames: Mapping[str, DataFrame] | None = None,
    ) -> DataFrame:
        """The rows of a query over what the transaction sees, and over the relations."""
        sources = QuerySources(
            self.tables.tables(),
            self.table,
            self.engine,
            ChainMap(dict(frames or {}), self.relations),  # type: ignore[arg-type]
            {} if target is None else {TARGET: target},
            self.relations.session,
        )
        return query_tables(text, sources, self.values, refused)

    def condition(self, text: str, view: Table, alias: str) -> Filter:
        return parse_filter(
            text,
            view.schema,
            zone=self.engine.zone,
            table_name=alias,
            parameters=self.values,
        )

    def assignment(self, column: str, text: str, view: Table, alias: str) -> Assignment:
        return parse_assignment(
            column,
            text,
            view.schema,
            zone=self.engine.zone,
            table_name=alias,
            parameters=self.values,
        )
