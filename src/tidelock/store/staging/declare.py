"""Statements that declare tables, staged: CREATE TABLE, ALTER TABLE, DROP TABLE, COMMENT ON.

Owns: what each of them does to the tables of a transaction. What they may do to a table alone is
for `alter.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tidelock.errors import InvalidSchema
from tidelock.model.ddl.alter import Action, RenameTable, parse_actions
from tidelock.model.ddl.statements import AlterTable, CreateTable, DropTable, Statement
from tidelock.model.names import check_table_name, fold
from tidelock.model.schema.alterations import (
    AddColumn,
    AddRule,
    Alteration,
    ChangeType,
    DropColumn,
    DropRule,
    SetKey,
)
from tidelock.model.schema.declared import DeclaredTable
from tidelock.store.rows.new_columns import new_columns
from tidelock.store.staging.alter import View, alter
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.staged_tables import StagedTables


def declare(tables: StagedTables, statement: Statement, view: View) -> bool:
    """Stage one statement; whether it carries along what reads what it takes away."""
    match statement:
        case CreateTable():
            if statement.if_missing and tables.find(statement.table.name) is not None:
                return False
            create(tables, statement.table, view)
            return False
        case AlterTable():
            if statement.if_there and tables.find(statement.table) is None:
                return False
            return act_on(tables, statement.table, statement.actions, view)
        case DropTable():
            for name in statement.tables:
                if not statement.if_there or tables.find(name) is not None:
                    staged = tables.stage_by_hand(name)
                    if statement.cascade:
                        _drop_references(tables, staged, view)
                    tables.drop(staged)
            return statement.cascade


def alter_by(
    tables: StagedTables, table: str, alterations: Sequence[Alteration | str], view: View
) -> bool:
    """As `act_on`, of values and of texts."""
    actions = [
        action
        for one in alterations
        for action in (parse_actions(one) if isinstance(one, str) else (Action(one),))
    ]
    return act_on(tables, table, actions, view)


def act_on(tables: StagedTables, table: str, actions: Sequence[Action], view: View) -> bool:
    """Stage actions of ALTER TABLE; whether they carry along what reads what they take away."""
    staged = tables.stage_to_alter(table, [one.change for one in actions])
    for action in actions:
        act(tables, staged, action, view)
    changes = (action.change for action in actions)
    return any(isinstance(one, DropColumn | ChangeType) and one.cascade for one in changes)


def _drop_references(tables: StagedTables, parent: StagedTable, view: View) -> None:
    """Stage the end of the rules by which other tables refer to one."""
    for state in tables.tables().states():
        if state.schema and state.id != parent.state.id:
            child = tables.stage(state.name)
            for rule in child.schema.rules:
                if rule.kind == "reference" and rule.table == parent.state.id:
                    alter(tables, child, DropRule(rule.name), view)


def create(tables: StagedTables, declared: DeclaredTable, view: View) -> StagedTable:
    """A new, empty table with its rules."""
    name = check_table_name(declared.name)
    for note in declared.notes:
        warnings.warn(f"{note}.", stacklevel=4)
    staged = tables.create(name, declared.schema)
    for rule in declared.rules:
        alter(tables, staged, AddRule(rule), view)
    return staged


def add_columns_of(tables: StagedTables, staged: StagedTable, data: Any, view: View) -> Any:
    """Stage the columns that data has and the table does not; the data, to be read then."""
    columns, data = new_columns(data, staged.schema, staged.name)
    for column in columns:
        act(tables, staged, Action(AddColumn(column)), view)
    return data


def act(tables: StagedTables, staged: StagedTable, action: Action, view: View) -> None:
    """Stage one action of ALTER TABLE."""
    one = action.change
    if isinstance(one, RenameTable):
        tables.rename(staged, check_table_name(one.to))
        return
    schema = staged.schema
    match one:
        case AddColumn():
            missing = action.lenient and schema.find(one.column.name) is not None
        case DropColumn():
            missing = action.lenient and schema.find(one.name) is None
        case DropRule():
            if schema.rule(one.name) is None and fold(one.name) == fold(key_name(staged.name)):
                one = SetKey(())
            missing = action.lenient and isinstance(one, DropRule) and schema.rule(one.name) is None
        case _:
            missing = False
    if missing:
        return
    if isinstance(one, SetKey):
        _check_key(staged, one, lenient=action.lenient)
    alter(tables, staged, one, view)


def key_name(table: str) -> str:
    """What the key of a table is called as a rule, as in PostgreSQL."""
    return f"{table}_pkey"


def _check_key(staged: StagedTable, one: SetKey, *, lenient: bool) -> None:
    there = staged.schema.key
    if one.names and there:
        raise InvalidSchema(
            f"Table {staged.name!r} has a key already, ({', '.join(there)}). Say DROP PRIMARY KEY "
            "before.",
            table=staged.name,
            expected=list(one.names),
            actual=list(there),
        )
    if not one.names and not there and not lenient:
        raise InvalidSchema(f"Table {staged.name!r} has no key to drop.", table=staged.name)
