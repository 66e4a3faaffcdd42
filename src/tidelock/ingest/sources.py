"""The sources of a lake: creating them, reading them, and telling where they stand.

Owns: what is checked before each of these, and who may read a source at a time.
Invariant: one source that fails stops nobody but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from tidelock.errors import InputError, InvalidOption, SourceBusy, TidelockError
from tidelock.ingest.files.quarantine import (
    QUARANTINE,
    Quarantined,
    list_quarantined,
    quarantine_of,
)
from tidelock.ingest.kinds import check_alterable, check_kind, open_source
from tidelock.ingest.ledger import SCHEMA, Ledger
from tidelock.ingest.protocol import Source, SourceTable
from tidelock.ingest.reader import SourceReader
from tidelock.ingest.registry import Registry
from tidelock.ingest.reports import IngestReport, SourceStatus
from tidelock.model.listing import Listing
from tidelock.model.names import check_name, check_table_name
from tidelock.model.sources import LIVE, Reading, SourceDefinition, Suspension
from tidelock.model.time.schedules import parse_schedule
from tidelock.store.leases.single_holder import Post
from tidelock.store.objects import layout
from tidelock.store.secrets import check_secrets
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction

LEASE_SECONDS = 15.0


def never() -> bool:
    return False


class Sources:
    """All sources of one lake."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.registry = Registry(store.objects)

    # Defining

    def create(
        self,
        name: str,
        kind: str,
        into: str | None,
        schedule: str | None,
        branch: str,
        options: Mapping[str, Any],
    ) -> SourceDefinition:
        """Define a source, and make the tables that it feeds."""
        self._store.refuse_read_only()
        check_name(name, "source")
        options = check_kind(kind, options).settle(options)
        check_secrets(options, "")
        if schedule not in (None, LIVE):
            parse_schedule(schedule)
        head = self._store.branches.head(branch)
        definition = SourceDefinition(
            name=name,
            id=layout.new_id(name),
            kind=kind,
            into="{table}" if into is None else into,
            branch=head.branch.name,
            branch_id=head.branch.id,
            schedule=schedule,
            options=dict(options),
            actor=self._store.actor,
            created=self._store.clock.now(),
        )
        with closing(open_source(definition)) as source:
            tables = tables_of(definition, source)
            with self._store.begin(branch, message=f"create source {name}") as transaction:
                transaction.create_ledger(definition.ledger, SCHEMA)
                _make(source, tables, transaction)
            self.registry.create(definition)
        return definition

    def alter(self, name: str, options: Mapping[str, Any]) -> SourceDefinition:
        """Give options of a source other values; None takes one back to its default."""
        self._store.refuse_read_only()
        definition = self.registry.definition(name)
        check_alterable(definition.kind, options)
        with self._held(definition):
            kept = {**definition.options, **options}
            kept = {name: value for name, value in kept.items() if value is not None}
            kept = check_kind(definition.kind, kept).settle(kept)
            check_secrets(kept, "")
            altered = replace(definition, options=kept)
            with closing(open_source(altered)) as source:
                tables = tables_of(altered, source)
                message = f"alter source {name}"
                with self._store.begin(definition.branch, message=message) as transaction:
                    _make(source, tables, transaction)
            self.registry.replace(altered)
        return altered

    def drop(self, name: str) -> None:
        """Forget a source, and what was left for it at the source. Its tables stay."""
        self._store.refuse_read_only()
        definition = self.registry.definition(name)
        with self._held(definition):
            with closing(open_source(definition)) as source:
                source.drop()
            head = self._store.branches.head(definition.branch)
            if head.tables.find(definition.ledger) is not None:
                message = f"drop source {name}"
                with self._store.begin(definition.branch, message=message) as transaction:
                    transaction.drop_ledger(definition.ledger)
            self.registry.forget(definition)

    def suspend(self, name: str, reason: str) -> None:
        self._store.refuse_read_only()
        now = self._store.clock.now()
        definition = self.registry.definition(name)
        self.registry.suspend(definition, Suspension(reason, self._store.actor, now))

    def resume(self, name: str) -> None:
        self._store.refuse_read_only()
        self.registry.resume(self.registry.definition(name))

    # Reading

    def ingest(
        self, name: str, *, live: bool = False, stopped: Callable[[], bool] = never
    ) -> IngestReport:
        """Read a source: what there is by now, or, `live`, until stopped."""
        self._store.refuse_read_only()
        definition = self.registry.definition(name)
        suspension = self.registry.suspension(definition)
        if suspension is not None:
            return IngestReport(name, "suspended", reason=suspension.reason)
        with self._held(definition) as check, closing(open_source(definition)) as source:
            reader = SourceReader(
                self._store,
                definition,
                source,
                {table.name: called for table, called in tables_of(definition, source)},
                live=live,
                stopped=stopped,
                tell=lambda reading: self.registry.tell(definition, reading),
                check=check,
            )
            try:
                return reader.read()
            except InputError as error:
                # Rows that a rule of their table does not allow, say: the source cannot help it.
                self.registry.tell(definition, Reading("stopped", error.told("shell")))
                raise

    def ingest_all(self, stopped: Callable[[], bool] = never) -> list[IngestReport]:
        """One round of every source."""
        reports = []
        for definition in self.registry.definitions():
            try:
                reports.append(self.ingest(definition.name, stopped=stopped))
            except SourceBusy:
                continue
            except TidelockError as error:
                reports.append(IngestReport(definition.name, "failed", reason=error.told("shell")))
        return reports

    def status(self, definition: SourceDefinition) -> SourceStatus:
        head = self._store.branches.head(definition.branch)
        ledger = Ledger(self._store, definition, head)
        suspension = self.registry.suspension(definition)
        told = self.registry.reading(definition) or Reading("new")
        holder = self._post(definition).holder()
        state, reason = told.state, told.reason
        if suspension is not None:
            state, reason = "suspended", suspension.reason
        commit = None
        if ledger.position:
            commit = self._store.log.commit_at(head.branch, ledger.state.changed)
        return SourceStatus(
            name=definition.name,
            id=definition.id,
            kind=definition.kind,
            branch=definition.branch,
            schedule=definition.schedule,
            state=state,
            reason=reason,
            position=ledger.position,
            newest=told.position,
            lag_bytes=told.lag_bytes,
            lag_seconds=told.lag_seconds,
            rows_per_second=told.rows_per_second,
            transactions_per_second=told.transactions_per_second,
            commit=None if commit is None else commit.version,
            committed=None if commit is None else commit.time,
            open=told.open,
            tables=told.tables,
            notes=told.notes,
            reader="" if holder is None else holder.owner,
            retry_at=told.retry_at,
            options=dict(definition.options),
        )

    def quarantined(self, name: str) -> Listing[Quarantined]:
        """The records that a source has put aside, in the order of their files and lines."""
        definition = self.registry.definition(name)
        state = self._store.branches.head(definition.branch).tables.find(quarantine_of(name))
        if state is None:
            return list_quarantined([])
        with self._store.files.reading(state):
            rows = self._store.files.read(state).to_table(columns=QUARANTINE.names)
        ordered = rows.sort_by(
            [("taken", "ascending"), ("file", "ascending"), ("line", "ascending")]
        )
        return list_quarantined([Quarantined(**row) for row in ordered.to_pylist()])

    def _post(self, definition: SourceDefinition) -> Post:
        lease = min(LEASE_SECONDS, self._store.lease_seconds)
        return Post(self._store.objects, f"source {definition.id}", lease)

    @contextmanager
    def _held(self, definition: SourceDefinition) -> Iterator[Callable[[], None]]:
        """Hold the post of a source; what is given raises SourceBusy once it is lost."""
        post = self._post(definition)
        holder = post.take()
        if holder is not None:
            raise SourceBusy(
                f"Source {definition.name!r} is being read by {holder.owner} (host:process).",
                source=definition.name,
                owner=holder.owner,
                since=holder.since,
                until=holder.until,
            )

        def check() -> None:
            if not post.is_held():
                raise SourceBusy(
                    f"This process was frozen for longer than its lease on source "
                    f"{definition.name!r}, and another may have taken over.",
                    source=definition.name,
                )

        with post.renewed():
            yield check


def _make(source: Source, tables: list[tuple[SourceTable, str]], transaction: Transaction) -> None:
    """Create those that are not there, and ask the source whether it can feed those that are."""
    for table, called in tables:
        if called not in transaction.tables():
            schema = table.schema() if callable(table.schema) else table.schema
            transaction.create_fed(called, schema, table.key, table.hidden)
        source.accept(table, transaction.table(called).schema)


def tables_of(definition: SourceDefinition, source: Source) -> list[tuple[SourceTable, str]]:
    """The tables of a source, each with what the lake calls it."""
    found = []
    for table in source.discover():
        if table.called is not None:
            found.append((table, check_table_name(table.called)))
            continue
        try:
            called = definition.into.format(table=table.name, schema=table.namespace)
        except (KeyError, IndexError, ValueError) as error:
            raise InvalidOption(
                f"into={definition.into!r} is a name, or a pattern with {{table}} and {{schema}}.",
                into=definition.into,
            ) from error
        found.append((table, check_table_name(called)))
    return found
