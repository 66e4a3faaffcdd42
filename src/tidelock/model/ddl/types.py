"""Types as DDL spells them.

type     "ARRAY" "<" element ">" | "MAP" "<" type "," element ">"
         | "STRUCT" "<" field ("," field)* ">" | word ["(" number ("," number)* ")"]
element  type ["NOT" "NULL"]          beyond Spark, whose DDL cannot say it
field    name [":"] type ["NOT" "NULL"] ["COMMENT" string]
"""

from __future__ import annotations

import pyarrow as pa

from tidelock.model.sql.cursor import Cursor, schema_cursor
from tidelock.model.types import (
    NESTING_MAX,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    decimal_type,
    list_type,
    map_type,
    nested_too_deep,
    normal_type,
    refusal,
    struct_type,
)

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
    "JSONB": "use STRING, holding JSON",
    "VOID": "give the column a type, such as STRING",
    "NULL": "give the column a type, such as STRING",
    "INTERVAL": "use BIGINT with a unit of your choice",
    "TIME": "use STRING, or BIGINT microseconds since midnight",
    "GEOMETRY": "use BINARY, holding WKB",
    "GEOGRAPHY": "use BINARY, holding WKB",
    "UUID": "use STRING",
    "DATETIME": "use TIMESTAMP",
    "TIMESTAMPTZ": "use TIMESTAMP",
    "BOOL": "use BOOLEAN",
    "SERIAL": "use STRING DEFAULT uuid(), or give the numbers",
    "BIGSERIAL": "use STRING DEFAULT uuid(), or give the numbers",
}


KNOWN = frozenset({*_TYPES, *_INSTEAD, "DECIMAL", "DEC", "NUMERIC", "ARRAY", "MAP", "STRUCT"})
"""The words that a type may begin with."""


def parse_type(text: str, column: str) -> pa.DataType:
    """The type that a DDL text names; an error names the column."""
    cursor = schema_cursor(text)
    type_ = read_type(cursor, column)
    cursor.end("the end of the type")
    return normal_type(type_, column)


def read_type(cursor: Cursor, path: str, depth: int = 0) -> pa.DataType:
    """The type that comes next; `path` names the column, and leads into it."""
    if cursor.kind() != "word":
        cursor.fail(f"the type of column {path!r}")
    word = cursor.word
    cursor.take(word)
    if word in ("ARRAY", "MAP", "STRUCT"):
        if depth == NESTING_MAX:
            raise nested_too_deep(path)
        return _nested(cursor, word, path, depth + 1)
    numbers = _numbers(cursor)
    if word in ("DECIMAL", "DEC", "NUMERIC") and len(numbers) <= 2:
        precision, scale = (*numbers, *(10, 0)[len(numbers) :])
        return decimal_type(precision, scale, path)
    if word in _TYPES and not numbers:
        return _TYPES[word]
    spelt = word + (f"({', '.join(map(str, numbers))})" if numbers else "")
    instead = _INSTEAD.get(word, "use one of Spark SQL's types, such as BIGINT or STRING")
    raise refusal(path, spelt, instead)


def _nested(cursor: Cursor, word: str, path: str, depth: int) -> pa.DataType:
    if not cursor.take("<"):
        cursor.fail(f"{word}<...>")
    if cursor.take(">"):
        if word == "STRUCT":
            return struct_type([], path)
        cursor.fail(f"a type inside {word}<>")
    if word == "ARRAY":
        type_ = list_type(read_type(cursor, f"{path}.item", depth), not take_not_null(cursor))
    elif word == "MAP":
        key = read_type(cursor, f"{path}.key", depth)
        if not cursor.take(","):
            cursor.fail("a comma and the type of the map's values")
        value = read_type(cursor, f"{path}.value", depth)
        type_ = map_type(key, value, not take_not_null(cursor), path)
    else:
        fields = [_field(cursor, path, depth)]
        while cursor.take(","):
            fields.append(_field(cursor, path, depth))
        type_ = struct_type(fields, path)
    if not cursor.take(">"):
        cursor.fail(f"> at the end of {word}")
    return type_


def _field(cursor: Cursor, outer: str, depth: int) -> pa.Field:
    name = cursor.name("the name of a field")
    cursor.take(":")
    type_ = read_type(cursor, f"{outer}.{name}", depth)
    nullable = not take_not_null(cursor)
    if cursor.take("COMMENT"):
        cursor.string("the comment")
        nullable = nullable and not take_not_null(cursor)
    return pa.field(name, type_, nullable)


def _numbers(cursor: Cursor) -> list[int]:
    numbers: list[int] = []
    if not cursor.take("("):
        return numbers
    while True:
        numbers.append(cursor.whole_number("a number"))
        if cursor.take(")"):
            return numbers
        if not cursor.take(","):
            cursor.fail(", or )")


def take_not_null(cursor: Cursor) -> bool:
    if not cursor.take("NOT"):
        return False
    if not cursor.take("NULL"):
        cursor.fail("NULL after NOT")
    return True
