"""A condition of Spark's on rows of this process: for which of them it is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelock.store.spark.scan import spark_schema
from tidelock.store.spark.sessions import could_not, engine_errors
from tidelock.store.tables.fragments import numbers

if TYPE_CHECKING:
    from tidelock.store.engine import Engine

_POSITION = "_position"


def are_true(engine: Engine, rows: pa.Table, condition: str, table: str) -> npt.NDArray[np.bool_]:
    """For each row whether a condition is true."""
    true = np.zeros(rows.num_rows, dtype=np.bool_)
    if not rows.num_rows:
        return true
    session = engine.small() or engine.get()
    positions = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    numbered = rows.append_column(_POSITION, positions)
    schema = pa.schema([one.with_nullable(True) for one in numbered.schema])
    doing = f"could not evaluate a rule of table {table!r}"
    with engine_errors(session, could_not(doing, " Nothing was written.", table=table)):
        frame = session.createDataFrame(numbered.cast(schema), schema=spark_schema(schema))
        found = frame.alias(table).where(condition).select(_POSITION).toArrow()
    true[numbers(found.column(_POSITION)).astype(np.int64)] = True
    return true
