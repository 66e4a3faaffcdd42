"""Running what declares tables: CREATE TABLE, ALTER TABLE, DROP TABLE and COMMENT ON."""

from __future__ import annotations

from tidelock.model.ddl.statements import CreateTable, DropTable, Statement
from tidelock.store.statements.desk import Desk
from tidelock.store.statements.reports import StatementReport


def run_declaration(desk: Desk, statement: Statement, kind: str) -> StatementReport:
    desk.declare(statement)
    desk.refuse_clash()
    return StatementReport(kind, tables_of(statement))


def tables_of(statement: Statement) -> str:
    match statement:
        case CreateTable():
            return statement.table.name
        case DropTable():
            return ", ".join(statement.tables)
        case _:
            return statement.table
