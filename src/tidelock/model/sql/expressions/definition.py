"""Filter and Assignment: Spark SQL, with its translation where there is one.

Both are made from text and a schema alone, so that the same text always takes the same way.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tidelock.errors import BrokenInvariant, ColumnNotFound, InvalidExpression, WrongType
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.expressions.arithmetic import (
    Computation,
    check_storable,
    compile_expression,
    compute,
    exact,
)
from tidelock.model.sql.expressions.constants import PythonValue, sql_literal
from tidelock.model.sql.expressions.lance import to_lance
from tidelock.model.sql.expressions.literals import Literal, read, read_plain
from tidelock.model.sql.expressions.syntax import NO_PARAMETERS, NeedsSpark, Scope, bare, parse
from tidelock.model.types import type_name


@dataclass(frozen=True)
class Filter:
    """A condition on the rows of one table.

    `sql` is what Spark runs; `columns` are those it reads, in the order of the schema. `lance` is
    the same condition for Lance, or None if only Spark may run it, and then `why_spark` says why.
    """

    sql: str
    columns: tuple[str, ...]
    lance: str | None
    why_spark: str | None


@dataclass(frozen=True)
class Assignment:
    """A new value for one column, computed from the columns of the same row.

    `native` is the computation on Arrow data, or None if only Spark may run it (`why_spark`).
    """

    column: Column
    sql: str
    columns: tuple[str, ...]
    native: Computation | None
    why_spark: str | None

    def evaluate(self, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
        """The new values for all rows, of exactly the column's type."""
        if self.native is None:
            raise BrokenInvariant(f"{self.sql!r} was to be computed without Spark.")
        try:
            return compute(self.native, self.column.type, rows)
        except pa.ArrowInvalid:
            raise self._does_not_fit(self.native, rows) from None

    def _does_not_fit(self, native: Computation, rows: pa.Table) -> WrongType:
        low, high = 0, rows.num_rows
        while high - low > 1:
            middle = (low + high) // 2
            try:
                compute(native, self.column.type, rows.slice(low, middle - low))
                low = middle
            except pa.ArrowInvalid:
                high = middle
        row = rows.slice(low, 1).to_pylist()[0]
        with decimal.localcontext(prec=200):
            value = exact(native, row)
        kind = type_name(self.column.type)
        inputs = {name: row[name] for name in self.columns}
        where = ", ".join(f"{name} = {given}" for name, given in inputs.items())
        return WrongType(
            f"{self.sql!r} does not fit column {self.column.name!r} ({kind}): the "
            f"first value that overflows is {value}" + (f", where {where}." if where else "."),
            column=self.column.name,
            expression=self.sql,
            value=str(value),
            type=kind,
            inputs=str(inputs),
        )


def parse_filter(
    sql: str,
    schema: TableSchema,
    *,
    zone: str = "UTC",
    table_name: str | None = None,
    parameters: Mapping[str, PythonValue] = NO_PARAMETERS,
) -> Filter:
    """The filter that the text is, with Spark's meaning in the given session time zone.

    `parameters` are the values of what the text calls `:name`.
    """
    scope = Scope(schema, table_name, zone, parameters)
    syntax = parse(sql, scope)
    _check_boolean(syntax.tree, sql, scope)
    if syntax.why_spark is not None:
        return Filter(sql, syntax.columns, None, syntax.why_spark)
    try:
        return Filter(sql, syntax.columns, to_lance(syntax.tree, scope), None)
    except NeedsSpark as part:
        return Filter(sql, syntax.columns, None, str(part))


def parse_assignment(
    column: str,
    sql: object,
    schema: TableSchema,
    *,
    zone: str = "UTC",
    table_name: str | None = None,
    parameters: Mapping[str, PythonValue] = NO_PARAMETERS,
) -> Assignment:
    """The assignment to the column of Spark SQL text, or of a Python value that is not text."""
    target = schema.column(column)
    scope = Scope(schema, table_name, zone, parameters)
    text = sql if isinstance(sql, str) else sql_literal(sql)
    syntax = parse(text, scope)
    native: Computation | None = None
    why_spark = syntax.why_spark
    if why_spark is None:
        try:
            native = compile_expression(syntax.tree, scope)
        except NeedsSpark as part:
            why_spark = str(part)
    if native is not None:
        storable = check_storable(native, target.type)
        expected, actual = type_name(target.type), type_name(native.type)
        if storable is False:
            raise WrongType(
                f"{text!r} is of type {actual} and cannot be stored in column "
                f"{target.name!r} ({expected}). Write a value of that type, or a CAST.",
                column=target.name,
                expression=text,
                expected=expected,
                actual=actual,
            )
        if storable is None:
            why_spark, native = f"the cast from {actual} to {expected}", None
    return Assignment(target, text, syntax.columns, native, why_spark)


def parse_constant(
    sql: str, zone: str = "UTC", parameters: Mapping[str, PythonValue] = NO_PARAMETERS
) -> Literal | None:
    """The constant that the text is, with Spark's type; None if only Spark can tell what it is."""
    plain = read_plain(sql, zone)
    if plain is not None:
        return plain
    try:
        syntax = parse(sql, Scope(_NO_COLUMNS, None, zone, parameters))
    except (ColumnNotFound, InvalidExpression):
        # Spark sees the same text, and says what is wrong with it.
        return None
    return None if syntax.why_spark is not None else read(syntax.tree, zone)


_NO_COLUMNS = TableSchema(())


def _check_boolean(tree: exp.Expr, sql: str, scope: Scope) -> None:
    """Refuse a filter that is known not to be a condition, as Spark does, NULL included."""
    node = bare(tree)
    kind: pa.DataType | None = None
    column = scope.find(node)
    literal = read(node, scope.zone)
    if column is not None:
        kind = column.type
    elif literal is not None:
        kind = literal.type
    elif isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Neg | exp.DPipe | exp.Concat):
        kind = pa.null()
    if kind is not None and kind != pa.bool_():
        raise InvalidExpression(
            f"{sql!r} cannot be a filter: it is not a condition. Compare it with a value.",
            expression=sql,
        )
