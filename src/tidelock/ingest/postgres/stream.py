"""One reading of the stream, from the lake's position on: which transactions go into which commit.

Small transactions are published one by one while the lake keeps up. When many wait, those that
follow each other share a commit, so that it catches up. Large ones are a commit each, and go to
storage while they are open.
Invariants: commits are in the order of the source's; a transaction is in one commit, whole; what of
it is decoded comes after all that was committed before it is published.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tidelock.ingest.intake.changes import TableChanges
from tidelock.ingest.intake.incoming import Incoming, removes_of
from tidelock.ingest.postgres.assembly import (
    WAITING_BYTES_MAX,
    Assembly,
    Ended,
    Open,
    Passed,
    Run,
)
from tidelock.ingest.postgres.catalog import Types
from tidelock.ingest.postgres.connection import connected
from tidelock.ingest.postgres.followed import Followed, TableEntry
from tidelock.ingest.postgres.messages import Relation, Truncate, read_lsn, show_lsn
from tidelock.ingest.postgres.replication import Replication
from tidelock.ingest.postgres.settings import Settings
from tidelock.ingest.postgres.types import PgType
from tidelock.ingest.protocol import Desk
from tidelock.model.sources import OpenTransaction, Reading, TableStanding

ALONE_MAX = 32
"""So many transactions that wait are published one by one; of more, many share a commit."""
TOGETHER_BYTES = 8 * 1024 * 1024
WAIT_SECONDS = 0.1
TELL_SECONDS = 0.5
MOVE_BYTES = 64 * 1024
MOVE_SECONDS = 10.0
"""How far, and how seldom, the position is moved where nothing of ours was committed."""


def entries_of(desk: Desk) -> list[TableEntry]:
    """What is remembered of the tables of a source."""
    found = desk.ledger.entries()
    return [TableEntry.of(one) for one in found if one.item.startswith("table:")]


class Stream:
    """One reading of the stream, from the lake's position on."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        desk: Desk,
        until: int | None = None,
        acknowledged: int | None = None,
    ) -> None:
        """It ends at `until`, or, if that is None and it is not live, at the end of the log now.
        `acknowledged` is what the server may forget, if that is less than the desk's position."""
        self._name = name
        self._desk = desk
        self._settings = settings
        self._followed = Followed(entries_of(desk), self._schema_of, self._types_of)
        waiting_bytes = min(WAITING_BYTES_MAX, self._settings.fragment_bytes // 4)
        self._assembly = Assembly(self._move_on, waiting_bytes)
        position = read_lsn(desk.position)
        self._replication = Replication(self._settings, name, position, acknowledged)
        self._passed = read_lsn(desk.position)
        self._moved_at = time.monotonic()
        self._told_at = -TELL_SECONDS
        self._last_commit: datetime | None = None
        self._until = until if until is not None or desk.live else self._end_of_log()

    def acknowledge(self, position: int) -> None:
        """Everything up to here is in the lake."""
        self._replication.acknowledge(position)

    def close(self) -> None:
        self._assembly.drop()
        self._replication.close()

    def read(self) -> Iterator[Incoming]:
        while not self._desk.stopped():
            ended = self._ended()
            yield from self._together(ended)
            self._assembly.move_on()
            self._tell()
            if self._is_over():
                yield from self._moved(at_end=True)
                return
            yield from self._moved(at_end=False)

    def _tell(self) -> None:
        """Say how far it is, now and then."""
        if time.monotonic() - self._told_at < TELL_SECONDS:
            return
        self._told_at = time.monotonic()
        newest = self._replication.server_position
        behind = max(0, newest - self._passed)
        seconds = 0.0
        if behind and self._last_commit is not None:
            seconds = max(0.0, (datetime.now(UTC) - self._last_commit).total_seconds())
        self._desk.tell(
            Reading(
                "streaming" if self._desk.live else "reading",
                position=show_lsn(newest),
                lag_bytes=behind,
                lag_seconds=seconds,
                open=tuple(
                    OpenTransaction(str(one.xid), one.rows, one.size_bytes, one.since)
                    for one in self._assembly.open.values()
                ),
                tables=tuple(
                    TableStanding(one.shown, one.table, one.state, one.reason)
                    for one in self._followed.entries
                ),
            )
        )

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
        self._last_commit = end.time
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
            yield incoming.finish(show_lsn(self._passed), message=f"{self._name}: nothing new")

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
        with connected(self._settings, self._name) as connection:
            types = Types(connection, pairs)
        return {pair: types.of(*pair) for pair in pairs}

    def _end_of_log(self) -> int:
        with connected(self._settings, self._name) as connection:
            row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        return read_lsn(row[0])


def _is_small(one: Ended) -> bool:
    """Whether a transaction was sent whole, and nothing of it had to be decoded yet."""
    return isinstance(one, Open) and not one.streamed and one.incoming is None
