"""Refreshing: bringing a unit of stream tables to one snapshot, in one commit.

    1. the transaction fixes the snapshot that all members read
    2. members level by level: each stages its next state, reading what was staged before it
    3. one commit publishes all, with frontiers and the epoch one higher

Invariants: everything or nothing of a unit is published; members of one unit have one `as_of`; a
unit whose sources did not change is neither computed nor published.
After a crash: before the commit nothing happened; after it everything did.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa

from tidelock.derive.attempts import Attempt
from tidelock.derive.catalog import Arrangement, Catalog, Stream
from tidelock.derive.choosing import Found, choose, find_all_changes
from tidelock.derive.costs import Way, after_delta, after_full
from tidelock.derive.keeping import Keeper, Outcome
from tidelock.derive.moving import RowsNotFound
from tidelock.derive.relations import asking
from tidelock.derive.sources import Changes, cancelled, read_changes, weighted
from tidelock.derive.views import Prepared
from tidelock.derive.weighted import WEIGHT
from tidelock.errors import DefinitionBroken, InputError, QueryFailed, TidelockError
from tidelock.model.commit import Tables
from tidelock.model.streams import PUBLISHING, Source, Spent, StreamState
from tidelock.store.changes import diff_batches
from tidelock.store.faults import hit
from tidelock.store.reading import Table
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction

MEMBERS_AT_ONCE = 16


class MemberFailed(Exception):
    """One member could not be refreshed; the cause says why."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table


@dataclass
class Refresh:
    """One refresh of one unit."""

    store: Store
    catalog: Catalog
    branch: str
    members: Sequence[str]
    full: bool = False

    def run(self) -> list[Attempt]:
        """Refresh and publish; what became of each member. MemberFailed names who did not."""
        transaction = self.store.begin(self.branch, message=f"refresh {', '.join(self.members)}")
        try:
            attempts = _Members(self, transaction).stage()
            hit("refresh.before_publish")
            transaction.publish()
        except BaseException:
            transaction.rollback()
            raise
        commit = transaction.commit
        assert commit is not None
        hit("refresh.after_publish")
        return [replace(one, commit=commit.id) for one in attempts]


def is_current(arrangement: Arrangement, tables: Tables, members: Sequence[str]) -> bool:
    """Whether nothing that the members read has changed since their frontiers."""
    within = set(members)
    for name in members:
        state = arrangement.streams[name].state
        if not state.populated:
            return False
        seen = {source.table: source for source in state.frontier}
        for source in arrangement.streams[name].stored.sources:
            found, then = tables.find(source), seen.get(source)
            if found is None or then is None or found.id != then.table_id:
                return False
            if source not in within and found.changed != then.changed:
                return False
    return True


