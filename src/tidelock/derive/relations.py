"""Relations: the local and the large tables that one query of a refresh runs over.

A query is written over names such as `r0`, `r1`; each stands for an Arrow table of this process,
which goes to the engine with the query, or for a table of the lake, which the engine reads itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelock.errors import QueryFailed
from tidelock.store.frames import spark_schema
from tidelock.store.reading import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Query:
    """One query in the making."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._frames: list[Any] = []

    def local(self, rows: pa.Table) -> str:
        """Rows of this process; returns the name by which the query reads them."""
        session = self._engine.get()
        # Sail 0.7.2 takes the schema of a UNION ALL for another after simplifying a coalesce of
        # what cannot be NULL, and refuses its own plan.
        schema = pa.schema([field.with_nullable(True) for field in rows.schema])
        return self.frame(session.createDataFrame(rows, schema=spark_schema(schema)))

    def frame(self, frame: DataFrame) -> str:
        self._frames.append(frame)
        return f"r{len(self._frames) - 1}"

    def prepare(self, sql: str) -> DataFrame:
        """The frame of a query over the relations that were added."""
        from pyspark.errors import PySparkException

        names = ", ".join(f"r{n} AS (SELECT * FROM {{f{n}}})" for n in range(len(self._frames)))
        text = sql.replace("{", "{{").replace("}", "}}")
        text = f"WITH {names} {text}" if names else sql
        try:
            frame = self._engine.get().sql(
                text, **{f"f{n}": frame for n, frame in enumerate(self._frames)}
            )
            # Spark Connect analyses late; an error in the query belongs here.
            _ = frame.schema
        except PySparkException as error:
            raise failed(sql, error) from error
        return frame

    def run(self, sql: str) -> pa.Table:
        from pyspark.errors import PySparkException

        frame = self.prepare(sql)
        try:
            return frame.toArrow()
        except PySparkException as error:
            raise failed(sql, error) from error


def failed(sql: str, error: Exception) -> QueryFailed:
    lines = str(error).strip().splitlines()
    return QueryFailed(f"Spark could not compute it: {lines[0] if lines else error}", query=sql)
