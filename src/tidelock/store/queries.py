"""Queries over the tables of a snapshot or of a transaction, and over nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tidelock.model.arguments import check_text
from tidelock.model.commit import Tables
from tidelock.model.schema import TableSchema
from tidelock.model.sql.expressions import Filter, parse_filter
from tidelock.store.engine import Engine
from tidelock.store.spark.kept_frames import keep_for
from tidelock.store.spark.query import find_reads, run_query
from tidelock.store.spark.scan import scan_frame
from tidelock.store.table import Table

if TYPE_CHECKING:
    from tidelock.store.spark.types import DataFrame


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
    for one in plan.reads:
        words = one.filter
        read[one.name].note(None if words is None else Filter(words, (), words, None))
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
