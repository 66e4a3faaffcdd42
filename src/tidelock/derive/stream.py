"""Stream tables of a snapshot: each with its definition as it is kept, and the tables it reads.

Owns: which table a label of a definition means. A table is found by its id, under whatever name it
has; where it is gone, another table that has its name stands in its place, and the next refresh
computes everything anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from tidelock.derive.seen import SeenInput
from tidelock.errors import CorruptObject, NewerFormat
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.streams import Definition, InputVersion, StreamState


@dataclass(frozen=True, slots=True)
class Stored:
    """A definition as it is kept, with what its query reads."""

    definition: Definition
    inputs: tuple[str, ...]
    """The labels of the tables that it reads."""
    tells_time: bool = False
    """Whether the query asks for the time, so that its rows change with nobody writing."""
    format: int = 1
    seen: tuple[SeenInput, ...] = ()
    """What it sees of each of them; empty in definitions that were made before that was kept."""

    @property
    def id(self) -> str:
        """The hash of its content. It was that of the definition alone while nothing was seen."""
        if not self.seen:
            return self.definition.id
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:32]

    def of(self, label: str) -> SeenInput | None:
        return next((one for one in self.seen if one.table == label), None)


@dataclass(frozen=True, slots=True)
class LostDefinition(Definition):
    """Stands for a definition whose object cannot be read: nothing is refreshed by it, and others
    go on."""

    why: str = ""
    newer: bool = False
    """Whether a later version of Tidelock can read it."""


@dataclass(frozen=True)
class StreamInput:
    """One table that a stream table reads."""

    label: str
    """What the query calls it."""
    state: TableState | None
    """What it is in the snapshot; None if there is no such table."""
    seen: SeenInput | None
    """What the definition sees of it; None if that is not known, or it is another table."""
    then: InputVersion | None
    """The state of it that the stream table was computed from; None if there is none, or it is
    another table."""

    @property
    def name(self) -> str:
        return self.label if self.state is None else self.state.name


@dataclass(frozen=True)
class Stream:
    """One stream table of a snapshot."""

    table: TableState
    stored: Stored
    reads: tuple[StreamInput, ...] = ()
    """The tables that its query reads, in the order of its text."""

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def state(self) -> StreamState:
        assert self.table.stream is not None
        return self.table.stream

    @property
    def definition(self) -> Definition:
        return self.stored.definition

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The names of the tables that it reads, as they are called in the snapshot."""
        return tuple(one.name for one in self.reads)

    def refuse_lost(self) -> None:
        """CorruptObject or NewerFormat if its definition cannot be read."""
        if isinstance(self.definition, LostDefinition):
            kind = NewerFormat if self.definition.newer else CorruptObject
            raise kind(self.definition.why, table=self.name)


class TablesById:
    """The tables of a snapshot by id, put in order when one is first asked for that has another
    name than it had."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def find(self, table_id: str, name: str) -> TableState | None:
        found = self._tables.find(name)
        return found if found is not None and found.id == table_id else self._by_id.get(table_id)

    @cached_property
    def _by_id(self) -> Mapping[str, TableState]:
        return {state.id: state for state in self._tables.states()}

    def named(self, *names: str) -> TableState | None:
        found = (self._tables.find(name) for name in names)
        return next((state for state in found if state is not None), None)


def find_inputs(stored: Stored, state: StreamState, tables: TablesById) -> tuple[StreamInput, ...]:
    """The tables that a stream table reads in a snapshot."""
    known = {}
    for label in stored.inputs:
        seen = stored.of(label)
        told = next((one for one in state.frontier if one.table == label), None)
        known[label] = seen.table_id if seen is not None else told.table_id if told else ""
    taken = {table_id: label for label, table_id in known.items() if table_id}
    return tuple(
        _find(label, known[label], stored, state, tables, taken) for label in stored.inputs
    )


def _find(
    label: str,
    table_id: str,
    stored: Stored,
    state: StreamState,
    tables: TablesById,
    taken: Mapping[str, str],
) -> StreamInput:
    then = next((one for one in state.frontier if one.table_id == table_id), None)
    found = tables.find(table_id, label) if table_id else None
    if found is not None:
        return StreamInput(label, found, stored.of(label), then)
    # Of two names that it had, the later one says who takes its place.
    names = (label,) if then is None else (then.table, label)
    instead = tables.named(*names)
    if instead is not None and taken.get(instead.id, label) != label:
        # That is another table of the same query, which was given this name.
        instead = None
    return StreamInput(label, instead, None, None)
