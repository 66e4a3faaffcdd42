"""Schemas, rules and alterations as DDL.

Owns: how each is spelt. What is written here is read back by `statements.py` as the same table, or
the same alteration, whatever names and texts it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelock.model.names import fold, quote
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
from tidelock.model.schema.declared import DeclaredRule, DeclaredTable
from tidelock.model.schema.schema import Column, TableSchema
from tidelock.model.sql.cursor import read_pieces
from tidelock.model.types import spell_name, spell_type

_RESERVED = frozenset(
    {
        *("ADD", "AFTER", "ALTER", "AND", "AS", "BACKFILL", "BETWEEN", "CARDINALITY", "CASCADE"),
        *("CHECK", "COLUMN", "COLUMNS", "COMMENT", "CONSTRAINT", "CREATE", "DEFAULT", "DROP"),
        *("EXISTS", "FALSE", "FIRST", "FOREIGN", "FROM", "GROUP", "IF", "IN", "IS", "KEY", "NOT"),
        *("NULL", "ON", "OR", "ORDER", "PRIMARY", "REFERENCES", "RENAME", "RENAMED", "RESTRICT"),
        *("SELECT", "SET", "TABLE", "TO", "TRUE", "TYPE", "UNIQUE", "USING", "VALUES", "WHERE"),
        *("WITH",),
    }
)


def identifier(name: str) -> str:
    """A name as a statement has it: in backticks only where it must be."""
    return quote(name) if name.upper() in _RESERVED else spell_name(name)


def string(text: str) -> str:
    """A text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def expression(text: str) -> str:
    """An expression on one line, without comments."""
    parts: list[str] = []
    end = 0
    for piece in read_pieces(text):
        if parts and piece.start > end:
            parts.append(" ")
        parts.append(text[piece.start : piece.end])
        end = piece.end
    return "".join(parts)


def table_ddl(table: DeclaredTable) -> str:
    """The statement that creates a table."""
    lines = [*_columns(table.schema), *(rule_ddl(rule) for rule in table.rules)]
    was = "" if table.was is None else f" RENAMED FROM {identifier(table.was)}"
    listed = ",\n".join(f"  {line}" for line in lines)
    comment = "" if table.schema.comment is None else f"\nCOMMENT {string(table.schema.comment)}"
    return f"CREATE TABLE {identifier(table.name)}{was} (\n{listed}\n){comment}"


def _columns(schema: TableSchema) -> Iterator[str]:
    alone = schema.key[0] if len(schema.key) == 1 else None
    for column in schema.columns:
        yield column_ddl(column, is_key=column.name == alone)
    if len(schema.key) > 1:
        yield f"PRIMARY KEY {_listed(schema.key)}"


def column_ddl(column: Column, *, is_key: bool = False) -> str:
    parts = [identifier(column.name), spell_type(column.type)]
    if is_key:
        parts.append("PRIMARY KEY")
    elif not column.nullable:
        parts.append("NOT NULL")
    if column.default is not None:
        parts.append(f"DEFAULT {expression(column.default)}")
    if column.comment is not None:
        parts.append(f"COMMENT {string(column.comment)}")
    return " ".join(parts)


def rule_ddl(rule: DeclaredRule) -> str:
    """A rule as it stands in CREATE TABLE, or behind ADD."""
    name = "" if rule.name is None else f"CONSTRAINT {identifier(rule.name)} "
    return name + _RULES[rule.kind](rule)


def _unique(rule: DeclaredRule) -> str:
    where = "" if rule.condition is None else f" WHERE ({expression(rule.condition)})"
    return f"UNIQUE {_listed(rule.columns)}{where}"


def _check(rule: DeclaredRule) -> str:
    return f"CHECK ({expression(rule.condition or 'true')})"


def _reference(rule: DeclaredRule) -> str:
    assert rule.table is not None
    target = f" {_listed(rule.target)}" if rule.target else ""
    ends = "" if rule.on_delete == "restrict" else f" ON DELETE {rule.on_delete.upper()}"
    own = _listed(rule.columns)
    return f"FOREIGN KEY {own} REFERENCES {identifier(rule.table)}{target}{ends}"


def _cardinality(rule: DeclaredRule) -> str:
    bounds = f"BETWEEN {rule.least} AND {rule.most}"
    if rule.most is None:
        bounds = f"AT LEAST {rule.least}"
    elif not rule.least:
        bounds = f"AT MOST {rule.most}"
    return f"CARDINALITY {_listed(rule.columns)} {bounds}"


_RULES = {
    "unique": _unique,
    "check": _check,
    "reference": _reference,
    "cardinality": _cardinality,
}


def alteration_ddl(table: str, one: Alteration) -> str:
    """The statement that makes one alteration."""
    if isinstance(one, SetComment) and (one.name is None or one.comment is None):
        told = "NULL" if one.comment is None else string(one.comment)
        column = "" if one.name is None else f".{identifier(one.name)}"
        kind = "TABLE" if one.name is None else "COLUMN"
        return f"COMMENT ON {kind} {identifier(table)}{column} IS {told}"
    return f"ALTER TABLE {identifier(table)} {_action(one)}"


def _action(one: Alteration) -> str:
    match one:
        case AddColumn():
            backfill = "" if one.backfill is None else f" BACKFILL AS ({expression(one.backfill)})"
            place = " FIRST" if one.first else _after(one.after)
            return f"ADD COLUMN {column_ddl(one.column)}{backfill}{place}"
        case DropColumn():
            return f"DROP COLUMN {identifier(one.name)}" + (" CASCADE" if one.cascade else "")
        case RenameColumn():
            return f"RENAME COLUMN {identifier(one.name)} TO {identifier(one.to)}"
        case MoveColumn():
            return f"ALTER COLUMN {identifier(one.name)}{_after(one.after) or ' FIRST'}"
        case ChangeType():
            told = f"ALTER COLUMN {identifier(one.name)} TYPE {spell_type(one.type)}"
            return told + (" CASCADE" if one.cascade else "")
        case SetRequired():
            verb = "SET" if one.required else "DROP"
            return f"ALTER COLUMN {identifier(one.name)} {verb} NOT NULL"
        case SetDefault():
            told = "DROP DEFAULT"
            if one.default is not None:
                told = f"SET DEFAULT {expression(one.default)}"
            return f"ALTER COLUMN {identifier(one.name)} {told}"
        case SetComment():
            assert one.name is not None
            assert one.comment is not None
            return f"ALTER COLUMN {identifier(one.name)} COMMENT {string(one.comment)}"
        case SetKey():
            return f"ADD PRIMARY KEY {_listed(one.names)}" if one.names else "DROP PRIMARY KEY"
        case AddRule():
            return f"ADD {rule_ddl(one.rule)}"
        case DropRule():
            return f"DROP CONSTRAINT {identifier(one.name)}"


def _after(name: str | None) -> str:
    return "" if name is None else f" AFTER {identifier(name)}"


def _listed(names: Iterable[str]) -> str:
    return f"({', '.join(map(identifier, names))})"


def same_expression(one: str | None, other: str | None) -> bool:
    """Whether two expressions differ in white space, comments, the case of words and backticks
    around plain names alone."""
    if one is None or other is None or one == other:
        return one == other
    return _compared(one) == _compared(other)


def _compared(text: str) -> list[tuple[str, str]]:
    return [
        ("word", fold(piece.text)) if piece.kind in ("word", "name") else (piece.kind, piece.text)
        for piece in read_pieces(text)
    ]
