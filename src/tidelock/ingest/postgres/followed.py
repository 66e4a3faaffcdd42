"""The tables that a source follows: what the ledger remembers of each, and how its rows are read.

An entry of the ledger is `table:<oid>`: which table of the lake it is, the columns as the source
had them, its key, and its state:

    loading      its first load runs on a branch of its own; its rows in the stream are passed over
    streaming    its rows are taken
    suspended    they are passed over, for the reason that is told; the other tables go on

Owns: what becomes of a table when the source alters it. Columns that come are added with the first
row that has them; columns that go are NULL from then on; what cannot be followed suspends the
table alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tidelock.errors import SourceStopped, TidelockError
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.ledger import Entry, entries_table
from tidelock.ingest.postgres.mapping import SentColumn, TableMapping
from tidelock.ingest.postgres.messages import Relation, read_lsn
from tidelock.ingest.postgres.types import Mapped, PgColumn, PgType, map_column
from tidelock.model.names import fold
from tidelock.model.schema.alterations import AddColumn
from tidelock.model.schema.schema import Column, TableSchema

State = Literal["loading", "streaming", "suspended"]


@dataclass(frozen=True)
class TableEntry:
    """What is remembered of one table."""

    oid: int
    namespace: str
    name: str
    table: str
    """What the lake calls it."""
    state: State
    reason: str = ""
    key: tuple[str, ...] = ()
    identity: str = "key"
    columns: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The type and the typmod of each column that is taken."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Columns that are held as another type than usual."""
    since: str = ""
    """What was committed up to this position is in the table already, and is not taken again. For a
    table with a key it does no harm, and it is not said."""

    @property
    def shown(self) -> str:
        return f"{self.namespace}.{self.name}"

    def as_entry(self) -> Entry:
        told = {
            "namespace": self.namespace,
            "name": self.name,
            "table": self.table,
            "state": self.state,
            "reason": self.reason,
            "key": list(self.key),
            "identity": self.identity,
            "columns": {name: list(pair) for name, pair in self.columns.items()},
            "types": dict(self.types),
            "since": self.since,
        }
        return Entry(f"table:{self.oid}", self.state, told)

    @classmethod
    def of(cls, entry: Entry) -> TableEntry:
        told: Any = entry.told
        columns = {name: (pair[0], pair[1]) for name, pair in told["columns"].items()}
        rest = {name: told[name] for name in told if name not in ("columns", "key")}
        return cls(int(entry.item[6:]), columns=columns, key=tuple(told["key"]), **rest)


class Followed:
    """Owns what is known of the followed tables while the stream is read."""

    def __init__(
        self,
        entries: Sequence[TableEntry],
        schema_of: Callable[[str], TableSchema],
        types_of: Callable[[Sequence[tuple[int, int]]], Mapping[tuple[int, int], PgType]],
    ) -> None:
        """`types_of` asks the source what some types are."""
        self._entries = {one.oid: one for one in entries}
        self._schema_of = schema_of
        self._types_of = types_of
        self._types: dict[tuple[int, int], PgType] = {}
        self._schemas: dict[str, TableSchema] = {}
        """As the lake will have them once all that was read is published."""
        self._mappings: dict[Relation, TableMapping] = {}
        self.unknown: dict[int, Relation] = {}
        """Relations that send rows and are not followed yet."""

    @property
    def entries(self) -> list[TableEntry]:
        return list(self._entries.values())

    def is_taken(self, relation: Relation) -> bool:
        entry = self._entries.get(relation.oid)
        if entry is None:
            self.unknown[relation.oid] = relation
            return False
        return entry.state == "streaming"

    def mapping(self, relation: Relation, incoming: Incoming) -> TableMapping | None:
        """How rows of a relation are read; None if they are passed over. What it takes to hold
        them is put into `incoming`, before them."""
        if not self.is_taken(relation):
            return None
        known = self._mappings.get(relation)
        if known is not None:
            return known
        entry = self._entries[relation.oid]
        try:
            mapping = self._mappings[relation] = self._follow(entry, relation, incoming)
        except TidelockError as error:
            self.suspend(entry, error.message, incoming)
            return None
        return mapping

    def suspend(self, entry: TableEntry, reason: str, incoming: Incoming) -> None:
        """Pass the rows of a table over from here on."""
        entry = replace(entry, state="suspended", reason=reason)
        self._entries[entry.oid] = entry
        incoming.note(entries_table([entry.as_entry()]))

    def has(self, relation: Relation, end: int) -> bool:
        """Whether the table holds already what a transaction did that ended at a position."""
        entry = self._entries.get(relation.oid)
        return entry is not None and end <= read_lsn(entry.since)

    def entry(self, oid: int) -> TableEntry | None:
        return self._entries.get(oid)

    def _follow(self, entry: TableEntry, relation: Relation, incoming: Incoming) -> TableMapping:
        """Take a relation as it is now, with all that has changed of it."""
        schema = self._schemas.get(entry.table) or self._schema_of(entry.table)
        pairs = {one.name: (one.type_oid, one.typmod) for one in relation.columns}
        self._learn([pair for pair in pairs.values() if pair not in self._types])
        sent = []
        for place, column in enumerate(relation.columns):
            type_ = self._types[pairs[column.name]]
            described = PgColumn(column.name, place + 1, type_)
            mapped = map_column(described, entry.types.get(column.name))
            schema = self._with_column(entry, schema, mapped, incoming)
            known = schema.column(column.name)
            sent.append(SentColumn(place, mapped, known.name))
        self._check_key(entry, relation, schema, sent)
        self._schemas[entry.table] = schema
        if dict(entry.columns) != pairs or entry.shown != f"{relation.namespace}.{relation.name}":
            entry = replace(entry, columns=pairs, namespace=relation.namespace, name=relation.name)
            self._entries[entry.oid] = entry
            incoming.note(entries_table([entry.as_entry()]))
        return TableMapping(
            entry.table, schema, tuple(sent), len(relation.columns), tuple(schema.key)
        )

    def _with_column(
        self, entry: TableEntry, schema: TableSchema, mapped: Mapped, incoming: Incoming
    ) -> TableSchema:
        """The schema with a column that the source sends."""
        known = schema.find(mapped.name)
        if known is None:
            schema = _added(entry, schema, Column(mapped.name, mapped.type), incoming)
        elif known.type != mapped.type:
            raise SourceStopped(
                f"Table {entry.shown}: its column {mapped.name!r} is {mapped.column.type_name} "
                f"now, which is {mapped.lake_type} here, and the lake has another type. It "
                "follows again in a source of its own, into a table of another name.",
                reason="retyped",
            )
        return schema

    def _check_key(
        self,
        entry: TableEntry,
        relation: Relation,
        schema: TableSchema,
        sent: Sequence[SentColumn],
    ) -> None:
        names = {fold(one.name) for one in sent}
        missing = [name for name in schema.key if fold(name) not in names]
        told = {fold(one.name) for one in relation.columns if one.is_key}
        if missing or (
            schema.key and relation.identity != "f" and told != set(map(fold, schema.key))
        ):
            raise SourceStopped(
                f"Table {entry.shown}: what identifies its rows is another than before: it was "
                f"({', '.join(schema.key)}). It follows again in a source of "
                "its own, into a table of another name.",
                reason="key",
            )

    def _learn(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            self._types.update(self._types_of(pairs))


def _added(
    entry: TableEntry, schema: TableSchema, column: Column, incoming: Incoming
) -> TableSchema:
    incoming.alter(entry.table, AddColumn(column))
    return replace(schema, columns=(*schema.columns, column))
