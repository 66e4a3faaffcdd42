"""Relations: the local and the large tables that one query of a refresh runs over.

A query is written over names such as `r0`, `r1`; each stands for an Arrow table of this process,
which goes to the engine with the query, or for a table of the lake, which the engine reads itself.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary, ref

import pyarrow as pa

from tidelock.derive.spark.batches import Batches
from tidelock.errors import QueryFailed
from tidelock.store.engine import Engine
from tidelock.store.spark.scan import spark_schema
from tidelock.store.spark.sessions import engine_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Where in the generated text: it says nothing to the author of the query.
_PLACE = re.compile(r"; line \d+,? pos \d+;?$")
SMALL_ROWS = 20_000
"""Queries over this many local rows or fewer take longer to plan than to run."""


class EngineQuery:
    """Owns the relations of one query: tables of this process and frames of the lake, by the names
    that its SQL reads them by."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._relations: list[pa.Table | DataFrame] = []

    def local(self, rows: pa.Table) -> str:
        """Rows of this process; returns the name by which the query reads them."""
        # Rows of no columns are none to Sail.
        counted = (
            rows if rows.num_columns else pa.table({"row": pa.nulls(rows.num_rows, pa.bool_())})
        )
        return self._add(counted)

    def frame(self, frame: DataFrame) -> str:
        return self._add(frame)

    def _add(self, relation: pa.Table | DataFrame) -> str:
        self._relations.append(relation)
        return f"r{len(self._relations) - 1}"

    def prepare(self, sql: str) -> DataFrame:
        """The frame of a query over the relations that were added."""
        session = self._engine.get()
        with _told(session, sql):
            frames = {
                f"f{n}": local_frame(session, one) if isinstance(one, pa.Table) else one
                for n, one in enumerate(self._relations)
            }
            names = [f"r{n} AS (SELECT * FROM {{f{n}}})" for n in range(len(frames))]
            return _sql(session, names, sql, frames)

    def run(self, sql: str) -> pa.Table:
        """The rows of a query over the relations that were added."""
        tables = self._few_rows()
        small = None if tables is None else self._engine.small()
        if tables is None or small is None:
            frame = self.prepare(sql)
            with _told(frame.sparkSession, sql):
                return frame.toArrow()
        with _told(small, sql):
            return _batches(small).answer((sql, tables))

    def _few_rows(self) -> list[pa.Table] | None:
        """The relations, if they are a few local rows and nothing else."""
        tables = [one for one in self._relations if isinstance(one, pa.Table)]
        few = sum(rows.num_rows for rows in tables) <= SMALL_ROWS
        return tables if few and tables and len(tables) == len(self._relations) else None


@contextmanager
def asking(engine: Engine) -> Iterator[None]:
    """Around work that leads to queries, side by side with other such work."""
    small = engine.small()
    if small is None:
        yield
        return
    with _batches(small).taking_part():
        yield


Small: TypeAlias = tuple[str, list[pa.Table]]
"""A query over `r0`, `r1`, …, and these tables."""

_known: WeakKeyDictionary[SparkSession, Batches[Small, pa.Table]] = WeakKeyDictionary()
_knowing = threading.Lock()


def _batches(session: SparkSession) -> Batches[Small, pa.Table]:
    """The batches of small queries of a session, which is kept alive by its engine alone."""
    with _knowing:
        found = _known.get(session)
        if found is None:
            known = ref(session)
            found = _known[session] = Batches(lambda queries: _ask(known, queries))
        return found


def _ask(known: ref[SparkSession], queries: Sequence[Small]) -> list[pa.Table]:
    """Run small queries, several as one: each becomes a list of rows in the only row."""
    session = known()
    assert session is not None, "who asks holds the session"
    packed = local_frame(session, _pack([tables for _, tables in queries]))
    names = ["packed AS (SELECT /*+ COALESCE(1) */ * FROM {packed})"]
    if len(queries) == 1:
        ((sql, tables),) = queries
        names += _unpacked(0, tables)
        return [_sql(session, names, sql, {"packed": packed}).toArrow()]
    parts = []
    for number, (sql, tables) in enumerate(queries):
        whole = f"WITH {', '.join(_unpacked(number, tables))} {sql}"
        parts.append(f"(SELECT collect_list(struct(*)) AS a{number} FROM ({whole}))")
    sql = f"SELECT * FROM {' CROSS JOIN '.join(parts)}"
    answers = _sql(session, names, sql, {"packed": packed}).toArrow()
    return [pa.Table.from_struct_array(column.chunk(0).values) for column in answers.columns]


def _unpacked(number: int, tables: Sequence[pa.Table]) -> list[str]:
    return [f"r{n} AS (SELECT inline(q{number}r{n}) FROM packed)" for n in range(len(tables))]


def _pack(lists: Sequence[Sequence[pa.Table]]) -> pa.Table:
    """All tables in one row, each as a list of its rows: handing over one table costs as much as
    handing over the rows of all."""
    packed = {}
    for number, tables in enumerate(lists):
        for position, rows in enumerate(tables):
            fields = [field.with_nullable(True) for field in rows.schema]
            columns = [column.combine_chunks() for column in rows.columns]
            values = pa.StructArray.from_arrays(columns, fields=fields)
            ends = pa.array([0, rows.num_rows], pa.int32())
            packed[f"q{number}r{position}"] = pa.ListArray.from_arrays(ends, values)
    return pa.table(packed)


def _sql(
    session: SparkSession, names: Sequence[str], sql: str, frames: Mapping[str, Any]
) -> DataFrame:
    text = sql.replace("{", "{{").replace("}", "}}")
    frame = session.sql(f"WITH {', '.join(names)} {text}" if names else sql, **frames)
    # Spark Connect analyses late; an error in the query belongs here.
    _ = frame.schema
    return frame


def _told(session: SparkSession, sql: str) -> AbstractContextManager[None]:
    def refused(engine: str, words: str) -> QueryFailed:
        told = _PLACE.sub("", words)
        return QueryFailed(f"{engine} could not compute it: {told}", query=sql)

    return engine_errors(session, refused)


def local_frame(session: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows of this process as a frame."""
    # Sail 0.7.2 takes the schema of a UNION ALL for another after simplifying a coalesce of what
    # cannot be NULL, and refuses its own plan.
    schema = pa.schema([field.with_nullable(True) for field in rows.schema])
    return session.createDataFrame(rows, schema=spark_schema(schema))
