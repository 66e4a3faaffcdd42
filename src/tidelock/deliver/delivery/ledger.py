"""The ledger: what a lake knows of its sinks, as objects.

    _tidelock/sinks/names/<name>.json           definition, which gives the sink's id
    _tidelock/sinks/<id>/state.json             how far it has come: the watermark
    _tidelock/sinks/<id>/plans/<number>.json    a plan: the intent, until it is closed
    _tidelock/sinks/<id>/progress/<number>.json how much of an open plan is sent
    _tidelock/sinks/<id>/suspended.json         exists while the sink is suspended

Order: plan (create-only), progress, state, plan closed. A closed plan keeps the state after it, so
that the state is written twice, in two objects, and either can be lost.

After a crash: the newest plan is open: it is resumed as it is. It is closed: the state after it
holds. A state that is older than the newest closed plan was put back by somebody, and is passed
over; one that is unreadable or gone is taken from there. A plan that is open and unreadable stops
the sink: what it sent cannot be told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from tidelock.errors import (
    Advice,
    CorruptObject,
    FormatError,
    ObjectExists,
    ObjectMissing,
    SinkExists,
    SinkNotFound,
    SinkStopped,
    StoreError,
)
from tidelock.model.names import suggest
from tidelock.model.sinks import DeliveryPlan, SinkDefinition, SinkState, Standing, Trouble
from tidelock.store.objects import layout
from tidelock.store.objects.entries import entries, is_entry, number_of, numbered
from tidelock.store.objects.failpoints import hit
from tidelock.store.objects.parallel import Together
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode

logger = logging.getLogger("tidelock")

T = TypeVar("T")

SUSPENDED = "suspended.json"
NOTE_SECONDS = 0.2
"""How often the progress of a plan is written down."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How many chunks of each part are sent; parts that are not named have none."""

    sent: dict[str, int] = field(default_factory=dict)
    trouble: dict[str, Trouble] = field(default_factory=dict)
    plan: str = ""
    """The identity of the plan: another may get its number when a lake has lost its plans."""
    format: int = 1


@dataclass(frozen=True, slots=True)
class Suspension:
    """That nothing is delivered to a sink until it is resumed, and why."""

    reason: str
    actor: str
    time: datetime
    format: int = 1


@dataclass(frozen=True, slots=True)
class Traces:
    """The objects of sinks, by which changes are noticed.

    Whatever is done about a sink makes, dates or removes one of them: defining it its definition, a
    delivery, a replay and a resync a plan, a suspension its note.
    """

    names: dict[str, str]
    """By the key of the definition."""
    objects: dict[str, set[str]]
    """By the id of the sink."""

    def of(self, definition: SinkDefinition) -> frozenset[str]:
        mine = self.objects.get(definition.id, set())
        return frozenset({*mine, self.names.get(layout.sink_name(definition.name), "")})


