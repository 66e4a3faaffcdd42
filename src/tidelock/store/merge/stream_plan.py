"""What a merge does to stream tables, decided from states alone: they are never merged by rows.

Definitions merge like anything else: what one side alone changed is taken. A result is adopted by
its pin where the merged inputs are exactly those that it was computed from, for all members of its
unit together; else the target keeps its own, and the next refresh brings it up to date.

    adopt     the source's result, and with it where the content stands
    define    the source's definition; the content is computed anew by the next refresh
    create    it is new to the target: with its result if the inputs allow it, else to be computed
    drop      the source dropped it
    keep      as it is; stale if one of its inputs changes by the merge

Invariant: the members of a unit are adopted all or none, so that they stay of one version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tidelock.model.commit import Tables, TableState
from tidelock.model.conflicts import Conflict, Values
from tidelock.model.merges import Resolutions, Side
from tidelock.model.names import fold, kept_for
from tidelock.store.merge.bases import Tip
from tidelock.store.merge.plan import decide

StreamStep = Literal["adopt", "define", "create", "drop", "keep"]
Units = Callable[[Tables], Iterable[Sequence[str]]]
"""The stream tables of some tables that are published together, by their names."""
Describe = Callable[[str], Values]
"""What a definition says, by its id."""


@dataclass(frozen=True)
class StreamPlan:
    """One stream table of the merged lake, or one that goes."""

    step: StreamStep
    source: TableState | None
    target: TableState | None
    with_result: bool = True
    """Whether its content corresponds to the merged inputs."""
    epoch: int = 0

    @property
    def state(self) -> TableState:
        state = self.target or self.source
        assert state is not None
        return state


@dataclass
class StreamPlans:
    streams: list[StreamPlan] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    resolved: dict[str, int] = field(default_factory=dict)
    source_changed: bool = False
    target_changed: bool = False


class StreamPlanner:
    """Decides for all stream tables together: the result of one is the input of another."""

    def __init__(
        self,
        source: Tip,
        target: Tip,
        bases: Sequence[Tip],
        origins: Mapping[str, str | None],
        resolutions: Resolutions,
        units: Units,
        describe: Describe,
    ) -> None:
        """`origins` are those of merged tables, None where rows are merged; what is not there is
        as the target has it."""
        self._source = source
        self._target = target
        self._here = _streams(source)
        self._there = _streams(target)
        self._before = [_streams(base) for base in bases]
        self._bases = bases
        self._origins = origins
        self._resolutions = resolutions
        self._units = units
        self._describe = describe
        self._found = StreamPlans()
        self._source_states = {one.id: one for one in source.tables.states()}
        self._target_states = {one.id: one for one in target.tables.states()}

    def run(self) -> StreamPlans:
        plans = [
            plan
            for table_id in {**self._there, **self._here}
            if (plan := self._definition(table_id)) is not None
        ]
        if any(one.step != "keep" or one.source != one.target for one in plans):
            plans = self._with_results(plans)
        elif plans:
            plans = [self._result(one, set(), {}) for one in plans]
        self._found.streams = plans
        return self._found

    # Definitions

    def _definition(self, table_id: str) -> StreamPlan | None:
        source, target = self._here.get(table_id), self._there.get(table_id)
        if source is not None and source == target:
            return StreamPlan("keep", source, target)
        bases = [one.get(table_id) for one in self._before]
        self._note_changes(source, target, bases)
        if source is None or target is None:
            return self._missing(source, target, bases)
        known = [_definition_of(one) for one in bases if one is not None]
        here, there = _definition_of(source), _definition_of(target)
        side = decide(known, here, there)
        if side is None:
            side = self._refuse(
                target.name, source, target, "both sides gave it another definition"
            )
        if side == "source" and here != there:
            return StreamPlan("define", source, target)
        return StreamPlan("keep", source, target)

    def _note_changes(
        self,
        source: TableState | None,
        target: TableState | None,
        bases: Sequence[TableState | None],
    ) -> None:
        found = self._found
        for tip, state in ((self._source, source), (self._target, target)):
            same = any(
                one is not None
                and state is not None
                and base.origin(one) == tip.origin(state)
                and one.stream == state.stream
                for base, one in zip(self._bases, bases, strict=True)
            )
            changed = not same and (state is not None or any(bases))
            if tip is self._source:
                found.source_changed |= changed
            else:
                found.target_changed |= changed

    def _missing(
        self,
        source: TableState | None,
        target: TableState | None,
        bases: Sequence[TableState | None],
    ) -> StreamPlan | None:
        left = source or target
        assert left is not None
        known = [_definition_of(one) for one in bases if one is not None]
        if not known:
            return StreamPlan("create" if source is not None else "keep", source, target)
        if _definition_of(left) not in known:
            gone = "source" if source is None else "target"
            why = f"it was dropped at the {gone} and given another definition at the other side"
            side = self._refuse(left.name, source, target, why)
            if side is not None and (side == "source") == (source is not None):
                return StreamPlan("create" if source is not None else "keep", source, target)
        return StreamPlan("drop", source, target) if target is not None else None

    def _refuse(
        self, table: str, source: TableState | None, target: TableState | None, why: str
    ) -> Side | None:
        resolution = self._resolutions.of(table).side
        if resolution != "fail":
            self._found.resolved[table] = self._found.resolved.get(table, 0) + 1
            return resolution
        told = [
            None if one is None else self._describe(_definition_of(one)) for one in (source, target)
        ]
        self._found.conflicts.append(
            Conflict(table, "stream table", None, None, told[0], told[1], (), why)
        )
        return None

    # Results

    def _with_results(self, plans: list[StreamPlan]) -> list[StreamPlan]:
        by_id = {one.state.id: one for one in plans}
        adopted = {
            table_id
            for table_id, one in by_id.items()
            if one.step != "drop" and one.source is not None and self._continues(one)
        }
        units = [
            [self._id_of(name, by_id) for name in unit] for unit in self._units(self._merged(plans))
        ]
        while True:
            left = {one for one in adopted if self._inputs_hold(by_id[one], adopted)}
            for unit in units:
                if not left.issuperset(unit):
                    left.difference_update(unit)
            if left == adopted:
                break
            adopted = left
        for unit in units:
            if self._are_as_they_should(unit, by_id):
                adopted.difference_update(unit)
        epochs = {
            one: max(self._epoch(by_id[other]) for other in unit) for unit in units for one in unit
        }
        return [self._result(one, adopted, epochs) for one in plans]

    def _result(self, plan: StreamPlan, adopted: set[str], epochs: Mapping[str, int]) -> StreamPlan:
        table_id = plan.state.id
        if table_id in adopted:
            step: StreamStep = "create" if plan.step == "create" else "adopt"
            return StreamPlan(step, plan.source, plan.target, True, epochs.get(table_id, 1))
        if plan.step == "keep":
            return StreamPlan("keep", plan.source, plan.target, self._is_current(plan))
        return StreamPlan(plan.step, plan.source, plan.target, False)

    def _epoch(self, plan: StreamPlan) -> int:
        here = plan.source.stream.epoch if plan.source and plan.source.stream else 0
        if plan.target is None or plan.target.stream is None:
            return here
        return max(here, plan.target.stream.epoch + 1)

    def _continues(self, plan: StreamPlan) -> bool:
        """Whether the source has a result, of the definition that is taken, that goes on from the
        target's."""
        source, target = plan.source, plan.target
        assert source is not None
        if source.stream is None or not source.stream.populated:
            return False
        if target is None or plan.step == "create":
            return True
        if plan.step == "keep" and _definition_of(source) != _definition_of(target):
            return False
        there = self._target.origin(target)
        return self._source.origin(source) == there or self._source.has_on_its_line(there)

    def _inputs_hold(self, plan: StreamPlan, adopted: set[str]) -> bool:
        """Whether the merged inputs are those that the source's result was computed from."""
        assert plan.source is not None
        assert plan.source.stream is not None
        for entry in plan.source.stream.frontier:
            state = self._source_states.get(entry.table_id)
            if state is None or state.changed != entry.changed:
                return False
            if entry.table_id in adopted:
                continue
            if self._origin(entry.table_id) != self._source.origin(state):
                return False
        return True

    def _is_current(self, plan: StreamPlan) -> bool:
        """Whether the target's result corresponds to the merged inputs, as far as it did before."""
        target = plan.target
        if target is None or target.stream is None:
            return True
        for entry in target.stream.frontier:
            state = self._target_states.get(entry.table_id)
            if state is None or state.changed != entry.changed:
                return False
            if self._origin(entry.table_id) != self._target.origin(state):
                return False
        return True

    def _are_as_they_should(self, unit: Sequence[str], by_id: Mapping[str, StreamPlan]) -> bool:
        """Whether the target has the very results already, or current ones of its own."""
        plans = [by_id[one] for one in unit if one in by_id]
        return all(one.target is not None and one.step == "keep" for one in plans) and all(
            self._is_current(one) for one in plans
        )

    def _origin(self, table_id: str) -> str | None:
        """What the merged lake has of a table."""
        if table_id in self._origins:
            return self._origins[table_id]
        state = self._target_states.get(table_id)
        return None if state is None else self._target.origin(state)

    def _id_of(self, name: str, by_id: Mapping[str, StreamPlan]) -> str:
        for table_id, plan in by_id.items():
            if plan.step != "drop" and fold(plan.state.name) == fold(name):
                return table_id
        return name

    def _merged(self, plans: Sequence[StreamPlan]) -> Tables:
        """The stream tables as they will be defined."""
        states = []
        for one in plans:
            taken = one.source if one.step in ("define", "create") else one.target
            if taken is not None and one.step != "drop":
                states.append(taken)
        return Tables.of(tuple(states))


def _streams(tip: Tip) -> dict[str, TableState]:
    return {one.id: one for one in tip.tables.states() if one.stream is not None}


def _definition_of(state: TableState) -> str:
    assert state.stream is not None
    return state.stream.definition


def kept_tables(tip: Tip, owner: str) -> list[TableState]:
    """The tables in which parts of a stream table are kept."""
    return [one for one in tip.tables.states() if kept_for(one.name) == owner]
