"""The door of PostgreSQL's types: what the lake holds them as, how texts become values, and back.

columns     types and columns, as the catalog describes them
mapping     which type of the lake holds a column, and what converts it
converters  the law that converters keep: numbers, times, texts, arrays
convert     columns of texts into typed ones, and back
beside      the texts of what a type does not hold exactly
document    the mapping as a table, for readers
"""

from tidelock.ingest.postgres.types.beside import KEPT_TEXTS, keep_beside, kept_beside
from tidelock.ingest.postgres.types.columns import (
    NO_TYPMOD,
    PgColumn,
    PgType,
    Taken,
    taken_columns,
)
from tidelock.ingest.postgres.types.convert import SETTINGS, convert, text_of
from tidelock.ingest.postgres.types.document import mapping_table
from tidelock.ingest.postgres.types.mapping import Mapped, map_column, map_columns

__all__ = [
    "KEPT_TEXTS",
    "NO_TYPMOD",
    "SETTINGS",
    "Mapped",
    "PgColumn",
    "PgType",
    "Taken",
    "convert",
    "keep_beside",
    "kept_beside",
    "map_column",
    "map_columns",
    "mapping_table",
    "taken_columns",
    "text_of",
]
