"""The laws that every tree of operators keeps, checked.

A broken one is a bug in Tidelock: it is found when a query is read, before any row is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from sqlglot import exp

from tidelock.derive.algebra.operators import (
    Aggregate,
    Anti,
    Condition,
    Core,
    Distinct,
    Generate,
    GroupingSets,
    Join,
    Leaf,
    Left,
    Merge,
    Named,
    Once,
    Operator,
    OuterJoin,
    Scan,
    Select,
    SetOperation,
    Top,
    Window,
    inputs,
    walk_once,
)
from tidelock.errors import BrokenInvariant
from tidelock.model.sql.trees import columns_of, expression


def check(root: Operator) -> None:
    """BrokenInvariant unless every operator reads what its inputs give, and names columns once."""
    for operator in walk_once(root):
        _check_names(operator)
        _check_reads(operator)


def is_core(root: Operator) -> TypeGuard[Core]:
    others = (OuterJoin, Distinct, SetOperation, GroupingSets)
    return not any(isinstance(one, others) for one in walk_once(root))


def _check_names(operator: Operator) -> None:
    output = operator.output
    if len(set(output)) != len(output):
        raise BrokenInvariant(f"a column is given twice: {operator}")
    if isinstance(operator, Merge | SetOperation):
        widths = {len(one.output) for one in inputs(operator)}
        if widths != {len(output)}:
            raise BrokenInvariant(f"inputs of different widths are merged: {operator}")


def _check_reads(operator: Operator) -> None:
    there = {name for one in inputs(operator) for name in one.output}
    if not set(_reads(operator)) <= there:
        raise BrokenInvariant(f"a column is read that no input gives: {operator}")
    for one in _expressions(operator):
        tree = expression(one.sql)
        if set(columns_of(tree)) != set(one.columns) or tree.find(exp.Query) is not None:
            raise BrokenInvariant(f"an expression is not what it says: {one}")


def _expressions(operator: Operator) -> Iterable[Named | Condition]:
    if isinstance(operator, Select | Window):
        yield from operator.columns
    if isinstance(operator, Select | Join | OuterJoin) and operator.condition is not None:
        yield operator.condition


def _reads(operator: Operator) -> Iterable[str]:
    for one in _expressions(operator):
        yield from one.columns
    match operator:
        case Join() | OuterJoin() | Anti():
            for pair in operator.keys:
                yield from pair
        case Left():
            for pair in (*operator.keys, *operator.partner_keys):
                yield from pair
        case Generate() | Top():
            yield from operator.reads
        case Window():
            yield from operator.partition
        case Aggregate():
            yield from operator.groups
            yield from (name for one in operator.measures for name in one.columns)
        case GroupingSets():
            yield from (name for _, name in operator.groups)
            yield from (name for one in operator.measures for name in one.columns)
        case Scan() | Leaf() | Select() | Merge() | Once() | Distinct() | SetOperation():
            return
