"""Schemas as people give them, and as Spark DDL.

Owns: reading a schema from a Spark DDL string, a pyarrow schema, a PySpark StructType (known by its
`jsonValue`, so that PySpark is not imported) or columns; writing a schema as DDL.
Invariant: parse_schema(to_ddl(s), s.key) == s.

    columns  column ("," column)*
    column   name [":"] type ["NOT" "NULL"] ["COMMENT" string]
    type     "ARRAY" "<" element ">" | "MAP" "<" type "," element ">"
             | "STRUCT" "<" columns ">" | word ["(" number ("," number)* ")"]
    element  type ["NOT" "NULL"]          beyond Spark, whose DDL cannot say it

A column's COMMENT is read and not kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa

from tidelock.errors import Advice, InvalidSchema
from tidelock.model.names import quote
from tidelock.model.schema import Column, TableSchema, table_schema
from tidelock.model.types import (
    NESTING_MAX,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    decimal_type,
    list_type,
    map_type,
    nested_too_deep,
    refusal,
    spell_name,
    spell_type,
    struct_type,
    type_name,
)

__all__ = ["parse_schema", "spark_ddl", "to_ddl", "type_name"]

_TYPES: dict[str, pa.DataType] = {
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
}

_INSTEAD: dict[str, str] = {
    "VARCHAR": "use STRING",
    "CHAR": "use STRING",
    "CHARACTER": "use STRING",
    "TEXT": "use STRING",
    "VARIANT": "use STRING, holding JSON",
    "JSON": "use STRING, holding JSON",
    "VOID": "give the column a type, such as STRING",
    "NULL": "give the column a type, such as STRING",
    "INTERVAL": "use BIGINT with a unit of your choice",
    "TIME": "use STRING, or BIGINT microseconds since midnight",
    "GEOMETRY": "use BINARY, holding WKB",
    "GEOGRAPHY": "use BINARY, holding WKB",
    "UUID": "use STRING",
    "DATETIME": "use TIMESTAMP",
    "BOOL": "use BOOLEAN",
}

_CLAUSES = {
    "DEFAULT": "A DEFAULT cannot be declared here",
    "GENERATED": "A generated column cannot be declared here",
    "PRIMARY": "A key is not given in the column list",
    "UNIQUE": "UNIQUE cannot be declared here",
    "REFERENCES": "REFERENCES cannot be declared here",
    "CHECK": "CHECK cannot be declared here",
    "COLLATE": "A collation cannot be kept: compare with lower() or collate() in queries instead",
}
_KEY = Advice("Give it by key=[...].", "Give it by --key.")


def parse_schema(schema: Any, key: str | Sequence[str] | None = None) -> TableSchema:
    """The schema of a table from any of the forms that a user may give it in."""
    if isinstance(schema, TableSchema):
        return table_schema(schema.columns, schema.key if key is None else key)
    return table_schema(read_columns(schema), key)


def read_columns(schema: Any) -> list[Column]:
    """The columns as they are declared, not checked yet."""
    if isinstance(schema, str):
        return _Parser(schema).schema()
    if isinstance(schema, pa.Schema):
        return [Column(f.name, f.type, f.nullable) for f in schema]
    if callable(json_value := getattr(schema, "jsonValue", None)):
        value = json_value()
        if isinstance(value, dict) and value.get("type") == "struct":
            return [_column_from_json(field) for field in value["fields"]]
    if isinstance(schema, list | tuple) and all(isinstance(c, Column) for c in schema):
        return list(schema)
    raise InvalidSchema(
        f"A schema cannot be read from {type(schema).__name__}. Give a Spark DDL string such as "
        "'id BIGINT NOT NULL, name STRING', a pyarrow.Schema, a PySpark StructType or a list of "
        "Column.",
        actual=type(schema).__name__,
    )


def _column_from_json(field: dict[str, Any]) -> Column:
    name = str(field["name"])
    if "__COLLATIONS" in (field.get("metadata") or {}):
        raise refusal(name, "STRING COLLATE", "use STRING, and collate() in queries")
    return Column(name, _type_from_json(field["type"], name), bool(field["nullable"]))


def _type_from_json(value: Any, path: str) -> pa.DataType:
    if isinstance(value, str):
        return _Parser(value).whole_type(path)
    match value.get("type"):
        case "array":
            return list_type(_type_from_json(value["elementType"], path), value["containsNull"])
        case "map":
            key = _type_from_json(value["keyType"], f"{path}.key")
            item = _type_from_json(value["valueType"], f"{path}.value")
            return map_type(key, item, value["valueContainsNull"], path)
        case "struct":
            inner = [_column_from_json(field) for field in value["fields"]]
            return struct_type([pa.field(c.name, c.type, c.nullable) for c in inner], path)
        case other:
            raise refusal(path, str(other), "use the type that it is stored as")


def to_ddl(schema: TableSchema) -> str:
    """The columns as DDL that `parse_schema` reads back; the key is not part of it."""
    return ", ".join(
        f"{spell_name(c.name)} {spell_type(c.type)}" + ("" if c.nullable else " NOT NULL")
        for c in schema.columns
    )


def spark_ddl(schema: TableSchema) -> str:
    """The columns as DDL for a Spark session: every name quoted, NOT NULL only of whole columns."""
    return ", ".join(
        f"{quote(c.name)} {spell_type(c.type, for_spark=True)}"
        + ("" if c.nullable else " NOT NULL")
        for c in schema.columns
    )


_TOKEN = re.compile(
    r"\s*(?:"
    r"`(?P<quoted>(?:[^`]|``)*)`"
    r"|(?P<string>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|(?P<number>\d+(?!\w))"
    r"|(?P<word>\w+)"
    r"|(?P<mark>[<>(),:])"
    r"|(?P<other>\S)"
    r")"
)


class _Parser:
    """Reads DDL by recursive descent. A token is (kind, text, position)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup
            assert kind is not None
            self._tokens.append((kind, match[kind], match.start(kind)))
        self._at = 0
        self._depth = 0

    def schema(self) -> list[Column]:
        if not self._tokens:
            return []
        columns = self._column_list(outer="")
        if self._at < len(self._tokens):
            self._fail("a comma or the end")
        return columns

    def whole_type(self, path: str) -> pa.DataType:
        type_ = self._type(path)
        if self._at < len(self._tokens):
            self._fail("the end of the type")
        return type_

    def _column_list(self, outer: str) -> list[Column]:
        columns = [self._column(outer)]
        while self._take(","):
            columns.append(self._column(outer))
        return columns

    def _column(self, outer: str) -> Column:
        name = self._name()
        path = f"{outer}.{name}" if outer else name
        self._take(":")
        type_ = self._type(path)
        nullable = True
        while True:
            if self._not_null():
                nullable = False
            elif self._take_word("COMMENT"):
                if self._kind() != "string":
                    self._fail("the comment, in quotes")
                self._at += 1
            else:
                break
        if self._word() in _CLAUSES:
            raise InvalidSchema(
                f"{_CLAUSES[self._word()]} (column {path!r}).",
                _KEY if self._word() == "PRIMARY" else None,
                column=path,
                clause=self._word(),
            )
        return Column(name, type_, nullable)

    def _name(self) -> str:
        kind, text = self._kind(), self._peek()
        # In Spark a name may begin with a digit, but not be a number.
        if kind == "quoted":
            text = text.replace("``", "`")
        elif kind != "word":
            self._fail("a column name (in backticks if it is not a plain word)")
        self._at += 1
        return text

    def _type(self, path: str) -> pa.DataType:
        if self._kind() != "word":
            self._fail(f"the type of column {path!r}")
        word = self._word()
        self._at += 1
        if word in ("ARRAY", "MAP", "STRUCT"):
            if self._depth == NESTING_MAX:
                raise nested_too_deep(path)
            self._depth += 1
            type_ = self._nested(word, path)
            self._depth -= 1
            return type_
        numbers = self._numbers()
        if word in ("DECIMAL", "DEC", "NUMERIC") and len(numbers) <= 2:
            precision, scale = (*numbers, *(10, 0)[len(numbers) :])
            return decimal_type(precision, scale, path)
        if word in _TYPES and not numbers:
            return _TYPES[word]
        spelt = word + (f"({', '.join(map(str, numbers))})" if numbers else "")
        if word in _INSTEAD:
            raise refusal(path, spelt, _INSTEAD[word])
        raise refusal(path, spelt, "use one of Spark SQL's types, such as BIGINT or STRING")

    def _nested(self, word: str, path: str) -> pa.DataType:
        if not self._take("<"):
            self._fail(f"{word}<...>")
        if self._take(">"):
            if word == "STRUCT":
                return struct_type([], path)
            self._fail(f"a type inside {word}<>")
        if word == "ARRAY":
            type_ = list_type(self._type(f"{path}.item"), not self._not_null())
        elif word == "MAP":
            key = self._type(f"{path}.key")
            if not self._take(","):
                self._fail("a comma and the type of the map's values")
            value = self._type(f"{path}.value")
            type_ = map_type(key, value, not self._not_null(), path)
        else:
            fields = self._column_list(path)
            type_ = struct_type([pa.field(c.name, c.type, c.nullable) for c in fields], path)
        if not self._take(">"):
            self._fail(f"> at the end of {word}")
        return type_

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if not self._take("("):
            return numbers
        while True:
            if self._kind() != "number":
                self._fail("a number")
            numbers.append(int(self._peek()))
            self._at += 1
            if self._take(")"):
                return numbers
            if not self._take(","):
                self._fail(", or )")

    def _not_null(self) -> bool:
        if not self._take_word("NOT"):
            return False
        if not self._take_word("NULL"):
            self._fail("NULL after NOT")
        return True

    def _take(self, mark: str) -> bool:
        found = self._kind() == "mark" and self._peek() == mark
        self._at += found
        return found

    def _take_word(self, word: str) -> bool:
        found = self._word() == word
        self._at += found
        return found

    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _word(self) -> str:
        return self._peek().upper() if self._kind() == "word" else ""

    def _fail(self, wanted: str) -> NoReturn:
        at_end = self._at >= len(self._tokens)
        position = len(self._text) if at_end else self._tokens[self._at][2]
        found = "the end" if at_end else repr(self._text[position : position + 20])
        raise InvalidSchema(
            f"The schema cannot be read at character {position + 1}: expected {wanted}, "
            f"found {found}.",
            position=position,
            expected=wanted,
        )
