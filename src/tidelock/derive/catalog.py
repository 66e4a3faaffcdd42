"""The catalog: which stream tables a snapshot has, how they hang together, and their plans.

Owns: the definitions of a lake, one object each under the hash of its content, and what follows
from them (graph, groups, units, plans), computed again only when the tables or their schemas
change.
Invariant: a definition's object exists before a commit names it, and never changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.groups import Group, Unit, find_groups, units
from tidelock.derive.seen import with_reads
from tidelock.derive.stream import LostDefinition, Stored, Stream, TablesById, find_inputs
from tidelock.errors import (
    Advice,
    CorruptObject,
    FormatError,
    NewerFormat,
    ObjectExists,
    ObjectMissing,
    StreamTableRequired,
    TableNotFound,
)
from tidelock.model.history.commit import Tables, TableState
from tidelock.model.names import is_hidden
from tidelock.model.streams import Definition
from tidelock.store.engine import Engine
from tidelock.store.objects import layout
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode
from tidelock.store.spark.sessions import engine_errors, speaker_of

if TYPE_CHECKING:
    from tidelock.derive.plan.view import ViewPlan
    from tidelock.derive.planned import Planned, PlannedInput, Reads
    from tidelock.model.schema.schema import TableSchema
    from tidelock.store.tables.datasets import TableFiles

PLANS_MAX = 4096


@dataclass(frozen=True)
class Arrangement:
    """The stream tables of a snapshot and how they hang together."""

    streams: Mapping[str, Stream]
    graph: Graph
    groups: tuple[Group, ...]
    units: tuple[Unit, ...]

    def changed_since(self, stream: Stream, tables: Tables) -> list[str]:
        """The tables that a stream table follows from and that changed since it was refreshed."""
        bases = [one for one in self.graph.upstream(stream.name) if not self.graph.is_stream(one)]
        return [one for one in bases if tables[one].changed > stream.state.as_of]


class Catalog:
    """Owns the stored definitions of a lake, and what was computed from them: the graph, the groups
    and the plans, each until the tables or schemas that it was made for change."""

    def __init__(self, objects: Objects, engine: Engine) -> None:
        self._objects = objects
        self._engine = engine
        self._stored: dict[str, Stored] = {}
        self._shapes: dict[object, tuple[Graph, tuple[Group, ...], tuple[Unit, ...]]] = {}
        self._plans: dict[object, ViewPlan] = {}
        self._lock = threading.Lock()

    @property
    def engine_name(self) -> str:
        """The engine that plans are made on, as a sentence names it."""
        return speaker_of(self._engine.get()).within

    def check_tables(self, before: Tables, after: Tables, files: TableFiles) -> None:
        """TableInUse if a commit would take from a stream table what it reads."""
        from tidelock.derive.dependents import refuse_unmet, unmet_needs

        streams = self.arrange(after).streams.values()
        refuse_unmet(unmet_needs(streams, files), before, files)

    def keep(self, stored: Stored, *, durable: bool = True) -> str:
        """Make a definition durable, unless it is only tried; returns its id."""
        stored_id = stored.id
        if not durable:
            self._stored[stored_id] = stored
            return stored_id
        key = layout.definition(stored_id)
        try:
            self._objects.put_new(key, encode(stored))
        except ObjectExists:
            try:
                decode(self._objects.get(key), Stored, key)
            except CorruptObject:
                # Its name is the hash of what it was: this.
                self._objects.put(key, encode(stored))
        self._stored[stored_id] = stored
        return stored_id

    def stored(self, definition_id: str) -> Stored:
        found = self._stored.get(definition_id)
        if found is None:
            key = layout.definition(definition_id)
            found = self._stored[definition_id] = decode(self._objects.get(key), Stored, key)
        return found

    def stream(self, table: TableState, tables: TablesById) -> Stream:
        """A stream table with its definition, or with one that stands for it if that is lost."""
        state = table.stream
        assert state is not None
        try:
            stored = self.stored(state.definition)
        except (FormatError, ObjectMissing) as error:
            newer = isinstance(error, NewerFormat)
            why = f"The definition of stream table {table.name!r} cannot be read: {error.message}"
            if not newer:
                why += (
                    " Define it again (`tidelock apply`, or `stream create --replace`), or drop it."
                )
            # What it was computed from says what it reads.
            inputs = tuple(entry.table for entry in state.frontier)
            lost = LostDefinition("", schedule=None, consistency="none", why=why, newer=newer)
            stored = Stored(lost, inputs)
        return Stream(table, stored, find_inputs(stored, state, tables))

    def stream_with(self, table: TableState, stored: Stored, tables: Tables) -> Stream:
        """A stream table as it would be with another definition."""
        assert table.stream is not None
        return Stream(table, stored, find_inputs(stored, table.stream, TablesById(tables)))

    def arrange(self, tables: Tables) -> Arrangement:
        """The stream tables of a snapshot, with their graph, groups and units of refresh."""
        by_id = TablesById(tables)
        streams = {
            state.name: self.stream(state, by_id)
            for state in tables.states()
            if state.stream is not None
        }
        signature = tuple(sorted((s.name, s.state.definition, s.inputs) for s in streams.values()))
        shape = self._shapes.get(signature)
        if shape is None:
            graph = Graph.of({name: stream.inputs for name, stream in streams.items()})
            definitions = {name: stream.definition for name, stream in streams.items()}
            groups = find_groups(graph, definitions)
            shape = (graph, groups, units(graph, groups))
            with self._lock:
                self._shapes = {signature: shape}
        return Arrangement(streams, *shape)

    def plan(self, tables: Tables, reads: Reads, definition: Definition) -> ViewPlan:
        """The plan of a new definition over the tables that a transaction or a snapshot sees."""
        return self._plan(definition.id, definition, Schemas(tables, reads))

    def plan_stream(self, reads: Reads, stream: Stream) -> Planned:
        """The plan of a stream table, which sees of its inputs what its definition saw."""
        from tidelock.derive.planned import Planned, refuse_broken, see_input

        stream.refuse_lost()
        given = [see_input(reads, one) for one in stream.reads]
        plan = self._plan_seen(stream.stored.id, stream, given)
        inputs = [replace(one, seen=one.seen.weakened(one.schema)) for one in given]
        rebuilt = False
        if any(one.seen is not before.seen for one, before in zip(inputs, given, strict=True)):
            strong, plan = plan, self._plan_seen(f"{stream.stored.id} weakened", stream, inputs)
            rebuilt = strong.kept != plan.kept
        inputs = [replace(one, seen=with_reads(one.seen, plan.reads[one.label])) for one in inputs]
        refuse_broken(stream, inputs)
        return Planned(plan, stream, tuple(inputs), rebuilt)

    def know_plan(self, stored: Stored, plan: ViewPlan) -> None:
        """Remember the plan of a definition that was just kept."""
        with self._lock:
            self._plans[stored.id] = plan

    def _plan_seen(self, place: str, stream: Stream, inputs: Sequence[PlannedInput]) -> ViewPlan:
        from tidelock.derive.sight import label_schema

        schemas = {one.label: label_schema(one.seen) for one in inputs}
        return self._plan(place, stream.definition, schemas)

    def _plan(
        self, place: str, definition: Definition, schemas: Mapping[str, TableSchema]
    ) -> ViewPlan:
        known = self._plans.get(place)
        if known is not None and all(
            schemas.get(name) == schema for name, schema in known.schemas.items()
        ):
            return known
        # Which stream tables there are is told without the parser that plans are made with.
        from tidelock.derive.plan.view import plan_view

        self._engine.follow_settings()
        with engine_errors(self._engine.get()):
            plan = plan_view(self._engine, definition, schemas)
        with self._lock:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            self._plans[place] = plan
        return plan


class Schemas(Mapping[str, "TableSchema"]):
    """The schemas of tables, each opened when it is asked for."""

    def __init__(self, tables: Tables, reads: Reads) -> None:
        self._reads = reads
        self._names = [name for name in tables if not is_hidden(name)]

    def __getitem__(self, name: str) -> TableSchema:
        try:
            return self._reads.table(name).schema
        except TableNotFound:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def stream_of(tables: Tables, catalog: Catalog, name: str) -> Stream:
    """The stream table of that name, or a typed error."""
    state = tables[name]
    if state.stream is None:
        raise StreamTableRequired(
            f"{state.name!r} is a table, not a stream table.",
            Advice("lake.stream_tables() lists those.", "`tidelock stream list` shows those."),
            table=state.name,
        )
    return catalog.stream(state, TablesById(tables))
