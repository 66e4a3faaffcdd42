"""Defining stream tables: creating, replacing, altering, dropping, suspending and resuming them.

Owns: the commits. Every change is one; one that meets another, such as a refresh, is made again on
top of it. What is staged for each is for staged_streams.py.
Invariant: whatever is published, every stream table reads tables that exist, and none reads itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidelock.derive.attempts.attempts import Attempt, record
from tidelock.derive.attempts.failures import Failures
from tidelock.derive.catalog import Catalog, stream_of
from tidelock.derive.definitions.options import option_changes
from tidelock.derive.definitions.staged_streams import StreamStaging
from tidelock.derive.graph.groups import check_policy, policy_warnings
from tidelock.errors import (
    Advice,
    CommitConflict,
    InvalidOption,
    TableInUse,
)
from tidelock.model.arguments import check_text
from tidelock.model.history.commit import Commit, Tables
from tidelock.model.names import check_table_name
from tidelock.model.streams import (
    Consistency,
    Definition,
    RefreshMode,
    SchedulePolicy,
    check_choice,
)
from tidelock.model.time.schedules import parse_schedule
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
    """Owns the commits that create, replace, alter, drop, suspend and resume stream tables."""

    def __init__(self, store: Store, catalog: Catalog, failures: Failures) -> None:
        self._store = store
        self.catalog = catalog
        self.staging = StreamStaging(catalog)
        self._failures = failures

    def create(
        self, name: str, definition: Definition, branch: str, *, replace_it: bool = False
    ) -> Commit:
        checked(definition)
        name = check_table_name(name)
        check_policy(name, definition)

        def stage(transaction: Transaction) -> str:
            known = transaction.tables().find(name)
            self.staging.define(transaction, name, definition, replace_it=replace_it)
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
            self.staging.alter(transaction, stream, definition)
            changed = ", ".join(option_changes(stream.definition, definition)) or "nothing changed"
            return f"alter stream table {stream.name}: {changed}"

        return self._publish(branch, stage)

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
                self.staging.drop(transaction, tables[one])
            return f"drop stream table{'s' if below else ''} {', '.join(gone)}"

        return self._publish(branch, stage)

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
        if commit is not None or self._failures.of(head, stream):
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

    def warn(self, tables: Tables) -> None:
        """Warn the caller of the lake's method of options that have no effect."""
        arrangement = self.catalog.arrange(tables)
        definitions = {name: one.definition for name, one in arrangement.streams.items()}
        for text in policy_warnings(arrangement.graph, arrangement.groups, definitions):
            warnings.warn(text, stacklevel=4)
