"""Views that can be run: a definition, the segments that keep it, and their tables.

Owns: from the text of a query to segments with their columns. Nothing here reads rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.derive.algebra.core import lower
from tidelock.derive.plan.column_types import (
    Kept,
    analyse,
    column_types,
    is_comparable,
    kept_schema,
)
from tidelock.derive.plan.segments import INTERNAL, cut
from tidelock.derive.plan.state_columns import HASH, hash_sql
from tidelock.derive.sight import columns_read
from tidelock.derive.spark.verdicts import frame_of, refuse_repeated, refuse_with
from tidelock.derive.sql.query import read_view
from tidelock.derive.sql.view import Obstacle, View
from tidelock.errors import InvalidSchema, QueryFailed, UnsupportedType
from tidelock.model.names import internal_name as internal_name
from tidelock.model.names import is_hidden, quote
from tidelock.model.names import kept_for as kept_for
from tidelock.model.schema.schema import TableSchema
from tidelock.model.streams import Definition
from tidelock.model.types import spell_type
from tidelock.store.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class ViewPlan:
    """A view with the segments that keep it; without segments it can only be computed anew."""

    definition: Definition
    view: View
    kept: tuple[Kept, ...]
    schema: pa.Schema
    """The columns of the view's table, those that are not shown included."""
    schemas: Mapping[str, TableSchema]
    """The inputs, as they were when this was planned."""
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The columns of each input that the rows depend on."""

    @property
    def incremental(self) -> bool:
        return bool(self.kept)

    @property
    def internal(self) -> tuple[Kept, ...]:
        return self.kept[:-1]

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.view.tables


def plan_view(
    engine: Engine,
    definition: Definition,
    schemas: Mapping[str, TableSchema],
) -> ViewPlan:
    """Plan a view over tables with these schemas."""
    view = read_view(definition.query, schemas)
    seen = {name: schemas[name] for name in view.tables}
    try:
        frame = frame_of(engine, definition.query, seen)
    except QueryFailed as error:
        if view.doubt is None:
            raise
        raise refuse_with(view.doubt, error) from error
    refuse_repeated(frame.columns)
    schema = kept_schema(whole(frame))
    kept: tuple[Kept, ...] = ()
    if not view.obstacles and definition.refresh_mode != "full":
        try:
            kept = _keep(engine, view, schemas)
            _compare(kept[-1].schema, schema)
            schema = kept[-1].schema
        except Unkept as error:
            obstacle = Obstacle(str(error), definition.query, 1, 1)
            view, kept = replace(view, root=None, columns=(), obstacles=(obstacle,)), ()
    reads = columns_read(view, definition.query, seen)
    return ViewPlan(definition, view, kept, schema, seen, reads)


class Unkept(Exception):
    """Not an error: says why segments that were planned cannot keep a view."""


def _keep(engine: Engine, view: View, schemas: Mapping[str, TableSchema]) -> tuple[Kept, ...]:
    assert view.root is not None
    segments = cut(lower(view.root))
    shown = tuple(name for name, _ in view.columns)
    made: dict[str, pa.Schema] = {}

    def schema_of(table: str) -> pa.Schema:
        return made[table] if table.startswith(INTERNAL) else schemas[table].arrow

    kept = []
    for segment in segments:
        last = segment is segments[-1]
        try:
            one = analyse(engine, segment, shown if last else segment.output, schema_of)
        except QueryFailed as error:
            # The query itself the engine has accepted.
            raise Unkept(f"what keeping it by delta takes is refused: {error.message}") from error
        except (UnsupportedType, InvalidSchema) as error:
            # What the view itself shows was found to be fine.
            raise Unkept("a part of it has a column that no table can hold") from error
        made[f"{INTERNAL}{segment.number}"] = one.schema
        kept.append(one)
        if not is_comparable(one):
            raise Unkept("rows with a MAP cannot be compared, so that their changes cannot be told")
    return tuple(kept)


def _compare(kept: pa.Schema, asked: pa.Schema) -> None:
    """Unkept if the columns that are kept are not those that the engine says the query gives."""
    ours, theirs = _shown(kept), _shown(asked)
    if ours != theirs:
        raise Unkept(
            "it is read otherwise than the engine reads it: "
            f"{', '.join(ours)} instead of {', '.join(theirs)}"
        )


def _shown(schema: pa.Schema) -> list[str]:
    """The columns without regard to where they say that NULL is possible."""
    return [
        f"{field.name} {spell_type(field.type, for_spark=True)}"
        for field in schema
        if not is_hidden(field.name)
    ]


def whole(frame: DataFrame) -> DataFrame:
    """The rows of a view's table from those of its query."""
    hashed = hash_sql(column_types(frame))
    return frame.selectExpr(*map(quote, frame.columns), f"{hashed} AS {quote(HASH)}")
