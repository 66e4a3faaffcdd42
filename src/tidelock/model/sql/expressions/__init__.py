"""Filters and assignments: Spark SQL text, and where it may run with Spark's meaning.

Owns: the decision, made from the text and the table's schema alone, whether a filter may be given
to Lance and whether an assignment may be computed on Arrow data, and both translations.
Invariant: what is translated has Spark's meaning (ANSI mode, the given time zone) for every row,
NULLs, NaNs, overflows and errors included. What is not known to have it is left to Spark.

    syntax       text -> tree and the columns it reads; refuses what is not one scalar expression
    literals     the literals of Spark SQL, with Spark's types
    constants    Python's values as such literals: what is bound, and what is given as a value
    lance        tree -> a Lance filter
    comparisons  one column against one literal, type by type
    arithmetic   tree -> something that computes a column from Arrow data
    definition   the values that are handed out: Filter and Assignment
"""

from tidelock.model.sql.expressions.constants import sql_literal
from tidelock.model.sql.expressions.definition import (
    Assignment,
    Filter,
    parse_assignment,
    parse_filter,
)
from tidelock.model.sql.expressions.syntax import check_readable

__all__ = [
    "Assignment",
    "Filter",
    "check_readable",
    "parse_assignment",
    "parse_filter",
    "sql_literal",
]
