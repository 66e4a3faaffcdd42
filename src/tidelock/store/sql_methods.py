"""The part of a transaction that is about SQL: queries, and statements that change tables.

What reads and runs them is imported when it is first asked for: most transactions need none of it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from tidelock.errors import TableNotFound
from tidelock.store.parts import Parts

if TYPE_CHECKING:
    from tidelock.model.ddl.statements import Statement
    from tidelock.model.listing import Listing
    from tidelock.model.sql.parameters import Parameters
    from tidelock.store.schema.defaults import DefaultValues
    from tidelock.store.spark.types import DataFrame
    from tidelock.store.staging.read_set import ReadSet
    from tidelock.store.staging.staged_table import StagedTable
    from tidelock.store.staging.staged_tables import StagedTables
    from tidelock.store.statements.reports import StatementReport
    from tidelock.store.table import Table


class SqlMethods:
    """SQL over what a transaction sees."""

    _store: Parts
    _tables: StagedTables
    _reads: ReadSet | None
    _defaults: DefaultValues
    _lock: Any

    @abstractmethod
    def table(self, name: str) -> Table: ...

    @abstractmethod
    def declare(self, statement: Statement) -> None: ...

    @abstractmethod
    def _begins(self) -> bool: ...

    @abstractmethod
    def _view(self, staged: StagedTable) -> Table: ...

    @abstractmethod
    def _announce(self) -> None: ...

    def sql(self, query: str, params: Parameters = None) -> DataFrame:
        """Run a Spark SQL query over what this transaction sees.

        `params` are the values of its parameters: a mapping for `:name`, a list for `?`.
        """
        from tidelock.store.queries import QuerySources, query_text

        self._store.refuse_unusable()
        sources = QuerySources(self._tables.tables(), self.table, self._store.engine)
        try:
            return query_text(query, sources, params)
        except TableNotFound as error:
            self._note_missing(error)
            raise

    def execute(
        self, sql: str, params: Parameters = None, **relations: Any
    ) -> Listing[StatementReport]:
        """Execute statements of SQL that change tables, separated by semicolons: all, or none.

        They see what this transaction sees, what the statements before them did included. `params`
        are the values of parameters: a mapping for `:name`, a list for `?`. `relations` are rows
        that the statements read as tables by their keywords: Spark DataFrames, Arrow tables, lists
        of dicts, pandas or polars frames. Returns what each statement did.
        """
        from tidelock.store.statements.desk import Desk
        from tidelock.store.statements.execution import execute, nothing_done, read_text
        from tidelock.store.statements.relations import Relations

        with self._lock:
            text = read_text(sql, params)
            engine = self._store.engine
            given = Relations(relations, engine.get)
            if not self._begins():
                return nothing_done(text)
            desk = Desk(
                self._tables,
                engine,
                self._view,
                self.table,
                self.declare,
                self._defaults.sql,
                self._announce,
                given,
                text.values,
            )
            try:
                return execute(desk, text)
            except TableNotFound as error:
                self._note_missing(error)
                raise

    def _note_missing(self, error: TableNotFound) -> None:
        """That a table is not there is something that was read."""
        if self._reads is not None:
            self._reads.note_name(error.table)
