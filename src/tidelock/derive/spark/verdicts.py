"""Verdicts: what the engine says of a query before anything of it runs.

Owns: the question. It is asked over empty tables, so that it costs the same whatever a lake holds.
A query is what the engine takes it for: it refuses in its own words, and where it sees other
columns than our own reader does, our reader is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidelock.derive.spark.engine_query import local_frame
from tidelock.errors import InvalidExpression, QueryFailed, TidelockError
from tidelock.model.names import fold
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.reads import find_reads
from tidelock.store.engine import Engine
from tidelock.store.spark.query import run_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def frame_of(engine: Engine, query: str, schemas: Mapping[str, TableSchema]) -> DataFrame:
    """The query over empty tables, or QueryFailed with what the engine says against it."""
    plan = find_reads(query, schemas, lambda condition, schema: None)
    session = engine.get()
    frames = {
        read.name: local_frame(session, schemas[read.name].arrow.empty_table())
        for read in plan.reads
    }
    return run_query(session, plan, frames)


def refuse_with(doubt: TidelockError, engine_says: QueryFailed) -> TidelockError:
    """What is wrong with a query that neither we nor the engine can read."""
    message = f"{doubt.message} {engine_says.message}"
    return type(doubt)(message, **{**engine_says.evidence, **doubt.evidence})


def refuse_repeated(names: Sequence[str]) -> None:
    """Every column of a stream table has a name of its own."""
    seen: set[str] = set()
    for name in names:
        if fold(name) in seen:
            raise InvalidExpression(
                f"Two columns are named {name!r}; names are compared without regard to case. "
                "Rename one: AS name.",
                column=name,
            )
        seen.add(fold(name))