class _Members:
    """The members of a unit within their transaction."""

    def __init__(self, refresh: Refresh, transaction: Transaction) -> None:
        self._refresh = refresh
        self._store = refresh.store
        self._transaction = transaction
        self._base = transaction.tables()
        self._done: dict[str, Outcome] = {}
        self._published: dict[tuple[Source, tuple[str, ...]], pa.Table] = {}
        self._reading = threading.Lock()
        arrangement = refresh.catalog.arrange(self._base)
        self._streams = arrangement.streams
        self._units = arrangement.units

    def stage(self) -> list[Attempt]:
        epochs = self._next_epochs()
        attempts: dict[str, Attempt] = {}
        for name in self._refresh.members:
            # The commit lists them in this order, whoever is done first.
            self._transaction.stage(name)
        with ThreadPoolExecutor(MEMBERS_AT_ONCE) as pool:
            for level in self._levels():
                run = map if len(level) == 1 else pool.map
                for name, attempt in zip(
                    level, run(lambda n: self._stage(n, epochs[n]), level), strict=True
                ):
                    attempts[name] = attempt
        ordered = [attempts[name] for name in self._refresh.members]
        self._transaction.properties["refresh"] = [_plain(attempt) for attempt in ordered]
        return ordered

    def _levels(self) -> Iterator[list[str]]:
        """The members, those side by side that do not read each other."""
        waiting = list(self._refresh.members)
        while waiting:
            left = set(waiting)
            level = [name for name in waiting if not left & set(self._streams[name].stored.sources)]
            yield level
            waiting = [name for name in waiting if name not in level]

    def _stage(self, name: str, epoch: int) -> Attempt:
        began = time.monotonic()
        stream = self._streams[name]
        try:
            with asking(self._store.engine):
                way, outcome = self._keep(stream)
        except Exception as error:
            raise MemberFailed(name) from error
        self._done[name] = outcome
        seconds = time.monotonic() - began
        self._advance(stream, epoch, _spent(stream.state.spent, way, outcome, seconds))
        hit("refresh.after_member")
        return Attempt(
            table=name,
            table_id=stream.table.id,
            action="full" if way.full else "incremental",
            time=datetime.now(UTC),
            reason=way.reason,
            seconds=seconds,
            rows_in=outcome.rows_in,
            rows_out=outcome.rows_out,
            version=self._transaction.base_version,
            epoch=epoch,
            actor=self._transaction.actor,
        )

    def _next_epochs(self) -> dict[str, int]:
        """A refresh of the whole lake spans several groups, and each counts its own."""
        epochs = {}
        for unit in self._units:
            published = max(self._streams[name].state.epoch for name in unit.members)
            epochs.update(dict.fromkeys(unit.members, published + 1))
        return epochs

    def _keep(self, stream: Stream) -> tuple[Way, Outcome]:
        transaction = self._transaction
        prepared = self._plan(stream)
        self._refuse_other_columns(stream, prepared)
        changes = find_all_changes(self._store, transaction.branch, self._base, stream)
        staged = {name: outcome.rows_out for name, outcome in self._done.items()}
        way = choose(stream, prepared, self._base, changes, staged, full=self._refresh.full)
        keeper = Keeper(self._transaction, prepared, stream.name, stream.table.id, {})
        if way.full:
            return way, keeper.build()
        keeper = replace(
            keeper,
            old=self._old(stream),
            changes_of=lambda table, columns: self._read(stream, changes, table, columns),
        )
        try:
            return way, keeper.move()
        except RowsNotFound as error:
            reason = f"its rows were not those that its frontier has: {error}"
        except Exception as error:
            # A term may ask an expression of rows that are never there together; and whatever else
            # is wrong with a delta, the query itself may still be computed. Of a store or an engine
            # that is away that is not to be hoped.
            if isinstance(error, TidelockError) and not isinstance(error, QueryFailed):
                raise
            reason = f"by delta it failed: {error}"
        return Way(True, reason, failed=True), replace(keeper).build()

    def _plan(self, stream: Stream) -> Prepared:
        try:
            return self._refresh.catalog.plan(self._base, self._transaction, stream.definition)
        except InputError as error:
            raise DefinitionBroken(
                f"The sources of {stream.name!r} changed so that its query cannot be computed: "
                f"{error.message} Replace its definition; or give the sources back what it reads, "
                "and resume it.",
                table=stream.name,
                cause=error.condition,
            ) from error

    def _refuse_other_columns(self, stream: Stream, prepared: Prepared) -> None:
        """A source whose columns changed may give the view other columns than its table has."""
        kept = self._transaction.table(stream.name).dataset.schema
        if kept.names != prepared.schema.names or kept.types != prepared.schema.types:
            raise DefinitionBroken(
                f"The sources of {stream.name!r} changed so that its query gives other columns: "
                f"{_columns(prepared.schema)} instead of {_columns(kept)}. Replace its definition.",
                table=stream.name,
                expected=_columns(kept),
                actual=_columns(prepared.schema),
            )

    def _old(self, stream: Stream) -> dict[str, Table]:
        found = {}
        for source in stream.state.frontier:
            table = self._transaction.table(source.table)
            dataset = self._store.files.open(source.table_id, source.pin)
            found[source.table] = replace(table, dataset=dataset)
        return found

    def _read(
        self,
        stream: Stream,
        changes: Found,
        name: str,
        columns: tuple[str, ...],
    ) -> pa.Table | None:
        """The changes of a source: those that are published, then those of this refresh."""
        assert not isinstance(changes, str)
        parts: list[pa.Table] = []
        published = changes[name]
        if published is not None:
            parts.append(self._read_published(published, columns))
        outcome = self._done.get(name)
        if outcome is not None and outcome.rewritten:
            base = self._store.files.open(self._base[name].id, self._base[name].pin)
            now = self._transaction.table(name).dataset
            read = self._store.files.reader(self._base[name].id)
            changed = list(diff_batches(read, base, now, 0, columns))
            parts.append(weighted(changed, columns, now))
        elif outcome is not None and outcome.changes is not None:
            parts.append(outcome.changes.select([*columns, WEIGHT]))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else cancelled(pa.concat_tables(parts))

    def _read_published(self, changes: Changes, columns: tuple[str, ...]) -> pa.Table:
        """Read once what several members read."""
        with self._reading:
            key = (changes.source, columns)
            found = self._published.get(key)
            if found is None:
                found = read_changes(self._store.files, changes, columns)
                self._published[key] = found
            return found

    def _advance(self, stream: Stream, epoch: int, spent: Spent) -> None:
        version = self._transaction.base_version
        frontier = tuple(self._source(name, version) for name in stream.stored.sources)
        staged = self._transaction.stage(stream.name)
        staged.stream = StreamState(
            definition=stream.state.definition,
            frontier=frontier,
            as_of=version,
            epoch=epoch,
            refreshed=PUBLISHING,
            spent=spent,
        )

    def _source(self, name: str, version: int) -> Source:
        state = self._base[name]
        if name in self._done:
            return Source(name, state.id, PUBLISHING, 0, version)
        stands_for = state.stream.as_of if state.stream is not None else version
        return Source(name, state.id, state.changed, state.pin, stands_for)


def _spent(spent: Spent, way: Way, outcome: Outcome, seconds: float) -> Spent:
    if way.full and not way.failed:
        return after_full(spent, seconds)
    return after_delta(spent, seconds, spent.delta_rows if way.failed else outcome.rows_in)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _plain(attempt: Attempt) -> dict[str, object]:
    return {
        "table": attempt.table,
        "table_id": attempt.table_id,
        "action": attempt.action,
        "reason": attempt.reason,
        "seconds": round(attempt.seconds, 6),
        "rows_in": attempt.rows_in,
        "rows_out": attempt.rows_out,
        "version": attempt.version,
        "epoch": attempt.epoch,
    }
