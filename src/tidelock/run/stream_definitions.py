"""Defining stream tables: creating, replacing, altering, dropping, suspending and resuming them.

Owns: what each of these stages. Every change is one commit; one that meets another, such as a
refresh, is made again on top of it.
Invariant: whatever is published, every stream table reads tables that exist, and none reads itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tidelock.derive.attempts import Attempt, failures_since, record, recorded
from tidelock.derive.catalog import Catalog, Stream, stream_of
from tidelock.derive.choosing import why_not_incremental
from tidelock.derive.graph import Graph
from tidelock.derive.groups import check_policy, policy_warnings
from tidelock.derive.options import option_changes
from tidelock.derive.schedules import parse_schedule
from tidelock.derive.views import Prepared, internal_name
from tidelock.errors import CommitConflict, InvalidOption, NotIncremental, TableExists, TableInUse
from tidelock.model.arguments import check_text
from tidelock.model.commit import Commit, Tables, TableState
from tidelock.model.names import check_table_name, fold
from tidelock.model.streams import (
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


def checked(definition: Definition) -> Definition:
    """The definition, if its options are all known, or InvalidOption."""
    check_text(definition.query, "A query")
    parse_schedule(definition.schedule)
    check_choice("refresh_mode", definition.refresh_mode, RefreshMode)
    check_choice("consistency", definition.consistency, Consistency)
    check_choice("schedule_policy", definition.schedule_policy, SchedulePolicy)
    return definition


class StreamDefinitions:
    """The definitions of one lake's stream tables."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self.catalog = catalog
        store.check_tables = self._refuse_missing_sources

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
                f"The table {known.name!r} exists. Drop it first, or choose another name; "
                "create_or_replace_stream_table replaces a stream table.",
                table=known.name,
            )
        prepared = self.catalog.plan(tables, transaction, definition)
        _refuse_not_incremental(name, prepared)
        self._refuse_circle(tables, name, prepared)
        tells_time = prepared.view.tells_time
        definition_id = self.catalog.keep(definition, prepared.sources, tells_time)
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

        def stage(transaction: Transaction) -> str:
            stream = stream_of(transaction.tables(), self.catalog, name)
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
            prepared = self.catalog.plan(transaction.tables(), transaction, definition)
            _refuse_not_incremental(stream.name, prepared)
        stored = stream.stored
        definition_id = self.catalog.keep(definition, stored.sources, stored.tells_time)
        staged = transaction.stage(stream.name)
        staged.stream = replace(stream.state, definition=definition_id)

    def drop(self, name: str, branch: str, *, cascade: bool = False) -> Commit:
        def stage(transaction: Transaction) -> str:
            tables = transaction.tables()
            stream = stream_of(tables, self.catalog, name)
            below = self.catalog.arrange(tables).graph.downstream(stream.name)
            if below and not cascade:
                raise TableInUse(
                    f"{stream.name!r} is read by {', '.join(map(repr, below))}. Drop those first, "
                    "or use cascade=True to drop them with it.",
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
                    table.name, table.id, "resumed", datetime.now(UTC), actor=self._store.actor
                ),
            )
        return commit

    def failures(self, head: Head, stream: Stream) -> list[Attempt]:
        """The refreshes that failed in a row until now."""
        found = recorded(self._store.objects, head.branch.id, stream.table.id)
        return failures_since(found, self.refreshed_at(head, stream.state)) if found else []

    def refreshed_at(self, head: Head, state: StreamState) -> datetime | None:
        if not state.populated:
            return None
        return self._store.log.commit_at(head.branch, state.refreshed).time

    def _refuse_missing_sources(self, tables: Tables) -> None:
        """TableInUse if a commit would leave a stream table without a table that it reads."""
        streams = self.catalog.arrange(tables).streams
        missing = {
            source
            for stream in streams.values()
            for source in stream.stored.sources
            if source not in tables
        }
        for source in sorted(missing):
            readers = [name for name, one in streams.items() if source in one.stored.sources]
            raise TableInUse(
                f"{source!r} is read by {', '.join(map(repr, readers))}, so that it cannot be "
                "dropped. Drop those first with lake.drop_stream_table, or create it again in the "
                "same transaction.",
                table=source,
                dependents=tuple(readers),
            )

    def warn(self, tables: Tables) -> None:
        """Warn whoever called the method of the lake of options that have no effect."""
        arrangement = self.catalog.arrange(tables)
        definitions = {name: one.definition for name, one in arrangement.streams.items()}
        for text in policy_warnings(arrangement.graph, arrangement.groups, definitions):
            warnings.warn(text, stacklevel=4)


def _refuse_not_incremental(name: str, prepared: Prepared) -> None:
    if prepared.definition.refresh_mode == "incremental_strict" and not prepared.incremental:
        reason = why_not_incremental(prepared)
        raise NotIncremental(
            f"The query of {name!r} cannot be kept by delta, and refresh_mode is "
            f"'incremental_strict': {reason}. Change the query, or use refresh_mode='auto'.",
            table=name,
            reason=reason,
            line=prepared.view.obstacles[0].line,
        )
