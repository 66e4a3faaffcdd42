"""Queries over one state of the lake's tables: those of a snapshot, or what a transaction sees.

Owns: what each name of a query stands for. Tables are read with the columns and rows that the query
needs; frames beside them are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.model.arguments import check_text
from tidelock.model.history.commit import Tables
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.expressions import Filter, parse_filter
from tidelock.model.sql.expressions.constants import PythonValue
from tidelock.model.sql.expressions.syntax import NO_PARAMETERS
from tidelock.model.sql.parameters import Parameters, bind
from tidelock.store.engine import Engine
from tidelock.store.spark.kept_frames import keep_for
from tidelock.store.spark.query import TableRead, find_reads, run_query
from tidelock.store.spark.scan import ROW_ADDRESS, ROW_ID, ROW_ID_FIELDS, scan_frame
from tidelock.store.spark.sessions import Refused
from tidelock.store.table import Table

if TYPE_CHECKING:
    from tidelock.store.spark.types import DataFrame, SparkSession

_NUMBERS = (ROW_ID, ROW_ADDRESS)


@dataclass(frozen=True)
class Numbered:
    """A table that is read with the ids and addresses of its rows."""

    table: Table
    filter: str | None = None
    """Which of its rows are read, in Lance's words."""


@dataclass(frozen=True)
class QuerySources:
    """What a query may name, and where it runs. No name is among both tables and frames."""

    tables: Tables
    table: Callable[[str], Table]
    engine: Engine
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    """Relations that are no tables of the lake."""
    numbered: Mapping[str, Numbered] = field(default_factory=dict)
    """Tables under names of Tidelock's own."""
    session: SparkSession | None = None
    """In the place of the engine's, where frames are of another one."""

    def running(self) -> SparkSession:
        return self.engine.get() if self.session is None else self.session


def query_text(query: str, sources: QuerySources, params: Parameters) -> DataFrame:
    """Run a query as a user gives it, with the values of its parameters."""
    bound = bind(check_text(query, "A query"), params)
    return query_tables(bound.text, sources, bound.values)


def query_tables(
    query: str,
    sources: QuerySources,
    values: Mapping[str, PythonValue] = NO_PARAMETERS,
    refused: Refused | None = None,
) -> DataFrame:
    """Run a query, whose parameters have these values. `refused` makes the error if the engine
    refuses the text; without it, the error is about the query as it was given."""
    zone = sources.engine.zone
    plan = find_reads(
        query,
        _Schemas(sources),
        lambda sql, schema: parse_filter(sql, schema, zone=zone, parameters=values).lance,
    )
    session = sources.running()
    frames: dict[str, DataFrame] = {}
    owners: list[object] = []
    for read in plan.reads:
        if read.name in sources.frames:
            frames[read.name] = sources.frames[read.name]
            continue
        numbered = sources.numbered.get(read.name)
        table = sources.table(read.name) if numbered is None else numbered.table
        filters = [read.filter, None if numbered is None else numbered.filter]
        words = " AND ".join(f"({one})" for one in filters if one) or None
        table.note(None if words is None else Filter(words, (), words, None))
        frames[read.name] = scan_frame(
            session,
            table.source(),
            columns=_columns(read),
            filter=words,
            with_row_ids=numbered is not None,
        )
        owners.append(table.owner)
    used = {name: value for name, value in values.items() if f":{name}" in query}
    return keep_for(run_query(session, plan, frames, used, refused), owners)


def _columns(read: TableRead) -> list[str] | None:
    if read.columns is None:
        return None
    return [name for name in read.columns if name not in _NUMBERS]


class _Schemas(Mapping[str, TableSchema]):
    """The schemas of all that can be named, of which only those are opened that are asked for."""

    def __init__(self, sources: QuerySources) -> None:
        self._sources = sources

    def __getitem__(self, name: str) -> TableSchema:
        sources = self._sources
        if name in sources.numbered:
            numbers = tuple(Column(one.name, one.type, one.nullable) for one in ROW_ID_FIELDS)
            return TableSchema((*sources.numbered[name].table.schema.columns, *numbers))
        if name in sources.frames:
            # Types of a frame are the engine's business: without any, no condition is read here.
            columns = sources.frames[name].columns
            return TableSchema(tuple(Column(one, pa.null()) for one in columns))
        return sources.table(name).schema

    def __iter__(self) -> Iterator[str]:
        yield from self._sources.tables
        yield from self._sources.frames
        yield from self._sources.numbered

    def __len__(self) -> int:
        return sum(1 for _ in self)
