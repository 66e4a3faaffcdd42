"""The steps that bring one table to what is declared of it.

Owns: its columns, its key and its comment; rules and other tables are for `planner.py`. Each step
is tried on the schema that those before it leave, so that what cannot be done is refused here.
Invariant: the steps, in the order of their phases, lead to what is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from tidelock.errors import BrokenInvariant, InputError, InvalidSchema
from tidelock.model.ddl.alter import RenameTable
from tidelock.model.ddl.statements import CreateTable, DropTable
from tidelock.model.ddl.text import identifier, same_expression
from tidelock.model.names import fold
from tidelock.model.schema.alterations import (
    AddColumn,
    AddRule,
    Alteration,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetDefault,
    SetKey,
    SetRequired,
)
from tidelock.model.schema.altered import altered
from tidelock.model.schema.declared import DeclaredRule, DeclaredTable
from tidelock.model.schema.plan.plan import Step, Work
from tidelock.model.schema.plan.sequences import longest_rising
from tidelock.model.schema.rules import Rule
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.schema.widening import is_widening
from tidelock.model.types import spell_type

RENAMED, RULES_GO, LABELS, COME, GO, REQUIREMENTS, ORDER, KEYS, RULES, REFERENCES = range(10)
"""The phases of a plan; what each holds is told in `planner.py`."""

_TRIED_ID = 1 << 30
"""For columns that a plan adds: none of a lake has such an id."""


@dataclass(frozen=True)
class CurrentTable:
    """A table of the lake. Its schema is asked for where it matters: a lake has many tables."""

    name: str
    id: str
    read_schema: Callable[[], TableSchema]
    schema_id: str
    rows: int
    is_stream: bool = False

    @cached_property
    def schema(self) -> TableSchema:
        return self.read_schema()


@dataclass
class TableSteps:
    """A declared table on its way: as it is after the steps so far."""

    declared: DeclaredTable
    held: CurrentTable | None
    schema: TableSchema
    name: str
    phases: dict[int, list[Step]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return 0 if self.held is None else self.held.rows

    @property
    def said(self) -> str:
        return "declared" + self.place

    @property
    def stated(self) -> str:
        return "RENAMED FROM" + self.place

    @property
    def place(self) -> str:
        return f" in {self.declared.origin}" if self.declared.origin else ""

    def steps(self, phase: int) -> Sequence[Step]:
        return self.phases.get(phase, ())

    def add(self, phase: int, work: Work, why: str, **cost: Any) -> None:
        self.phases.setdefault(phase, []).append(Step(self.name, work, why, **cost))

    def alter(self, phase: int, one: Alteration, why: str, **cost: Any) -> None:
        """A step, once it is known that the schema can be altered so."""
        new_id = _TRIED_ID + 1000 * len(self.schema.columns)
        try:
            self.schema = altered(self.schema, one, self.name, no_rule, new_id)
        except InputError as error:
            raise placed(error, self.declared.origin) from error
        self.add(phase, one, why, **cost)

    # Columns

    def rename_columns(self) -> None:
        """As it is stated, until nothing is to be renamed any more: names become free by it."""
        stated = dict(self.declared.renamed)
        progress = True
        while progress:
            progress = False
            for new, old in list(stated.items()):
                there = self.schema.find(old)
                if self.schema.find(new) is None and there is not None:
                    self.alter(LABELS, RenameColumn(there.name, new), self.stated)
                    del stated[new]
                    progress = True

    def change_columns(self) -> None:
        declared = self.declared.schema
        gone = [one for one in self.schema.columns if declared.find(one.name) is None]
        come = [one for one in declared.columns if self.schema.find(one.name) is None]
        if self._keys_differ() and self.schema.key:
            self.alter(LABELS, SetKey(()), self.said)
        for column in come:
            self._add_column(column)
        for column in gone:
            why = self._not_declared(column, come)
            self.alter(GO, DropColumn(column.name), why, loses=_values(column, self.rows))
        for column in declared.columns:
            if column not in come:
                self._change_column(self.schema.column(column.name), column)

    def _add_column(self, column: Column) -> None:
        backfills = {fold(name): sql for name, sql in self.declared.backfills.items()}
        backfill = backfills.get(fold(column.name))
        valued = backfill is not None or column.default is not None
        if not column.nullable and not valued and self.rows:
            error = InvalidSchema(
                f"Column {column.name!r} is declared NOT NULL, and the {_count(self.rows)} of "
                f"table {self.name!r} have no value for it. Give it a DEFAULT, or say what they "
                f"get: {identifier(column.name)} {spell_type(column.type)} NOT NULL BACKFILL AS "
                "(…).",
                table=self.name,
                column=column.name,
            )
            raise placed(error, self.declared.origin)
        # A key makes its columns required by itself.
        in_key = column.name in self.declared.schema.key
        added = AddColumn(replace(column, nullable=column.nullable or in_key), backfill)
        self.alter(COME, added, self.said, rewrites=self.rows if valued else 0)

    def _change_column(self, held: Column, column: Column) -> None:
        if held.name != column.name:
            self.alter(LABELS, RenameColumn(held.name, column.name), self.said)
        if held.type != column.type:
            self.alter(GO, ChangeType(column.name, column.type), self.said, rewrites=self.rows)
        in_key = column.name in self.declared.schema.key
        if held.nullable and not column.nullable and not in_key:
            one = SetRequired(column.name, True)
            self.alter(REQUIREMENTS, one, self.said, reads=self.rows)
        elif column.nullable and not held.nullable:
            self.alter(REQUIREMENTS, SetRequired(column.name, False), self.said)
        if not same_expression(held.default, column.default):
            self.alter(REQUIREMENTS, SetDefault(column.name, column.default), self.said)
        if held.comment != column.comment:
            self.alter(REQUIREMENTS, SetComment(column.name, column.comment), self.said)

    def order_columns(self) -> None:
        """As few moves as bring the columns into the declared order. A column that comes is put
        into its place at once, where the one before it stands in its own already."""
        wanted = [self.schema.column(name).name for name in self.declared.schema.names]
        places = {name: n for n, name in enumerate(wanted)}
        works = [step.work for step in self.steps(COME)]
        come = {work.column.name for work in works if isinstance(work, AddColumn)}
        held = [name for name in self.schema.names if name not in come]
        settled = {held[n] for n in longest_rising([places[name] for name in held])}
        # Those that come are added at the end, which is the place of the last of them.
        settled |= set(takewhile(lambda name: name in come, reversed(wanted)))
        stable = set(settled)
        for n, name in enumerate(wanted):
            if name in settled:
                continue
            one = MoveColumn(name, wanted[n - 1] if n else None)
            if name in come and (one.after is None or one.after in stable):
                self._put_at_once(one)
                stable.add(name)
            else:
                self.alter(ORDER, one, self.said)

    def _put_at_once(self, one: MoveColumn) -> None:
        """Let a column that comes be added where it is to be."""
        self.schema = altered(self.schema, one, self.name, no_rule, 0)
        steps = self.phases[COME]
        for n, step in enumerate(steps):
            work = step.work
            if isinstance(work, AddColumn) and work.column.name == one.name:
                work = replace(work, after=one.after, first=one.after is None)
                steps[n] = replace(step, work=work)

    def _not_declared(self, column: Column, come: Sequence[Column]) -> str:
        """Why a column goes, and how to say that it was renamed if it was."""
        told = f"no longer declared{self.place}"
        alike = [one for one in come if is_widening(column.type, one.type)]
        if not alike:
            return told
        new, old = identifier(alike[0].name), identifier(column.name)
        stated = f"{new} {spell_type(alike[0].type)} RENAMED FROM {old}"
        return f"{told}; if it was renamed, declare: {stated}"

    # Key and comment

    def change_key(self) -> None:
        declared = self.declared.schema
        if self._keys_differ() and declared.key:
            names = tuple(self.schema.column(name).name for name in declared.key)
            self.alter(KEYS, SetKey(names), self.said, reads=self.rows)

    def _keys_differ(self) -> bool:
        return folded(self.schema.key) != folded(self.declared.schema.key)

    def change_comment(self) -> None:
        comment = self.declared.schema.comment
        if self.schema.comment != comment:
            self.alter(REQUIREMENTS, SetComment(None, comment), self.said)

    def prove(self) -> None:
        """BrokenInvariant if the steps, in the order of their phases, lead elsewhere."""
        assert self.held is not None
        schema, tried = self.held.schema, _TRIED_ID
        for phase in sorted(self.phases):
            for step in self.phases[phase]:
                if not isinstance(step.work, RenameTable | AddRule | CreateTable | DropTable):
                    tried += 1000
                    schema = altered(schema, step.work, self.name, no_rule, tried)
        if _told(schema) != _told(self.declared.schema):
            raise BrokenInvariant(f"The plan for table {self.name!r} leads elsewhere.")


def _told(schema: TableSchema) -> object:
    columns = [(c.name, c.type, c.nullable, c.comment, c.default is None) for c in schema.columns]
    return columns, folded(schema.key), schema.comment


def no_rule(rule: DeclaredRule, schema: TableSchema) -> Rule:
    raise BrokenInvariant("Rules are compared by names while a plan is made.")


def placed(error: InputError, origin: str | None) -> InputError:
    """The error with the file and the line of the table that it is about."""
    if origin is None:
        return error
    evidence = {**error.evidence, "origin": origin}
    return type(error)(f"{origin}: {error.message}", error.advice, **evidence)


def folded(names: Sequence[str]) -> list[str]:
    return [fold(name) for name in names]


def _count(rows: int) -> str:
    return f"{rows:,} {'row' if rows == 1 else 'rows'}"


def _values(column: Column, rows: int) -> str:
    name = identifier(column.name)
    return f"the values of {name} in {_count(rows)}" if rows else f"the column {name}"
