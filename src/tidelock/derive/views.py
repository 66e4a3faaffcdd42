"""Views that can be run: a definition, the stages that keep it, and their tables.

Owns: from the text of a query to stages with layouts. Nothing here reads rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.derive.analysing import Kept, analyse, column_types, is_comparable, kept_schema
from tidelock.derive.layouts import HASH, hash_sql
from tidelock.derive.sql.lowering import lower
from tidelock.derive.sql.parsing import parse_view
from tidelock.derive.sql.view import Obstacle, View
from tidelock.derive.stages import INTERNAL, cut
from tidelock.errors import QueryFailed
from tidelock.model.names import HIDDEN, quote
from tidelock.model.schema import TableSchema
from tidelock.model.streams import Definition
from tidelock.store.reading import Engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Prepared:
    """A view with the stages that keep it; without stages it can only be computed anew."""

    definition: Definition
    view: View
    kept: tuple[Kept, ...]
    schema: pa.Schema
    """The columns of the view's table, those that are not shown included."""
    schemas: Mapping[str, TableSchema]
    """The sources, as they were when this was planned."""

    @property
    def incremental(self) -> bool:
        return bool(self.kept)

    @property
    def internal(self) -> tuple[Kept, ...]:
        return self.kept[:-1]

    @property
    def sources(self) -> tuple[str, ...]:
        return self.view.tables


def internal_name(table_id: str, number: int) -> str:
    """What the table of an inner stage is called."""
    return f"{HIDDEN}{table_id}_{number}"


def prepare(
    engine: Engine,
    definition: Definition,
    schemas: Mapping[str, TableSchema],
    run: Callable[[str], DataFrame],
) -> Prepared:
    """Plan a view over tables with these schemas. `run` gives the frame of a query over them."""
    view = parse_view(definition.query, schemas)
    seen = {name: schemas[name] for name in view.tables}
    shown = tuple(name for name, _ in view.columns)
    if view.root is None or view.obstacles or definition.refresh_mode == "full":
        schema = kept_schema(whole(run(definition.query)))
        return Prepared(definition, view, (), schema, seen)
    stages = cut(lower(view.root))
    made: dict[str, pa.Schema] = {}

    def schema_of(table: str) -> pa.Schema:
        return made[table] if table.startswith(INTERNAL) else schemas[table].arrow

    kept = []
    for stage in stages:
        last = stage is stages[-1]
        try:
            one = analyse(engine, stage, shown if last else stage.output, schema_of)
        except QueryFailed:
            # Asked of the query as it was written, Spark says the same in the words of the user.
            run(definition.query)
            raise
        made[f"{INTERNAL}{stage.number}"] = one.schema
        kept.append(one)
        if not is_comparable(one):
            reason = "rows with a MAP cannot be compared, so that their changes cannot be told"
            obstacle = Obstacle(reason, definition.query, 1, 1)
            view = replace(view, obstacles=(obstacle,))
            schema = kept_schema(whole(run(definition.query)))
            return Prepared(definition, view, (), schema, seen)
    return Prepared(definition, view, tuple(kept), kept[-1].schema, seen)


def whole(frame: DataFrame) -> DataFrame:
    """The rows of a view's table from those of its query."""
    hashed = hash_sql(column_types(frame))
    return frame.selectExpr(*map(quote, frame.columns), f"{hashed} AS {quote(HASH)}")
