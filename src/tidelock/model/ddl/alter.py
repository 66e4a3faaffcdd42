"""What ALTER TABLE may say.

ADD [COLUMN] [IF NOT EXISTS] column [FIRST | AFTER name]
ADD {COLUMN | COLUMNS} ( column [FIRST | AFTER name], … )
ADD rule                                          as in CREATE TABLE: [CONSTRAINT name] CHECK …
DROP [COLUMN] [IF EXISTS] name [CASCADE | RESTRICT]
DROP COLUMNS [IF EXISTS] ( name, … )
DROP CONSTRAINT [IF EXISTS] name   DROP PRIMARY KEY [IF EXISTS]
RENAME [COLUMN] name TO name   RENAME TO name
{ALTER | CHANGE} [COLUMN] name { [SET DATA] TYPE type [CASCADE] | SET NOT NULL | DROP NOT NULL
    | SET DEFAULT expression | DROP DEFAULT | COMMENT text | FIRST | AFTER name }
SET TBLPROPERTIES ('comment' = text)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tidelock.model.ddl.columns import (
    ColumnList,
    read_column,
    read_default,
    read_rule,
    read_table_name,
)
from tidelock.model.ddl.types import read_type
from tidelock.model.schema.alterations import (
    AddColumn,
    AddRule,
    Alteration,
    ChangeType,
    DropColumn,
    DropRule,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetDefault,
    SetKey,
    SetRequired,
)
from tidelock.model.sql.cursor import Cursor, schema_cursor
from tidelock.model.types import normal_type


@dataclass(frozen=True)
class RenameTable:
    to: str


Change: TypeAlias = Alteration | RenameTable


@dataclass(frozen=True)
class Action:
    """One action of ALTER TABLE."""

    change: Change
    lenient: bool = False
    """Whether it is no error that what it adds is there, or that what it drops is not."""


def parse_actions(text: str) -> tuple[Action, ...]:
    """What stands behind ALTER TABLE and a name."""
    cursor = schema_cursor(text)
    actions = read_actions(cursor)
    cursor.end("a comma or the end")
    return actions


def read_actions(cursor: Cursor) -> tuple[Action, ...]:
    actions = _read_action(cursor)
    while cursor.take(","):
        actions += _read_action(cursor)
    return tuple(actions)


def _read_action(cursor: Cursor) -> list[Action]:
    for words, read in _ACTIONS.items():
        if cursor.sees(words):
            with cursor.placing():
                cursor.take(words)
                return read(cursor)
    raise cursor.wanted("ADD, DROP, RENAME or ALTER COLUMN")


# ADD -------------------------------------------------------------------------------------------


def _add(cursor: Cursor) -> list[Action]:
    found = ColumnList()
    if read_rule(cursor, found):
        return _rules(found)
    if cursor.take_any("COLUMNS", "COLUMN") and cursor.take("("):
        actions = _added(cursor)
        while cursor.take(","):
            actions += _added(cursor)
        if not cursor.take(")"):
            cursor.fail("a comma or )")
        return actions
    return _added(cursor)


def _added(cursor: Cursor) -> list[Action]:
    lenient = cursor.take("IF", "NOT", "EXISTS")
    found = ColumnList()
    column = read_column(cursor, found)
    if found.renamed:
        cursor.refuse(
            "RENAMED FROM stands in CREATE TABLE. Say ALTER TABLE … RENAME COLUMN … TO ….",
            column=column.name,
        )
    first = cursor.take("FIRST")
    after = cursor.name("the column that comes before it") if cursor.take("AFTER") else None
    added = AddColumn(column, found.backfills.get(column.name), after, first)
    return [Action(added, lenient), *_rules(found)]


def _rules(found: ColumnList) -> list[Action]:
    key = [] if found.key is None else [Action(SetKey(found.key))]
    return [*key, *(Action(AddRule(rule)) for rule in found.rules)]


# DROP ------------------------------------------------------------------------------------------


def _drop(cursor: Cursor) -> list[Action]:
    if cursor.take("PRIMARY", "KEY"):
        return [Action(SetKey(()), cursor.take("IF", "EXISTS"))]
    if cursor.take("CONSTRAINT"):
        lenient = cursor.take("IF", "EXISTS")
        name = cursor.name("the name of a rule")
        _cascades(cursor)
        return [Action(DropRule(name), lenient)]
    several = cursor.take("COLUMNS")
    if not several:
        cursor.take("COLUMN")
    lenient = cursor.take("IF", "EXISTS")
    if cursor.word == "(":
        names: tuple[str, ...] = cursor.listed("a column")
    else:
        names = (_column(cursor),)
        while several and cursor.take(","):
            names += (_column(cursor),)
    cascade = _cascades(cursor)
    return [Action(DropColumn(name, cascade), lenient) for name in names]


def _cascades(cursor: Cursor) -> bool:
    return cursor.take_any("CASCADE", "RESTRICT") == "CASCADE"


# RENAME ----------------------------------------------------------------------------------------


def _rename(cursor: Cursor) -> list[Action]:
    if cursor.sees("TO") and cursor.peek(1) != "TO":
        cursor.take("TO")
        return [Action(RenameTable(read_table_name(cursor)))]
    cursor.take("COLUMN")
    name = _column(cursor)
    cursor.need("TO")
    return [Action(RenameColumn(name, cursor.name("a column name")))]


# ALTER COLUMN ----------------------------------------------------------------------------------


def _alter(cursor: Cursor) -> list[Action]:
    cursor.take("COLUMN")
    name = _column(cursor)
    for words, read in _CHANGES.items():
        if cursor.take(*words.split()):
            return [Action(read(cursor, name))]
    raise cursor.wanted(
        "TYPE, SET NOT NULL, DROP NOT NULL, SET DEFAULT, DROP DEFAULT, COMMENT, FIRST or AFTER"
    )


def _type(cursor: Cursor, name: str) -> Alteration:
    type_ = normal_type(read_type(cursor, name), name)
    if cursor.word == "USING":
        cursor.refuse(
            f"A type changes only to one that holds every value (column {name!r}). Add a column of "
            "the new type with BACKFILL AS (…), and drop the old one.",
            column=name,
        )
    return ChangeType(name, type_, _cascades(cursor))


def _comment(cursor: Cursor, name: str) -> Alteration:
    return SetComment(name, None if cursor.take("NULL") else cursor.string("the comment"))


_CHANGES: dict[str, Callable[[Cursor, str], Alteration]] = {
    "TYPE": _type,
    "SET DATA TYPE": _type,
    "SET NOT NULL": lambda cursor, name: SetRequired(name, True),
    "DROP NOT NULL": lambda cursor, name: SetRequired(name, False),
    "SET DEFAULT": lambda cursor, name: SetDefault(name, read_default(cursor)),
    "DROP DEFAULT": lambda cursor, name: SetDefault(name, None),
    "COMMENT": _comment,
    "FIRST": lambda cursor, name: MoveColumn(name),
    "AFTER": lambda cursor, name: MoveColumn(name, cursor.name("a column name")),
}


def _set(cursor: Cursor) -> list[Action]:
    cursor.need("TBLPROPERTIES")
    cursor.need("(")
    if cursor.kind() != "text" or cursor.string("a property") != "comment":
        cursor.refuse("A table has no properties but its comment: COMMENT ON TABLE … IS '…'.")
    cursor.need("=")
    comment = cursor.string("the comment")
    cursor.need(")")
    return [Action(SetComment(None, comment))]


def _column(cursor: Cursor) -> str:
    name = cursor.name("a column name")
    if cursor.word == ".":
        cursor.refuse(
            f"A field inside of a column cannot be altered ({name}.…). Add a column with BACKFILL "
            "AS (…), and drop the old one.",
            column=name,
        )
    return name


_ACTIONS: dict[str, Callable[[Cursor], list[Action]]] = {
    "ADD": _add,
    "DROP": _drop,
    "RENAME": _rename,
    "ALTER": _alter,
    "CHANGE": _alter,
    "SET": _set,
}
