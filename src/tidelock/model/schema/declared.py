"""Tables as they are declared, before anything in a lake is asked: names instead of ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelock.model.schema.rules import OnDelete, RuleKind
from tidelock.model.schema.schema import TableSchema


@dataclass(frozen=True)
class DeclaredRule:
    """A rule by names. One without a name of its own gets one from what it says."""

    kind: RuleKind
    name: str | None
    columns: tuple[str, ...] = ()
    condition: str | None = None
    table: str | None = None
    target: tuple[str, ...] = ()
    """The columns of the other table; none means its key."""
    on_delete: OnDelete = "restrict"
    least: int = 0
    most: int | None = None


@dataclass(frozen=True)
class DeclaredTable:
    name: str
    schema: TableSchema
    rules: tuple[DeclaredRule, ...] = ()
    origin: str | None = None
    """The file and the line that it came from."""
    was: str | None = None
    """What the table was called before, for a lake that has it under that name still."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What columns were called before, by what they are called, in the same way."""
    backfills: Mapping[str, str] = field(default_factory=dict)
    """What columns are in the rows that are there when they are added, as SQL over these."""
    notes: tuple[str, ...] = ()
    """What was read and has no effect."""
