"""Stages: a view cut into parts that are each kept in one table.

A stage is a body over tables (Scan, Select, Generate, Join, Left, Anti, Merge) and a head that says
what is kept of it. Once and the operators that are local to a key are the heads: each ends a stage,
and what reads it scans the stage's table, whose old and new state are both readable. The last stage
is the view itself; the others are internal tables that are published with it.

    head          kept                                     moved by
    Bag           the body's rows                          their changes
    Groups        one row a group, with sums, counts and   adding the changes' sums and counts,
                  least and greatest values                comparing with their extremes
    Partitions    the rows of each key                     computing the touched keys again
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from tidelock.derive.sql.operators import (
    Aggregate,
    Anti,
    Core,
    Generate,
    Join,
    Left,
    Measure,
    Merge,
    Once,
    Operator,
    Scan,
    Select,
    Top,
    Window,
)

INTERNAL = " #"
"""How a scan names the table of another stage, ` #0`, ` #1`, …: no table's name begins with a
space."""

# Sums and counts of these can be added up; everything else is computed again where it changed.
ADDITIVE = frozenset({"count", "count_if", "sum", "avg", "bool_and", "bool_or"})
EXTREMES = frozenset({"min", "max"})
"""Kept as long as none of the values that leave is the one that is kept."""


@dataclass(frozen=True)
class Bag:
    """Every row as it is."""


@dataclass(frozen=True)
class Groups:
    """An aggregate whose measures all follow from what is kept of a group and what changed."""

    groups: tuple[str, ...]
    measures: tuple[Measure, ...]


@dataclass(frozen=True)
class Partitions:
    """An aggregate, window or top whose touched keys are computed again."""

    operator: Aggregate | Window | Top
    """Its input is the stage's body."""

    @property
    def keys(self) -> tuple[str, ...]:
        if isinstance(self.operator, Aggregate):
            return self.operator.groups
        return self.operator.partition if isinstance(self.operator, Window) else ()


Head: TypeAlias = Bag | Groups | Partitions


@dataclass(frozen=True)
class Stage:
    number: int
    body: Core
    head: Head
    finish: Select | None
    """The columns that are shown, computed from the head's; None for all of them as they are."""
    output: tuple[str, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        """What the head gives, before the finish."""
        if isinstance(self.head, Bag):
            return self.body.output
        if isinstance(self.head, Groups):
            return (*self.head.groups, *(measure.name for measure in self.head.measures))
        return self.head.operator.output


def cut(root: Core) -> tuple[Stage, ...]:
    """The stages of a view, each after those that it reads; the last one is the view."""
    cutter = _Cutter()
    finish, head = _split_finish(root)
    if isinstance(head, Aggregate | Window | Top):
        cutter.end(head, finish)
    else:
        body = cutter.linear(root)
        cutter.stages.append(Stage(len(cutter.stages), body, Bag(), None, body.output))
    return tuple(cutter.stages)


def _split_finish(root: Core) -> tuple[Select | None, Operator]:
    if isinstance(root, Select) and root.condition is None:
        return root, root.input
    return None, root


class _Cutter:
    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._known: dict[Operator, Scan] = {}

    def linear(self, operator: Operator) -> Core:
        """The operator with everything below it that is no body replaced by scans of stages."""
        if isinstance(operator, Scan):
            return operator
        if isinstance(operator, Select | Generate):
            return replace(operator, input=self.linear(operator.input))
        if isinstance(operator, Join):
            return replace(
                operator, left=self.linear(operator.left), right=self.linear(operator.right)
            )
        if isinstance(operator, Left):
            return replace(
                operator,
                left=self.linear(operator.left),
                right=self.linear(operator.right),
                partners=self.linear(operator.partners),
            )
        if isinstance(operator, Anti):
            return replace(
                operator,
                left=self.linear(operator.left),
                partners=self.linear(operator.partners),
            )
        if isinstance(operator, Merge):
            return replace(operator, inputs=tuple(self.linear(one) for one in operator.inputs))
        if isinstance(operator, Once | Aggregate | Window | Top):
            return self._scan_of(operator)
        raise TypeError(f"{type(operator).__name__} is not of the core")

    def _scan_of(self, operator: Once | Aggregate | Window | Top) -> Scan:
        known = self._known.get(operator)
        if known is None:
            stage = self._once(operator) if isinstance(operator, Once) else self.end(operator, None)
            known = Scan(f"{INTERNAL}{stage.number}", tuple((name, name) for name in stage.output))
            self._known[operator] = known
        return known

    def _once(self, operator: Once) -> Stage:
        body = self.linear(operator.input)
        stage = Stage(len(self.stages), body, Bag(), None, body.output)
        self.stages.append(stage)
        return stage

    def end(self, operator: Aggregate | Window | Top, finish: Select | None) -> Stage:
        body = self.linear(operator.input)
        head: Head
        if isinstance(operator, Aggregate) and all(map(may_add, operator.measures)):
            head = Groups(operator.groups, operator.measures)
        else:
            head = Partitions(replace(operator, input=body))
        output = operator.output if finish is None else finish.output
        stage = Stage(len(self.stages), body, head, finish, output)
        self.stages.append(stage)
        return stage


def may_add(measure: Measure) -> bool:
    return measure.function in ADDITIVE | EXTREMES and not measure.distinct


def with_body(stage: Stage, body: Core) -> Stage:
    """The stage over another body that gives the same columns."""
    head = stage.head
    if isinstance(head, Partitions):
        head = Partitions(replace(head.operator, input=body))
    return replace(stage, body=body, head=head)


def recomputing(stage: Stage) -> Stage:
    """The same stage with its groups computed again: for measures whose sums would drift."""
    if not isinstance(stage.head, Groups):
        return stage
    aggregate = Aggregate(stage.body, stage.head.groups, stage.head.measures)
    return replace(stage, head=Partitions(aggregate))
