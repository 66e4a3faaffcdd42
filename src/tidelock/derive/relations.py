"""Relations: the local and the large tables that one query of a refresh runs over.

A query is written over names such as `r0`, `r1`; each stands for an Arrow table of this process,
which goes to the engine with the query, or for a table of the lake, which the engine reads itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelock.errors import QueryFailed
from tidelock.store.frames import spark_schema
from tidelock.store.reading import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SMALL_ROWS = 20_000
"""Queries over this many local rows or fewer take longer to plan than to run."""


class Query:
    """One query in the making."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._relations: list[pa.Table | DataFrame] = []

    def local(self, rows: pa.Table) -> str:
        """Rows of this process; returns the name by which the query reads them."""
        return self._add(rows)

    def frame(self, frame: DataFrame) -> str:
        return self._add(frame)

    def _add(self, relation: pa.Table | DataFrame) -> str:
        self._relations.append(relation)
        return f"r{len(self._relations) - 1}"

    def prepare(self, sql: str) -> DataFrame:
        """The frame of a query over the relations that were added."""
        from pyspark.errors import PySparkException

        session, names, frames = self._read()
        text = sql.replace("{", "{{").replace("}", "}}")
        text = f"WITH {', '.join(names)} {text}" if names else sql
        try:
            frame = session.sql(text, **frames)
            # Spark Connect analyses late; an error in the query belongs here.
            _ = frame.schema
        except PySparkException as error:
            raise failed(sql, error) from error
        return frame

    def _read(self) -> tuple[SparkSession, list[str], dict[str, Any]]:
        """The session, the common table expressions of all relations, and what they read."""
        small = self._small()
        if small is not None:
            packed = _frame(small, _pack(self._relations))
            names = ["packed AS (SELECT /*+ COALESCE(1) */ * FROM {packed})"]
            names += [
                f"r{n} AS (SELECT inline(r{n}) FROM packed)" for n in range(len(self._relations))
            ]
            return small, names, {"packed": packed}
        session = self._engine.get()
        frames = {
            f"f{n}": _frame(session, one) if isinstance(one, pa.Table) else one
            for n, one in enumerate(self._relations)
        }
        names = [f"r{n} AS (SELECT * FROM {{f{n}}})" for n in range(len(frames))]
        return session, names, frames

    def _small(self) -> SparkSession | None:
        """The session for few local rows, if that is all that this query is over."""
        rows = 0
        for one in self._relations:
            if not isinstance(one, pa.Table) or not one.num_columns:
                return None
            rows += one.num_rows
        return self._engine.small() if self._relations and rows <= SMALL_ROWS else None

    def run(self, sql: str) -> pa.Table:
        from pyspark.errors import PySparkException

        frame = self.prepare(sql)
        try:
            return frame.toArrow()
        except PySparkException as error:
            raise failed(sql, error) from error


def _frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    # Sail 0.7.2 takes the schema of a UNION ALL for another after simplifying a coalesce of what
    # cannot be NULL, and refuses its own plan.
    schema = pa.schema([field.with_nullable(True) for field in rows.schema])
    return session.createDataFrame(rows, schema=spark_schema(schema))


def _pack(relations: Sequence[pa.Table]) -> pa.Table:
    """All relations in one row, each as a list of its rows: handing over one costs as much as
    handing over the rows of all."""
    packed = {}
    for number, rows in enumerate(relations):
        fields = [field.with_nullable(True) for field in rows.schema]
        columns = [column.combine_chunks() for column in rows.columns]
        values = pa.StructArray.from_arrays(columns, fields=fields)
        ends = pa.array([0, rows.num_rows], pa.int32())
        packed[f"r{number}"] = pa.ListArray.from_arrays(ends, values)
    return pa.table(packed)


def failed(sql: str, error: Exception) -> QueryFailed:
    lines = str(error).strip().splitlines()
    return QueryFailed(f"Spark could not compute it: {lines[0] if lines else error}", query=sql)
