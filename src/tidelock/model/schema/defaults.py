"""Defaults: what rows get that do not name a column.

Owns: what the text of a default means, decided when it is declared. It names no column, and is one
value for all rows of a transaction, but for uuid().

    constant   literals, and + - * over them                         computed here
    moment     current_date() current_timestamp() now() …            that of the transaction
    uuid       uuid()                                                one for each row
    engine     any other expression that is the same for all rows    computed by Spark, once

Times are those of the session's time zone. A default is of exactly its column's type: no number is
rounded, and a moment is in a DATE column its day.
"""

from __future__ import annotations

import datetime as dt
import decimal
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import pyarrow as pa
from sqlglot import exp

from tidelock.errors import ColumnNotFound, InvalidExpression, InvalidSchema, WrongType
from tidelock.model.arguments import check_text
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.calls import calls_in, depends_on
from tidelock.model.sql.expressions.arithmetic import (
    Computation,
    Constant,
    check_storable,
    compile_expression,
    compute,
)
from tidelock.model.sql.expressions.syntax import NeedsSpark, Scope, bare, parse
from tidelock.model.sql.functions import CLOCK, RANDOM
from tidelock.model.sql.trees import expression, function_name, rewrite, text_of
from tidelock.model.time.zones import UTC, instant_of, zone_of
from tidelock.model.types import TIMESTAMP, TIMESTAMP_NTZ, type_name

Kind = Literal["constant", "moment", "uuid", "engine"]

_DATES = frozenset({"current_date", "curdate"})
_LOCAL = frozenset({"localtimestamp"})
_INSTANTS = frozenset({"current_timestamp", "now"})
_MOMENTS = _DATES | _LOCAL | _INSTANTS
_OF_ROWS = frozenset(
    {"input_file_name", "input_file_block_start", "input_file_block_length", "python_worker_logs"}
)
_FOREIGN = frozenset({"java_method", "reflect", "try_reflect"})
_NO_COLUMNS = TableSchema(())


@dataclass(frozen=True)
class Default:
    """What a column's default is."""

    column: Column
    kind: Kind
    value: Any = None
    """Of a constant: a Python value of the column's type."""

    @property
    def sql(self) -> str:
        assert self.column.default is not None
        return self.column.default


@lru_cache(maxsize=1024)
def _cached(column: tuple[str, pa.DataType, str], table: str, zone: str) -> tuple[Kind, Any]:
    name, type_, sql = column
    return _read(Column(name, type_, default=sql), table, zone)


def read_default(column: Column, table: str, zone: str = UTC) -> Default:
    """The default of a column, read in a session's time zone."""
    assert column.default is not None
    check_text(column.default, "A default")
    kind, value = _cached((column.name, column.type, column.default), table, zone)
    return Default(column, kind, value)


def _read(column: Column, table: str, zone: str) -> tuple[Kind, Any]:
    sql = column.default
    assert sql is not None
    if not sql.strip():
        raise _refused(column, table, "is empty. Write an expression, or leave it out")
    syntax = _syntax(column, table, zone)
    called = _only_call(sql)
    if called == "uuid":
        if not pa.types.is_string(column.type):
            raise _misfit(column, table, "STRING")
        return "uuid", None
    if called in _MOMENTS:
        if not pa.types.is_date(column.type) and not pa.types.is_timestamp(column.type):
            raise _misfit(column, table, "DATE" if called in _DATES else "TIMESTAMP")
        return "moment", called
    _refuse_varying(column, table)
    if syntax.why_spark is not None:
        return "engine", None
    try:
        computation = compile_expression(syntax.tree, Scope(_NO_COLUMNS, None, zone), folding=True)
    except NeedsSpark:
        return "engine", None
    return _constant(column, table, computation, zone)


def _syntax(column: Column, table: str, zone: str) -> Any:
    assert column.default is not None
    try:
        return parse(column.default, Scope(_NO_COLUMNS, None, zone))
    except ColumnNotFound as error:
        raise _refused(
            column,
            table,
            f"names a column, {error.column!r}, and a default is the same for all rows. Texts "
            "stand in quotes; for a value that follows from others, give it when rows are written",
        ) from error
    except InvalidExpression as error:
        raise _refused(column, table, f"cannot be one: {error.message.rstrip('.')}") from error


def _only_call(sql: str) -> str | None:
    """The function that an expression calls, if it does nothing else and gives it nothing."""
    tree = bare(expression(sql))
    if isinstance(tree, exp.Anonymous) and not tree.expressions:
        return function_name(tree)
    if isinstance(tree, exp.Column) and len(tree.parts) == 1:
        return tree.name.lower()
    return None


