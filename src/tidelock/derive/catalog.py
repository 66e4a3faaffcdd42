"""The catalog: which stream tables a snapshot has, how they hang together, and their plans.

Owns: the definitions of a lake, one object each under the hash of its content, and what follows
from them (graph, groups, units, plans), computed again only when the tables or their schemas
change.
Invariant: a definition's object exists before a commit names it, and never changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.groups import Group, Unit, find_groups, units
from tidelock.derive.plan.view import ViewPlan, plan_view
from tidelock.errors import (
    Advice,
    CorruptObject,
    ObjectExists,
    ObjectMissing,
    StreamTableRequired,
    TableInUse,
    TableNotFound,
)
from tidelock.model.commit import Tables, TableState
from tidelock.model.names import is_hidden
from tidelock.model.schema import TableSchema
from tidelock.model.streams import Definition, StreamState
from tidelock.store.objects import layout
from tidelock.store.objects.protocol import Objects
from tidelock.store.objects.records import decode, encode
from tidelock.store.spark.sessions import engine_errors, speaker_of
from tidelock.store.table import Engine, Table

PLANS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Stored:
    """A definition as it is kept, with the tables that its query reads."""

    definition: Definition
    inputs: tuple[str, ...]
    tells_time: bool = False
    """Whether the query asks for the time, so that its rows change with nobody writing."""
    format: int = 1


@dataclass(frozen=True, slots=True)
class LostDefinition(Definition):
    """Stands for a definition whose object cannot be read: nothing is refreshed by it, and others
    go on."""

    why: str = ""


@dataclass(frozen=True)
class Stream:
    """One stream table of a snapshot."""

    table: TableState
    stored: Stored

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

    def refuse_lost(self) -> None:
        """CorruptObject if its definition cannot be read."""
        if isinstance(self.definition, LostDefinition):
            raise CorruptObject(self.definition.why, table=self.name)


@dataclass(frozen=True)
class Arrangement:
    """The stream tables of a snapshot and how they hang together."""

    streams: Mapping[str, Stream]
    graph: Graph
    groups: tuple[Group, ...]
    units: tuple[Unit, ...]


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

    def refuse_missing_inputs(self, tables: Tables) -> None:
        """TableInUse if a commit would leave a stream table without a table that it reads."""
        streams = self.arrange(tables).streams
        missing = {
            read_table
            for stream in streams.values()
            for read_table in stream.stored.inputs
            if read_table not in tables
        }
        for read_table in sorted(missing):
            readers = [name for name, one in streams.items() if read_table in one.stored.inputs]
            raise TableInUse(
                f"{read_table!r} is read by {', '.join(map(repr, readers))}, so that it cannot be "
                "dropped.",
                Advice(
                    "Drop those first with lake.drop_stream_table, or create it again in the same "
                    "transaction.",
                    "Drop those first, with `tidelock stream drop`.",
                ),
                table=read_table,
                dependents=tuple(readers),
            )

    def keep(
        self,
        definition: Definition,
        inputs: tuple[str, ...],
        tells_time: bool,
        *,
        durable: bool = True,
    ) -> str:
        """Make a definition durable, unless it is only tried; returns its id."""
        stored = Stored(definition, inputs, tells_time)
        if not durable:
            self._stored[definition.id] = stored
            return definition.id
        key = layout.definition(definition.id)
        try:
            self._objects.put_new(key, encode(stored))
        except ObjectExists:
            try:
                decode(self._objects.get(key), Stored, key)
            except CorruptObject:
                # Its name is the hash of what it was: this.
                self._objects.put(key, encode(stored))
        self._stored[definition.id] = stored
        return definition.id

    def stored(self, definition_id: str) -> Stored:
        found = self._stored.get(definition_id)
        if found is None:
            key = layout.definition(definition_id)
            found = self._stored[definition_id] = decode(self._objects.get(key), Stored, key)
        return found

    def stream(self, table: TableState) -> Stream:
        """A stream table with its definition, or with one that stands for it if that is lost."""
        assert table.stream is not None
        try:
            return Stream(table, self.stored(table.stream.definition))
        except (CorruptObject, ObjectMissing) as error:
            why = (
                f"The definition of stream table {table.name!r} cannot be read: {error.message} "
                "Define it again (`tidelock apply`, or `stream create --replace`), or drop it."
            )
            # What it was computed from says what it reads.
            inputs = tuple(entry.table for entry in table.stream.frontier)
            lost = LostDefinition("", schedule=None, consistency="none", why=why)
            return Stream(table, Stored(lost, inputs))

    def arrange(self, tables: Tables) -> Arrangement:
        """The stream tables of a snapshot, with their graph, groups and units of refresh."""
        streams = {
            state.name: self.stream(state) for state in tables.states() if state.stream is not None
        }
        signature = tuple(sorted((s.name, s.state.definition) for s in streams.values()))
        shape = self._shapes.get(signature)
        if shape is None:
            graph = Graph.of({name: stream.stored.inputs for name, stream in streams.items()})
            definitions = {name: stream.definition for name, stream in streams.items()}
            groups = find_groups(graph, definitions)
            shape = (graph, groups, units(graph, groups))
            with self._lock:
                self._shapes = {signature: shape}
        return Arrangement(streams, *shape)

    def plan(self, tables: Tables, reads: Reads, definition: Definition) -> ViewPlan:
        """The plan of a definition over the tables that a transaction or a snapshot sees."""
        if isinstance(definition, LostDefinition):
            raise CorruptObject(definition.why)
        schemas = Schemas(tables, reads)
        known = self._plans.get(definition.id)
        if known is not None and all(
            schemas.get(name) == schema for name, schema in known.schemas.items()
        ):
            return known
        self._engine.follow_settings()
        with engine_errors(self._engine.get()):
            plan = plan_view(self._engine, definition, schemas)
        with self._lock:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            self._plans[definition.id] = plan
        return plan


class Reads(Protocol):
    """What a plan is made over: a transaction or a snapshot."""

    def table(self, name: str) -> Table: ...


class Schemas(Mapping[str, TableSchema]):
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
    return catalog.stream(state)
