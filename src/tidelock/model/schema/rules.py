"""Rules: what must hold of the rows of a table at every commit, beyond their types.

NOT NULL and the key are part of the columns. The others are values of one kind of record, so that
a schema is its own wire format:

    kind          columns              condition      table, target      on_delete   least, most
    unique        no two rows alike    which rows
    check         those that it reads  is not false
    reference     of the child                        the parent's       yes
    cardinality   of a group of rows                                                 rows of each

Columns are named by id, and conditions by labels, which are written anew when a column is renamed.
NULLs are as in SQL: a row with a NULL in a unique or referring column agrees with the rule, and so
does one for which a condition is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RuleKind = Literal["unique", "check", "reference", "cardinality"]
OnDelete = Literal["restrict", "cascade", "set null"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of one table."""

    kind: RuleKind
    name: str
    columns: tuple[int, ...]
    condition: str | None = None
    table: str = ""
    """The id of the table that is referred to."""
    target: tuple[int, ...] = ()
    """The columns there, in the order of the referring ones: its key, or unique."""
    on_delete: OnDelete = "restrict"
    least: int = 0
    most: int | None = None