def _refuse_varying(column: Column, table: str) -> None:
    assert column.default is not None
    for called in calls_in(column.default):
        if called in RANDOM:
            raise _refused(
                column,
                table,
                f"calls {called}(), which answers differently for each row. Of such defaults, "
                "uuid() alone is known",
            )
        if called in _OF_ROWS | _FOREIGN or depends_on(called) in (
            "a function that is not built into Spark",
            "which rows are looked at",
        ):
            raise _refused(
                column,
                table,
                f"calls {called}(), which is not known to answer alike for all rows",
            )


def _constant(column: Column, table: str, computation: Computation, zone: str) -> tuple[Kind, Any]:
    source = computation.type
    if isinstance(computation, Constant):
        value = computation.value
    else:
        try:
            value = compute(computation, source, pa.table({"": [None]})).as_py()
        except pa.ArrowInvalid as error:
            raise _refused(column, table, "overflows. Write a smaller number") from error
    if value is None:
        return "constant", None
    if check_storable(computation, column.type) is False:
        raise _misfit(column, table, type_name(source))
    if pa.types.is_date(source) or pa.types.is_timestamp(source):
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            return "constant", _moved(value, column.type, zone)
        return "engine", None
    if source == column.type:
        return "constant", value
    fitted = _fitted(value, column.type)
    if fitted is not None:
        return "constant", fitted
    if pa.types.is_string(column.type):
        return "engine", None
    raise _misfit(column, table, type_name(source))


def _fitted(value: Any, type_: pa.DataType) -> Any:
    """A number as one of another type, if that holds it."""
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        return None
    if type_ == pa.float64():
        return float(value)
    if type_ == pa.float32():
        try:
            return struct.unpack("<f", struct.pack("<f", float(value)))[0]
        except OverflowError:
            return None
    # A float stands for the number that it is printed as, as in Spark.
    exact = decimal.Decimal(repr(value) if isinstance(value, float) else value)
    if not exact.is_finite() or (pa.types.is_integer(type_) and exact != int(exact)):
        return None
    try:
        return pa.scalar(int(exact) if pa.types.is_integer(type_) else exact, type_).as_py()
    except (pa.ArrowException, OverflowError, ValueError):
        return None


# Moments ---------------------------------------------------------------------------------------


def moment_of(default: Default, moment: dt.datetime, zone: str) -> dt.date:
    """The value of a default that tells the time, at a moment."""
    return _moved(_told(default.value, moment, zone), default.column.type, zone)


def _told(function: str, moment: dt.datetime, zone: str) -> dt.date:
    local = moment.astimezone(zone_of(zone)).replace(tzinfo=None)
    if function in _DATES:
        return local.date()
    return local if function in _LOCAL else moment


def _moved(value: dt.date, type_: pa.DataType, zone: str) -> dt.date:
    """A date, a local time or an instant as a value of another such type."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        if type_ == TIMESTAMP:
            return value.astimezone(dt.UTC)
        value = value.astimezone(zone_of(zone)).replace(tzinfo=None)
    if pa.types.is_date(type_):
        return value.date() if isinstance(value, dt.datetime) else value
    local = value
    if not isinstance(local, dt.datetime):
        local = dt.datetime(value.year, value.month, value.day)
    return local if type_ == TIMESTAMP_NTZ else instant_of(local, zone)


def at_moment(sql: str, moment: dt.datetime, zone: str) -> str:
    """An expression with the moment of the transaction in the place of the engine's."""

    def change(node: exp.Expr) -> exp.Expr | None:
        name = None
        if isinstance(node, exp.Anonymous) and not node.expressions:
            name = function_name(node)
        elif isinstance(node, exp.Column) and len(node.parts) == 1:
            name = node.name.lower()
        return None if name not in _MOMENTS else expression(_literal(name, moment, zone)).copy()

    if not any(name in CLOCK for name in calls_in(sql)):
        return sql
    return text_of(rewrite(expression(sql), change))


def _literal(function: str, moment: dt.datetime, zone: str) -> str:
    told = _told(function, moment, zone)
    if not isinstance(told, dt.datetime):
        return f"DATE '{told.isoformat()}'"
    if told.tzinfo is None:
        return f"TIMESTAMP_NTZ '{told.isoformat(sep=' ')}'"
    return f"TIMESTAMP '{told.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=' ')}Z'"


# Refusals --------------------------------------------------------------------------------------


def _refused(column: Column, table: str, why: str) -> InvalidSchema:
    return InvalidSchema(
        f"The default of column {column.name!r} of table {table!r}, {column.default!r}, {why}.",
        table=table,
        column=column.name,
        expression=column.default,
    )


def _misfit(column: Column, table: str, actual: str) -> WrongType:
    expected = type_name(column.type)
    return WrongType(
        f"The default of column {column.name!r} of table {table!r}, {column.default!r}, is of type "
        f"{actual} and does not fit {expected}. Write a value of that type, or a CAST.",
        table=table,
        column=column.name,
        expression=column.default,
        expected=expected,
        actual=actual,
    )
