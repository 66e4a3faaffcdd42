"""Values made into a column's type on the engine, as Spark's INSERT does it.

Owns: the types that a frame gives, and the refusal of those that a column does not take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.errors import WrongType
from tidelock.model.names import quote
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.store_assignment import always_fits, is_storable, stored
from tidelock.model.types import type_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANSI_SETTING = "spark.sql.ansi.enabled"


def is_ansi(session: SparkSession) -> bool:
    return session.conf.get(ANSI_SETTING, "true") != "false"


def arrow_types(frame: DataFrame) -> list[pa.DataType]:
    """The types of a frame's columns; every TIMESTAMP is an instant."""
    from pyspark.sql.pandas.types import to_arrow_type

    return [to_arrow_type(one.dataType, timezone="UTC") for one in frame.schema.fields]


def stored_columns(
    frame: DataFrame, schema: TableSchema, table: str, assigned: Mapping[str, str]
) -> Iterator[str]:
    """For `selectExpr`: the columns of a table from a frame that has them by name, those that were
    `assigned` made into their types."""
    given = dict(zip(frame.columns, arrow_types(frame), strict=True))
    ansi = is_ansi(frame.sparkSession)
    for column in schema.columns:
        name = quote(column.name)
        if column.name not in assigned:
            yield name
            continue
        check_storable(given[column.name], column, table, assigned[column.name], ansi=ansi)
        yield f"{stored(name, given[column.name], column.type, ansi=ansi)} AS {name}"


def check_storable(
    given: pa.DataType, column: Column, table: str, told: str, *, ansi: bool
) -> None:
    """WrongType for a type that the column does not take; `told` is what has it."""
    # Without ANSI, nobody says which field of a nested value did not fit.
    known = ansi or not pa.types.is_nested(column.type) or always_fits(given, column.type)
    if known and is_storable(given, column.type):
        return
    expected, actual = type_name(column.type), type_name(given)
    raise WrongType(
        f"Table {table!r}: {told!r} gives {actual}, which cannot be stored in column "
        f"{column.name!r} of type {expected}. Cast it explicitly.",
        table=table,
        column=column.name,
        expected=expected,
        actual=actual,
    )
