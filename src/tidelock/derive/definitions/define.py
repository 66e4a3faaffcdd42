"""Defining stream tables: creating, replacing, altering, dropping, suspending and resuming them.

Owns: what each of these stages. Every change is one commit; one that meets another, such as a
refresh, is made again on top of it.
Invariant: whatever is published, every stream table reads tables that exist, and none reads itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tidelock.derive.catalog import Catalog, Stream, stream_of
from tidelock.derive.definitions.options import option_changes
from tidelock.derive.graph.graph import Graph
from tidelock.derive.graph.groups import check_policy, policy_warnings
from tidelock.derive.plan.view import ViewPlan, internal_name
from tidelock.derive.refresh.attempts import (
    Attempt,
    failures_since,
    read_attempts,
    record,
    recorded,
)
from tidelock.derive.refresh.choice import why_not_incremental
from tidelock.errors import (
    Advice,
    CommitConflict,
    InvalidOption,
    NotIncremental,
    TableExists,
    TableInUse,
)
from tidelock.model.arguments import check_text
from tidelock.model.commit import Commit, Tables, TableState
from tidelock.model.names import check_table_name, fold
from tidelock.model.schedules import parse_schedule
from tidelock.model.streams import (
    Consistency,
    Definition,
    RefreshMode,
    SchedulePolicy,
    StreamState,
    check_choice,
)
from tidelock.store.log.clock import TOLERANCE
from tidelock.store.log.log import Head
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction

CONFLICTS_MAX = 5
TIMES_MAX = 10_000


def checked(definition: Definition) -> Definition:
    """The definition, if its options are all known, or InvalidOption."""
    check_text(definition.query, "A query")
    parse_schedule(definition.schedule)
    check_choice("refresh_mode", definition.refresh_mode, RefreshMode)
    check_choice("consistency", definition.consistency, Consistency)
    check_choice("schedule_policy", definition.schedule_policy, SchedulePolicy)
    return definition


class StreamDefinitions:
    """Owns the commits that create, replace, alter, drop, suspend and resume stream tables, and
    what is remembered of their failures."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self.catalog = catalog
        self._times: dict[tuple[str, int], datetime | None] = {}

    def create(
        self, name: str, definition: Definition, branch: str, *, replace_it: bool = False
    ) -> Commit:
        name = check_table_name(name)
        check_policy(name, definition)

        def stage(transaction: Transaction) -> str:
            known = transaction.tables().find(name)
            self.stage_definition(transaction, name, definition, replace_it=replace_it)
            if known is not None:
                return f"replace stream table {known.name}"
            return f"create stream table {name}"

        commit = self._publish(branch, stage)
        self.warn(self._store.branches.head(branch).tables)
        return commit

    def _publish(self, branch: str, stage: Callable[[Transaction], str]) -> Commit:
        """Stage and publish; again when a refresh was published meanwhile."""
        commit = self._publish_if(branch, stage)
        assert commit is not None
        return commit

    def _publish_if(self, branch: str, stage: Callable[[Transaction], str | None]) -> Commit | None:
        """As `_publish`, unless there is nothing to do. `stage` returns the message of the commit,
        or None when it staged nothing."""
        for attempt in range(CONFLICTS_MAX):
            try:
                with self._store.begin(branch) as transaction:
                    message = stage(transaction)
                    if message is None:
                        transaction.rollback()
                        return None
                    transaction.message = message
            except CommitConflict:
                if attempt == CONFLICTS_MAX - 1:
                    raise
                continue
            return transaction.commit
        raise AssertionError("unreachable")

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
                f"The table {known.name!r} exists. Drop it first, or choose another name.",
                Advice(
                    "create_or_replace_stream_table replaces a stream table.",
                    "--replace replaces a stream table.",
                ),
                table=known.name,
            )
        plan = self.catalog.plan(tables, transaction, definition)
        _refuse_not_incremental(name, plan)
        self._refuse_circle(tables, name, plan)
        tells_time = plan.view.tells_time
        definition_id = self._keep(transaction, definition, plan.inputs, tells_time)
        if known is not None:
            if self._stage_replacement(transaction, known, plan, definition_id):
                return
            self.stage_drop(transaction, known)
        state = StreamState(definition_id, made_on=self.catalog.engine_name)
        staged = transaction.create_kept(name, plan.schema, state)
        self._create_internal(transaction, staged.state.id, plan)

    def _keep(
        self,
        transaction: Transaction,
        definition: Definition,
        inputs: tuple[str, ...],
        tells_time: bool,
    ) -> str:
        durable = not transaction.rehearsed
        return self.catalog.keep(definition, inputs, tells_time, durable=durable)

    def _stage_replacement(
        self, transaction: Transaction, known: TableState, plan: ViewPlan, definition_id: str
    ) -> bool:
        """Put another definition behind the same table, if its columns stay; else False.

        Readers then see one table whose rows change; it is computed anew at the next refresh.
        """
        kept = transaction.table(known.name).dataset.schema
        if kept.names != plan.schema.names or kept.types != plan.schema.types:
            return False
        self._drop_internal(transaction, known)
        self._create_internal(transaction, known.id, plan)
        assert known.stream is not None
        staged = transaction.stage(known.name)
        staged.stream = replace(
            known.stream,
            definition=definition_id,
            frontier=(),
            refreshed=0,
            suspended=None,
            made_on=self.catalog.engine_name,
        )
        return True

    def _create_internal(self, transaction: Transaction, table_id: str, plan: ViewPlan) -> None:
        for kept in plan.internal:
            transaction.create_kept(internal_name(table_id, kept.segment.number), kept.schema, None)

    def _refuse_circle(self, tables: Tables, name: str, plan: ViewPlan) -> None:
        arrangement = self.catalog.arrange(tables)
        nodes = {one: stream.stored.inputs for one, stream in arrangement.streams.items()}
        nodes.pop(next((one for one in nodes if fold(one) == fold(name)), name), None)
        Graph.of({**nodes, name: plan.inputs})

    def alter(self, name: str, branch: str, options: Mapping[str, Any]) -> Commit:
        """Change options of a stream table; its rows stay as they are."""
        if not options:
            raise InvalidOption(
                "Nothing to alter was given.",
                Advice("Name an option: schedule='5m'.", "Name an option: --schedule 5m."),
            )

        def stage(transaction: Transaction) -> str:
            stream = stream_of(transaction.tables(), self.catalog, name)
            stream.refuse_lost()
            definition = checked(replace(stream.definition, **options))
            check_policy(stream.name, definition)
            self.stage_alteration(transaction, stream, definition)
            changed = ", ".join(option_changes(stream.definition, definition)) or "nothing changed"
            return f"alter stream table {stream.name}: {changed}"

        return self._publish(branch, stage)

    def stage_alteration(
        self, transaction: Transaction, stream: Stream, definition: Definition
    ) -> None:
        """Stage other options of a stream table; the query of `definition` is the one it has."""
        if (definition.refresh_mode == "full") != (stream.definition.refresh_mode == "full"):
            self.stage_definition(transaction, stream.name, definition, replace_it=True)
            return
        if definition.refresh_mode == "incremental_strict":
            plan = self.catalog.plan(transaction.tables(), transaction, definition)
            _refuse_not_incremental(stream.name, plan)
        stored = stream.stored
        definition_id = self._keep(transaction, definition, stored.inputs, stored.tells_time)
        staged = transaction.stage(stream.name)
        staged.stream = replace(stream.state, definition=definition_id)

    def drop(self, name: str, branch: str, *, cascade: bool = False) -> Commit:
        def stage(transaction: Transaction) -> str:
            tables = transaction.tables()
            stream = stream_of(tables, self.catalog, name)
            below = self.catalog.arrange(tables).graph.downstream(stream.name)
            if below and not cascade:
                raise TableInUse(
                    f"{stream.name!r} is read by {', '.join(map(repr, below))}.",
                    Advice(
                        "Drop those first, or use cascade=True to drop them with it.",
                        "Drop those first, or use --cascade to drop them with it.",
                    ),
                    table=stream.name,
                    dependents=below,
                )
            gone = (*reversed(below), stream.name)
            for one in gone:
                self.stage_drop(transaction, tables[one])
            return f"drop stream table{'s' if below else ''} {', '.join(gone)}"

        return self._publish(branch, stage)

    def stage_drop(self, transaction: Transaction, table: TableState) -> None:
        """Stage the end of a stream table, and of what is kept for it."""
        self._drop_internal(transaction, table)
        transaction.drop_kept(table.name)

    def _drop_internal(self, transaction: Transaction, table: TableState) -> None:
        prefix = internal_name(table.id, 0)[:-1]
        for other in transaction.tables():
            if other.startswith(prefix):
                transaction.drop_kept(other)

    def suspend(self, name: str, branch: str, reason: str) -> Commit | None:
        """None if it is suspended already; the first reason stays."""

        def stage(transaction: Transaction) -> str | None:
            stream = stream_of(transaction.tables(), self.catalog, name)
            if stream.state.suspended is not None:
                return None
            transaction.stage(stream.name).stream = replace(stream.state, suspended=reason)
            return f"suspend stream table {stream.name}: {reason}"

        return self._publish_if(branch, stage)

    def resume(self, name: str, branch: str) -> Commit | None:
        """End its suspension, and its backing off after failures; None if it was not suspended."""

        def stage(transaction: Transaction) -> str | None:
            stream = stream_of(transaction.tables(), self.catalog, name)
            if stream.state.suspended is None:
                return None
            transaction.stage(stream.name).stream = replace(stream.state, suspended=None)
            return f"resume stream table {stream.name}"

        commit = self._publish_if(branch, stage)
        head = self._store.branches.head(branch)
        stream = stream_of(head.tables, self.catalog, name)
        if commit is not None or self.failures(head, stream):
            table = stream.table
            record(
                self._store.objects,
                head.branch.id,
                Attempt(
                    table.name,
                    table.id,
                    "resumed",
                    self._store.clock.now(),
                    actor=self._store.actor,
                ),
            )
        return commit

    def failures(
        self, head: Head, stream: Stream, keys: Mapping[str, list[str]] | None = None
    ) -> list[Attempt]:
        """The refreshes that failed in a row until now; `keys` as keys_by_table has found them."""
        objects, branch_id, table_id = self._store.objects, head.branch.id, stream.table.id
        if keys is not None and table_id not in keys:
            return []
        state = stream.state
        if keys is None:
            found = recorded(objects, branch_id, table_id)
            since = self.refreshed_at(head, state) if found else None
        else:
            since = self.refreshed_at(head, state)
            found = read_attempts(objects, keys[table_id], since)
        # What a clock dated that was ahead would count for as long as it was ahead.
        latest = self._store.clock.now() + TOLERANCE
        found = [attempt for attempt in found if attempt.time <= latest]
        return failures_since(found, since, state.definition)

    def refreshed_at(self, head: Head, state: StreamState) -> datetime | None:
        if not state.populated:
            return None
        place = (head.branch.home_of(state.refreshed), state.refreshed)
        if place not in self._times:
            # Commits do not change, and a lake has more stream tables than the log remembers.
            if len(self._times) >= TIMES_MAX:
                self._times.clear()
            self._times[place] = self._store.published_at(head, state.refreshed)
        return self._times[place]

    def warn(self, tables: Tables) -> None:
        """Warn the caller of the lake's method of options that have no effect."""
        arrangement = self.catalog.arrange(tables)
        definitions = {name: one.definition for name, one in arrangement.streams.items()}
        for text in policy_warnings(arrangement.graph, arrangement.groups, definitions):
            warnings.warn(text, stacklevel=4)


def _refuse_not_incremental(name: str, plan: ViewPlan) -> None:
    if plan.definition.refresh_mode == "incremental_strict" and not plan.incremental:
        reason = why_not_incremental(plan)
        raise NotIncremental(
            f"The query of {name!r} cannot be kept by delta, and its mode is "
            f"'incremental_strict': {reason}.",
            Advice(
                "Change the query, or use refresh_mode='auto'.",
                "Change the query, or use --mode auto.",
            ),
            table=name,
            reason=reason,
            line=plan.view.obstacles[0].line,
        )
