"""Types: what the engine says the columns of a segment are.

Owns: the questions that are asked of the engine when a view is created or first refreshed in a
process. They run over empty tables and compute nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.derive.algebra.laws import is_core
from tidelock.derive.algebra.operators import (
    Aggregate,
    Core,
    Left,
    Merge,
    Operator,
    inputs,
    scans,
    with_inputs,
)
from tidelock.derive.plan.aggregates import is_exact
from tidelock.derive.plan.bodies import numbered, plain, state_body
from tidelock.derive.plan.body_sql import WEIGHT, body_sql
from tidelock.derive.plan.segment_sql import (
    bag_rows,
    group_rows,
    operator_sql,
    partition_rows,
    summed,
)
from tidelock.derive.plan.segments import Bag, Groups, Segment, recomputing, with_body
from tidelock.derive.plan.state_columns import StateColumns, plan_state_columns
from tidelock.derive.spark.engine_query import EngineQuery
from tidelock.model.ddl import read_columns
from tidelock.model.names import is_hidden, quote
from tidelock.model.schema.schema import table_schema
from tidelock.store.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

Schemas = Callable[[str], pa.Schema]
"""The columns of a table, or of another segment's table, by the name that a scan gives it."""


@dataclass(frozen=True)
class Kept:
    """A segment that can be run: its columns, its body's types, and the schema of its table."""

    segment: Segment
    state_columns: StateColumns
    types: dict[str, str]
    schema: pa.Schema


def analyse(engine: Engine, segment: Segment, names: tuple[str, ...], schemas: Schemas) -> Kept:
    """What a segment's table looks like; `names` are the columns that it shows."""
    query, relations = _empty(engine, segment, schemas)
    segment = with_body(segment, _typed(query, segment.body, relations))
    body = body_sql(state_body(segment.body), relations)
    types = column_types(query.prepare(body))
    results: dict[str, str] = {}
    if isinstance(segment.content, Groups):
        results = _arguments(query, segment.content, body)
        exact = all(is_exact(measure, results) for measure in segment.content.measures)
        if not exact:
            segment = recomputing(segment)
    state_columns = plan_state_columns(
        segment, names, {**types, **_results(query, segment, body)}, results
    )
    if isinstance(segment.content, Bag):
        rows = bag_rows(state_columns, body)
    elif isinstance(segment.content, Groups):
        rows = group_rows(state_columns, summed(segment, state_columns, body))
    else:
        rows = partition_rows(segment, state_columns, body)
    return Kept(segment, state_columns, types, kept_schema(query.prepare(rows)))


def is_comparable(kept: Kept) -> bool:
    """Whether the rows of a segment's body can be told apart where that is needed."""
    told = isinstance(kept.segment.content, Bag)
    return not told or not any("map<" in kind for kind in kept.types.values())


def kept_schema(frame: DataFrame) -> pa.Schema:
    """The columns of a table that holds the rows of a frame."""
    columns = read_columns(frame.schema)
    shown = table_schema(column for column in columns if not is_hidden(column.name)).columns
    hidden = [column for column in columns if is_hidden(column.name)]
    return pa.schema([pa.field(column.name, column.type) for column in (*shown, *hidden)])


def _empty(
    engine: Engine, segment: Segment, schemas: Schemas
) -> tuple[EngineQuery, dict[int, str]]:
    query = EngineQuery(engine)
    relations = {}
    for leaf, scan in enumerate(scans(segment.body)):
        whole = schemas(scan.table)
        columns = [column for _, column in scan.columns]
        rows = pa.schema([whole.field(column) for column in columns]).empty_table()
        rows = rows.append_column(WEIGHT, pa.array([], pa.int64()))
        relations[leaf] = query.local(rows)
    return query, relations


def _typed(query: EngineQuery, body: Core, relations: Mapping[int, str]) -> Core:
    """The body with the types of those columns that a term could give another type, or none."""
    asked = [_asked(one) for one in _below_first(numbered(body)) if isinstance(one, Left | Merge)]
    types_asked: Iterator[str] = iter(())
    if any(one.output for one in asked):
        parts = [
            f"(SELECT {', '.join(map(quote, one.output))} FROM ({body_sql(plain(one), relations)}))"
            for one in asked
            if one.output
        ]
        frame = query.prepare(f"SELECT * FROM {' CROSS JOIN '.join(parts)}")
        types_asked = iter([spell(field.dataType) for field in frame.schema.fields])

    def typed(operator: Operator) -> Operator:
        operator = with_inputs(operator, [typed(one) for one in inputs(operator)])
        if isinstance(operator, Left | Merge):
            types = tuple(next(types_asked) for _ in _asked(operator).output)
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


def _arguments(query: EngineQuery, groups: Groups, body: str) -> dict[str, str]:
    given = {m.name: m.argument for m in groups.measures if m.argument is not None}
    if not given:
        return {}
    listed = ", ".join(f"{sql} AS {quote(name)}" for name, sql in given.items())
    return column_types(query.prepare(f"SELECT {listed} FROM ({body})"))


def _results(query: EngineQuery, segment: Segment, body: str) -> dict[str, str]:
    """The types of what the content gives."""
    if isinstance(segment.content, Bag):
        return {}
    if isinstance(segment.content, Groups):
        operator = Aggregate(segment.body, segment.content.groups, segment.content.measures)
        return column_types(query.prepare(operator_sql(operator, body)))
    return column_types(query.prepare(operator_sql(segment.content.operator, body)))
