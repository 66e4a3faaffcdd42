"""Plans of schemas, made for a lake and carried out in a transaction.

Owns: what a plan is made from, and that it is carried out on the schemas that it was made for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tidelock.errors import Advice, InvalidOption, PlanOutdated
from tidelock.model.ddl.alter import RenameTable
from tidelock.model.ddl.statements import CreateTable, DropTable
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.names import is_hidden
from tidelock.model.schema.alterations import Alteration
from tidelock.model.schema.declared import DeclaredTable
from tidelock.model.schema.described import DescribedTable, by_names
from tidelock.model.schema.plan.plan import SchemaPlan
from tidelock.model.schema.plan.planner import plan_schema
from tidelock.model.schema.plan.table_steps import CurrentTable
from tidelock.model.schema.schema import TableSchema
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.transaction import Transaction


def make_plan(
    files: TableFiles,
    tables: Tables,
    declared: Sequence[DeclaredTable],
    *,
    branch: str,
    version: int,
    drop_undeclared: bool = False,
    notes: tuple[str, ...] = (),
) -> SchemaPlan:
    """The plan that brings the tables of a snapshot to what is declared."""
    current = [
        CurrentTable(
            state.name,
            state.id,
            partial(schema_at, files, state),
            state.schema,
            state.rows,
            state.stream is not None,
        )
        for state in tables.states()
        if not is_hidden(state.name)
    ]
    return plan_schema(
        declared,
        current,
        branch=branch,
        version=version,
        drop_undeclared=drop_undeclared,
        notes=notes,
    )


def schema_at(files: TableFiles, state: TableState) -> TableSchema:
    """The schema of a table in a snapshot, as users see it."""
    known = files.known_schema(state)
    return (files.schema(state, files.read(state)) if known is None else known).shown


def describe(
    files: TableFiles, tables: Tables, name: str, branch: str, version: int
) -> DescribedTable:
    """A table of a snapshot, with its rules by names."""
    state = tables[name]
    by_id = {one.id: one for one in tables.states()}

    def find(table_id: str) -> tuple[str, TableSchema] | None:
        found = by_id.get(table_id)
        return None if found is None else (found.name, schema_at(files, found))

    declared = by_names(state.name, schema_at(files, state), find)
    return DescribedTable(state.name, state.id, branch, version, declared)


def refuse_loss(plan: SchemaPlan, allow_data_loss: bool) -> None:
    """InvalidOption if a plan destroys something and nobody said that it may."""
    lost = plan.destructive
    if not lost or allow_data_loss:
        return
    told = "; ".join(f"{step.ddl} destroys {step.loses}" for step in lost)
    raise InvalidOption(
        f"{told}. Nothing was changed.",
        Advice(
            "Say allow_data_loss=True, or declare it again.",
            "Say --allow-data-loss, or declare it again.",
        ),
        steps=[step.ddl for step in lost],
    )


def stage_plan(transaction: Transaction, plan: SchemaPlan, *, cascade: bool = False) -> None:
    """Stage all steps of a plan, or PlanOutdated if the schemas are others by now. With `cascade`,
    stream tables that read what is dropped or retyped are carried along."""
    _refuse_outdated(transaction, plan)
    for step in plan.steps:
        match step.work:
            case CreateTable() | DropTable():
                work = step.work
                if cascade and isinstance(work, DropTable):
                    work = replace(work, cascade=True)
                transaction.declare(work)
            case RenameTable():
                transaction.rename_table(step.table, step.work.to)
            case _:
                one: Alteration = step.work
                transaction.alter_table(step.table, one, cascade=cascade)


def _refuse_outdated(transaction: Transaction, plan: SchemaPlan) -> None:
    tables = transaction.tables()
    moved = []
    for basis in plan.basis:
        found = tables.find(basis.name)
        now = ("", "") if found is None else (found.id, found.schema)
        if now != (basis.id, basis.schema):
            moved.append(basis.name)
    if not moved:
        return
    names = ", ".join(map(repr, moved))
    raise PlanOutdated(
        f"The plan was made for version {plan.version}, and since then {names} "
        f"{'was' if len(moved) == 1 else 'were'} created, altered, renamed or dropped. Nothing was "
        "changed.",
        Advice("Make the plan again: lake.plan_schema(…).", "Run the command again."),
        tables=moved,
        expected=plan.version,
        actual=transaction.base_version,
    )
