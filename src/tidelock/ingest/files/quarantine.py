"""The table of records that were put aside: an ordinary table, that may be queried and emptied.

A record is in it by the commit that has the other rows of its file. A file that could not be read
at all is one row of it, without a line and without a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from tidelock.errors import InvalidOption
from tidelock.ingest.files.tolerant import BadRecord
from tidelock.model.listing import Listing
from tidelock.model.schema.schema import TableSchema
from tidelock.model.types import TIMESTAMP

QUARANTINE = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("line", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("record", pa.string()),
        pa.field("taken", TIMESTAMP, nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record that was put aside."""

    file: str
    line: int | None
    """None for a file that could not be read at all."""
    reason: str
    record: str | None
    """Its text, as it is in the file; of Parquet, as JSON."""
    taken: datetime


def quarantine_of(name: str) -> str:
    """What the table is called of a source, or of a table that files are loaded into."""
    return f"{name}_quarantine"


def quarantine_rows(bad: Sequence[BadRecord], moment: datetime) -> pa.Table:
    return pa.table(
        [
            pa.array([one.file for one in bad], pa.string()),
            pa.array([one.line for one in bad], pa.int64()),
            pa.array([one.reason for one in bad], pa.string()),
            pa.array([one.record for one in bad], pa.string()),
            pa.array([moment] * len(bad), TIMESTAMP),
        ],
        schema=QUARANTINE,
    )


def refuse_other(table: str, schema: TableSchema) -> None:
    """A table of this name must be one that records are put aside in."""
    if not set(QUARANTINE.names) <= set(schema.names) or schema.key:
        raise InvalidOption(
            f"There is a table {table!r}, and records that cannot be read would be put aside in a "
            "table of that name. Rename the table.",
            table=table,
        )


def list_quarantined(rows: Sequence[Quarantined]) -> Listing[Quarantined]:
    return Listing.of(
        "Quarantined",
        rows,
        {
            "file": lambda one: one.file,
            "line": lambda one: one.line,
            "reason": lambda one: one.reason,
            "record": lambda one: one.record,
            "taken": lambda one: one.taken,
        },
    )
