"""Asking Spark for the value of an expression over no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from tidelock.errors import WrongType
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.types import spell_type, type_name
from tidelock.store.rows.inputs import read_input
from tidelock.store.spark.sessions import could_not, engine_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ask_for_constant(
    session: SparkSession, sql: str, column: Column, table: str, zone: str
) -> pa.Array:
    """The value of a column's default, as an array of one."""
    from pyspark.sql.pandas.types import to_arrow_schema

    doing = f"could not compute the default of column {column.name!r} of table {table!r}"
    with engine_errors(session, could_not(doing, table=table, column=column.name)):
        frame = session.sql(f"SELECT ({sql}) AS v")
        # An empty array or map is of elements that have no type, and Arrow none for them.
        typed = "void" not in frame.schema[0].dataType.simpleString()
        actual = to_arrow_schema(frame.schema, timezone="UTC").field(0).type if typed else None
        if actual is not None and not _is_storable(actual, column.type):
            raise WrongType(
                f"The default of column {column.name!r} of table {table!r}, {column.default!r}, "
                f"is of type {type_name(actual)} and does not fit {type_name(column.type)}. Write "
                "a CAST.",
                table=table,
                column=column.name,
                expected=type_name(column.type),
                actual=type_name(actual),
            )
        kind = spell_type(column.type, for_spark=True)
        answer = frame.selectExpr(f"CAST(v AS {kind}) AS v").toArrow()
    schema = TableSchema((Column("v", column.type),))
    given = read_input(answer, schema, table, zone).table
    assert given is not None
    return given.column(0).combine_chunks()


def _is_storable(given: pa.DataType, column: pa.DataType) -> bool:
    """Whether values of one type are taken for another, if they fit."""
    kinds = pa.types
    if kinds.is_null(given):
        return True
    if kinds.is_nested(column):
        return spell_type(given, for_spark=True) == spell_type(column, for_spark=True)
    return _family(given) == _family(column)


def _family(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "time"
    return type_name(kind)
