"""A PostgreSQL database as a source, by logical replication.

Owns: what is made in the database (a publication, a slot), what is checked before the stream is
read, and which transactions are published together.
Invariants: the lake's position is never behind what the server was told is durable; a transaction
of the source is in one commit, whole; commits are in the order of the source's.

Small transactions are published one by one while the lake keeps up. When many wait, those that
follow each other share a commit, so that it catches up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import psycopg
import psycopg.sql
import pyarrow as pa

from tidelock.errors import BrokenInvariant, InvalidOption, SourceStopped
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.ledger import Entry, entries_table
from tidelock.ingest.postgres.catalog import (
    PgTable,
    Server,
    describe_tables,
    find_free_slot,
    find_server,
    find_tables,
)
from tidelock.ingest.postgres.connection import connected
from tidelock.ingest.postgres.first_load import FirstLoad
from tidelock.ingest.postgres.followed import TableEntry
from tidelock.ingest.postgres.mapping import TEXTS
from tidelock.ingest.postgres.messages import read_lsn, show_lsn
from tidelock.ingest.postgres.settings import Settings, read_settings, refuse_password
from tidelock.ingest.postgres.snapshot import Snapshot, Stopped
from tidelock.ingest.postgres.stream import Stream, entries_of
from tidelock.ingest.postgres.types import KEPT_TEXTS, map_columns
from tidelock.ingest.protocol import Desk, Source, SourceTable
from tidelock.ingest.reader import SourceReader
from tidelock.model.names import suggest
from tidelock.model.schema.alterations import AddColumn
from tidelock.model.schema.schema import Column
from tidelock.model.sources import (
    Reading,
    SourceDefinition,
)


class PostgresSource(Source):
    """Reads one slot of one database."""

    is_live: ClassVar[bool] = True

    def __init__(self, definition: SourceDefinition, settings: Settings) -> None:
        self._definition = definition
        self.settings = settings
        self.fragment_bytes = settings.fragment_bytes
        self._stream: Stream | None = None

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        refuse_password(options)
        return dict(options)

    @classmethod
    def open(cls, definition: SourceDefinition) -> Self:
        return cls(definition, read_settings(definition))

    @property
    def name(self) -> str:
        return self._definition.name

    # What there is

    def discover(self) -> Sequence[SourceTable]:
        with connected(self.settings, self.name) as connection:
            tables = find_tables(connection, self.settings.tables)
            if not tables:
                known = [one.shown for one in find_tables(connection, ["*.*"])]
                raise InvalidOption(
                    f"Source {self.name!r}: no table of the database is meant by "
                    f"{', '.join(self.settings.tables)}. {suggest('', known)}",
                    tables=list(self.settings.tables),
                )
        return [self._described(table) for table in tables]

    def _described(self, table: PgTable) -> SourceTable:
        mapped = map_columns(table.columns, self._overrides(table))
        required = set(table.key)
        schema = pa.schema(
            [pa.field(one.name, one.type, one.name not in required) for one in mapped]
        )
        return SourceTable(
            table.name,
            schema,
            table.key,
            table.namespace,
            pa.schema([pa.field(TEXTS, KEPT_TEXTS)]),
        )

    def _overrides(self, table: PgTable) -> dict[str, str]:
        prefix = f"{table.shown}."
        given = self.settings.columns
        return {
            name[len(prefix) :]: kind for name, kind in given.items() if name.startswith(prefix)
        }

    # Reading

    def poll(self, desk: Desk) -> Iterator[Incoming]:
        try:
            yield from self._begin(desk)
            if not self._loaded(desk):
                return
        except Stopped:
            return
        self._stream = Stream(self.name, self.settings, desk)
        try:
            yield from self._stream.read()
        finally:
            self.close()

    def _loaded(self, desk: Desk) -> bool:
        """Load what is not there yet; False if stopped first."""
        loading = any(one.state == "loading" for one in entries_of(desk))
        return not loading or self._load(desk, None)

    def _begin(self, desk: Desk) -> Iterator[Incoming]:
        """Make what is missing in the database, and see to it that the stream can go on."""
        with connected(self.settings, self.name) as connection:
            server = find_server(connection)
            known = desk.entries(["server"]).get("server")
            if known is not None:
                self._check(desk, connection, server, known)
                return
            tables = find_tables(connection, self.settings.tables)
            self._refuse_filled(desk, tables)
            self._publish(connection, tables)
            self._drop_leftover(connection)
        snapshot = self._snapshot(desk, self.settings.slot, temporary=False)
        try:
            with connected(self.settings, self.name) as connection:
                # As they are from the snapshot on.
                tables = describe_tables(connection, [table.oid for table in tables])
            incoming = desk.begin()
            told = {"timeline": server.timeline, "slot": self.settings.slot}
            entries = [Entry("server", server.system, told)]
            for table in tables:
                called = desk.tables[table.shown]
                entries.append(self._entry(table, called).as_entry())
                self._add_columns(desk, incoming, table, called)
            incoming.note(entries_table(entries))
            incoming.transactions = 0
            yield incoming.finish(show_lsn(snapshot.position), message=f"{self.name}: begin")
            self._load(desk, snapshot)
        finally:
            snapshot.close()

    def _add_columns(self, desk: Desk, incoming: Incoming, table: PgTable, called: str) -> None:
        """Add the columns that a table of the lake does not have, though it was made for this."""
        state = desk.ledger.head.tables[called]
        schema = desk.store.files.schema(state, desk.store.files.read(state))
        for mapped in map_columns(table.columns, self._overrides(table)):
            if schema.find(mapped.name) is None:
                incoming.alter(called, AddColumn(Column(mapped.name, mapped.type)))

    def _snapshot(self, desk: Desk, slot: str, *, temporary: bool) -> Snapshot:
        return Snapshot(self.settings, self.name, slot, temporary=temporary, stopped=desk.stopped)

    def _refuse_filled(self, desk: Desk, tables: Sequence[PgTable]) -> None:
        """SourceStopped if rows are where the first load goes: nobody knows which of them stay."""
        known = desk.ledger.head.tables
        called = [desk.tables[table.shown] for table in tables]
        filled = [name for name in called if known[name].rows]
        if filled:
            raise SourceStopped(
                f"Source {self.name!r}: the first load goes into tables without rows, and "
                f"{', '.join(filled)} {'has' if len(filled) == 1 else 'have'} some. Remove them "
                "first, or let the source feed tables of other names with into=.",
                source=self.name,
                reason="filled",
                tables=filled,
            )

    def _drop_leftover(self, connection: psycopg.Connection[Any]) -> None:
        """Remove a slot that was made, and then nobody remembered it."""
        slot = find_free_slot(connection, self.settings.slot)
        if slot is None:
            return
        if not self.settings.owns_slot:
            raise SourceStopped(
                f"Source {self.name!r}: there is a replication slot {self.settings.slot!r} "
                "already, and nobody knows from where on it was read. Drop it, or leave slot out, "
                "and the source makes its own.",
                source=self.name,
                reason="slot",
            )
        connection.execute("SELECT pg_drop_replication_slot(%s)", (self.settings.slot,))

    def _load(self, desk: Desk, snapshot: Snapshot | None) -> bool:
        """Load the tables that are not there yet; False if stopped first."""
        loading = {one.oid: one for one in entries_of(desk) if one.state == "loading"}
        with connected(self.settings, self.name) as connection:
            found = describe_tables(connection, list(loading))
        load = FirstLoad(
            desk.store,
            self._definition,
            self.settings,
            [(table, loading[table.oid]) for table in found],
            desk.stopped,
            lambda standings: desk.tell(Reading("loading", tables=tuple(standings))),
        )
        if snapshot is not None:
            if not load.run(snapshot, mixed=False):
                return False
            load.adopt(desk.position, desk.position)
        else:
            if not load.is_loaded:
                own = self._snapshot(desk, f"{self.settings.slot}_t", temporary=True)
                try:
                    if not load.run(own, mixed=True):
                        return False
                finally:
                    own.close()
            until, more = load.newest(), True
            while more:
                self._catch_up(desk, load, until)
                if desk.stopped():
                    return False
                again = load.fetch_missing()
                until, more = max(until, again or 0), again is not None
            # What came last may have been none of ours, and moved no position.
            reached = max(until, read_lsn(load.open().position))
            load.adopt(desk.position, show_lsn(reached))
        desk.refresh()
        return True

    def _catch_up(self, desk: Desk, load: FirstLoad, until: int) -> None:
        """Read the stream onto the branch of a load until it is past all of its snapshots."""
        load.begin_streaming()
        there = replace(self._definition, branch=load.branch)
        reader = SourceReader(
            desk.store,
            there,
            _CatchUp(self, until, read_lsn(desk.position), load.note_missing),
            desk.tables,
            stopped=desk.stopped,
        )
        reader.read()

    def _entry(self, table: PgTable, called: str) -> TableEntry:
        return TableEntry(
            table.oid,
            table.namespace,
            table.name,
            called,
            "loading",
            "",
            table.key,
            table.identity,
            {one.name: (one.type_oid, one.typmod) for one in table.columns if not one.generated},
            self._overrides(table),
        )

    def _publish(self, connection: psycopg.Connection[Any], tables: Sequence[PgTable]) -> None:
        """Make the publication, unless it is the user's own."""
        name = self.settings.publication
        found = connection.execute(
            "SELECT 1 FROM pg_publication WHERE pubname = %s", (name,)
        ).fetchone()
        if found is not None:
            return
        if not self.settings.owns_publication:
            raise SourceStopped(
                f"Source {self.name!r}: there is no publication {name!r} in the database. Create "
                "it, or leave publication out, and the source makes its own.",
                source=self.name,
                reason="publication",
            )
        listed = ", ".join(
            psycopg.sql.Identifier(t.namespace, t.name).as_string(connection) for t in tables
        )
        quoted = psycopg.sql.Identifier(name).as_string(connection)
        connection.execute(
            f"CREATE PUBLICATION {quoted} {'FOR TABLE ' + listed if listed else ''} "
            "WITH (publish_via_partition_root = true)"
        )

    def _check(
        self,
        desk: Desk,
        connection: psycopg.Connection[Any],
        server: Server,
        known: Entry,
    ) -> None:
        """SourceStopped if the stream cannot go on where the lake stands."""
        slot = find_free_slot(connection, self.settings.slot)
        position = read_lsn(desk.position)
        why, reason = "", ""
        if known.mark != server.system:
            why, reason = "the database is on another server than before", "server"
        elif slot is None:
            why, reason = f"its replication slot {self.settings.slot!r} is gone", "slot"
        elif slot.lost:
            why, reason = f"its replication slot was invalidated: {slot.lost}", "slot"
        elif slot.confirmed > position:
            why, reason = (
                f"its slot was read up to {show_lsn(slot.confirmed)}, and the lake holds "
                f"everything up to {desk.position}: somebody else read it, or the lake was put "
                "back to an earlier state",
                "gap",
            )
        elif server.position < position:
            why, reason = (
                f"the server's log ends at {show_lsn(server.position)}, before {desk.position}, "
                "which the lake holds: it was put back to an earlier state, or another took over "
                "that was behind",
                "timeline",
            )
        if why:
            raise SourceStopped(
                f"Source {self.name!r}: {why}. Drop the source, remove the rows of its tables, and "
                "make it again: it loads them anew.",
                source=self.name,
                reason=reason,
            )

    def acknowledge(self, position: str) -> None:
        if self._stream is not None:
            self._stream.acknowledge(read_lsn(position))

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def drop(self) -> None:
        """Remove the slot, and the publication that was made for it."""
        with connected(self.settings, self.name) as connection:
            if find_free_slot(connection, self.settings.slot) is not None:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (self.settings.slot,))
            if self.settings.owns_publication:
                quoted = psycopg.sql.Identifier(self.settings.publication).as_string(connection)
                connection.execute(f"DROP PUBLICATION IF EXISTS {quoted}")


class _CatchUp(Source):
    """The stream up to a position, for the branch of a load."""

    def __init__(
        self,
        source: PostgresSource,
        until: int,
        acknowledged: int,
        unknown: Callable[[Incoming, str, pa.Table], None],
    ) -> None:
        """Nobody else has what the branch of a load has: the server keeps it."""
        self._source = source
        self._until = until
        self._acknowledged = acknowledged
        self.fragment_bytes = source.fragment_bytes
        self.unknown = unknown

    @classmethod
    def open(cls, definition: SourceDefinition) -> Self:
        raise BrokenInvariant("A stream that catches up is made of the source that it is of.")

    def discover(self) -> Sequence[SourceTable]:
        return ()

    def poll(self, desk: Desk) -> Iterator[Incoming]:
        source = self._source
        stream = Stream(source.name, source.settings, desk, self._until, self._acknowledged)
        try:
            yield from stream.read()
        finally:
            stream.close()
