"""The ledger: what a lake knows of its sinks, as objects.

    _tidelock/sinks/names/<name>.json           definition, which gives the sink's id
    _tidelock/sinks/<id>/state.json             how far it has come: the watermark
    _tidelock/sinks/<id>/plans/<number>.json    a plan: the intent, until it is closed
    _tidelock/sinks/<id>/progress/<number>.json how much of an open plan is sent
    _tidelock/sinks/<id>/paused.json            exists while the sink is paused

Order: plan (create-only), progress, state, plan closed. A closed plan keeps the state after it, so
that the state is written twice, in two objects, and either can be lost.

After a crash: the newest plan is open: it is resumed as it is. It is closed: the state after it
holds. A state that is older than the newest closed plan was put back by somebody, and is passed
over; one that is unreadable or gone is taken from there. A plan that is open and unreadable stops
the sink: what it sent cannot be told.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from tidelock.errors import (
    CorruptObject,
    ObjectExists,
    ObjectMissing,
    SinkExists,
    SinkNotFound,
    SinkStopped,
    StoreError,
)
from tidelock.model.names import suggest
from tidelock.model.sinks import Plan, SinkDefinition, SinkState, Trouble
from tidelock.store import layout
from tidelock.store.entries import entries, numbered
from tidelock.store.faults import hit
from tidelock.store.objects import Objects
from tidelock.store.records import decode, encode

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """How many chunks of each part are sent; parts that are not named have none."""

    sent: dict[str, int] = field(default_factory=dict)
    trouble: dict[str, Trouble] = field(default_factory=dict)
    format: int = 1


@dataclass(frozen=True, slots=True)
class Paused:
    reason: str
    actor: str
    time: datetime
    format: int = 1


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a sink stands: its state, and the plan that is open, if there is one."""

    state: SinkState
    open: Plan | None = None
    mended: str | None = None
    """What was found wrong with the state and could be made good."""

    def given_up(self) -> SinkState:
        """The state without the plan that is open, which may have reached the destination."""
        if self.open is None:
            return self.state
        return replace(self.state, left_by=(*self.state.left_by, self.open.identity))


