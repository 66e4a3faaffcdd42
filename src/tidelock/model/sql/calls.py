"""The functions that an expression calls, by name, and which of them answer alike at all times.

A condition that must hold of committed rows is asked again whenever rows are checked, and a default
is computed once for many rows: both have to know what an answer depends on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlglot import exp

from tidelock.model.names import fold
from tidelock.model.sql.functions import CLOCK, RANDOM, SURROUNDINGS, is_built_in
from tidelock.model.sql.trees import expression, function_name, outside_queries, text_of

_MOMENTS = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_TO_MOMENTS = frozenset(
    {"date", "timestamp", "to_date", "to_timestamp", "to_timestamp_ltz", "to_timestamp_ntz"}
)
_OF_MOMENTS = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ)

STOPPING = frozenset({"assert_true", "raise_error"})


def calls_in(sql: str, columns: Iterable[str] = ()) -> tuple[str, ...]:
    """The functions that an expression calls, in the order of the text. Some may be called without
    parentheses, unless a column has that name."""
    known = {fold(name) for name in columns}
    found: dict[str, None] = {}
    for node in outside_queries(expression(sql)):
        if isinstance(node, exp.Anonymous):
            found.setdefault(function_name(node))
        elif isinstance(node, exp.Column) and len(node.parts) == 1:
            name = node.name.lower()
            if name in CLOCK | SURROUNDINGS and fold(name) not in known:
                found.setdefault(name)
    return tuple(found)


def is_moment_in_words(node: exp.Expr) -> bool:
    """Whether it is DATE 'today', CAST('now' AS TIMESTAMP) and the like, for which Spark puts the
    moment at which it reads them."""
    if isinstance(node, exp.Anonymous):
        known = function_name(node) in _TO_MOMENTS and len(node.expressions) == 1
        text = node.expressions[0] if known else None
    elif isinstance(node, exp.Cast) and node.to.this in _OF_MOMENTS:
        text = node.this
    else:
        return False
    return isinstance(text, exp.Literal) and text.is_string and bool(_MOMENTS.match(text.name))


def _is_moment_of_nothing(node: exp.Expr) -> bool:
    """Whether it is unix_timestamp(), which with an argument tells of that."""
    if not isinstance(node, exp.Anonymous):
        return False
    return function_name(node) == "unix_timestamp" and not node.expressions


def moment_in(sql: str) -> str | None:
    """The first part of an expression that tells the time without a function of the clock."""
    for node in outside_queries(expression(sql)):
        if is_moment_in_words(node) or _is_moment_of_nothing(node):
            return text_of(node)
    return None


def depends_on(function: str) -> str | None:
    """What the answer of a function depends on besides its arguments; None if on nothing else."""
    if function in CLOCK:
        return "the time"
    if function in RANDOM:
        return "chance"
    if function in SURROUNDINGS:
        return "the session or the machine"
    if function in STOPPING:
        return "which rows are looked at"
    return None if is_built_in(function) else "a function that is not built into Spark"
