"""Segments: a view cut into parts that are each kept in one table.

A segment is a body over tables (Scan, Select, Generate, Join, Left, Anti, Merge) and a content:
what is kept of it. Once and the operators that are local to a key end a segment, and what reads it
scans the segment's table, whose old and new state are both readable. The last segment is the view
itself; the others are internal tables that are published with it.

    content       kept                                     moved by
    Bag           the body's rows                          their changes
    Groups        one row a group, with sums, counts and   adding the changes' sums and counts,
                  least and greatest values                comparing with their extremes
    Partitions    the rows of each key                     computing the touched keys again
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from tidelock.derive.algebra.operators import (
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
from tidelock.derive.plan.aggregates import may_keep

INTERNAL = " #"
"""How a scan names the table of another segment, ` #0`, ` #1`, …: no table's name begins with a
space."""


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
    """Its input is the segment's body."""

    @property
    def keys(self) -> tuple[str, ...]:
        if isinstance(self.operator, Aggregate):
            return self.operator.groups
        return self.operator.partition if isinstance(self.operator, Window) else ()


Content: TypeAlias = Bag | Groups | Partitions


@dataclass(frozen=True)
class Segment:
    number: int
    body: Core
    content: Content
    finish: Select | None
    """The columns that are shown, computed from the content's; None for all of them as they are."""
    output: tuple[str, ...]

    @property
    def given(self) -> tuple[str, ...]:
        """What the content gives, before the finish."""
        if isinstance(self.content, Bag):
            return self.body.output
        if isinstance(self.content, Groups):
            return (*self.content.groups, *(measure.name for measure in self.content.measures))
        return self.content.operator.output


def cut(root: Core) -> tuple[Segment, ...]:
    """The segments of a view, each after those that it reads; the last one is the view."""
    cutter = _Cutter()
    finish, content = _split_finish(root)
    if isinstance(content, Aggregate | Window | Top):
        cutter.end(content, finish)
    else:
        body = cutter.linear(root)
        cutter.segments.append(Segment(len(cutter.segments), body, Bag(), None, body.output))
    return tuple(cutter.segments)


def _split_finish(root: Core) -> tuple[Select | None, Operator]:
    if isinstance(root, Select) and root.condition is None:
        return root, root.input
    return None, root


class _Cutter:
    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self._known: dict[Operator, Scan] = {}

    def linear(self, operator: Operator) -> Core:
        """The operator with everything below it that is no body replaced by scans of segments."""
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
            segment = (
                self._once(operator) if isinstance(operator, Once) else self.end(operator, None)
            )
            known = Scan(
                f"{INTERNAL}{segment.number}", tuple((name, name) for name in segment.output)
            )
            self._known[operator] = known
        return known

    def _once(self, operator: Once) -> Segment:
        body = self.linear(operator.input)
        segment = Segment(len(self.segments), body, Bag(), None, body.output)
        self.segments.append(segment)
        return segment

    def end(self, operator: Aggregate | Window | Top, finish: Select | None) -> Segment:
        body = self.linear(operator.input)
        content: Content
        if isinstance(operator, Aggregate) and all(map(may_keep, operator.measures)):
            content = Groups(operator.groups, operator.measures)
        else:
            content = Partitions(replace(operator, input=body))
        output = operator.output if finish is None else finish.output
        segment = Segment(len(self.segments), body, content, finish, output)
        self.segments.append(segment)
        return segment


def with_body(segment: Segment, body: Core) -> Segment:
    """The segment over another body that gives the same columns."""
    content = segment.content
    if isinstance(content, Partitions):
        content = Partitions(replace(content.operator, input=body))
    return replace(segment, body=body, content=content)


def recomputing(segment: Segment) -> Segment:
    """The same segment with its groups computed again: for measures whose sums would drift."""
    if not isinstance(segment.content, Groups):
        return segment
    aggregate = Aggregate(segment.body, segment.content.groups, segment.content.measures)
    return replace(segment, content=Partitions(aggregate))
