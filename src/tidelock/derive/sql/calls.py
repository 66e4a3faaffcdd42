"""Calls of functions in expressions: what kind of function is called."""

from __future__ import annotations

from sqlglot import exp

from tidelock.model.sql.functions import AGGREGATES, GENERATORS
from tidelock.model.sql.trees import function_name, outside_queries

WRAPPERS = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def called(node: exp.Expr) -> exp.Anonymous | None:
    """The call inside of FILTER, WITHIN GROUP and IGNORE NULLS; None if the node is no call."""
    while isinstance(node, WRAPPERS):
        node = node.this
    return node if isinstance(node, exp.Anonymous) else None


def is_aggregate(node: exp.Expr) -> bool:
    call = called(node)
    return call is not None and function_name(call) in AGGREGATES


def is_generator(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and function_name(node) in GENERATORS


def has_aggregate(tree: exp.Expr) -> bool:
    """Whether an aggregate is asked for; one over a window is none."""
    return any(is_aggregate(node) and not _is_over(node) for node in outside_queries(tree))


def has_window(tree: exp.Expr) -> bool:
    return any(isinstance(node, exp.Window) for node in outside_queries(tree))


def _is_over(node: exp.Expr) -> bool:
    parent = node.parent
    while isinstance(parent, WRAPPERS):
        node, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is node


def is_inside_aggregate(node: exp.Expr) -> bool:
    ancestor = node.parent
    while ancestor is not None:
        if is_aggregate(ancestor) and not _is_over(ancestor):
            return True
        ancestor = ancestor.parent
    return False
