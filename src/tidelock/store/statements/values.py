"""VALUES that need no engine: constants and parameters, made into columns of a table.

Law: the rows are those that Spark would insert, or there is None and Spark is asked. Spark gives
the cells of a column one type before it stores them; so cells of several types are left to it, but
for whole numbers and short decimals, which lose nothing by that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import pyarrow as pa

from tidelock.errors import WrongType
from tidelock.model.schema.schema import Column
from tidelock.model.sql.expressions.arithmetic import Constant, check_storable, constant, convert
from tidelock.model.sql.expressions.constants import PythonValue
from tidelock.model.sql.expressions.definition import parse_constant
from tidelock.model.sql.expressions.literals import FLOATS, INTEGER_BITS
from tidelock.model.sql.statements.definition import Cells
from tidelock.model.types import type_name
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults
from tidelock.store.statements.defaults import is_default, value_of

SHORT_DIGITS_MAX = 18
"""Decimals of so many digits have a common type that holds all of them."""


def constant_rows(
    cells: Cells,
    columns: Sequence[Column],
    table: str,
    zone: str,
    parameters: Mapping[str, PythonValue],
    defaults: Defaults = NO_DEFAULTS,
) -> pa.Table | None:
    """The rows of VALUES, each as long as `columns`; None if only Spark can compute them."""
    arrays: list[pa.Array] = []
    for position, column in enumerate(columns):
        written = [row[position] for row in cells]
        given = [not is_default(cell) or column.name not in defaults for cell in written]
        constants: list[Constant] = []
        for cell in compress(written, given):
            found = parse_constant(value_of(cell, column), zone, parameters)
            if found is None:
                return None
            constants.append(Constant(found.type, found.value))
        array = _stored(constants, column, table)
        if array is None:
            return None
        arrays.append(array if all(given) else defaults.scattered(column.name, array, given))
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


def _stored(constants: Sequence[Constant], column: Column, table: str) -> pa.Array | None:
    """The constants as an array of the column's type; None if Spark is to decide."""
    if not _are_alike([one.type for one in constants]):
        return None
    values: list[object] = []
    for one in constants:
        storable = check_storable(one, column.type)
        if storable is None:
            return None
        if not storable:
            raise _unstorable(one, column, table)
        values.append(_value(one, column, table))
    return pa.array(values, column.type)


def _are_alike(types: Sequence[pa.DataType]) -> bool:
    kinds = {kind for kind in types if not pa.types.is_null(kind)}
    return len(kinds) < 2 or all(
        kind in INTEGER_BITS or (pa.types.is_decimal(kind) and kind.precision <= SHORT_DIGITS_MAX)
        for kind in kinds
    )


def _value(one: Constant, column: Column, table: str) -> object:
    if one.value is None or one.type == column.type:
        return one.value
    source = column.type if column.type in FLOATS else one.type
    try:
        return convert(constant(one, source), source, column.type).as_py()
    except pa.ArrowInvalid:
        raise WrongType(
            f"Column {column.name!r} of table {table!r} is {type_name(column.type)}, and "
            f"{one.value} does not fit.",
            table=table,
            column=column.name,
            expected=type_name(column.type),
            actual=type_name(one.type),
            value=str(one.value),
        ) from None


def _unstorable(one: Constant, column: Column, table: str) -> WrongType:
    expected, actual = type_name(column.type), type_name(one.type)
    return WrongType(
        f"Table {table!r}: {one.value!r} is of type {actual}, and cannot be stored in column "
        f"{column.name!r} of type {expected}. Write a value of that type, or a CAST.",
        table=table,
        column=column.name,
        expected=expected,
        actual=actual,
    )
