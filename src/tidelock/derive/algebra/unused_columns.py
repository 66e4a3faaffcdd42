"""Columns that nobody reads are not computed, and not read from tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tidelock.derive.algebra.builders import exactly
from tidelock.derive.algebra.operators import (
    Aggregate,
    Condition,
    Distinct,
    Generate,
    GroupingSets,
    Join,
    Measure,
    Merge,
    Once,
    Operator,
    OuterJoin,
    Scan,
    Select,
    SetOperation,
    Top,
    Window,
)


def prune(operator: Operator, needed: Collection[str]) -> Operator:
    """The same rows with the columns that are needed, and perhaps others that come along."""
    match operator:
        case Scan():
            kept = tuple(one for one in operator.columns if one[0] in needed)
            return replace(operator, columns=kept)
        case Select():
            columns = tuple(one for one in operator.columns if one.name in needed)
            reads = {name for one in columns for name in one.columns}
            reads.update(_read(operator.condition))
            return Select(prune(operator.input, reads), columns, operator.condition)
        case Generate():
            below = {*needed, *operator.reads}.difference(operator.names)
            return replace(operator, input=prune(operator.input, below))
        case Join() | OuterJoin():
            keys = {name for pair in operator.keys for name in pair}
            below = {*needed, *keys, *_read(operator.condition)}
            left, right = prune(operator.left, below), prune(operator.right, below)
            return replace(operator, left=left, right=right)
        case Merge():
            return _prune_merge(operator, needed)
        case Aggregate() | GroupingSets():
            return _prune_aggregate(operator, needed)
        case Window():
            columns = tuple(one for one in operator.columns if one.name in needed)
            if not columns:
                return prune(operator.input, needed)
            reads = {*operator.partition, *(name for one in columns for name in one.columns)}
            below = (reads | set(needed)).difference(one.name for one in columns)
            return replace(operator, input=prune(operator.input, below), columns=columns)
        case Top():
            return replace(operator, input=prune(operator.input, {*needed, *operator.reads}))
        case Distinct():
            return replace(operator, input=whole(operator.input))
        case Once():
            # Conditions were put in their place below it, and its columns with them.
            return operator
        case SetOperation():
            # What is equal depends on every column.
            return replace(operator, left=whole(operator.left), right=whole(operator.right))
        case _:
            raise TypeError(f"{type(operator).__name__} comes of lowering, which comes later")


def whole(operator: Operator) -> Operator:
    """With all its columns, and none below that nobody reads."""
    return exactly(prune(operator, operator.output), operator.output)


def _read(condition: Condition | None) -> tuple[str, ...]:
    return () if condition is None else condition.columns


def _prune_merge(operator: Merge, needed: Collection[str]) -> Merge:
    kept = [position for position, name in enumerate(operator.names) if name in needed]
    # Rows must be counted even if nothing is read of them.
    kept = kept or list(range(min(1, len(operator.names))))
    inputs = []
    for one in operator.inputs:
        names = tuple(one.output[position] for position in kept)
        inputs.append(exactly(prune(one, names), names))
    names = tuple(operator.names[position] for position in kept)
    return Merge(tuple(inputs), names)


def _prune_aggregate(
    operator: Aggregate | GroupingSets, needed: Collection[str]
) -> Aggregate | GroupingSets:
    measures: tuple[Measure, ...] = tuple(one for one in operator.measures if one.name in needed)
    if not operator.groups and not measures:
        # One row comes even of no rows, and is there even if nothing is read of it.
        measures = operator.measures[:1]
    reads = {name for one in measures for name in one.columns}
    if isinstance(operator, Aggregate):
        below = prune(operator.input, reads | set(operator.groups))
        return replace(operator, input=below, measures=measures)
    below = prune(operator.input, reads | {name for _, name in operator.groups})
    identity = operator.grouping_id if operator.grouping_id in needed else None
    return replace(operator, input=below, measures=measures, grouping_id=identity)
