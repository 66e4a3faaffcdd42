"""Running a query over frames, one for each table that it names.

Owns: how a frame gets the name by which a query calls it. The frames become definitions in front of
the query (WITH), which is otherwise handed to Spark as it was written. So names live as long as the
query and nowhere else: no view is left behind, and nothing of the session's catalog is covered up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidelock.errors import QueryFailed
from tidelock.model.names import quote
from tidelock.model.sql.expressions.constants import PythonValue
from tidelock.model.sql.expressions.syntax import NO_PARAMETERS
from tidelock.model.sql.reads import QueryReads, TableRead, Translate, find_reads
from tidelock.store.spark.sessions import Refused, engine_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LINE = re.compile(r"\bline (\d+)(?=,? pos)")
_SAIL_NAME = re.compile(r"ObjectName\(\[[^\]]*\]\)")
_SAIL_PART = re.compile(r'Identifier\("((?:[^"\\]|\\.)*)"\)')

__all__ = ["QueryReads", "TableRead", "Translate", "bind", "find_reads", "readable", "run_query"]


def bind(plan: QueryReads) -> str:
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


def run_query(
    spark: SparkSession,
    plan: QueryReads,
    frames: Mapping[str, DataFrame],
    values: Mapping[str, PythonValue] = NO_PARAMETERS,
    refused: Refused | None = None,
) -> DataFrame:
    """The result of the query over `frames`, which are named as `plan.reads` names its tables.

    `values` are bound to the query's parameters by the engine itself.
    """
    bound: dict[str, Any] = {
        f"t{number}": frames[read.name] for number, read in enumerate(plan.reads)
    }
    # Without frames PySpark does not format the text, and braces stay single.
    text = bind(plan) if bound else plan.text

    def refused_text(engine: str, words: str) -> QueryFailed:
        told = readable(words, _lines_ahead(plan))
        place = _LINE.search(told)
        evidence = {"line": int(place[1])} if place else {}
        return QueryFailed(f"{engine} refused the query: {told}", query=plan.text, **evidence)

    with engine_errors(spark, refused or refused_text):
        result = spark.sql(text, args=dict(values) or None, **bound)
        # Spark Connect analyses late; an error in the query belongs here.
        _ = result.schema
        return result


def _lines_ahead(plan: QueryReads) -> int:
    """How many lines of what Spark is given come before the user's text."""
    return len(plan.reads) + plan.begins_with if plan.reads else 0


def readable(message: str, ahead: int = 0) -> str:
    """The message with the user's lines, and with names as SQL writes them where Sail does not."""
    message = _LINE.sub(lambda match: f"line {max(1, int(match[1]) - ahead)}", message)
    return _SAIL_NAME.sub(lambda match: ".".join(map(quote, _SAIL_PART.findall(match[0]))), message)
