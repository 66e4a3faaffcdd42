"""Hashes of the rows of a frame: whether two frames hold the same rows, without comparing them.

Law: frames of the same rows have the same digest, in whatever order and parts they come; other rows
have another, but for chance (64 bits for each row, summed). Columns of maps, which Spark does not
hash, are told apart by how many rows there are, no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelock.model.names import quote
from tidelock.store.spark.sessions import engine_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_HASH = "__tidelock_row_hash"
_RING = 1 << 64
_UNHASHED = ("map<", "variant", "void")


@dataclass(frozen=True)
class Digest:
    """How many rows there are, and the sum of their hashes."""

    rows: int
    sum: int

    @property
    def text(self) -> str:
        return f"{self.rows}:{self.sum % _RING:016x}"


def hash_sql(frame: DataFrame) -> str:
    """The hash of a row of a frame, by its values and not by the order of its columns."""
    hashed = [
        quote(field.name)
        for field in sorted(frame.schema.fields, key=lambda one: one.name)
        if not any(kind in field.dataType.simpleString() for kind in _UNHASHED)
    ]
    return f"xxhash64({', '.join(hashed)})" if hashed else "0L"


def digest_of(frame: DataFrame) -> Digest:
    """The digest of a frame that is not written."""
    with engine_errors(frame.sparkSession):
        # A sum of more than 64 bits does not overflow, which Spark may take for an error.
        total = f"coalesce(sum(CAST({hash_sql(frame)} AS DECIMAL(20, 0))), 0)"
        (row,) = frame.selectExpr("count(1) AS n", f"{total} AS total").collect()
    return Digest(int(row["n"]), int(row["total"]))
