"""Rules of Spark's optimizer that give wrong rows, and are left out of sessions of ours.

MergeSubplans    Spark 4.2 computes two aggregates over alike inputs as one, and takes a column
                 from below a LEFT JOIN for one that cannot be NULL, because it could not below
                 the join: a literal there comes out as 0 where it has to be NULL.
"""

from __future__ import annotations

EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
WRONG = ("org.apache.spark.sql.catalyst.optimizer.MergeSubplans",)


def without_wrong_rules(excluded: str) -> str:
    """The setting that leaves out what it left out before, and the wrong rules."""
    known = [rule.strip() for rule in excluded.split(",") if rule.strip()]
    return ",".join(dict.fromkeys([*known, *WRONG]))
