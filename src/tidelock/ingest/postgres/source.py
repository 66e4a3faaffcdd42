"""A PostgreSQL database as a source, by logical replication.

Owns: what is made in the database (a publication, a slot), what is checked before the stream is
read, and which transactions are published together.
Invariants: the lake's position is never behind what the server was told is durable; a transaction
of the source is in one commit, whole; commits are in the order of the source's.

Small transactions are published one by one while the lake keeps up. When many wait, those that
follow each other share a commit, so that it catches up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import psycopg
import psycopg.sql
import pyarrow as pa

from tidelock.errors import BrokenInvariant, SourceStopped
from tidelock.ingest.intake.changes import TableChanges
from tidelock.ingest.intake.incoming import Incoming, removes_of
from tidelock.ingest.ledger import Entry, entries_table
from tidelock.ingest.postgres.assembly import (
    WAITING_BYTES_MAX,
    Assembly,
    Ended,
    Open,
    Passed,
    Run,
)
from tidelock.ingest.postgres.catalog import (
    PgTable,
    Server,
    Types,
    describe_tables,
    find_free_slot,
    find_server,
    find_tables,
)
from tidelock.ingest.postgres.connection import connected
from tidelock.ingest.postgres.first_load import FirstLoad
from tidelock.ingest.postgres.followed import Followed, TableEntry
from tidelock.ingest.postgres.mapping import TEXTS
from tidelock.ingest.postgres.messages import Relation, Truncate, read_lsn, show_lsn
from tidelock.ingest.postgres.replication import Replication
from tidelock.ingest.postgres.settings import Settings, read_settings
from tidelock.ingest.postgres.snapshot import Snapshot, Stopped
from tidelock.ingest.postgres.types import KEPT_TEXTS, PgType, map_columns
from tidelock.ingest.protocol import Desk, Source, SourceTable
from tidelock.ingest.reader import SourceReader
from tidelock.model.schema.alterations import AddColumn
from tidelock.model.schema.schema import Column
from tidelock.model.sources import Reading, SourceDefinition

ALONE_MAX = 32
"""So many transactions that wait are published one by one; of more, many share a commit."""
TOGETHER_BYTES = 8 * 1024 * 1024
WAIT_SECONDS = 0.1
MOVE_BYTES = 64 * 1024
MOVE_SECONDS = 10.0
"""How far, and how seldom, the position is moved where nothing of ours was committed."""


class PostgresSource(Source):
    """Reads one slot of one database."""

    is_live: ClassVar[bool] = True

    def __init__(self, definition: SourceDefinition, settings: Settings) -> None:
        self._definition = definition
        self._settings = settings
        self.fragment_bytes = settings.fragment_bytes
        self._replication: Replication | None = None

    @classmethod
    def open(cls, definition: SourceDefinition) -> Self:
        return cls(definition, read_settings(definition))

    @property
    def name(self) -> str:
        return self._definition.name

    # What there is

    def discover(self) -> Sequence[SourceTable]:
        with connected(self._settings, self.name) as connection:
            tables = find_tables(connection, self._settings.tables)
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
        given = self._settings.columns
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
        stream = Stream(self, desk)
        try:
            yield from stream.read()
        finally:
            stream.close()

    def _loaded(self, desk: Desk) -> bool:
        """Load what is not there yet; False if stopped first."""
        loading = any(one.state == "loading" for one in entries_of(desk))
        return not loading or self._load(desk, None)

    def _begin(self, desk: Desk) -> Iterator[Incoming]:
        """Make what is missing in the database, and see to it that the stream can go on."""
        with connected(self._settings, self.name) as connection:
            server = find_server(connection)
            known = desk.entries(["server"]).get("server")
            if known is not None:
                self._check(desk, connection, server, known)
                return
            tables = find_tables(connection, self._settings.tables)
            self._publish(connection, tables)
            self._drop_leftover(connection)
        snapshot = self._snapshot(desk, self._settings.slot, temporary=False)
        try:
            with connected(self._settings, self.name) as connection:
                # As they are from the snapshot on.
                tables = describe_tables(connection, [table.oid for table in tables])
            incoming = desk.begin()
            told = {"timeline": server.timeline, "slot": self._settings.slot}
            entries = [Entry("server", server.system, told)]
            for table in tables:
                called = desk.tables[table.name]
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
        return Snapshot(self._settings, self.name, slot, temporary=temporary, stopped=desk.stopped)

    def _drop_leftover(self, connection: psycopg.Connection[Any]) -> None:
        """Remove a slot that was made, and then nobody remembered it."""
        slot = find_free_slot(connection, self._settings.slot)
        if slot is None:
            return
        if not self._settings.owns_slot:
            raise SourceStopped(
                f"Source {self.name!r}: there is a replication slot {self._settings.slot!r} "
                "already, and nobody knows from where on it was read. Drop it, or leave slot out, "
                "and the source makes its own.",
                source=self.name,
                reason="slot",
            )
        connection.execute("SELECT pg_drop_replication_slot(%s)", (self._settings.slot,))

    def _load(self, desk: Desk, snapshot: Snapshot | None) -> bool:
        """Load the tables that are not there yet; False if stopped first."""
        loading = {one.oid: one for one in entries_of(desk) if one.state == "loading"}
        with connected(self._settings, self.name) as connection:
            found = describe_tables(connection, list(loading))
        load = FirstLoad(
            desk.store,
            self._definition,
            self._settings,
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
                own = self._snapshot(desk, f"{self._settings.slot}_t", temporary=True)
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
        name = self._settings.publication
        found = connection.execute(
            "SELECT 1 FROM pg_publication WHERE pubname = %s", (name,)
        ).fetchone()
        if found is not None:
            return
        if not self._settings.owns_publication:
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
        slot = find_free_slot(connection, self._settings.slot)
        position = read_lsn(desk.position)
        why, reason = "", ""
        if known.mark != server.system:
            why, reason = "the database is on another server than before", "server"
        elif slot is None:
            why, reason = f"its replication slot {self._settings.slot!r} is gone", "slot"
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
                f"Source {self.name!r}: {why}. Load its tables anew with "
                f"`tidelock source resnapshot {self.name}`.",
                source=self.name,
                reason=reason,
            )

    def acknowledge(self, position: str) -> None:
        if self._replication is not None:
            self._replication.acknowledge(read_lsn(position))

    def close(self) -> None:
        if self._replication is not None:
            self._replication.close()
            self._replication = None

    def drop(self) -> None:
        """Remove the slot, and the publication that was made for it."""
        with connected(self._settings, self.name) as connection:
            if find_free_slot(connection, self._settings.slot) is not None:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (self._settings.slot,))
            if self._settings.owns_publication:
                quoted = psycopg.sql.Identifier(self._settings.publication).as_string(connection)
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
        stream = Stream(self._source, desk, self._until, self._acknowledged)
        try:
            yield from stream.read()
        finally:
            stream.close()


def entries_of(desk: Desk) -> list[TableEntry]:
    """What is remembered of the tables of a source."""
    found = desk.ledger.entries()
    return [TableEntry.of(one) for one in found if one.item.startswith("table:")]


class Stream:
    """One reading of the stream, from the lake's position on."""

    def __init__(
        self,
        source: PostgresSource,
        desk: Desk,
        until: int | None = None,
        acknowledged: int | None = None,
    ) -> None:
        """It ends at `until`, or, if that is None and it is not live, at the end of the log now.
        `acknowledged` is what the server may forget, if that is less than the desk's position."""
        self._source = source
        self._desk = desk
        self._settings = source._settings
        self._followed = Followed(entries_of(desk), self._schema_of, self._types_of)
        waiting_bytes = min(WAITING_BYTES_MAX, self._settings.fragment_bytes // 4)
        self._assembly = Assembly(self._move_on, waiting_bytes)
        position = read_lsn(desk.position)
        self._replication = Replication(self._settings, source.name, position, acknowledged)
        source._replication = self._replication
        self._passed = read_lsn(desk.position)
        self._moved_at = time.monotonic()
        self._until = until if until is not None or desk.live else self._end_of_log()

    def close(self) -> None:
        self._assembly.drop()
        self._source.close()

    def read(self) -> Iterator[Incoming]:
        while not self._desk.stopped():
            ended = self._ended()
            yield from self._together(ended)
            self._assembly.move_on()
            if self._is_over():
                return
            yield from self._moved(at_end=False)

    def _ended(self) -> list[Ended]:
        """What ended in what has arrived by now; waits a moment if nothing has."""
        found: list[Ended] = []
        size_bytes = 0
        block = self._replication.next(WAIT_SECONDS)
        if block is None:
            if self._until is not None:
                self._replication.ask()
            return found
        while block is not None:
            size_bytes += sum(map(len, block.messages))
            found.extend(self._assembly.read(block))
            if size_bytes > TOGETHER_BYTES or not self._replication.is_waiting:
                break
            block = self._replication.next(0.0)
        return found

    def _together(self, ended: list[Ended]) -> Iterator[Incoming]:
        """Transactions as they are published: one by one, or many small ones at once."""
        crowded = sum(map(_is_small, ended)) > ALONE_MAX
        group: list[Open] = []
        for one in ended:
            if isinstance(one, Open) and _is_small(one):
                group.append(one)
                if crowded:
                    continue
            yield from self._small(group)
            group = []
            if isinstance(one, Passed):
                self._passed = max(self._passed, one.position)
            elif not _is_small(one):
                yield from self._large(one)
        yield from self._small(group)

    def _small(self, group: Sequence[Open]) -> Iterator[Incoming]:
        if not group:
            return
        incoming = self._desk.begin()
        waiting: dict[int, Run] = {}
        for one in group:
            self._collect(incoming, one, waiting, one.ended.end_lsn)
        self._flush(incoming, waiting, streamed=False)
        yield from self._finish(incoming, group[-1], len(group))

    def _large(self, one: Open) -> Iterator[Incoming]:
        self._move_on(one)
        assert one.incoming is not None
        # What it did to tables that have it already was decoded before that was known.
        for entry in self._followed.entries:
            if one.ended.end_lsn <= read_lsn(entry.since):
                one.incoming.forget(entry.table)
        yield from self._finish(one.incoming, one, 1)

    def _move_on(self, one: Open) -> None:
        """Decode what waits of a large transaction."""
        if one.incoming is None:
            one.incoming = self._desk.begin()
            for part in one.undone:
                one.incoming.undo(part)
        waiting: dict[int, Run] = {}
        self._collect(one.incoming, one, waiting, None)
        self._flush(one.incoming, waiting, streamed=one.streamed)
        one.steps, one.waiting_bytes = [], 0

    def _collect(
        self, incoming: Incoming, one: Open, waiting: dict[int, Run], end: int | None
    ) -> None:
        """Put the rows of a transaction together by relation. `end` is where it ended, if that is
        known: tables that have it already are left out."""
        for step in one.steps:
            if isinstance(step, Truncate):
                self._flush(incoming, waiting, streamed=one.streamed)
                for oid in step.relations:
                    relation = self._assembly.relation(oid, one)
                    if relation is not None and not self._has(relation, end):
                        self._empty(incoming, relation, step.xid)
                continue
            if self._has(step.relation, end):
                continue
            run = waiting.get(step.relation.oid)
            if run is not None and run.relation is not step.relation:
                self._flush(incoming, waiting, streamed=one.streamed)
                run = None
            if run is None:
                run = waiting[step.relation.oid] = Run(step.relation)
            run.messages.extend(step.messages)

    def _has(self, relation: Relation, end: int | None) -> bool:
        return end is not None and self._followed.has(relation, end)

    def _flush(self, incoming: Incoming, waiting: dict[int, Run], *, streamed: bool) -> None:
        for run in waiting.values():
            mapping = self._followed.mapping(run.relation, incoming)
            if mapping is not None:
                incoming.add(mapping.table, mapping.changes(run.messages, streamed=streamed))
        waiting.clear()

    def _finish(self, incoming: Incoming, last: Open, transactions: int) -> Iterator[Incoming]:
        end = last.ended
        self._passed = max(self._passed, end.end_lsn)
        if incoming.is_empty:
            incoming.drop()
            return
        incoming.transactions = transactions
        self._moved_at = time.monotonic()
        told: dict[str, Any] = {"xid": last.xid, "lsn": show_lsn(end.commit_lsn)}
        yield incoming.finish(show_lsn(end.end_lsn), time=end.time, properties=told)

    def _moved(self, *, at_end: bool) -> Iterator[Incoming]:
        """Move the position over what is none of ours, now and then."""
        far = self._passed - read_lsn(self._desk.position) > MOVE_BYTES
        if far and (at_end or time.monotonic() - self._moved_at > MOVE_SECONDS):
            self._moved_at = time.monotonic()
            incoming = self._desk.begin()
            incoming.transactions = 0
            yield incoming.finish(
                show_lsn(self._passed), message=f"{self._source.name}: nothing new"
            )

    def _is_over(self) -> bool:
        return self._until is not None and self._passed >= self._until

    # Rows

    def _empty(self, incoming: Incoming, relation: Relation, part: int) -> None:
        mapping = self._followed.mapping(relation, incoming)
        if mapping is None:
            return
        rows = mapping.schema.arrow.empty_table()
        none, parts = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        incoming.add(
            mapping.table,
            TableChanges(rows, removes_of(mapping.schema), none, parts, parts, None, ((0, part),)),
        )

    def _schema_of(self, table: str) -> Any:
        head = self._desk.ledger.head
        state = head.tables[table]
        files = self._desk.store.files
        return files.schema(state, files.read(state))

    def _types_of(self, pairs: Sequence[tuple[int, int]]) -> dict[tuple[int, int], PgType]:
        with connected(self._settings, self._source.name) as connection:
            types = Types(connection, pairs)
        return {pair: types.of(*pair) for pair in pairs}

    def _end_of_log(self) -> int:
        with connected(self._settings, self._source.name) as connection:
            row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        return read_lsn(row[0])


def _is_small(one: Ended) -> bool:
    """Whether a transaction was sent whole, and nothing of it had to be decoded yet."""
    return isinstance(one, Open) and not one.streamed and one.incoming is None
