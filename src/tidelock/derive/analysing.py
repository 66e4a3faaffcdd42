"""Types: what the engine says the columns of a stage are.

Owns: the questions that are asked of the engine when a view is created or first refreshed in a
process. They run over empty tables and compute nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.derive.bodies import numbered, plain, state_body
from tidelock.derive.heads import bag_rows, group_rows, operator_sql, partition_rows, summed
from tidelock.derive.layouts import Layout, is_exact, lay_out
from tidelock.derive.relations import Query
from tidelock.derive.sql.checking import is_core
from tidelock.derive.sql.operators import (
    Aggregate,
    Core,
    Left,
    Merge,
    Operator,
    inputs,
    scans,
    with_inputs,
)
from tidelock.derive.stages import Bag, Groups, Stage, recomputing, with_body
from tidelock.derive.weighted import WEIGHT, body_sql
from tidelock.model.ddl import read_columns
from tidelock.model.names import is_hidden, quote
from tidelock.model.schema import table_schema
from tidelock.store.reading import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

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
    query, relations = _empty(engine, stage, schemas)
    stage = with_body(stage, _typed(query, stage.body, relations))
    body = body_sql(state_body(stage.body), relations)
    types = column_types(query.prepare(body))
    results: dict[str, str] = {}
    if isinstance(stage.head, Groups):
        results = _arguments(query, stage.head, body)
        exact = all(is_exact(measure, results) for measure in stage.head.measures)
        if not exact:
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
    told = isinstance(kept.stage.head, Bag)
    return not told or not any("map<" in kind for kind in kept.types.values())


def kept_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a table that holds the rows of a frame."""
    columns = read_columns(frame.schema)
    shown = table_schema(column for column in columns if not is_hidden(column.name)).columns
    hidden = [column for column in columns if is_hidden(column.name)]
    return pa.schema([pa.field(column.name, column.type) for column in (*shown, *hidden)])


def _empty(engine: Engine, stage: Stage, schemas: Schemas) -> tuple[Query, dict[int, str]]:
    query = Query(engine)
    relations = {}
    for leaf, scan in enumerate(scans(stage.body)):
        whole = schemas(scan.table)
        columns = [column for _, column in scan.columns]
        rows = pa.schema([whole.field(column) for column in columns]).empty_table()
        rows = rows.append_column(WEIGHT, pa.array([], pa.int64()))
        relations[leaf] = query.local(rows)
    return query, relations


def _typed(query: Query, body: Core, relations: Mapping[int, str]) -> Core:
    """The body with the types of those columns that a term could give another type, or none."""
    asked = [_asked(one) for one in _below_first(numbered(body)) if isinstance(one, Left | Merge)]
    found: Iterator[str] = iter(())
    if any(one.output for one in asked):
        parts = [
            f"(SELECT {', '.join(map(quote, one.output))} FROM ({body_sql(plain(one), relations)}))"
            for one in asked
            if one.output
        ]
        frame = query.prepare(f"SELECT * FROM {' CROSS JOIN '.join(parts)}")
        found = iter([spell(field.dataType) for field in frame.schema.fields])

    def typed(operator: Operator) -> Operator:
        operator = with_inputs(operator, [typed(one) for one in inputs(operator)])
        if isinstance(operator, Left | Merge):
            types = tuple(next(found) for _ in _asked(operator).output)
            return replace(operator, types=types)
        return operator

    result = typed(body)
    assert is_core(result)
    return result


def _asked(operator: Left | Merge) -> Operator:
    """Whose columns have the types: those that a row without a partner does not have, or all."""
    return operator.right if isinstance(operator, Left) else operator


def _below_first(operator: Operator) -> Iterator[Operator]:
    for one in inputs(operator):
        yield from _below_first(one)
    yield operator


def column_types(frame: DataFrame) -> dict[str, str]:
    """The types of a frame's columns, as SQL spells them."""
    return {field.name: spell(field.dataType) for field in frame.schema.fields}


def spell(kind: DataType) -> str:
    from pyspark.sql import types

    if isinstance(kind, types.ArrayType):
        return f"array<{spell(kind.elementType)}>"
    if isinstance(kind, types.MapType):
        return f"map<{spell(kind.keyType)},{spell(kind.valueType)}>"
    if isinstance(kind, types.StructType):
        fields = (f"{quote(field.name)}:{spell(field.dataType)}" for field in kind.fields)
        return f"struct<{','.join(fields)}>"
    return kind.simpleString()


def _arguments(query: Query, groups: Groups, body: str) -> dict[str, str]:
    given = {m.name: m.argument for m in groups.measures if m.argument is not None}
    if not given:
        return {}
    listed = ", ".join(f"{sql} AS {quote(name)}" for name, sql in given.items())
    return column_types(query.prepare(f"SELECT {listed} FROM ({body})"))


def _results(query: Query, stage: Stage, body: str) -> dict[str, str]:
    """The types of what the head gives."""
    if isinstance(stage.head, Bag):
        return {}
    if isinstance(stage.head, Groups):
        operator = Aggregate(stage.body, stage.head.groups, stage.head.measures)
        return column_types(query.prepare(operator_sql(operator, body)))
    return column_types(query.prepare(operator_sql(stage.head.operator, body)))
