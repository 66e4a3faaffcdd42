"""What a column has when a statement says nothing of it, or says DEFAULT."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tidelock.model.schema.schema import Column
from tidelock.model.sql.statements.definition import DEFAULT

DefaultOf: TypeAlias = Callable[[Column], str]
"""The default of a column as SQL; NULL where it has none."""


def default_of(column: Column) -> str:
    """As it was declared."""
    return "NULL" if column.default is None else f"({column.default})"


def is_default(value: str) -> bool:
    return value.upper() == DEFAULT


def value_of(value: str, column: Column, default: DefaultOf = default_of) -> str:
    """A value as it was written, or what DEFAULT stands for."""
    return default(column) if is_default(value) else value
