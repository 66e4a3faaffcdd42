"""The columns of a schema as DDL, for those who only show them: no reader of SQL is imported."""

from __future__ import annotations

from tidelock.model.names import quote
from tidelock.model.schema.schema import TableSchema
from tidelock.model.types import spell_name, spell_type


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
