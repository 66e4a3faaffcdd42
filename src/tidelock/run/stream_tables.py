"""The stream tables of a lake: defining them, refreshing them, and telling where they stand.

Owns: the order of a refresh over all units, and what is recorded of each. Deciding is done by
derive's pure functions; every change is a commit.
Invariant: one unit that fails stops nobody but itself.
"""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tidelock.derive.attempts import Attempt, failures_since, record, recorded
from tidelock.derive.backoff import judge
from tidelock.derive.catalog import Arrangement, Catalog, Stream, stream_of
from tidelock.derive.due import Due, MemberState, decide
from tidelock.derive.graph import Graph
from tidelock.derive.groups import (
    Unit,
    check_policy,
    policy_warnings,
    unit_levels,
)
from tidelock.derive.refreshing import MemberFailed, Refresh, is_current, why_not_incremental
from tidelock.derive.schedules import parse_schedule
from tidelock.derive.views import Prepared, internal_name
from tidelock.errors import (
    CommitConflict,
    InvalidOption,
    NotIncremental,
    TableExists,
    TidelockError,
)
from tidelock.model.commit import Commit, Tables, TableState
from tidelock.model.names import check_table_name, fold
from tidelock.model.streams import (
    UPSTREAM,
    Consistency,
    Definition,
    RefreshMode,
    SchedulePolicy,
    StreamState,
    check_choice,
)
from tidelock.store.log import Head
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction

CONFLICTS_MAX = 5
UNITS_AT_ONCE = 4


def define(
    query: str,
    schedule: str | None = UPSTREAM,
    refresh_mode: RefreshMode = "auto",
    consistency: Consistency = "atomic",
    schedule_policy: SchedulePolicy = "fastest",
    origin: str | None = None,
) -> Definition:
    """A definition whose options are all known, or InvalidOption."""
    if not isinstance(query, str):
        raise InvalidOption(f"A query is SQL text, not {query!r}.")
    parse_schedule(schedule)
    check_choice("refresh_mode", refresh_mode, RefreshMode)
    check_choice("consistency", consistency, Consistency)
    check_choice("schedule_policy", schedule_policy, SchedulePolicy)
    return Definition(query, schedule, refresh_mode, consistency, schedule_policy, origin)


