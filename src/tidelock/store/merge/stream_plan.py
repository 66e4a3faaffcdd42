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

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tidelock.errors import InputError
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.history.conflicts import Conflict, Values
from tidelock.model.history.merges import Resolutions, Side
from tidelock.model.names import fold, kept_for
from tidelock.store.kinship.bases import Tip
from tidelock.store.merge.plan import STREAM_AND_TABLE, TWO_OF_ONE_NAME, decide

StreamStep = Literal["adopt", "define", "create", "drop", "keep"]
Units = Callable[[Tables], Iterable[Sequence[str]]]
"""The stream tables of some tables that are published together, by their names."""
Describe = Callable[[str], Values]
"""What a definition says, by its id, whatever ids the columns have that it reads."""


@dataclass(frozen=True)
class StreamPlan:
    """One stream table of the merged lake, or one that goes."""

    step: StreamStep
    source: TableState | None
    target: TableState | None
    with_result: bool = True
    """Whether its content corresponds to the merged inputs."""
    epoch: int = 0
    declared: bool = False
    """Whether what was declared of the result, such as its rules, is the source's."""

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
        leaving: Collection[str] = (),
    ) -> None:
        """`origins` are those of merged tables, None where rows are merged; what is not there is
        as the target has it. `leaving` are the ids of tables that the target will not have."""
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
        self._leaving = frozenset(leaving)
        self._found = StreamPlans()
        self._source_states = {one.id: one for one in source.tables.states()}
        self._target_states = {one.id: one for one in target.tables.states()}

    def run(self) -> StreamPlans:
        plans = [
            plan
            for table_id in {**self._there, **self._here}
            if (plan := self._definition(table_id)) is not None
        ]
        plans = self._without_same_names(plans)
        if any(one.step != "keep" or one.source != one.target for one in plans):
            try:
                plans = self._with_results(plans)
            except InputError as error:
                # What each side defined is right by itself, and a circle together.
                self._found.conflicts.append(
                    Conflict(_first_changed(plans), "stream table", why=error.message.rstrip("."))
                )
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
        known = [self._says(one) for one in bases if one is not None]
        here, there = self._says(source), self._says(target)
        side = decide(known, here, there)
        if side is None:
            side = self._refuse(
                target.name, source, target, "both sides gave it another definition"
            )
        step: StreamStep = "define" if side == "source" and here != there else "keep"
        return StreamPlan(step, source, target, declared=self._declared(source, target, bases))

    def _declared(
        self, source: TableState, target: TableState, bases: Sequence[TableState | None]
    ) -> bool:
        """Whether what the source declared of the result is taken."""
        known = [one.schema for one in bases if one is not None]
        side = decide(known, source.schema, target.schema)
        if side is None:
            why = "both sides declared other rules or columns of its result"
            side = self._refuse(target.name, source, target, why)
        return side == "source" and source.schema != target.schema

    def _says(self, state: TableState) -> Values:
        return self._describe(_definition_of(state))

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
        known = [self._says(one) for one in bases if one is not None]
        if not known:
            return StreamPlan("create" if source is not None else "keep", source, target)
        if self._says(left) not in known:
            gone = "source" if source is None else "target"
            why = f"it was dropped at the {gone} and given another definition at the other side"
            side = self._refuse(left.name, source, target, why)
            if side is not None and (side == "source") == (source is not None):
                return StreamPlan("create" if source is not None else "keep", source, target)
        return StreamPlan("drop", source, target) if target is not None else None

    def _without_same_names(self, plans: list[StreamPlan]) -> list[StreamPlan]:
        """The plans without stream tables that would have the name of another table."""
        gone = self._leaving.union(one.state.id for one in plans if one.step == "drop")
        found = list(plans)
        for one in plans:
            if one.step != "create":
                continue
            other = self._target.tables.find(one.state.name)
            if other is None or other.id in gone:
                continue
            # What both made alike is there already.
            side: Side | None = "target"
            if other.stream is None:
                self._conflict(one.state.name, one.source, other, STREAM_AND_TABLE)
            elif self._says(one.state) != self._says(other):
                side = self._refuse(one.state.name, one.source, other, TWO_OF_ONE_NAME)
            if side != "source":
                found.remove(one)
                continue
            there = next(plan for plan in found if plan.state.id == other.id)
            # What leaves is staged before what takes its name.
            found[found.index(there)] = StreamPlan("drop", there.source, other)
            found.sort(key=lambda plan: plan.step != "drop")
        return found

    def _refuse(
        self, table: str, source: TableState | None, target: TableState | None, why: str
    ) -> Side | None:
        resolution = self._resolutions.of(table).side
        if resolution != "fail":
            self._found.resolved[table] = self._found.resolved.get(table, 0) + 1
            return resolution
        self._conflict(table, source, target, why)
        return None

    def _conflict(
        self, table: str, source: TableState | None, target: TableState | None, why: str
    ) -> None:
        told = [
            None if one is None or one.stream is None else self._says(one)
            for one in (source, target)
        ]
        self._found.conflicts.append(
            Conflict(table, "stream table", None, None, told[0], told[1], (), why)
        )

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
            # Units that are read come before those that read them.
            if self._are_as_they_should(unit, by_id, adopted):
                adopted.difference_update(unit)
        epochs = {
            one: max(self._epoch(by_id[other]) for other in unit) for unit in units for one in unit
        }
        return self._with_stale([self._result(one, adopted, epochs) for one in plans])

    def _with_stale(self, plans: list[StreamPlan]) -> list[StreamPlan]:
        """The plans, in which what reads a result that changes, or will, is behind."""
        changing = {one.state.id for one in plans if self._changes(one)}
        while True:
            behind = {
                one.state.id
                for one in plans
                if one.step == "keep" and one.state.id not in changing and _reads(one, changing)
            }
            if not behind:
                break
            changing |= behind
        return [
            replace(one, with_result=False)
            if one.step == "keep" and one.state.id in changing
            else one
            for one in plans
        ]

    def _changes(self, plan: StreamPlan) -> bool:
        """Whether who reads it will find something else than before."""
        if plan.step in ("define", "create", "drop") or plan.declared:
            return True
        if plan.step == "keep" or plan.source is None or plan.target is None:
            return not plan.with_result
        return self._source.origin(plan.source) != self._target.origin(plan.target)

    def _result(self, plan: StreamPlan, adopted: set[str], epochs: Mapping[str, int]) -> StreamPlan:
        table_id = plan.state.id
        if table_id in adopted:
            step: StreamStep = "create" if plan.step == "create" else "adopt"
            return replace(plan, step=step, with_result=True, epoch=epochs.get(table_id, 1))
        return replace(plan, with_result=plan.step == "keep" and self._is_untouched(plan))

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
        if plan.step == "keep" and self._says(source) != self._says(target):
            return False
        if not plan.declared and source.schema != target.schema:
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
        """Whether the target's result corresponds to the merged inputs."""
        target = plan.target
        if target is None or target.stream is None:
            return True
        for entry in target.stream.frontier:
            state = self._target_states.get(entry.table_id)
            if state is None or state.changed != entry.changed:
                return False
        return self._is_untouched(plan)

    def _is_untouched(self, plan: StreamPlan) -> bool:
        """Whether the merge changes nothing that the target's result was computed from."""
        target = plan.target
        if target is None or target.stream is None:
            return True
        for entry in target.stream.frontier:
            state = self._target_states.get(entry.table_id)
            if state is not None and self._origin(entry.table_id) != self._target.origin(state):
                return False
        return True

    def _are_as_they_should(
        self, unit: Sequence[str], by_id: Mapping[str, StreamPlan], adopted: set[str]
    ) -> bool:
        """Whether the target has the very results already, or current ones of its own."""
        plans = [by_id[one] for one in unit if one in by_id]
        kept = all(one.target is not None and one.step == "keep" for one in plans)
        taken = adopted.difference(unit)
        return kept and all(self._is_current(one) and not _reads(one, taken) for one in plans)

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
        """The tables as they will be, stream tables with the definitions that they will have."""
        both = (*self._source.tables.states(), *self._target.tables.states())
        found = {one.id: one for one in both if one.stream is None}
        for one in plans:
            taken = one.source if one.step in ("define", "create") else one.target
            if taken is not None and one.step != "drop":
                found[taken.id] = taken
        return Tables.of(tuple(found.values()))


def _streams(tip: Tip) -> dict[str, TableState]:
    return {one.id: one for one in tip.tables.states() if one.stream is not None}


def _definition_of(state: TableState) -> str:
    assert state.stream is not None
    return state.stream.definition


def _reads(plan: StreamPlan, tables: Collection[str]) -> bool:
    stream = plan.state.stream
    return stream is not None and any(one.table_id in tables for one in stream.frontier)


def _first_changed(plans: Sequence[StreamPlan]) -> str:
    changed = sorted(one.state.name for one in plans if one.step in ("define", "create"))
    return changed[0] if changed else plans[0].state.name


def kept_tables(tip: Tip, owner: str) -> list[TableState]:
    """The tables in which parts of a stream table are kept."""
    return [one for one in tip.tables.states() if kept_for(one.name) == owner]
