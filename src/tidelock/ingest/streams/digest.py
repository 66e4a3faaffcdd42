"""Digests of micro-batches: whether a batch that Spark gives again is the one that it gave before.

Owns: what is counted and summed over a batch while it is written, in the same pass.
Law: batches of the same rows have the same digest, in whatever order and parts they come; other
rows have another, but for chance (64 bits for each row, summed). Columns of maps, which Spark does
not hash, are told apart by how many rows there are, no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelock.model.names import quote
from tidelock.store.spark.sessions import engine_errors, is_client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS, SUM = "rows", "sum"
_UNHASHED = ("map", "variant", "void")


@dataclass(frozen=True)
class Digest:
    """How many rows a batch has, and the sum of their hashes."""

    rows: int
    sum: str

    @property
    def text(self) -> str:
        return f"{self.rows}:{self.sum}"


class Observed:
    """A batch that is counted as it is read: write `frame`, then ask for the `digest`."""

    def __init__(self, frame: DataFrame) -> None:
        observation, expr = _tools(frame)
        self._observation = observation
        columns = [expr(f"{sql} AS {name}") for name, sql in _measures(frame).items()]
        self.frame: DataFrame = frame.observe(observation, *columns)

    @property
    def digest(self) -> Digest:
        """Of what was read. It must have been read once, whole."""
        return _digest(self._observation.get)


def digest_of(frame: DataFrame) -> Digest:
    """The digest of a batch that is not written."""
    with engine_errors(frame.sparkSession):
        measures = [f"{sql} AS {name}" for name, sql in _measures(frame).items()]
        (row,) = frame.selectExpr(*measures).collect()
    return _digest(row.asDict())


def _measures(frame: DataFrame) -> dict[str, str]:
    hashed = [
        quote(field.name)
        for field in sorted(frame.schema.fields, key=lambda one: one.name)
        if not any(kind in field.dataType.simpleString() for kind in _UNHASHED)
    ]
    # Sums of more than 64 bits do not overflow, which Spark may take for an error.
    row = f"CAST(xxhash64({', '.join(hashed)}) AS DECIMAL(20, 0))" if hashed else "0"
    return {ROWS: "count(1)", SUM: f"coalesce(sum({row}), 0)"}


def _digest(found: dict[str, Any]) -> Digest:
    return Digest(int(found[ROWS]), str(int(found[SUM])))


def _tools(frame: DataFrame) -> tuple[Any, Any]:
    """What observes, and what reads expressions, of the kind of session that the frame has: a
    process may have sessions of both kinds."""
    if is_client(frame.sparkSession):
        from pyspark.sql.connect.functions import expr as remote_expr
        from pyspark.sql.connect.observation import Observation as RemoteObservation

        return RemoteObservation(), remote_expr
    from pyspark.sql import Observation
    from pyspark.sql.functions import expr

    return Observation(), expr
