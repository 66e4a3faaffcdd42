"""Tables as DDL: reading it, and writing it.

    types        the names of types
    columns      lists of columns and rules
    forms        a schema in any form in which people give one
    statements   CREATE TABLE, ALTER TABLE, DROP TABLE and COMMENT ON, one or several in a text
    alter        what ALTER TABLE may say
    text         schemas, rules and alterations as DDL

Laws: parse_schema(to_ddl(s), s.key) == s; what `table_ddl` writes is read back as the same table.
"""

from tidelock.model.ddl.forms import parse_declared, parse_schema, read_columns
from tidelock.model.ddl.types import parse_type
from tidelock.model.schema.column_ddl import spark_ddl, to_ddl
from tidelock.model.types import type_name

__all__ = [
    "parse_declared",
    "parse_schema",
    "parse_type",
    "read_columns",
    "spark_ddl",
    "to_ddl",
    "type_name",
]
