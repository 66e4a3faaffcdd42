"""Statements that declare tables: their text read into values.

    CREATE TABLE [IF NOT EXISTS] name [RENAMED FROM name] ( columns and rules ) [COMMENT text]
        [USING word] [TBLPROPERTIES (…)]
    ALTER TABLE [IF EXISTS] name action ("," action)*              alter.py
    DROP TABLE [IF EXISTS] name ("," name)* [CASCADE | RESTRICT]
    COMMENT ON {TABLE name | COLUMN name.name} IS {text | NULL}

Owns: which statements there are, and which words each begins with. What they do is for the store.
An error names the statement, its line and column, and what was expected there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tidelock.errors import InvalidSchema
from tidelock.model.ddl.alter import Action, read_actions
from tidelock.model.ddl.columns import read_list, read_table_name
from tidelock.model.ddl.forms import declared_table
from tidelock.model.schema.alterations import SetComment
from tidelock.model.schema.declared import DeclaredTable
from tidelock.model.sql.cursor import Cursor
from tidelock.model.sql.script import Written, cut

STORED_BY_US = frozenset({"TIDELOCK", "LANCE"})


@dataclass(frozen=True)
class CreateTable:
    table: DeclaredTable
    if_missing: bool = False


@dataclass(frozen=True)
class AlterTable:
    table: str
    actions: tuple[Action, ...]
    if_there: bool = False


@dataclass(frozen=True)
class DropTable:
    tables: tuple[str, ...]
    if_there: bool = False
    cascade: bool = False


Statement: TypeAlias = CreateTable | AlterTable | DropTable


def read_statements(text: str) -> list[Statement]:
    """The statements of a text, or an error that says where it holds none."""
    return [read_statement(one) for one in cut(text)]


def read_statement(written: Written) -> Statement:
    for words, read in _STATEMENTS.items():
        if written.words[: len(words.split())] == tuple(words.split()):
            cursor = written.cursor(words)
            with cursor.placing():
                statement = read(cursor)
                cursor.end("the end of the statement")
                return statement
    cursor = written.cursor(" ".join(written.words[:2]).strip() or "statement")
    for words, advice in _INSTEAD.items():
        if written.words[: len(words.split())] == tuple(words.split()):
            cursor.refuse(advice)
    raise cursor.wanted("CREATE TABLE, ALTER TABLE, DROP TABLE or COMMENT ON")


def _create(cursor: Cursor) -> CreateTable:
    cursor.need("CREATE", "TABLE")
    if_missing = cursor.take("IF", "NOT", "EXISTS")
    name = read_table_name(cursor)
    was = read_table_name(cursor) if cursor.take("RENAMED", "FROM") else None
    for word, advice in _NOT_A_LIST.items():
        if cursor.word == word:
            cursor.refuse(advice, table=name)
    if not cursor.take("("):
        cursor.fail("( and the columns of the table")
    found = read_list(cursor)
    if not cursor.take(")"):
        cursor.fail("a comma, or ) at the end of the columns")
    comment, notes = _clauses(cursor, name)
    table = declared_table(name, found, comment=comment, was=was, notes=notes)
    return CreateTable(table, if_missing)


def _clauses(cursor: Cursor, table: str) -> tuple[str | None, tuple[str, ...]]:
    """What stands behind the columns: the comment, and notes of what has no effect."""
    comment, notes = None, []
    while not cursor.ended:
        if cursor.take("COMMENT"):
            cursor.take("=")
            comment = cursor.string("the comment")
        elif cursor.take("USING"):
            store = cursor.name("what the table is stored as")
            if store.upper() not in STORED_BY_US:
                notes.append(f"USING {store} of {table!r} has no effect: a lake stores its tables "
                             "itself")  # fmt: skip
        elif cursor.take("TBLPROPERTIES"):
            cursor.enclosed("properties")
            notes.append(f"TBLPROPERTIES of {table!r} have no effect")
        elif cursor.word == "AS":
            cursor.refuse(_NOT_A_LIST["AS"], table=table)
        elif cursor.word in _LAYOUT:
            cursor.refuse(
                f"{cursor.word} says how a table is stored, which the lake decides. Remove it.",
                table=table,
            )
        else:
            cursor.fail("COMMENT or the end of the statement")
    return comment, tuple(notes)


def _alter(cursor: Cursor) -> AlterTable:
    cursor.need("ALTER", "TABLE")
    if_there = cursor.take("IF", "EXISTS")
    table = read_table_name(cursor)
    return AlterTable(table, read_actions(cursor), if_there)


def _drop(cursor: Cursor) -> DropTable:
    cursor.need("DROP", "TABLE")
    if_there = cursor.take("IF", "EXISTS")
    tables = [read_table_name(cursor)]
    while cursor.take(","):
        tables.append(read_table_name(cursor))
    cascade = cursor.take_any("CASCADE", "RESTRICT") == "CASCADE"
    cursor.take("PURGE")
    return DropTable(tuple(tables), if_there, cascade)


def _comment(cursor: Cursor) -> AlterTable:
    cursor.need("COMMENT", "ON")
    column = None
    if cursor.take("TABLE"):
        table = read_table_name(cursor)
    elif cursor.take("COLUMN"):
        table = cursor.name("the name of a table")
        if not cursor.take("."):
            cursor.fail("a dot and the name of a column")
        column = cursor.name("the name of a column")
    else:
        cursor.fail("TABLE or COLUMN")
    cursor.need("IS")
    comment = None if cursor.take("NULL") else cursor.string("the comment, or NULL")
    return AlterTable(table, (Action(SetComment(column, comment)),))


_STATEMENTS: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE TABLE": _create,
    "ALTER TABLE": _alter,
    "DROP TABLE": _drop,
    "COMMENT ON": _comment,
}
_REPLACE = (
    "CREATE OR REPLACE TABLE would throw the rows of a table away. Declare the table with CREATE "
    "TABLE and apply it, or say DROP TABLE before."
)
_INSTEAD = {
    "CREATE OR REPLACE": _REPLACE,
    "REPLACE TABLE": _REPLACE,
    "CREATE EXTERNAL": "An external table cannot be created: a lake stores its tables itself. Say "
    "CREATE TABLE, and load the files.",
    "CREATE TEMPORARY": "A temporary table cannot be created. Say CREATE TABLE on a branch.",
    "CREATE TEMP": "A temporary table cannot be created. Say CREATE TABLE on a branch.",
    "ALTER VIEW": "A stream table is altered by its definition, not by ALTER VIEW.",
}
_NOT_A_LIST = {
    "AS": "CREATE TABLE … AS SELECT is not known. Create the table with its columns, and INSERT "
    "INTO it.",
    "LIKE": "CREATE TABLE … LIKE is not known. Write the columns: the schema of a table "
    "shows itself as CREATE TABLE.",
    "USING": "The columns are missing. Write them behind the name: CREATE TABLE t (id BIGINT, …).",
}
_LAYOUT = frozenset(
    {"PARTITIONED", "CLUSTER", "CLUSTERED", "SORTED", "LOCATION", "OPTIONS", "ROW", "STORED"}
)


def read_create_table(written: Written) -> CreateTable:
    """For texts that may hold nothing else: what is to be, and not what is to be done."""
    statement = read_statement(written)
    if not isinstance(statement, CreateTable):
        line, column = written.place
        raise InvalidSchema(
            f"Line {line}, column {column}: {' '.join(written.words[:2])} says what is to be done. "
            "A schema says what is to be: write CREATE TABLE as the table shall be, and the plan "
            "says what is to be done for it.",
            line=line,
            column_number=column,
            statement=" ".join(written.words[:2]),
        )
    return statement
