"""The functions that an expression calls, by name, and which of them answer alike at all times.

A condition that must hold of committed rows is asked again whenever rows are checked, and a default
is computed once for many rows: both have to know what an answer depends on.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from tidelock.model.names import fold
from tidelock.model.sql.functions import CLOCK, RANDOM, SURROUNDINGS, is_built_in
from tidelock.model.sql.trees import expression, function_name, outside_queries

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
