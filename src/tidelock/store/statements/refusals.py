"""What is said when a statement cannot be run: by the engine, or because of what it would store."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidelock.errors import (
    ColumnNotFound,
    InvalidExpression,
    QueryFailed,
    RequiredColumnNull,
    TidelockError,
)
from tidelock.model.names import suggest
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.statements.definition import Statement
from tidelock.store.rows.arrow_values import UnknownField
from tidelock.store.rows.refusals import wrong_columns
from tidelock.store.spark.query import readable
from tidelock.store.spark.sessions import Refused

_PLACE = re.compile(r"(?:; line \d+,? pos \d+;?| ?SQLSTATE: \w+)+$")
_QUOTED = r"((?:`(?:[^`]|``)*`\.?)+)"
_UNRESOLVED = (
    re.compile(rf"\[UNRESOLVED_COLUMN\b[^\]]*\].*? with name {_QUOTED} cannot be resolved"),
    re.compile(rf"attribute {_QUOTED} is missing from the schema"),
)


def refused(statement: Statement, known: Sequence[str] = ()) -> Refused:
    """The error for a statement that an engine refuses, without places in what it was given: that
    is not the user's text. `known` are columns that it may have meant."""

    def make(engine: str, words: str) -> TidelockError:
        told = _PLACE.sub("", readable(words))
        for pattern in _UNRESOLVED:
            found = pattern.search(told)
            if found is not None:
                return _unknown_column(_plain(found[1]), told[found.end() :], known)
        return QueryFailed(
            f"{engine} refused the {statement.kind} of table {statement.table!r}: {told}",
            table=statement.table,
            statement=statement.kind,
        )

    return make


def _unknown_column(name: str, more: str, known: Sequence[str]) -> ColumnNotFound:
    """For a column that no table in sight has; `more` names those that the engine sees."""
    seen = {*known, *(_plain(one).rpartition(".")[2] for one in re.findall(_QUOTED, more))}
    instead = f" {suggest(name.rpartition('.')[2], seen)}" if seen else ""
    return ColumnNotFound(f"There is no column {name!r}.{instead}", column=name)


def _plain(quoted: str) -> str:
    parts = re.findall(r"`((?:[^`]|``)*)`", quoted)
    return ".".join(part.replace("``", "`") for part in parts)


def column_named(name: str, schema: TableSchema, table: str) -> Column:
    """The column of a table that a statement names, or ColumnNotFound."""
    found = schema.find(name)
    if found is None:
        raise wrong_columns(UnknownField("", name, list(schema.names)), table)
    return found


def wrong_count(table: str, columns: list[str], given: int) -> InvalidExpression:
    return InvalidExpression(
        f"Table {table!r}: {given} values are given for {len(columns)} columns "
        f"({', '.join(columns)}). Give one for each, or list the columns that they are for: "
        f"INSERT INTO {table} (...).",
        table=table,
        expected=len(columns),
        actual=given,
    )


def required_unlisted(table: str, column: Column) -> RequiredColumnNull:
    return RequiredColumnNull(
        f"Column {column.name!r} of table {table!r} is NOT NULL, and the INSERT gives no value "
        "for it. List it, with a value.",
        table=table,
        column=column.name,
        expected="NOT NULL",
        actual="missing",
    )
