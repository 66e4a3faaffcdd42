"""Running a query over frames, one for each table that it names.

Owns: how a frame gets the name by which a query calls it. The frames become definitions in front of
the query (WITH), which is otherwise handed to Spark as it was written. So names live as long as the
query and nowhere else: no view is left behind, and nothing of the session's catalog is covered up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidelock.errors import QueryFailed
from tidelock.model.names import quote
from tidelock.model.query import QueryPlan, TableRead, Translate, plan_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["QueryPlan", "TableRead", "Translate", "bind", "plan_query", "run_query"]


def bind(plan: QueryPlan) -> str:
    """The query with its tables defined in front, as a format string for `SparkSession.sql`, in
    which `{t0}`, `{t1}`, … stand for the frames in the order of `plan.reads`."""
    text = _escaped(plan.text)
    if not plan.reads:
        return text
    tables = ",\n".join(
        f"{_escaped(quote(read.written))} AS (SELECT * FROM {{t{number}}})"
        for number, read in enumerate(plan.reads)
    )
    # The query's own WITH goes inside: there it may define a name again and still mean ours in it.
    body = f"(\n{text}\n)" if plan.begins_with else text
    return f"WITH {tables}\n{body}"


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def run_query(spark: SparkSession, plan: QueryPlan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The result of the query over `frames`, which are named as `plan.reads` names its tables."""
    from pyspark.errors import PySparkException

    bound: dict[str, Any] = {
        f"t{number}": frames[read.name] for number, read in enumerate(plan.reads)
    }
    # Without frames PySpark does not format the text, and braces stay single.
    text = bind(plan) if bound else plan.text
    try:
        result = spark.sql(text, **bound)
        # Spark Connect analyses late; an error in the query belongs here.
        _ = result.schema
    except PySparkException as error:
        lines = str(error).strip().splitlines()
        raise QueryFailed(
            f"Spark refused the query: {lines[0] if lines else error}", query=plan.text
        ) from error
    return result