class Ledger:
    """All objects of all sinks of one lake. Owns: their keys, and the order they are written in."""

    def __init__(self, objects: Objects, together: Together | None = None) -> None:
        self._objects = objects
        self._together = together or Together()

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
            known = suggest(name, [definition.name for definition in self.readable_definitions()])
            raise SinkNotFound(f"There is no sink {name!r}. {known}", sink=name) from error

    def definitions(self) -> list[SinkDefinition]:
        """All sinks; CorruptObject when what one is cannot be read."""
        # One that is dropped meanwhile is no longer listed.
        definitions = self._together.map(self.definition_at, self._names())
        return sorted(filter(None, definitions), key=lambda definition: definition.name)

    def readable_definitions(self) -> list[SinkDefinition]:
        """All sinks but those whose definition cannot be read: one of them stops no other."""
        definitions = self._together.map(self._readable, self._names())
        return sorted(filter(None, definitions), key=lambda definition: definition.name)

    def _readable(self, key: str) -> SinkDefinition | None:
        try:
            return self.definition_at(key)
        except FormatError as error:
            logger.warning("a sink is passed over: %s", error)
            return None

    def definition_at(self, key: str) -> SinkDefinition | None:
        """The sink that is defined there; None when there is none, or only a copy of another's."""
        definition = self._find(key, SinkDefinition)
        return (
            definition
            if definition is not None and layout.sink_name(definition.name) == key
            else None
        )

    def _names(self) -> list[str]:
        return [info.key for info in entries(self._objects, f"{layout.SINKS}/names")]

    def traces(self) -> Traces:
        """What there is of sinks, in one list of which nothing is read."""
        names: dict[str, str] = {}
        objects: dict[str, set[str]] = {}
        for info in self._objects.list(layout.SINKS):
            owner, _, rest = info.key.removeprefix(f"{layout.SINKS}/").partition("/")
            trace = f"{info.key} {info.modified.timestamp()}"
            if is_entry(info.key, f"{layout.SINKS}/names"):
                names[info.key] = trace
            elif rest == SUSPENDED or is_entry(rest, "plans"):
                objects.setdefault(owner, set()).add(trace)
        return Traces(names, objects)

    def keys_by_sink(self) -> dict[str, list[str]]:
        """The objects of every sink by its id, relative to its folder, in one list."""
        keys: dict[str, list[str]] = {}
        for info in self._objects.list(layout.SINKS):
            owner, _, rest = info.key.removeprefix(f"{layout.SINKS}/").partition("/")
            keys.setdefault(owner, []).append(rest)
        return keys

    def plans_among(self, sink_id: str, keys: Iterable[str]) -> list[str]:
        """The keys of plans among the objects of a sink."""
        return [
            f"{layout.sink(sink_id)}/{key}"
            for key in keys
            if is_entry(key, "plans") and number_of(key) is not None
        ]

    def replace(self, definition: SinkDefinition) -> None:
        self._objects.put(layout.sink_name(definition.name), encode(definition))

    def drop(self, definition: SinkDefinition) -> None:
        self._objects.delete(layout.sink_name(definition.name))
        for info in self._objects.list(layout.sink(definition.id)):
            with suppress(ObjectMissing):
                self._objects.delete(info.key)

    # Suspension

    def suspend(self, sink_id: str, suspension: Suspension) -> None:
        self._objects.put(self._suspended_key(sink_id), encode(suspension))

    def resume(self, sink_id: str) -> None:
        self._objects.delete(self._suspended_key(sink_id))

    def suspension(self, sink_id: str) -> Suspension | None:
        return self._find(self._suspended_key(sink_id), Suspension)

    # State and plans

    def state(self, sink_id: str) -> SinkState | None:
        """The state as its object has it; None when that is gone or unreadable."""
        try:
            return self._find(self._state_key(sink_id), SinkState)
        except CorruptObject:
            return None

    def standing(self, definition: SinkDefinition, plans: Sequence[str] | None = None) -> Standing:
        """Where a sink stands, from all that is written about it; SinkStopped when it is not.

        `plans` are the keys of its plans, if they are known.
        """
        state, listed = self._together.both(
            lambda: self.state(definition.id),
            lambda: self._plan_keys(definition.id) if plans is None else plans,
        )
        if state is not None and listed and _number(max(listed)) == state.plan:
            # It was closed, or about to be: the state says all that it says.
            return Standing(state)
        newest = self._newest_plan(definition, state, listed)
        if newest is None:
            if state is None:
                raise _stopped(definition, "its state is gone or unreadable, and no plan is left")
            return Standing(state)
        return settle(definition, state, newest)

    def _newest_plan(
        self, definition: SinkDefinition, state: SinkState | None, plans: Sequence[str]
    ) -> DeliveryPlan | None:
        if not plans:
            if state is not None and state.plan > 0:
                raise _stopped(
                    definition, f"its plans are gone, of which {state.plan} was the last"
                )
            return None
        key = max(plans)
        try:
            return decode(self._objects.get(key), DeliveryPlan, key)
        except CorruptObject as error:
            number = _number(key)
            if state is not None and state.plan == number:
                # It was closed: the state says all that it said.
                return None
            raise _stopped(
                definition, f"its plan {number} is unreadable, so that what it sent is not known"
            ) from error

    def _plan_keys(self, sink_id: str) -> list[str]:
        keys = self._objects.keys(self._plans(sink_id))
        return [key for key in keys if number_of(key) is not None]

    def last_planned(self, definition: SinkDefinition) -> datetime | None:
        plans = self._plan_keys(definition.id)
        plan = self._newest_plan(definition, self.state(definition.id), plans)
        return plan.created if plan is not None else None

    def begin(self, plan: DeliveryPlan) -> None:
        """Write a plan down, before anything of it is sent."""
        hit("deliver.before_intent")
        self._objects.put_new(self._plan_key(plan), encode(plan))
        hit("deliver.after_intent")

    def advance(
        self,
        plan: DeliveryPlan,
        state: SinkState,
        meanwhile: Callable[[], None] = lambda: None,
        besides: Callable[[], None] = lambda: None,
    ) -> None:
        """Move the watermark past a plan, and close it; `meanwhile` is done by then, and `besides`
        once it has moved."""
        closed = replace(plan, parts=(), next=state, closed=True)
        hit("deliver.before_watermark")
        self._together.both(
            lambda: self._objects.put(self._state_key(plan.sink_id), encode(state)), meanwhile
        )
        hit("deliver.after_watermark")

        def close() -> None:
            hit("deliver.before_clear")
            self._objects.put(self._plan_key(plan), encode(closed))
            hit("deliver.after_clear")

        acts = [close, lambda: self._clear(plan), besides]
        self._together.map(lambda act: act(), acts)

    def _clear(self, plan: DeliveryPlan) -> None:
        """Remove what a plan that was closed leaves, and those before it."""
        # What cannot be removed is passed over by later deliveries.
        with suppress(StoreError):
            keys = self._plan_keys(plan.sink_id)
            older = [key for key in keys if key < self._plan_key(plan)]
            self._objects.delete_many([*older, self._progress_key(plan)])

    def correct(self, definition: SinkDefinition, state: SinkState) -> None:
        """Write the state anew, as it was found out to be."""
        self._objects.put(self._state_key(definition.id), encode(state))

    def restart(self, definition: SinkDefinition, state: SinkState) -> SinkState:
        """Let a sink go on from a state that somebody chose, whatever was there before."""
        number = max([state.plan, *map(_number, self._plan_keys(definition.id))]) + 1
        chosen = replace(state, plan=number)
        plan = DeliveryPlan(
            number, definition.id, 0, state.watermark, state.watermark, (), state, chosen
        )
        # The closed plan first: should this be cut short, the state that it keeps is found.
        self._objects.put(self._plan_key(plan), encode(replace(plan, closed=True)))
        self.advance(plan, chosen)
        return chosen

    # Progress

    def progress(self, plan: DeliveryPlan) -> Progress:
        """What is known to be sent of a plan; less than that was never sent, more may have been."""
        try:
            progress = self._find(self._progress_key(plan), Progress)
        except CorruptObject:
            progress = None
        return progress if progress is not None and progress.plan == plan.identity else Progress()

    def forget_progress(self, definition: SinkDefinition) -> None:
        """Let an open plan, if there is one, be sent from its beginning."""
        for info in numbered(self._objects, f"{layout.sink(definition.id)}/progress"):
            self._objects.delete(info.key)

    def note(self, plan: DeliveryPlan, progress: Progress) -> None:
        told = replace(progress, plan=plan.identity)
        self._objects.put(self._progress_key(plan), encode(told))

    def _find(self, key: str, kind: type[T]) -> T | None:
        try:
            return decode(self._objects.get(key), kind, key)
        except ObjectMissing:
            return None

    def _state_key(self, sink_id: str) -> str:
        return f"{layout.sink(sink_id)}/state.json"

    def _suspended_key(self, sink_id: str) -> str:
        return f"{layout.sink(sink_id)}/{SUSPENDED}"

    def _plans(self, sink_id: str) -> str:
        return f"{layout.sink(sink_id)}/plans"

    def _plan_key(self, plan: DeliveryPlan) -> str:
        return self._key_of_plan(plan.sink_id, plan.number)

    def _key_of_plan(self, sink_id: str, number: int) -> str:
        return f"{self._plans(sink_id)}/{number:012d}.json"

    def _progress_key(self, plan: DeliveryPlan) -> str:
        return f"{layout.sink(plan.sink_id)}/progress/{plan.number:012d}.json"


