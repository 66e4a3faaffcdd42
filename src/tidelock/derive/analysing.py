"""Types: what the engine says the columns of a stage are.

Owns: the questions that are asked of the engine when a view is created or first refreshed in a
process. They run over empty tables and compute nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.derive.heads import (
    bag_rows,
    group_rows,
    has_signs,
    operator_sql,
    partition_rows,
    summed,
)
from tidelock.derive.layouts import Layout, is_exact, lay_out
from tidelock.derive.relations import Query
from tidelock.derive.sql.operators import Aggregate, scans
from tidelock.derive.stages import EXTREMES, Bag, Groups, Stage, recomputing
from tidelock.derive.weighted import WEIGHT, body_sql
from tidelock.model.ddl import read_columns
from tidelock.model.names import is_hidden, quote
from tidelock.model.schema import table_schema
from tidelock.store.reading import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Schemas = Callable[[str], pa.Schema]
"""The columns of a table, or of another stage's table, by the name that a scan gives it."""


@dataclass(frozen=True)
class Kept:
    """A stage that can be run: its layout, the types of its body, and the schema of its table."""

    stage: Stage
    layout: Layout
    types: dict[str, str]
    schema: pa.Schema


def analyse(engine: Engine, stage: Stage, names: tuple[str, ...], schemas: Schemas) -> Kept:
    """What a stage's table looks like; `names` are the columns that it shows."""
    body, query = _empty(engine, stage, schemas)
    types = dict(query.prepare(body).dtypes)
    results: dict[str, str] = {}
    if isinstance(stage.head, Groups):
        results = _arguments(query, stage.head, body)
        exact = all(is_exact(measure, results) for measure in stage.head.measures)
        extremes = any(measure.function in EXTREMES for measure in stage.head.measures)
        # The least of rows of which others are taken away is not known from either.
        if not exact or (extremes and has_signs(stage)):
            stage = recomputing(stage)
    layout = lay_out(stage, names, {**types, **_results(query, stage, body)}, results)
    if isinstance(stage.head, Bag):
        rows = bag_rows(layout, body)
    elif isinstance(stage.head, Groups):
        rows = group_rows(layout, summed(stage, layout, body))
    else:
        rows = partition_rows(stage, layout, body)
    return Kept(stage, layout, types, kept_schema(query.prepare(rows)))


def is_comparable(kept: Kept) -> bool:
    """Whether the rows of a stage's body can be told apart where that is needed."""
    told = isinstance(kept.stage.head, Bag) or has_signs(kept.stage)
    return not told or not any("map<" in kind for kind in kept.types.values())


def kept_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a table that holds the rows of a frame."""
    columns = read_columns(frame.schema)
    shown = table_schema(column for column in columns if not is_hidden(column.name)).columns
    hidden = [column for column in columns if is_hidden(column.name)]
    return pa.schema([pa.field(column.name, column.type) for column in (*shown, *hidden)])


def _empty(engine: Engine, stage: Stage, schemas: Schemas) -> tuple[str, Query]:
    query = Query(engine)
    relations = {}
    for leaf, scan in enumerate(scans(stage.body)):
        whole = schemas(scan.table)
        columns = [column for _, column in scan.columns]
        rows = pa.schema([whole.field(column) for column in columns]).empty_table()
        rows = rows.append_column(WEIGHT, pa.array([], pa.int64()))
        relations[leaf] = query.local(rows)
    return body_sql(stage.body, relations), query


def _arguments(query: Query, groups: Groups, body: str) -> dict[str, str]:
    given = {m.name: m.argument for m in groups.measures if m.argument is not None}
    if not given:
        return {}
    listed = ", ".join(f"{sql} AS {quote(name)}" for name, sql in given.items())
    return dict(query.prepare(f"SELECT {listed} FROM ({body})").dtypes)


def _results(query: Query, stage: Stage, body: str) -> dict[str, str]:
    """The types of what the head gives."""
    if isinstance(stage.head, Bag):
        return {}
    if isinstance(stage.head, Groups):
        operator = Aggregate(stage.body, stage.head.groups, stage.head.measures)
        return dict(query.prepare(operator_sql(operator, body)).dtypes)
    return dict(query.prepare(operator_sql(stage.head.operator, body)).dtypes)
