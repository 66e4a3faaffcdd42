"""Conditions that are kept with a table: of rules, in the words of its columns alone."""

from __future__ import annotations

from sqlglot import exp

from tidelock.model.names import fold
from tidelock.model.schema.schema import TableSchema
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
