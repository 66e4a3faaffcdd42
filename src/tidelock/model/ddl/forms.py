"""Schemas in the forms in which people give them.

Owns: reading a schema from a list of columns in DDL, a pyarrow schema, a PySpark StructType (known
by its `jsonValue`, so that PySpark is not imported) or columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidelock.errors import InvalidSchema
from tidelock.model.ddl.columns import ColumnList, only_columns, read_list
from tidelock.model.ddl.types import parse_type
from tidelock.model.names import fold
from tidelock.model.schema.declared import DeclaredTable
from tidelock.model.schema.schema import Column, TableSchema, table_schema
from tidelock.model.sql.cursor import schema_cursor
from tidelock.model.types import list_type, map_type, refusal, struct_type

Key = str | Sequence[str] | None


def parse_schema(schema: Any, key: Key = None) -> TableSchema:
    """The columns and the key of a table from any of the forms that a user may give them in."""
    if isinstance(schema, TableSchema):
        given = schema.key if key is None else key
        return table_schema(schema.columns, given, schema.rules, schema.comment)
    if isinstance(schema, str):
        found = _read_text(schema)
        return table_schema(only_columns(found), key_of(found, key))
    return table_schema(read_columns(schema), key)


def parse_declared(name: str, schema: Any, key: Key = None) -> DeclaredTable:
    """A table from any of these forms, rules included."""
    if not isinstance(schema, str):
        return DeclaredTable(name, parse_schema(schema, key))
    return declared_table(name, _read_text(schema), key)


def declared_table(
    name: str, found: ColumnList, key: Key = None, comment: str | None = None, **more: Any
) -> DeclaredTable:
    """The table that a list of columns and rules declares."""
    return DeclaredTable(
        name,
        table_schema(found.columns, key_of(found, key), comment=comment),
        tuple(found.rules),
        renamed=found.renamed,
        backfills=found.backfills,
        **more,
    )


def key_of(found: ColumnList, given: Key) -> Key:
    """The key, which may be given in a list of columns or beside it."""
    if found.key is None or given is None:
        return found.key if given is None else given
    beside = [given] if isinstance(given, str) else list(given)
    if [fold(one) for one in found.key] != [fold(str(one)) for one in beside]:
        raise InvalidSchema(
            f"The key is given twice: as PRIMARY KEY ({', '.join(found.key)}), and as "
            f"({', '.join(map(str, beside))}). Give it once."
        )
    return found.key


def _read_text(text: str) -> ColumnList:
    cursor = schema_cursor(text)
    if cursor.ended:
        return ColumnList()
    found = read_list(cursor)
    cursor.end("a comma or the end")
    return found


def read_columns(schema: Any) -> list[Column]:
    """The columns as they are declared, not checked yet."""
    if isinstance(schema, str):
        return only_columns(_read_text(schema))
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
        return parse_type(value, path)
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
