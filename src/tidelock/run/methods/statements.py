"""The part of the Lake handle that is about SQL: queries, and statements that change tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelock.store.branches import MAIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelock.model.isolation import Isolation
    from tidelock.model.sql.parameters import Parameters
    from tidelock.store.statements.reports import Execution
    from tidelock.store.store import Store


class StatementMethods:
    """SQL over the newest snapshot of a branch."""

    _store: Store

    def sql(
        self,
        query: str,
        params: Parameters = None,
        *,
        branch: str = MAIN,
    ) -> DataFrame:
        """Run a Spark SQL query over the newest snapshot.

        `params` are the values of its parameters: a mapping for `:name`, a list for `?`.
        """
        return self._store.newest_snapshot(branch).sql(query, params)

    def execute(
        self,
        sql: str,
        params: Parameters = None,
        *,
        branch: str = MAIN,
        message: str = "",
        operation_id: str | None = None,
        isolation: Isolation = "snapshot",
        **relations: Any,
    ) -> Execution:
        """Execute statements that change tables, separated by semicolons, as one commit.

        INSERT, UPDATE, DELETE, MERGE and TRUNCATE, CREATE, ALTER and DROP TABLE, and COMMENT ON, as
        in Spark SQL: all of them are published, or nothing. `params` and `relations` are as for
        `Transaction.execute`. Returns the commit, and what each statement did.
        """
        from tidelock.store.statements.reports import Execution, told_reports

        with self._store.begin(
            branch, message=message, operation_id=operation_id, isolation=isolation
        ) as transaction:
            done = transaction.execute(sql, params, **relations)
            transaction.message = transaction.message or told_reports(done)
        commit = transaction.commit
        assert commit is not None
        return Execution(commit, done, transaction.repeated)