class ProgressNotes:
    """The progress of plans, written down now and then.

    Owns: the thread that writes where the store is far, so that what is sent need not wait for it.
    """

    def __init__(self, ledger: Ledger, *, far: bool) -> None:
        self._ledger = ledger
        self._far = far
        self._noted = 0.0
        self._pending: Future[None] | None = None
        self._writer = ThreadPoolExecutor(1, "tidelock-notes")

    def note(self, plan: DeliveryPlan, progress: Progress) -> None:
        """Write progress down, unless that was done just now."""
        now = time.monotonic()
        if now - self._noted < NOTE_SECONDS:
            return
        self.wait()
        note = partial(self._ledger.note, plan, replace(progress, sent=dict(progress.sent)))
        if self._far:
            self._pending = self._writer.submit(note)
        else:
            note()
        self._noted = now

    def note_last(self, plan: DeliveryPlan, progress: Progress) -> None:
        """Write progress down in any case, after what was noted before."""
        self.wait()
        self._ledger.note(plan, progress)

    def wait(self) -> None:
        """Wait until the progress that was noted last is written down."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def close(self) -> None:
        self._writer.shutdown()


def _number(plan_key: str) -> int:
    return int(plan_key.rsplit("/", 1)[1].removesuffix(".json"))


def settle(definition: SinkDefinition, state: SinkState | None, newest: DeliveryPlan) -> Standing:
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
    name = definition.name
    return SinkStopped(
        f"Sink {name!r} cannot tell how far it has come: {why}. Nothing was sent. Look at the "
        "destination, then say where to go on.",
        Advice(
            f"Say it with lake.replay({name!r}, since=POSITION).",
            f"Say it with `tidelock sink replay {name} --since POSITION`.",
        ),
        sink=name,
        reason=why,
    )
