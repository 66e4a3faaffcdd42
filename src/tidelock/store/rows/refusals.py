"""The errors for data that does not fit its table.

Owns: what is said, and which evidence is given: table, column, expected, actual, and the first
values with their rows. Rows are positions in the data as it was given, counted from 0.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidelock.errors import (
    Advice,
    ColumnNotFound,
    InputError,
    InvalidSchema,
    KeyRequired,
    RequiredColumnNull,
    StreamTableWrite,
    WrongType,
)
from tidelock.model.names import suggest
from tidelock.model.schema.schema import Column
from tidelock.model.types import type_name
from tidelock.store.rows.arrow_values import (
    AmbiguousField,
    Convert,
    Mismatch,
    MissingField,
    UnknownField,
)

VALUE_SHOWN_BYTES = 40
OFFENDERS_MAX = 3
_TOLD_LENGTH_MAX = 60


def unreadable(table: str, actual: str, hint: str) -> WrongType:
    return WrongType(
        f"Rows for table {table!r} cannot be read from {actual}. {hint}", table=table, actual=actual
    )


def without_key(table: str) -> KeyRequired:
    return KeyRequired(
        f"Table {table!r} has no key, so rows cannot be matched.",
        Advice(
            "Use append, or create the table with key=[...].",
            "Use append, or create the table with --key.",
        ),
        table=table,
    )


def stream_written(table: str) -> StreamTableWrite:
    return StreamTableWrite(
        f"{table!r} is a stream table: its rows follow from its query. Change its sources and "
        "refresh it.",
        Advice("lake.drop_stream_table removes it.", "`tidelock stream drop` removes it."),
        table=table,
    )


def wrong_columns(error: Exception, table: str) -> InputError:
    """The user's error for columns, or fields in a column, that do not match the table's."""
    if isinstance(error, UnknownField) and error.path:
        return ColumnNotFound(
            f"Column {error.path!r} of table {table!r} has no field {error.name!r}. "
            f"{suggest(error.name, error.known)}",
            table=table,
            column=f"{error.path}.{error.name}",
        )
    if isinstance(error, UnknownField):
        return unknown_columns(error.names, error.known, table)
    if isinstance(error, MissingField):
        return RequiredColumnNull(
            f"Column {error.path!r} of table {table!r} is NOT NULL, and is missing in the data.",
            table=table,
            column=error.path,
            expected="NOT NULL",
            actual="missing",
            values=[],
            rows=[],
        )
    assert isinstance(error, AmbiguousField)
    return InvalidSchema(
        f"The data has {error.names[0]!r} and {error.names[1]!r}, both for column {error.path!r} "
        f"of table {table!r}: names are compared without regard to case. Remove one.",
        table=table,
        column=error.path,
        values=list(error.names),
    )


def unknown_columns(
    names: Sequence[str], known: Sequence[str], table: str, **evidence: Any
) -> ColumnNotFound:
    """For columns of the data that the table does not have."""
    told = ", ".join(map(repr, names))
    them = "it" if len(names) == 1 else "them"
    return ColumnNotFound(
        f"Table {table!r} has no column {told}. {suggest(names[0], known)}",
        Advice(f"evolve=True adds {them}.", f"--evolve adds {them}."),
        table=table,
        column=names[0],
        columns=list(names),
        **evidence,
    )


def wrong_type(error: Mismatch, column: Column, table: str, data: Any, first_row: int) -> WrongType:
    """For a type that the column does not take at all. `data` is its array, if there is one."""
    offenders: list[tuple[int, Any]] = []
    for row in range(0 if data is None else min(len(data), 1000)):
        if data[row].is_valid:
            offenders.append((first_row + row, tell_value(data[row])))
            if len(offenders) == OFFENDERS_MAX:
                break
    actual = type_name(error.actual)
    first = f" (first: {_tell(offenders)})" if offenders else ""
    return WrongType(
        f"Column {error.path!r} of table {table!r} is {_expected(column, error.path)}, and the "
        f"data has {actual}{first}. {error.hint}.",
        table=table,
        column=error.path,
        expected=type_name(column.type),
        actual=actual,
        values=[value for _, value in offenders],
        rows=[row for row, _ in offenders],
    )


def _expected(column: Column, path: str) -> str:
    whole = type_name(column.type)
    return whole if path == column.name else f"in {whole}"


def wrong_array(
    array: pa.Array, step: Convert, column: Column, table: str, first_row: int
) -> WrongType:
    """For an array of a type that the column takes, with values that do not fit."""
    found = first_failing(array, step, OFFENDERS_MAX)
    offenders = [(first_row + row, tell_value(array[row])) for row in found]
    actual = type_name(array.type)
    return _wrong_values(
        column,
        table,
        offenders,
        actual,
        f"the {actual} values {_tell(offenders)} cannot be held exactly",
    )


def wrong_python_values(
    offenders: Sequence[tuple[int, Any, str]], column: Column, table: str
) -> WrongType:
    """For Python values that do not fit: (row, value, reason)."""
    reason = offenders[0][2]
    named = [(row, value) for row, value, _ in offenders]
    return _wrong_values(
        column, table, named, type(named[0][1]).__name__, f"{_tell(named)} does not fit: {reason}"
    )


def _wrong_values(
    column: Column, table: str, offenders: list[tuple[int, Any]], actual: str, what: str
) -> WrongType:
    expected = type_name(column.type)
    return WrongType(
        f"Column {column.name!r} of table {table!r} is {expected}, and {what}. Convert the values, "
        "or choose another type for the column.",
        table=table,
        column=column.name,
        expected=expected,
        actual=actual,
        values=[value for _, value in offenders],
        rows=[row for row, _ in offenders],
    )


def first_failing(array: pa.Array, step: Convert, limit: int) -> list[int]:
    """The first positions that `step` fails on, found by halving."""
    try:
        step(array)
        return []
    except (pa.ArrowException, ValueError):
        if len(array) <= 1:
            return [0] if len(array) else []
    half = len(array) // 2
    found = first_failing(array.slice(0, half), step, limit)
    if len(found) < limit:
        rest = first_failing(array.slice(half), step, limit - len(found))
        found += [half + row for row in rest]
    return found


def null_in_required(
    table: str, column: str, rows: Sequence[int], first_row: int = 0
) -> RequiredColumnNull:
    at = [row + first_row for row in rows]
    return RequiredColumnNull(
        f"Column {column!r} of table {table!r} is NOT NULL, and is NULL in {_tell_rows(at)}. Fill "
        "it, or leave those rows out.",
        table=table,
        column=column,
        expected="NOT NULL",
        actual="NULL",
        values=[None] * len(at),
        rows=at,
    )


def no_text(table: str, column: Column, value: pa.Array, row: int) -> WrongType:
    is_string = pa.types.is_string(value.type)
    shown = value.cast(pa.binary())[0].as_py()[:VALUE_SHOWN_BYTES] if is_string else None
    holds = f"the bytes {shown!r}, which are" if is_string else "text that is"
    return WrongType(
        f"Column {column.name!r} of table {table!r} holds {holds} not UTF-8, in row {row}. Decode "
        "it with the encoding that it has, or write it to a BINARY column.",
        table=table,
        column=column.name,
        expected="UTF-8",
        values=[shown],
        rows=[row],
    )


def tell_value(scalar: pa.Scalar) -> Any:
    """The scalar as a Python value, or as text where Python has none for it."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, TypeError):
        return repr(scalar)


def tell_keys(keys: Sequence[Sequence[Any]], count: int) -> str:
    """The first of so many keys, as they would be written in SQL."""
    shown = [tell_literal(key[0]) if len(key) == 1 else tell_literal(tuple(key)) for key in keys]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def tell_literal(value: Any) -> str:
    """A value as it would be written in SQL, cut if it is long."""
    if isinstance(value, tuple):
        return f"({', '.join(map(tell_literal, value))})"
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, str):
        return _cut("'" + value.replace("'", "''") + "'")
    # Imported here and not above: it brings the parser of SQL, which executors have no use for.
    from tidelock.model.sql.expressions import sql_literal

    return _cut(sql_literal(value))


def _tell(offenders: Sequence[tuple[int, Any]]) -> str:
    return ", ".join(f"{_short(value)} (row {row})" for row, value in offenders)


def _short(value: Any) -> str:
    return _cut(repr(value))


def _cut(told: str) -> str:
    return told if len(told) <= _TOLD_LENGTH_MAX else told[: _TOLD_LENGTH_MAX - 1] + "…"


def _tell_rows(rows: Sequence[int]) -> str:
    return ("row " if len(rows) == 1 else "rows ") + ", ".join(str(row) for row in rows)
