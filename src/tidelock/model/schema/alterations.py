"""Alterations: what can be changed of a table's schema, as values. What follows from them is in
`altered.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tidelock.model.schema.declared import DeclaredRule

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelock.model.schema.schema import Column


@dataclass(frozen=True)
class AddColumn:
    """`backfill` is what the rows that are there get, as SQL over them; else they get the default,
    which is NULL if there is none."""

    column: Column
    backfill: str | None = None
    after: str | None = None
    first: bool = False


@dataclass(frozen=True)
class DropColumn:
    name: str
    cascade: bool = False
    """Whether the rules and the stream tables that read the column go with it."""


@dataclass(frozen=True)
class RenameColumn:
    name: str
    to: str


@dataclass(frozen=True)
class MoveColumn:
    """To behind another column, or to the front."""

    name: str
    after: str | None = None


@dataclass(frozen=True)
class ChangeType:
    name: str
    type: pa.DataType
    cascade: bool = False
    """Whether the stream tables that read the column follow it."""


@dataclass(frozen=True)
class SetRequired:
    name: str
    required: bool


@dataclass(frozen=True)
class SetDefault:
    name: str
    default: str | None


@dataclass(frozen=True)
class SetComment:
    """Of a column, or of the table itself."""

    name: str | None
    comment: str | None


@dataclass(frozen=True)
class SetKey:
    names: tuple[str, ...]


@dataclass(frozen=True)
class AddRule:
    rule: DeclaredRule


@dataclass(frozen=True)
class DropRule:
    name: str


Alteration: TypeAlias = (
    AddColumn
    | DropColumn
    | RenameColumn
    | MoveColumn
    | ChangeType
    | SetRequired
    | SetDefault
    | SetComment
    | SetKey
    | AddRule
    | DropRule
)
