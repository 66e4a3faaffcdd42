"""What brings the tables of a lake to what is declared, as a value: shown, then carried out.

Owns: the steps, what each costs and destroys, and their wording.
Invariants: steps can be carried out as they come; the same declarations and the same schemas give
the same plan; a plan is for the schemas that it was made for, which it remembers.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelock.model.ddl.alter import RenameTable
from tidelock.model.ddl.statements import CreateTable, DropTable
from tidelock.model.ddl.text import alteration_ddl, identifier, table_ddl
from tidelock.model.schema.alterations import (
    AddColumn,
    AddRule,
    Alteration,
    DropColumn,
    DropRule,
    SetKey,
)

Work: TypeAlias = Alteration | RenameTable | CreateTable | DropTable
_ADDS = (CreateTable, AddColumn, AddRule)
_DROPS = (DropTable, DropColumn, DropRule)
METADATA = "metadata only"


@dataclass(frozen=True)
class Step:
    """One statement: what is done, why, and at what cost."""

    table: str
    work: Work
    why: str
    reads: int = 0
    """How many rows are read, to see that they agree."""
    rewrites: int = 0
    """How many rows are written again, or a column of theirs."""
    loses: str | None = None
    """What is destroyed; None for a step that is safe."""

    @property
    def destructive(self) -> bool:
        return self.loses is not None

    @property
    def ddl(self) -> str:
        match self.work:
            case CreateTable():
                return table_ddl(self.work.table)
            case DropTable():
                return f"DROP TABLE {identifier(self.table)}"
            case RenameTable():
                return f"ALTER TABLE {identifier(self.table)} RENAME TO {identifier(self.work.to)}"
            case _:
                return alteration_ddl(self.table, self.work)

    @property
    def cost(self) -> str:
        told = []
        if self.reads:
            told.append(f"reads {self.reads:,} {_rows(self.reads)}")
        if self.rewrites:
            told.append(f"rewrites {self.rewrites:,} {_rows(self.rewrites)}")
        return " and ".join(told) or METADATA

    @property
    def mark(self) -> str:
        dropped_key = isinstance(self.work, SetKey) and not self.work.names
        if isinstance(self.work, _DROPS) or dropped_key:
            return "-"
        return "+" if isinstance(self.work, _ADDS) else "~"

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "ddl": self.ddl,
            "why": self.why,
            "metadata_only": not self.reads and not self.rewrites,
            "reads": self.reads,
            "rewrites": self.rewrites,
            "destructive": self.destructive,
            "loses": self.loses,
        }

    def lines(self) -> list[str]:
        first, *rest = self.ddl.split("\n")
        told = [self.why, self.cost]
        if self.loses is not None:
            told.append(f"destroys {self.loses}")
        return [f"{self.mark} {first}", *(f"  {line}" for line in rest), f"    {'; '.join(told)}"]


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


@dataclass(frozen=True)
class Basis:
    """A table as a plan found it; the id is empty where there was none."""

    name: str
    id: str = ""
    schema: str = ""
    """The id of its declaration."""


@dataclass(frozen=True, repr=False)
class SchemaPlan:
    """All steps that bring the tables to what is declared, in order."""

    branch: str
    version: int
    """The version at which it was made."""
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    basis: tuple[Basis, ...] = ()
    """The tables that it is about, as they were."""
    declared: int = 0
    """How many tables are declared."""

    def __bool__(self) -> bool:
        return bool(self.steps)

    @property
    def destructive(self) -> tuple[Step, ...]:
        """The steps that destroy something; they need an explicit word."""
        return tuple(step for step in self.steps if step.destructive)

    @property
    def told(self) -> str:
        """What it does to which tables, for the message of a commit."""
        verbs: dict[str, str] = {}
        for step in self.steps:
            verb = {CreateTable: "create", DropTable: "drop"}.get(type(step.work), "alter")
            verbs.setdefault(step.table, verb)
        return ", ".join(f"{verb} {table}" for table, verb in verbs.items())

    def to_dict(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "version": self.version,
            "declared": self.declared,
            "steps": [step.to_dict() for step in self.steps],
            "destructive": len(self.destructive),
            "notes": list(self.notes),
        }

    def to_text(self) -> str:
        return "\n".join([self.headline, *self.step_lines(), *self.note_lines()])

    @property
    def headline(self) -> str:
        what = f"Schema plan for {self.branch} at version {self.version}"
        count = f"{self.declared} {'table' if self.declared == 1 else 'tables'} declared"
        if not self.steps:
            return f"{what}: nothing to do, {count}"
        steps = f"{len(self.steps)} {'step' if len(self.steps) == 1 else 'steps'}"
        lost = len(self.destructive)
        return f"{what}: {steps}" + (f", {lost} destructive" if lost else "") + f", {count}"

    def step_lines(self) -> list[str]:
        return [line for step in self.steps for line in step.lines()]

    def note_lines(self) -> list[str]:
        return [f"note: {note}" for note in self.notes]

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.to_text())}</pre>"
