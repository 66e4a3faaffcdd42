"""DataFrames that keep what they read readable.

A frame is a plan: its rows are read when they are asked for, which may be long after its snapshot
was last named. While the frame lives in this process, or one that was made from it, so does the
object by which garbage collection knows that its pins are in use.

PySpark's frames do not know the frames that they were made from. But each holds its plan, with the
plans below it, on Spark Connect; and on a classic session each has the session of the frame that it
was made from. So the object is tied to the one or to a twin of the other. Of a join or a union on a
classic session only the first frame is followed in this way; the other one is kept by its own
snapshot, for as long as somebody holds it.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEPT = "_tidelock_reads"


def keep_for(frame: DataFrame, owner: object) -> DataFrame:
    """The frame, which keeps the owner of what it reads alive."""
    whole: Any = frame
    plan = getattr(whole, "_plan", None)
    if plan is not None:
        setattr(plan, KEPT, owner)
    else:
        # It is the same session of Spark's, under another object of Python's.
        twin = copy.copy(whole.sparkSession)
        setattr(twin, KEPT, owner)
        whole._session = twin
    return frame