class StreamTables:
    """The stream tables of one lake."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.catalog = Catalog(store.objects, store.engine)

    # Defining

    def create(
        self, name: str, definition: Definition, branch: str, *, replace_it: bool = False
    ) -> Commit:
        name = check_table_name(name)
        check_policy(name, definition)
        message = f"create stream table {name}"
        with self._store.begin(branch, message=message) as transaction:
            self.stage_definition(transaction, name, definition, replace_it=replace_it)
        assert transaction.commit is not None
        self.warn(self._store.branches.head(branch).tables)
        return transaction.commit

    def stage_definition(
        self,
        transaction: Transaction,
        name: str,
        definition: Definition,
        *,
        replace_it: bool = False,
    ) -> None:
        """Stage a new stream table, or a new definition in the place of an old one."""
        tables = transaction.tables()
        known = tables.find(name)
        if known is not None and not (replace_it and known.stream is not None):
            raise TableExists(
                f"The table {known.name!r} exists. Drop it first, or choose another name; "
                "create_or_replace_stream_table replaces a stream table.",
                table=known.name,
            )
        prepared = self.catalog.plan(transaction, definition)
        if definition.refresh_mode == "incremental_strict" and not prepared.incremental:
            raise NotIncremental(
                f"The query of {name!r} cannot be kept by delta, and refresh_mode is "
                f"'incremental_strict': {why_not_incremental(prepared)}. "
                "Change the query, or use refresh_mode='auto'.",
                table=name,
                reason=why_not_incremental(prepared),
            )
        self._refuse_circle(tables, name, prepared)
        definition_id = self.catalog.keep(definition, prepared.sources)
        if known is not None:
            if self._stage_replacement(transaction, known, prepared, definition_id):
                return
            self.stage_drop(transaction, known)
        staged = transaction.create_kept(name, prepared.schema, StreamState(definition_id))
        self._create_internal(transaction, staged.state.id, prepared)

    def _stage_replacement(
        self, transaction: Transaction, known: TableState, prepared: Prepared, definition_id: str
    ) -> bool:
        """Put another definition behind the same table, if its columns stay; else False.

        Readers then see one table whose rows change; it is computed anew at the next refresh.
        """
        kept = transaction.table(known.name).dataset.schema
        if kept.names != prepared.schema.names or kept.types != prepared.schema.types:
            return False
        self._drop_internal(transaction, known)
        self._create_internal(transaction, known.id, prepared)
        assert known.stream is not None
        staged = transaction.stage(known.name)
        staged.stream = replace(
            known.stream, definition=definition_id, frontier=(), refreshed=0, suspended=None
        )
        return True

    def _create_internal(self, transaction: Transaction, table_id: str, prepared: Prepared) -> None:
        for kept in prepared.internal:
            transaction.create_kept(internal_name(table_id, kept.stage.number), kept.schema, None)

    def _refuse_circle(self, tables: Tables, name: str, prepared: Prepared) -> None:
        arrangement = self.catalog.arrange(tables)
        nodes = {one: stream.stored.sources for one, stream in arrangement.streams.items()}
        nodes.pop(next((one for one in nodes if fold(one) == fold(name)), name), None)
        Graph.of({**nodes, name: prepared.sources})

    def alter(self, name: str, branch: str, options: Mapping[str, Any]) -> Commit:
        """Change options of a stream table; its rows stay as they are."""
        if not options:
            raise InvalidOption("Nothing to alter was given. Name an option: schedule='5m'.")
        with self._store.begin(branch, message=f"alter stream table {name}") as transaction:
            stream = stream_of(transaction.tables(), self.catalog, name)
            wanted = replace(stream.definition, **options)
            definition = define(
                wanted.query,
                wanted.schedule,
                wanted.refresh_mode,
                wanted.consistency,
                wanted.schedule_policy,
                wanted.origin,
            )
            check_policy(stream.name, definition)
            self.stage_alteration(transaction, stream, definition)
        return _published(transaction)

    def stage_alteration(
        self, transaction: Transaction, stream: Stream, definition: Definition
    ) -> None:
        """Stage other options of a stream table; the query of `definition` is the one it has."""
        if (definition.refresh_mode == "full") != (stream.definition.refresh_mode == "full"):
            self.stage_definition(transaction, stream.name, definition, replace_it=True)
            return
        if definition.refresh_mode == "incremental_strict":
            prepared = self.catalog.plan(transaction, definition)
            if not prepared.incremental:
                raise NotIncremental(
                    f"The query of {stream.name!r} cannot be kept by delta: "
                    f"{why_not_incremental(prepared)}.",
                    table=stream.name,
                )
        definition_id = self.catalog.keep(definition, stream.stored.sources)
        staged = transaction.stage(stream.name)
        staged.stream = replace(stream.state, definition=definition_id)

    def drop(self, name: str, branch: str, *, cascade: bool = False) -> Commit:
        with self._store.begin(branch, message=f"drop stream table {name}") as transaction:
            tables = transaction.tables()
            stream = stream_of(tables, self.catalog, name)
            arrangement = self.catalog.arrange(tables)
            below = arrangement.graph.downstream(stream.name)
            if below and not cascade:
                raise InvalidOption(
                    f"{stream.name!r} is read by {', '.join(map(repr, below))}. Drop those first, "
                    "or use cascade=True to drop them with it.",
                    table=stream.name,
                    dependents=below,
                )
            for one in (*reversed(below), stream.name):
                self.stage_drop(transaction, tables[one])
        return _published(transaction)

    def stage_drop(self, transaction: Transaction, table: TableState) -> None:
        """Stage the end of a stream table, and of what is kept for it."""
        self._drop_internal(transaction, table)
        transaction.drop_kept(table.name)

    def _drop_internal(self, transaction: Transaction, table: TableState) -> None:
        prefix = internal_name(table.id, 0)[:-1]
        for other in transaction.tables():
            if other.startswith(prefix):
                transaction.drop_kept(other)

    def suspend(self, name: str, branch: str, reason: str) -> Commit:
        return self._set_suspended(name, branch, reason)

    def resume(self, name: str, branch: str) -> Commit:
        commit = self._set_suspended(name, branch, None)
        head = self._store.branches.head(branch)
        table = stream_of(head.tables, self.catalog, name).table
        moment = datetime.now(UTC)
        record(
            self._store.objects,
            head.branch.id,
            Attempt(table.name, table.id, "resumed", moment, actor=self._store.actor),
        )
        return commit

    def _set_suspended(self, name: str, branch: str, reason: str | None) -> Commit:
        verb = "resume" if reason is None else "suspend"
        with self._store.begin(branch, message=f"{verb} stream table {name}") as transaction:
            stream = stream_of(transaction.tables(), self.catalog, name)
            transaction.stage(stream.name).stream = replace(stream.state, suspended=reason)
        return _published(transaction)

    def warn(self, tables: Tables) -> None:
        """Warn whoever called the method of the lake of options that have no effect."""
        arrangement = self.catalog.arrange(tables)
        definitions = {name: one.definition for name, one in arrangement.streams.items()}
        for text in policy_warnings(arrangement.graph, arrangement.groups, definitions):
            warnings.warn(text, stacklevel=4)

    # Refreshing

    def refresh(
        self,
        names: Sequence[str] | None,
        branch: str,
        *,
        full: bool = False,
        together: bool = False,
        parallel: bool = False,
        progress: Callable[[Attempt], None] | None = None,
        begun: Callable[[Unit], None] | None = None,
        stop: threading.Event | None = None,
    ) -> list[Attempt]:
        """Refresh what is named, or all that is due; what became of each, upstream first."""
        self._store.refuse_read_only()
        units = self._chosen(branch, names)
        if together:
            members = tuple(name for unit in units for name in unit.members)
            units = [Unit("lake", members, None, 0)] if members else []
        asked = names is not None or together

        def run(unit: Unit) -> list[Attempt]:
            if stop is not None and stop.is_set():
                return self._passed_over(branch, unit, "skipped", "it was to stop before this")
            return self._refresh_unit(branch, unit, full=full, asked=asked, begun=begun)

        attempts: list[Attempt] = []
        for level in unit_levels(units):
            for found in _each(run, level, parallel):
                for attempt in found:
                    attempts.append(attempt)
                    if progress is not None:
                        progress(attempt)
        return attempts

    def _chosen(self, branch: str, names: Sequence[str] | None) -> list[Unit]:
        tables = self._store.branches.head(branch).tables
        units = self.catalog.arrange(tables).units
        if names is None:
            return list(units)
        asked = {stream_of(tables, self.catalog, name).name for name in names}
        return [unit for unit in units if asked & set(unit.members)]

    def due(
        self, head: Head, arrangement: Arrangement, unit: Unit, now: datetime | None = None
    ) -> Due:
        """Whether a unit is to be refreshed now."""
        moment = now or datetime.now(UTC)
        members = [self._member(head, arrangement.streams[name], unit) for name in unit.members]
        policy: SchedulePolicy = unit.group.policy if unit.group is not None else "fastest"
        return decide(members, moment, policy)

    def _member(self, head: Head, stream: Stream, unit: Unit) -> MemberState:
        state = stream.state
        seen = {source.table: source.changed for source in state.frontier}
        outside = [name for name in stream.stored.sources if name not in unit.members]
        changed: bool | None = None
        if outside:
            changed = any(head.tables[name].changed != seen.get(name) for name in outside)
        failures = self.failures(head, stream)
        return MemberState(
            stream.name,
            parse_schedule(stream.definition.schedule),
            self._refreshed_at(head, state),
            changed,
            state.suspended,
            failures[-1].retry_at if failures else None,
        )

    def _refreshed_at(self, head: Head, state: StreamState) -> datetime | None:
        if not state.populated:
            return None
        return self._store.log.commit_at(head.branch, state.refreshed).time

    def failures(self, head: Head, stream: Stream) -> list[Attempt]:
        """The refreshes that failed in a row until now."""
        found = recorded(self._store.objects, head.branch.id, stream.table.id)
        return failures_since(found, self._refreshed_at(head, stream.state)) if found else []

    def _refresh_unit(
        self,
        branch: str,
        unit: Unit,
        *,
        full: bool,
        asked: bool,
        begun: Callable[[Unit], None] | None,
    ) -> list[Attempt]:
        for attempt in range(CONFLICTS_MAX):
            head = self._store.branches.head(branch)
            arrangement = self.catalog.arrange(head.tables)
            members = [name for name in unit.members if name in arrangement.streams]
            if len(members) < len(unit.members):
                return self._passed_over(branch, unit, "skipped", "its group has changed")
            held = self._held(arrangement, members)
            if held is not None:
                return self._passed_over(branch, unit, "skipped", held)
            # Asked now and not before: what this unit reads may just have been refreshed.
            due = None if asked else self.due(head, arrangement, unit)
            if due is not None and not due.due:
                return self._passed_over(branch, unit, "none", due.reason)
            if not full and is_current(arrangement, head.tables, members):
                return self._passed_over(branch, unit, "none", "no source changed")
            if begun is not None:
                begun(unit)
            try:
                return Refresh(self._store, self.catalog, branch, members, full).run()
            except MemberFailed as error:
                cause = error.__cause__
                assert cause is not None
                return self._failed(branch, unit, error.table, cause)
            except CommitConflict as error:
                if attempt == CONFLICTS_MAX - 1:
                    return self._failed(branch, unit, unit.members[-1], error)
            except TidelockError as error:
                return self._failed(branch, unit, unit.members[-1], error)
        raise AssertionError("unreachable")

    def _held(self, arrangement: Arrangement, members: Iterable[str]) -> str | None:
        """Why a unit may not be refreshed even when it is asked for."""
        for name in members:
            state = arrangement.streams[name].state
            if state.suspended is not None:
                return f"{name!r} is suspended: {state.suspended}"
        return None

    def _passed_over(self, branch: str, unit: Unit, action: Any, reason: str) -> list[Attempt]:
        tables = self._store.branches.head(branch).tables
        now = datetime.now(UTC)
        return [
            Attempt(
                name,
                found.id if (found := tables.find(name)) else "",
                action,
                now,
                reason,
                epoch=found.stream.epoch if found and found.stream else None,
                actor=self._store.actor,
            )
            for name in unit.members
        ]

    def _failed(self, branch: str, unit: Unit, table: str, error: BaseException) -> list[Attempt]:
        """Record why nothing of a unit was published; suspend the member that cannot go on."""
        head = self._store.branches.head(branch)
        now = datetime.now(UTC)
        stream = stream_of(head.tables, self.catalog, table)
        verdict = judge(error, len(self.failures(head, stream)), now, random.Random())
        condition = error.condition if isinstance(error, TidelockError) else type(error).__name__
        failed = Attempt(
            table=table,
            table_id=stream.table.id,
            action="failed",
            time=now,
            reason=str(error),
            version=head.version,
            epoch=stream.state.epoch,
            condition=condition,
            retry_at=verdict.retry_at,
            actor=self._store.actor,
        )
        record(self._store.objects, head.branch.id, failed)
        if verdict.suspended is not None:
            self._set_suspended(table, branch, verdict.suspended)
        others = [name for name in unit.members if name != table]
        skipped = [
            replace(one, action="skipped", reason=f"{table!r} of its group failed: {error}")
            for one in self._passed_over(branch, unit, "skipped", "")
            if one.table in others
        ]
        return [*skipped, failed]


def _each(
    run: Callable[[Unit], list[Attempt]], units: Sequence[Unit], parallel: bool
) -> Iterator[list[Attempt]]:
    if not parallel or len(units) < 2:
        yield from map(run, units)
        return
    with ThreadPoolExecutor(UNITS_AT_ONCE) as pool:
        yield from pool.map(run, units)


def _published(transaction: Transaction) -> Commit:
    assert transaction.commit is not None
    return transaction.commit
