"""Conditions that are kept with a table: of rules, in the words of its columns alone."""

from __future__ import annotations

from sqlglot import exp

from tidelock.model.names import fold
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sql.functions import CLOCK, SURROUNDINGS, why_refused
from tidelock.model.sql.trees import expression, rewrite, text_of


def unqualified(sql: str, table: str, schema: TableSchema) -> str:
    """A condition whose columns do not name their table, which may be renamed."""
    named = False

    def change(node: exp.Expr) -> exp.Expr | None:
        nonlocal named
        if not isinstance(node, exp.Column) or len(node.parts) < 2:
            return None
        first, second = (part.name for part in node.parts[:2])
        if fold(first) != fold(table) or schema.find(first) or not schema.find(second):
            return None
        named = True
        rest = [part.copy() for part in node.parts[1:]]
        return exp.Column(this=rest[0]) if len(rest) == 1 else exp.Dot.build(rest)

    changed = rewrite(expression(sql), change)
    return text_of(changed) if named else sql


def why_unsettled(sql: str, schema: TableSchema) -> str | None:
    """Why a condition may say another thing of the same row at another time; None if it does not.

    A rule is checked when rows come, and has to hold of them from then on.
    """
    for node in expression(sql).walk():
        name, arguments = "", 0
        if isinstance(node, exp.Anonymous):
            name, arguments = str(node.name).lower(), len(node.expressions)
        elif isinstance(node, exp.Column) and node.name.lower() in CLOCK | SURROUNDINGS:
            # A function that is called without parentheses, unless a column has its name.
            name = "" if schema.find(node.parts[0].name) else node.name.lower()
        if name and why_refused(name, arguments) is not None:
            return f"{name} may give another answer for the same row at another time"
    return None
