"""Refreshing: bringing a unit of stream tables to one snapshot, in one commit.

    1. the transaction fixes the snapshot that all members read
    2. members level by level: each stages its next state, reading what was staged before it
    3. one commit publishes all, with frontiers and the epoch one higher

Invariants: everything or nothing of a unit is published; members of one unit have one `as_of`; a
unit whose inputs did not change is neither computed nor published.
After a crash: before the commit nothing happened; after it everything did.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelock.derive.attempts.attempts import Attempt
from tidelock.derive.catalog import Arrangement, Catalog
from tidelock.derive.graph.levels import levels_of
from tidelock.derive.plan.body_sql import WEIGHT
from tidelock.derive.planned import Planned
from tidelock.derive.refresh.choice import InputChanges, choose, find_all_changes
from tidelock.derive.refresh.costs import Way, after_delta, after_full
from tidelock.derive.refresh.delta.delta import RowsNotFound
from tidelock.derive.refresh.delta.input_changes import (
    Changes,
    at_pin,
    cancelled,
    read_changes,
    weighted,
)
from tidelock.derive.refresh.internal_tables import restage_internal
from tidelock.derive.refresh.result_columns import (
    is_foreign,
    not_here,
    refuse_other_columns,
    unplannable,
)
from tidelock.derive.refresh.seen_table import SeenTable
from tidelock.derive.refresh.table import Outcome, TableRefresh
from tidelock.derive.spark.engine_query import asking
from tidelock.derive.stream import Stream
from tidelock.errors import (
    CorruptObject,
    DefinitionBroken,
    InputError,
    QueryFailed,
    TidelockError,
)
from tidelock.model.history.commit import TableChange, Tables, TableState
from tidelock.model.streams import PUBLISHING, InputVersion, Spent, StreamState
from tidelock.store.changes.changes import diff_batches
from tidelock.store.objects.failpoints import hit
from tidelock.store.spark.sessions import engine_errors, speaker_of
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction

MEMBERS_AT_ONCE = 16


class MemberFailed(Exception):
    """One member could not be refreshed; the cause says why."""

    def __init__(self, table: str) -> None:
        super().__init__(table)
        self.table = table


@dataclass
class UnitRefresh:
    """Owns the transaction in which the members of one unit are refreshed: all of them are
    published, or none."""

    store: Store
    catalog: Catalog
    branch: str
    members: Sequence[str]
    full: bool = False

    def run(self) -> list[Attempt]:
        """Refresh and publish; what became of each member. MemberFailed names who did not."""
        transaction = self.store.begin(self.branch, message=f"refresh {', '.join(self.members)}")
        try:
            attempts = Members(self.store, self.catalog, transaction, full=self.full).stage(
                self.members
            )
            hit("refresh.before_publish")
            transaction.publish()
        except BaseException:
            transaction.rollback()
            raise
        commit = transaction.commit
        assert commit is not None
        hit("refresh.after_publish")
        return [replace(attempt, commit=commit.id) for attempt in attempts]


def is_current(arrangement: Arrangement, tables: Tables, members: Sequence[str]) -> bool:
    """Whether nothing that the members read has changed since their frontiers."""
    within = set(members)
    for name in members:
        stream = arrangement.streams[name]
        if not stream.state.populated:
            return False
        for read in stream.reads:
            if read.state is None or read.then is None:
                return False
            if read.name not in within and read.state.changed != read.then.changed:
                return False
    return True


class Members:
    """Stream tables that are refreshed within one transaction, a unit at a time."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        transaction: Transaction,
        *,
        full: bool = False,
        moved: Mapping[str, tuple[TableState | None, int]] | None = None,
    ) -> None:
        """`moved` are tables that the transaction itself changes, by name: what each was before,
        and how many rows change. What is refreshed then stands for the commit that is made."""
        self._store = store
        self._catalog = catalog
        self._full = full
        self._transaction = transaction
        tables, given = transaction.tables(), dict(moved or {})
        before = [TableChange(tables.find(name), state) for name, (state, _) in given.items()]
        self._base = tables.after(tuple(one for one in before if one.after is not None))
        self._as_of = transaction.base_version if moved is None else PUBLISHING
        self._done = {
            name: Outcome(rows_out=rows, rewritten=True) for name, (_, rows) in given.items()
        }
        self._published: dict[tuple[InputVersion, tuple[str, ...]], pa.Table] = {}
        self._reading = threading.Lock()
        arrangement = catalog.arrange(tables)
        self._streams = arrangement.streams
        self._units = arrangement.units

    def stage(self, members: Sequence[str]) -> list[Attempt]:
        """Stage the next state of the members of a unit, which read what was staged before."""
        epochs = self._next_epochs()
        attempts: dict[str, Attempt] = {}
        for name in members:
            # The commit lists them in this order, whichever is done first.
            self._transaction.stage(name)
        with ThreadPoolExecutor(MEMBERS_AT_ONCE) as pool:
            for level in self._levels(members):
                run = map if len(level) == 1 else pool.map
                for name, attempt in zip(
                    level, run(lambda n: self._stage(n, epochs[n]), level), strict=True
                ):
                    attempts[name] = attempt
        ordered = [attempts[name] for name in members]
        told = self._transaction.properties.setdefault("refresh", [])
        told.extend(_plain(attempt) for attempt in ordered)
        return ordered

    def _levels(self, members: Sequence[str]) -> list[tuple[str, ...]]:
        """The members, those side by side that do not read each other."""
        within = set(members)
        return levels_of(
            {name: within.intersection(self._streams[name].inputs) for name in members}
        )

    def _stage(self, name: str, epoch: int) -> Attempt:
        began = time.monotonic()
        stream = self._streams[name]
        try:
            with asking(self._store.engine), engine_errors(self._store.engine.get()):
                planned, way, outcome = self._keep(stream)
        except Exception as error:  # noqa: BLE001
            raise MemberFailed(name) from self._blamed(stream, error)
        self._done[name] = outcome
        seconds = time.monotonic() - began
        self._advance(planned, epoch, _spent(stream.state.spent, way, outcome, seconds))
        hit("refresh.after_member")
        return Attempt(
            table=name,
            table_id=stream.table.id,
            action=way.action,
            time=self._store.clock.now(),
            reason=way.reason,
            seconds=seconds,
            incremental_seconds=_rounded(way.incremental_seconds),
            full_seconds=_rounded(way.full_seconds),
            rows_in=outcome.rows_in,
            rows_out=outcome.rows_out,
            version=self._transaction.base_version,
            epoch=epoch,
            actor=self._transaction.actor,
        )

    def _blamed(self, stream: Stream, error: Exception) -> Exception:
        """What another engine cannot compute says nothing of the table."""
        session = self._store.engine.peek()
        if isinstance(error, QueryFailed) and session is not None:
            speaker = speaker_of(session)
            if is_foreign(stream, speaker):
                told = not_here(stream, speaker, error.message)
                told.__cause__ = error
                return told
        return error

    def _next_epochs(self) -> dict[str, int]:
        """A refresh of the whole lake spans several groups, and each counts its own."""
        epochs = {}
        for unit in self._units:
            published = max(self._streams[name].state.epoch for name in unit.members)
            epochs.update(dict.fromkeys(unit.members, published + 1))
        return epochs

    def _keep(self, stream: Stream) -> tuple[Planned, Way, Outcome]:
        transaction = self._transaction
        planned = self._plan(stream)
        plan = planned.plan
        if planned.rebuilt:
            restage_internal(transaction, stream.table, plan)
        speaker = speaker_of(self._store.engine.get())
        refuse_other_columns(transaction, planned, speaker)
        changes = find_all_changes(self._store, transaction.branch, self._base, stream)
        staged = {name: outcome.rows_out for name, outcome in self._done.items()}
        full = self._full
        way = choose(stream, plan, self._base, changes, staged, full=full)
        if planned.rebuilt and stream.state.populated and not full:
            way = Way(True, "its inputs may hold NULLs, or have no key, where it was otherwise")
        if way.idle:
            return planned, way, Outcome()
        now = {
            one.label: SeenTable.of(transaction.table(one.name), one.seen) for one in planned.inputs
        }
        table = TableRefresh(transaction, plan, stream.name, stream.table.id, now)
        if way.full:
            return planned, way, table.in_full()
        table = replace(
            table,
            old=self._old(planned),
            changes_of=lambda label, columns: self._read(changes, now[label], columns),
        )
        try:
            return planned, way, table.by_delta()
        except RowsNotFound as error:
            reason = f"its rows were not those that its frontier has: {error}"
        except Exception as error:
            # A term may ask an expression of rows that are never there together; and whatever else
            # is wrong with a delta, the query itself may still be computed: also where a file is
            # damaged that only the state before needs. Of a store or an engine that is away that is
            # not to be hoped.
            if isinstance(error, TidelockError) and not isinstance(
                error, QueryFailed | CorruptObject
            ):
                raise
            reason = f"by delta it failed: {error}"
        return planned, Way(True, reason, failed=True), replace(table).in_full()

    def _plan(self, stream: Stream) -> Planned:
        try:
            return self._catalog.plan_stream(self._transaction, stream)
        except DefinitionBroken:
            raise
        except InputError as error:
            speaker = speaker_of(self._store.engine.get())
            raise unplannable(self._transaction, stream, speaker, error) from error

    def _old(self, planned: Planned) -> dict[str, SeenTable]:
        tables = {}
        for read in planned.stream.reads:
            assert read.then is not None
            table = self._transaction.table(read.name)
            dataset = self._store.files.open(read.then.table_id, read.then.pin)
            # It is that pin whose files are looked at before they are read.
            old = replace(table, dataset=dataset, state=at_pin(table.state, read.then.pin))
            tables[read.label] = SeenTable.of(old, planned.input(read.label).seen)
        return tables

    def _read(
        self, changes: InputChanges, table: SeenTable, labels: tuple[str, ...]
    ) -> pa.Table | None:
        """The changes of an input: those that are published, then those of this refresh."""
        assert not isinstance(changes, str)
        name, columns = table.table.name, tuple(table.names_of(labels))
        parts: list[pa.Table] = []
        published = changes[name]
        if published is not None:
            parts.append(self._read_published(published, columns))
        outcome = self._done.get(name)
        if outcome is not None and outcome.rewritten:
            base = self._store.files.open(self._base[name].id, self._base[name].pin)
            now = self._transaction.table(name).dataset
            read = self._store.files.reader(self._base[name].id)
            with self._store.files.reading(self._base[name]):
                changed = list(diff_batches(read, base, now, 0, columns))
            parts.append(weighted(changed, columns, now))
        elif outcome is not None and outcome.changes is not None:
            parts.append(outcome.changes.select([*columns, WEIGHT]))
        if not parts:
            return None
        rows = parts[0] if len(parts) == 1 else cancelled(pa.concat_tables(parts))
        return table.labelled(rows)

    def _read_published(self, changes: Changes, columns: tuple[str, ...]) -> pa.Table:
        """Read once what several members read."""
        with self._reading:
            key = (changes.then, columns)
            rows = self._published.get(key)
            if rows is None:
                rows = read_changes(self._store.files, changes, columns)
                self._published[key] = rows
            return rows

    def _advance(self, planned: Planned, epoch: int, spent: Spent) -> None:
        stream, stored = planned.stream, planned.stored
        version = self._as_of
        frontier = tuple(self._seen(name, version) for name in stream.inputs)
        staged = self._transaction.stage(stream.name)
        definition = stream.state.definition
        if stored is not stream.stored:
            # What it sees of its inputs was not kept before, or is less than it was.
            definition = self._catalog.keep(stored)
            self._catalog.know_plan(stored, planned.plan)
        staged.stream = StreamState(
            definition=definition,
            frontier=frontier,
            as_of=version,
            epoch=epoch,
            refreshed=PUBLISHING,
            spent=spent,
            made_on=stream.state.made_on,
        )

    def _seen(self, name: str, version: int) -> InputVersion:
        state = self._base[name]
        if name in self._done:
            return InputVersion(name, state.id, PUBLISHING, 0, version)
        stands_for = state.stream.as_of if state.stream is not None else version
        return InputVersion(name, state.id, state.changed, state.pin, stands_for)


def _spent(spent: Spent, way: Way, outcome: Outcome, seconds: float) -> Spent:
    if way.idle:
        return spent
    if way.full and not way.failed:
        return after_full(spent, seconds)
    return after_delta(spent, seconds, spent.delta_rows if way.failed else outcome.rows_in)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


def _plain(attempt: Attempt) -> dict[str, object]:
    return {
        "table": attempt.table,
        "table_id": attempt.table_id,
        "action": attempt.action,
        "reason": attempt.reason,
        "seconds": round(attempt.seconds, 6),
        "incremental_seconds": attempt.incremental_seconds,
        "full_seconds": attempt.full_seconds,
        "rows_in": attempt.rows_in,
        "rows_out": attempt.rows_out,
        "version": attempt.version,
        "epoch": attempt.epoch,
    }