class Ledger:
    """All objects of all sinks of one lake."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    # Definitions

    def create(self, definition: SinkDefinition, state: SinkState) -> None:
        # The state first: a name that exists has one.
        self._objects.put(self._state_key(definition.id), encode(state))
        try:
            self._objects.put_new(layout.sink_name(definition.name), encode(definition))
        except ObjectExists as error:
            self._objects.delete(self._state_key(definition.id))
            raise SinkExists(
                f"There is a sink {definition.name!r} already. Drop it first, or choose another "
                "name.",
                sink=definition.name,
            ) from error

    def definition(self, name: str) -> SinkDefinition:
        key = layout.sink_name(name)
        try:
            return decode(self._objects.get(key), SinkDefinition, key)
        except ObjectMissing as error:
            known = suggest(name, [one.name for one in self.definitions()])
            raise SinkNotFound(f"There is no sink {name!r}. {known}", sink=name) from error

    def definitions(self) -> list[SinkDefinition]:
        found = []
        for info in entries(self._objects, f"{layout.SINKS}/names"):
            # One that is dropped meanwhile is no longer listed.
            with suppress(ObjectMissing):
                found.append(decode(self._objects.get(info.key), SinkDefinition, info.key))
        return sorted(found, key=lambda one: one.name)

    def replace(self, definition: SinkDefinition) -> None:
        self._objects.put(layout.sink_name(definition.name), encode(definition))

    def drop(self, definition: SinkDefinition) -> None:
        self._objects.delete(layout.sink_name(definition.name))
        for info in self._objects.list(layout.sink(definition.id)):
            with suppress(ObjectMissing):
                self._objects.delete(info.key)

    # Pausing

    def pause(self, sink_id: str, paused: Paused) -> None:
        self._objects.put(self._paused_key(sink_id), encode(paused))

    def resume(self, sink_id: str) -> None:
        self._objects.delete(self._paused_key(sink_id))

    def paused(self, sink_id: str) -> Paused | None:
        return self._find(self._paused_key(sink_id), Paused)

    # State and plans

    def state(self, sink_id: str) -> SinkState | None:
        """The state as its object has it; None when that is gone or unreadable."""
        try:
            return self._find(self._state_key(sink_id), SinkState)
        except CorruptObject:
            return None

    def standing(self, definition: SinkDefinition) -> Standing:
        """Where a sink stands, from all that is written about it; SinkStopped when it is not."""
        state = self.state(definition.id)
        newest = self._newest_plan(definition, state)
        if newest is None:
            if state is None:
                raise _stopped(definition, "its state is gone or unreadable, and no plan is left")
            return Standing(state)
        return settle(definition, state, newest)

    def _newest_plan(self, definition: SinkDefinition, state: SinkState | None) -> Plan | None:
        infos = numbered(self._objects, self._plans(definition.id))
        if not infos:
            if state is not None and state.plan > 0:
                raise _stopped(
                    definition, f"its plans are gone, of which {state.plan} was the last"
                )
            return None
        key = max(info.key for info in infos)
        try:
            return decode(self._objects.get(key), Plan, key)
        except CorruptObject as error:
            number = int(key.rsplit("/", 1)[1].removesuffix(".json"))
            if state is not None and state.plan == number:
                # It was closed: the state says all that it said.
                return None
            raise _stopped(
                definition, f"its plan {number} is unreadable, so that what it sent is not known"
            ) from error

    def last_planned(self, definition: SinkDefinition) -> datetime | None:
        plan = self._newest_plan(definition, self.state(definition.id))
        return plan.created if plan is not None else None

    def begin(self, plan: Plan) -> None:
        """Write a plan down, before anything of it is sent."""
        hit("deliver.before_intent")
        self._objects.put_new(self._plan_key(plan), encode(plan))
        hit("deliver.after_intent")

    def advance(self, plan: Plan, state: SinkState) -> None:
        """Move the watermark past a plan, and close it."""
        closed = replace(plan, parts=(), next=state, closed=True)
        hit("deliver.before_watermark")
        self._objects.put(self._state_key(plan.sink_id), encode(state))
        hit("deliver.after_watermark")
        hit("deliver.before_clear")
        self._objects.put(self._plan_key(plan), encode(closed))
        hit("deliver.after_clear")
        for info in numbered(self._objects, self._plans(plan.sink_id)):
            if info.key < self._plan_key(plan):
                self._forget(info.key)
        self._forget(self._progress_key(plan))

    def _forget(self, key: str) -> None:
        # What cannot be removed is passed over by whoever comes later.
        with suppress(StoreError):
            self._objects.delete(key)

    def correct(self, definition: SinkDefinition, state: SinkState) -> None:
        """Write the state anew, as it was found out to be."""
        self._objects.put(self._state_key(definition.id), encode(state))

    def restart(self, definition: SinkDefinition, state: SinkState) -> SinkState:
        """Let a sink go on from a state that somebody chose, whatever was there before."""
        infos = numbered(self._objects, self._plans(definition.id))
        numbers = [int(info.key.rsplit("/", 1)[1].removesuffix(".json")) for info in infos]
        number = max([state.plan, *numbers]) + 1
        chosen = replace(state, plan=number)
        plan = Plan(number, definition.id, 0, state.watermark, state.watermark, (), state, chosen)
        # The closed plan first: should this be cut short, the state that it keeps is found.
        self._objects.put(self._plan_key(plan), encode(replace(plan, closed=True)))
        self.advance(plan, chosen)
        return chosen

    # Progress

    def progress(self, plan: Plan) -> Progress:
        """What is known to be sent of a plan; less than that was never sent, more may have been."""
        try:
            found = self._find(self._progress_key(plan), Progress)
        except CorruptObject:
            found = None
        return found or Progress()

    def forget_progress(self, definition: SinkDefinition) -> None:
        """Let an open plan, if there is one, be sent from its beginning."""
        for info in numbered(self._objects, f"{layout.sink(definition.id)}/progress"):
            self._objects.delete(info.key)

    def note(self, plan: Plan, progress: Progress) -> None:
        self._objects.put(self._progress_key(plan), encode(progress))

    def _find(self, key: str, kind: type[T]) -> T | None:
        try:
            return decode(self._objects.get(key), kind, key)
        except ObjectMissing:
            return None

    def _state_key(self, sink_id: str) -> str:
        return f"{layout.sink(sink_id)}/state.json"

    def _paused_key(self, sink_id: str) -> str:
        return f"{layout.sink(sink_id)}/paused.json"

    def _plans(self, sink_id: str) -> str:
        return f"{layout.sink(sink_id)}/plans"

    def _plan_key(self, plan: Plan) -> str:
        return f"{self._plans(plan.sink_id)}/{plan.number:012d}.json"

    def _progress_key(self, plan: Plan) -> str:
        return f"{layout.sink(plan.sink_id)}/progress/{plan.number:012d}.json"


def settle(definition: SinkDefinition, state: SinkState | None, newest: Plan) -> Standing:
    """Which of the two that tell where a sink stands is right."""
    known = newest.next if newest.closed else newest.before
    open_plan = None if newest.closed else newest
    if state is None:
        return Standing(known, open_plan, "its state was gone or unreadable")
    if state.plan > known.plan and not (state.plan == newest.number and not newest.closed):
        raise _stopped(
            definition,
            f"its state tells of plan {state.plan}, but the newest plan is {newest.number}",
        )
    if state.plan == newest.number:
        return Standing(state)
    if state.plan < known.plan:
        return Standing(known, open_plan, f"its state was put back to plan {state.plan}")
    return Standing(state, open_plan)


def _stopped(definition: SinkDefinition, why: str) -> SinkStopped:
    return SinkStopped(
        f"Sink {definition.name!r} cannot tell how far it has come: {why}. Nothing was sent. Look "
        "at the destination, then say where to go on with "
        f"`tidelock sink replay {definition.name} --since POSITION`.",
        sink=definition.name,
        reason=why,
    )
