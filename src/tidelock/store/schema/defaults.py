"""Where the values of defaults come from: one moment for a transaction, and one answer of Spark.

Owns: the values of defaults within one transaction. Constants and moments need no engine; an
expression that Spark has to compute is asked for once, and stays what it was until the end.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.time.zones import UTC
from tidelock.store.engine import Engine
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults

if TYPE_CHECKING:
    from tidelock.model.schema.defaults import Default


class DefaultValues:
    """The values of defaults in one transaction."""

    def __init__(self, engine: Engine, now: Callable[[], datetime]) -> None:
        self._engine = engine
        self._now = now
        self._known: dict[tuple[str, pa.DataType], pa.Array | None] = {}

    @cached_property
    def moment(self) -> datetime:
        """When the transaction first asked for the time."""
        return self._now()

    @cached_property
    def _zone(self) -> str:
        return self._engine.zone

    def of(self, schema: TableSchema, table: str) -> Defaults:
        """What rows of a table get that do not name a column."""
        if not schema.defaulted:
            return NO_DEFAULTS
        return Defaults({one.name: self._value(one, table) for one in schema.defaulted})

    def sql(self, column: Column) -> str:
        """The default of a column as SQL, with the moment of the transaction in it; NULL where it
        has none."""
        if column.default is None:
            return "NULL"
        from tidelock.model.schema.defaults import at_moment

        return f"({at_moment(column.default, self.moment, self._zone)})"

    def check(self, schema: TableSchema, table: str) -> None:
        """Raise if a default of the schema cannot be one."""
        self.of(schema, table)

    def _value(self, column: Column, table: str) -> pa.Array | None:
        assert column.default is not None
        place = (column.default, column.type)
        if place not in self._known:
            self._known[place] = self._computed(column, table)
        return self._known[place]

    def _computed(self, column: Column, table: str) -> pa.Array | None:
        assert column.default is not None
        from tidelock.model.schema.defaults import moment_of, read_default

        # Asked only where it matters: a session on a server answers over the network.
        zone = self._zone if _tells_time(column) else UTC
        default = read_default(column, table, zone)
        match default.kind:
            case "uuid":
                return None
            case "constant":
                return pa.array([default.value], column.type)
            case "moment":
                return pa.array([moment_of(default, self.moment, zone)], column.type)
            case "engine":
                return self._asked(default, table)

    def _asked(self, default: Default, table: str) -> pa.Array:
        from tidelock.model.schema.defaults import at_moment
        from tidelock.store.spark.constants import ask_for_constant

        sql = at_moment(default.sql, self.moment, self._zone)
        return ask_for_constant(self._engine.get(), sql, default.column, table, self._zone)


def _tells_time(column: Column) -> bool:
    return bool(pa.types.is_temporal(column.type))
