"""Statements as values.

Owns: what is known of a statement from its text alone. Conditions, expressions and queries are kept
as they were written; names are kept as they were spelt, without their backticks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

Cells: TypeAlias = tuple[tuple[str, ...], ...]
"""The values of VALUES, row by row, as text."""
DEFAULT = "DEFAULT"
"""In the place of a value: what the column has when nothing is said of it."""


@dataclass(frozen=True)
class Assigned:
    """`column = value`, or a column of INSERT with its value."""

    column: str
    value: str


@dataclass(frozen=True)
class Statement:
    """What all statements have: the table that they change."""

    kind: ClassVar[str]
    table: str


@dataclass(frozen=True)
class Insert(Statement):
    """Rows of a query into a table; `columns` are None where the text lists none."""

    kind: ClassVar[str] = "INSERT"
    query: str = ""
    """With its own WITH, if there is one."""
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    overwrite: bool = False
    replace_where: str | None = None
    """The rows that are taken out first."""
    values: Cells | None = None
    """The same as `query`, where that is VALUES and nothing else."""


@dataclass(frozen=True)
class Update(Statement):
    kind: ClassVar[str] = "UPDATE"
    alias: str = ""
    """By which its text names the table: the table's own name where it gives no other."""
    assignments: tuple[Assigned, ...] = ()
    where: str | None = None
    definitions: str = ""
    """What the text defines in front, beginning with WITH."""


@dataclass(frozen=True)
class Delete(Statement):
    kind: ClassVar[str] = "DELETE"
    alias: str = ""
    where: str | None = None
    definitions: str = ""


@dataclass(frozen=True)
class Truncate(Statement):
    kind: ClassVar[str] = "TRUNCATE"


Rows = Literal["matched", "not matched", "not matched by source"]
Action = Literal["update", "delete", "insert"]


@dataclass(frozen=True)
class When:
    """One WHEN clause: which pairs of rows it is about, and what becomes of them."""

    rows: Rows
    action: Action
    condition: str | None = None
    assignments: tuple[Assigned, ...] | None = ()
    """None for `*`: every column has the value of the source's column of its name."""
    at: int = 0
    """Where in the text it begins."""


@dataclass(frozen=True)
class Merge(Statement):
    kind: ClassVar[str] = "MERGE"
    alias: str = ""
    source: str = ""
    """A query that gives the source's rows."""
    source_name: str | None = None
    """The table or relation that the source is, if it is one as it stands."""
    source_alias: str | None = None
    source_columns: tuple[str, ...] | None = None
    """Names for the source's columns, where its alias lists some."""
    on: str = ""
    clauses: tuple[When, ...] = field(default=())
    definitions: str = ""

    def about(self, rows: Rows) -> tuple[When, ...]:
        """The clauses about some rows, in their order."""
        return tuple(clause for clause in self.clauses if clause.rows == rows)

    @property
    def updates(self) -> bool:
        return any(clause.action == "update" for clause in self.clauses)

    @property
    def allows_repeats(self) -> bool:
        """Whether several source rows may match one row: all they can do is to delete it."""
        matched = self.about("matched")
        return not matched or (
            len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None
        )
