"""The tables that a query names.

Owns: the walk over a syntax tree that tells a table from a name which the query itself defines, by
SQL's rules of scope: a name of WITH hides tables from where it stands on, and inside of itself only
if it recurses. A name with a database before it is never hidden. A hint names aliases of the query,
which are written like tables and are none.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from tidelock.model.names import fold


def tables_in(root: exp.Expr) -> Iterator[exp.Table]:
    """The tables under a node, those of WITH first; a function that stands in the place of a table
    is among them."""
    stack: list[tuple[exp.Expr, frozenset[str]]] = [(root, frozenset())]
    while stack:
        node, hidden = stack.pop()
        with_ = node.args.get("with_")
        first: list[tuple[exp.Expr, frozenset[str]]] = []
        if with_ is not None:
            for cte in with_.expressions:
                from_here = hidden | {fold(cte.alias)}
                first.append((cte.this, from_here if with_.args.get("recursive") else hidden))
                hidden = from_here
        if isinstance(node, exp.Table) and not (is_bare_name(node) and fold(node.name) in hidden):
            yield node
        below = [
            (child, hidden)
            for child in node.iter_expressions()
            if child is not with_ and not isinstance(child, exp.Hint)
        ]
        stack.extend(reversed([*first, *below]))


def is_named(table: exp.Table) -> bool:
    """Whether this is a table's name, and not a function that gives rows."""
    return isinstance(table.this, exp.Identifier)


def is_bare_name(table: exp.Table) -> bool:
    return is_named(table) and not table.args.get("db")
