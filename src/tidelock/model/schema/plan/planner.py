"""From what is declared and what a lake has to the steps between the two.

Owns: which steps, and in which order. Pure: it reads no file and no lake. What one table needs is
for `table_steps.py`; here is what tables have to do with each other.

    0     tables are renamed              renames are stated (RENAMED FROM), and never guessed
    1     rules go                        before the columns that they read
    2     columns are renamed, keys go
    3     tables come, and columns        before others go, so that they may be filled from these
    4     columns go and are widened
    5, 6  NOT NULL, defaults, comments, the order of columns
    7     keys come
    8, 9  rules come                      references last, when all tables are there
    last  tables go                       only if that is asked for

Law: carried out, a plan leaves tables for which the plan is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidelock.errors import InvalidSchema
from tidelock.model.ddl.alter import RenameTable
from tidelock.model.ddl.statements import CreateTable, DropTable
from tidelock.model.ddl.text import identifier, same_expression
from tidelock.model.names import fold, suggest
from tidelock.model.schema.alterations import AddRule, DropRule
from tidelock.model.schema.declared import DeclaredRule, DeclaredTable
from tidelock.model.schema.described import rule_by_names
from tidelock.model.schema.plan.plan import Basis, SchemaPlan, Step
from tidelock.model.schema.plan.table_steps import (
    COME,
    KEYS,
    LABELS,
    REFERENCES,
    RENAMED,
    RULES,
    RULES_GO,
    CurrentTable,
    TableSteps,
    folded,
    placed,
)
from tidelock.model.schema.schema import TableSchema


def plan_schema(
    declared: Sequence[DeclaredTable],
    current: Sequence[CurrentTable],
    *,
    branch: str,
    version: int,
    drop_undeclared: bool = False,
    notes: tuple[str, ...] = (),
) -> SchemaPlan:
    """The plan that brings the current tables to what is declared."""
    return _Planner(declared, current).plan(branch, version, drop_undeclared, notes)


class _Planner:
    def __init__(self, declared: Sequence[DeclaredTable], current: Sequence[CurrentTable]) -> None:
        self._held = {fold(table.name): table for table in current}
        self._refuse_unfit(declared)
        self._taken = self._renames(declared)
        self._tables = sorted(map(self._begin, declared), key=lambda one: fold(one.declared.name))
        self._by_name = {fold(table.declared.name): table for table in self._tables}
        self._refuse_unknown()

    def plan(
        self, branch: str, version: int, drop_undeclared: bool, notes: tuple[str, ...]
    ) -> SchemaPlan:
        known = [table for table in self._tables if table.held is not None]
        for table in known:
            table.rename_columns()
        for table in known:
            come = self._drop_rules(table)
            table.change_columns()
            table.change_key()
            table.change_comment()
            table.order_columns()
            for rule in come:
                phase = REFERENCES if rule.kind == "reference" else RULES
                table.add(phase, AddRule(rule), table.said, reads=table.rows)
            table.prove()
        gone = self._undeclared()
        steps = [*self._in_order(), *map(_drop, gone if drop_undeclared else ())]
        return SchemaPlan(
            branch,
            version,
            tuple(steps),
            (*notes, *self._notes(gone, drop_undeclared)),
            self._basis(gone if drop_undeclared else ()),
            len(self._tables),
        )

    # Tables

    def _renames(self, declared: Sequence[DeclaredTable]) -> dict[str, CurrentTable]:
        """Which table each declared name takes over, in an order in which names are free."""
        free = {name: table for name, table in self._held.items() if not table.is_stream}
        taken: dict[str, CurrentTable] = {}
        progress = True
        while progress:
            progress = False
            for table in declared:
                new, old = fold(table.name), fold(table.was or "")
                if new not in free and new not in taken and old in free:
                    taken[new] = free.pop(old)
                    progress = True
        return taken

    def _begin(self, declared: DeclaredTable) -> TableSteps:
        name = fold(declared.name)
        claimed = {table.id for table in self._taken.values()}
        held = self._taken.get(name) or self._held.get(name)
        if held is None or (name not in self._taken and held.id in claimed):
            return TableSteps(declared, None, declared.schema, declared.name)
        table = TableSteps(declared, held, held.schema, held.name)
        if held.name != declared.name:
            why = table.stated if name in self._taken else table.said
            table.add(RENAMED, RenameTable(declared.name), why)
            table.name = declared.name
        return table

    def _undeclared(self) -> list[CurrentTable]:
        taken = {table.held.id for table in self._tables if table.held is not None}
        found = [one for one in self._held.values() if one.id not in taken and not one.is_stream]
        return sorted(found, key=lambda one: fold(one.name))

    def _basis(self, dropped: Sequence[CurrentTable]) -> tuple[Basis, ...]:
        """What the lake has under every name that matters to the plan."""
        names = {fold(table.name): table.name for table in self._tables}
        held = [table.held for table in self._tables if table.held is not None]
        names |= {fold(one.name): one.name for one in (*held, *dropped)}
        found = ((name, self._held.get(key)) for key, name in sorted(names.items()))
        return tuple(
            Basis(name) if one is None else Basis(one.name, one.id, one.schema_id)
            for name, one in found
        )

    def _notes(self, gone: Sequence[CurrentTable], dropped: bool) -> Iterator[str]:
        for table in self._tables:
            yield from table.declared.notes
            yield from _not_renamed(table)
        if gone and not dropped:
            names = ", ".join(one.name for one in gone)
            are, them = ("are", "them") if len(gone) > 1 else ("is", "it")
            yield f"{names} {are} in the lake and not declared; nothing is done with {them}"

    # Rules

    def _drop_rules(self, table: TableSteps) -> list[DeclaredRule]:
        """Rules that are no longer declared go; those that come are returned."""
        come = list(table.declared.rules)
        for rule in table.schema.rules:
            held = rule_by_names(rule, table.schema, self._find)
            same = next((one for one in come if self._same(held, one)), None)
            if same is not None:
                come.remove(same)
                continue
            otherwise = any(fold(one.name or "") == fold(rule.name) for one in come)
            why = "declared otherwise" if otherwise else "no longer declared"
            table.alter(RULES_GO, DropRule(rule.name), f"{why}{table.place}")
        return come

    def _find(self, table_id: str) -> tuple[str, TableSchema] | None:
        for table in self._tables:
            if table.held is not None and table.held.id == table_id:
                return table.name, table.schema
        found = next((one for one in self._held.values() if one.id == table_id), None)
        return None if found is None else (found.name, found.schema)

    def _same(self, held: DeclaredRule, declared: DeclaredRule) -> bool:
        """Whether a rule of the lake is the one that is declared."""
        if declared.name is not None and fold(declared.name) != fold(held.name or ""):
            return False
        return (
            held.kind == declared.kind
            and folded(held.columns) == folded(declared.columns)
            and same_expression(held.condition, declared.condition)
            and fold(held.table or "") == fold(declared.table or "")
            and self._target(held) == self._target(declared)
            and (held.on_delete, held.least, held.most)
            == (declared.on_delete, declared.least, declared.most)
        )

    def _target(self, rule: DeclaredRule) -> list[str]:
        """The columns that are referred to: the key, where none are named."""
        if rule.table is None or rule.target:
            return folded(rule.target)
        table = self._by_name.get(fold(rule.table))
        if table is not None:
            return folded(table.declared.schema.key)
        held = self._held.get(fold(rule.table))
        return [] if held is None else folded(held.schema.key)

    # Order

    def _in_order(self) -> Iterator[Step]:
        """All steps, phase by phase; within one, tables in the order of their names."""
        # As their names become free.
        order = {name: n for n, name in enumerate(self._taken)}
        renamed = sorted(self._tables, key=lambda one: order.get(fold(one.name), len(order)))
        yield from (step for table in renamed for step in table.steps(RENAMED))
        for phase in (RULES_GO, LABELS):
            yield from (step for table in self._tables for step in table.steps(phase))
        late: list[Step] = []
        yield from self._created(late)
        for phase in range(COME, REFERENCES + 1):
            yield from (step for table in self._tables for step in table.steps(phase))
        yield from late

    def _created(self, late: list[Step]) -> Iterator[Step]:
        """New tables, each after those that it refers to. What refers in a circle, or to a table
        that is altered, comes late."""
        waiting = [table for table in self._tables if table.held is None]
        there = {fold(table.name) for table in self._tables if table.held is not None}
        there |= {fold(one.name) for one in self._undeclared()}
        unsettled = {
            fold(table.name)
            for table in self._tables
            if table.held is not None and any(map(table.steps, (LABELS, KEYS, RULES)))
        }
        while waiting:
            ready = (table for table in waiting if not _referred(table) - there)
            table = next(ready, waiting[0])
            waiting.remove(table)
            there.add(fold(table.name))
            rules = table.declared.rules
            put_off = [
                rule
                for rule in rules
                if rule.table is not None
                and (fold(rule.table) not in there or fold(rule.table) in unsettled)
            ]
            kept = tuple(rule for rule in rules if rule not in put_off)
            why = f"new{table.place}"
            declared = replace(table.declared, rules=kept, was=None, notes=())
            yield Step(table.name, CreateTable(declared), why)
            late += [Step(table.name, AddRule(rule), why) for rule in put_off]

    # Refusals

    def _refuse_unfit(self, declared: Sequence[DeclaredTable]) -> None:
        seen: dict[str, DeclaredTable] = {}
        for table in declared:
            first = seen.setdefault(fold(table.name), table)
            held = self._held.get(fold(table.name))
            why = None
            if first is not table:
                why = (
                    f"The table {table.name!r} is declared twice: here, and in {first.origin}. "
                    "Remove one."
                )
            elif (unclear := _unclear_renames(table)) is not None:
                why = unclear
            elif held is not None and held.is_stream:
                why = (
                    f"{held.name!r} is a stream table, whose columns follow from its query. Rename "
                    "one of them, or drop the stream table first."
                )
            if why is not None:
                raise placed(InvalidSchema(why, table=table.name), table.origin)

    def _refuse_unknown(self) -> None:
        """What is referred to is declared, or in the lake already."""
        known = {fold(table.declared.name): table.declared.name for table in self._tables}
        known |= {name: one.name for name, one in self._held.items()}
        for table in self._tables:
            for rule in table.declared.rules:
                if rule.table is not None and fold(rule.table) not in known:
                    error = InvalidSchema(
                        f"Table {table.name!r} refers to {rule.table!r}, and there is no such "
                        f"table. {suggest(rule.table, known.values())}",
                        table=table.name,
                        referred=rule.table,
                    )
                    raise placed(error, table.declared.origin)


def _referred(table: TableSteps) -> set[str]:
    named = {fold(rule.table) for rule in table.declared.rules if rule.table is not None}
    return named - {fold(table.declared.name)}


def _unclear_renames(table: DeclaredTable) -> str | None:
    """What is wrong with what is said of earlier names; None if it can be followed. Declarations
    stay when they were applied, so that a circle of names might have been gone round or not."""
    earlier: dict[str, str] = {}
    for new, old in table.renamed.items():
        twin = next((one for one, other in earlier.items() if other == fold(old)), None)
        if twin is not None:
            return (
                f"Columns {twin!r} and {new!r} of table {table.name!r} are both RENAMED FROM "
                f"{old!r}. Say it of one; give the other BACKFILL AS ({identifier(old)}) if it is "
                "to have the same values."
            )
        earlier[fold(new)] = fold(old)
    for new in earlier:
        name = earlier[new]
        for _ in earlier:
            if name == new:
                return (
                    f"The renames of table {table.name!r} go in a circle (column {new!r}). Rename "
                    "by ALTER TABLE, by way of a name that is free, and declare what there is then."
                )
            name = earlier.get(name, "")
    return None


def _not_renamed(table: TableSteps) -> Iterator[str]:
    """What is new, though it was said to have had another name."""
    if table.held is None:
        return
    before = table.held.schema
    for new, old in table.declared.renamed.items():
        if before.find(new) is None and before.find(old) is None:
            yield f"{table.name} has no column {old} that could become {new}; it is added"


def _drop(table: CurrentTable) -> Step:
    rows = f"{table.rows:,} {'row' if table.rows == 1 else 'rows'}"
    return Step(table.name, DropTable((table.name,)), "not declared", loses=f"the table, {rows}")
