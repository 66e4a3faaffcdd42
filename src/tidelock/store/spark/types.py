"""PySpark's types by name, for signatures outside of this room. Nothing is imported to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
else:
    DataFrame = SparkSession = Any

__all__ = ["DataFrame", "SparkSession"]
