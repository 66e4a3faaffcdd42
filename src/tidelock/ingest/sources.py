"""The sources of a lake: creating them, reading them, and telling where they stand.

Owns: what is checked before each of these, and who may read a source at a time.
Invariant: one source that fails stops nobody but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from tidelock.errors import InvalidOption, SourceBusy, TidelockError
from tidelock.ingest.files.quarantine import (
    QUARANTINE,
    Quarantined,
    list_quarantined,
    quarantine_of,
)
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.kinds import check_alterable, check_kind, open_source
from tidelock.ingest.ledger import SCHEMA
from tidelock.ingest.post import held, post_of
from tidelock.ingest.protocol import Source, SourceTable
from tidelock.ingest.reader import SourceReader
from tidelock.ingest.registry import Registry
from tidelock.ingest.reports import IngestReport, SourceStatus
from tidelock.ingest.schedule.last_shift import LastShift
from tidelock.ingest.status import status_of
from tidelock.ingest.teller import Teller
from tidelock.ingest.troubles import WAITING, Trouble, trouble_of
from tidelock.model.history.commit import Commit
from tidelock.model.listing import Listing
from tidelock.model.names import check_name, check_table_name, suggest
from tidelock.model.sources import LIVE, SourceDefinition, Suspension
from tidelock.model.time.schedules import parse_schedule
from tidelock.store.objects import layout
from tidelock.store.secrets import check_secrets
from tidelock.store.store import Store
from tidelock.store.transaction import Transaction

ASIDE_SECONDS = 20.0
"""How long a process that reads a source has to step aside."""


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
            parsed = parse_schedule(schedule)
            if parsed.is_upstream:
                raise InvalidOption(
                    "A source has nothing upstream in the lake. Use 'live', a duration such as "
                    "'5m', a cron expression, or None.",
                    schedule=schedule,
                )
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
        with held(self._store, definition):
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
        with self._aside(definition, "it is being dropped"), held(self._store, definition):
            with closing(open_source(definition)) as source:
                source.drop()
            head = self._store.branches.head(definition.branch)
            if head.tables.find(definition.ledger) is not None:
                message = f"drop source {name}"
                with self._store.begin(definition.branch, message=message) as transaction:
                    transaction.drop_ledger(definition.ledger)
            self.registry.forget(definition)

    def _by_hand(self, reason: str) -> Suspension:
        return Suspension(reason, self._store.actor, self._store.clock.now())

    # Reading

    @contextmanager
    def reading(
        self,
        definition: SourceDefinition,
        *,
        live: bool = False,
        stopped: Callable[[], bool] = never,
        published: Callable[[Incoming, Commit], None] = lambda incoming, commit: None,
        judge: Callable[[Exception], Trouble | None] = trouble_of,
        opened: Callable[[Teller], None] = lambda teller: None,
    ) -> Iterator[SourceReader]:
        """Hold the post of a source, and give its reader. What becomes of it is told by its note:
        `judge` says what an error means, and `opened` is given who tells."""
        self._store.refuse_read_only()
        with held(self._store, definition) as check:
            teller = Teller(self.registry, definition, self._store.clock.now, live=live)
            opened(teller)

            def told(incoming: Incoming, commit: Commit) -> None:
                teller.published(incoming.rows, incoming.transactions)
                published(incoming, commit)

            try:
                with closing(open_source(definition)) as source:
                    reader = SourceReader(
                        self._store,
                        definition,
                        source,
                        {table.name: called for table, called in tables_of(definition, source)},
                        live=live,
                        stopped=stopped,
                        tell=teller.tell,
                        check=check,
                        published=told,
                    )
                    teller.begin()
                    yield reader
            except SourceBusy:
                # The note is another's by now.
                raise
            except Exception as error:
                teller.end(judge(error))
                raise
            teller.end()

    def ingest(
        self,
        name: str,
        *,
        stopped: Callable[[], bool] = never,
        progress: Callable[[int], None] = lambda rows: None,
    ) -> IngestReport:
        """One round of a source: what there is by now. `progress` is told of rows as they come."""
        definition = self.registry.definition(name)
        suspension = self.registry.suspension(definition)
        if suspension is not None:
            return IngestReport(name, "suspended", reason=suspension.reason)

        def published(incoming: Incoming, commit: Commit) -> None:
            progress(incoming.rows)

        with self.reading(definition, stopped=stopped, published=published) as reader:
            return _ended(reader.read(), stopped)

    def ingest_all(
        self,
        stopped: Callable[[], bool] = never,
        progress: Callable[[int], None] = lambda rows: None,
    ) -> list[IngestReport]:
        """One round of every source."""
        return self._rounds(self.registry.definitions(), stopped, progress)

    def _rounds(
        self,
        definitions: Sequence[SourceDefinition],
        stopped: Callable[[], bool],
        progress: Callable[[int], None] = lambda rows: None,
    ) -> list[IngestReport]:
        reports = []
        for definition in definitions:
            if stopped():
                break
            try:
                reports.append(self.ingest(definition.name, stopped=stopped, progress=progress))
            except TidelockError as error:
                reports.append(failed(definition, trouble_of(error)))
        return reports

    def ingest_due(self, branch: str, stopped: Callable[[], bool] = never) -> list[IngestReport]:
        """One round of each source of a branch that is due by its schedule; live ones are."""
        due = []
        for definition in self.registry.definitions():
            if definition.branch == branch:
                last = LastShift.of(definition, self.last_read(definition))
                if last.is_due(self.now()):
                    due.append(definition)
        return self._rounds(due, stopped)

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

    def resnapshot(
        self, name: str, tables: Sequence[str] | None, stopped: Callable[[], bool] = never
    ) -> IngestReport:
        """Bring tables, or all of them, to what the source has."""
        definition = self.registry.definition(name)
        with (
            self._aside(definition, "its tables are being loaded anew"),
            self.reading(definition, stopped=stopped) as reader,
        ):
            return _ended(reader.resnapshot(_chosen(reader.desk.tables, tables)), stopped)

    def last_read(self, definition: SourceDefinition) -> datetime | None:
        """When something was last told of a source."""
        told = self.registry.reading(definition)
        return None if told is None else told.time

    def now(self) -> datetime:
        return self._store.clock.now()

    def status(self, definition: SourceDefinition) -> SourceStatus:
        return status_of(self._store, self.registry, definition)

    @contextmanager
    def _aside(self, definition: SourceDefinition, reason: str) -> Iterator[None]:
        """Let a process that reads a source step aside for as long as the block lasts."""
        self._store.refuse_read_only()
        post = post_of(self._store, definition)
        if post.holder() is None or self.registry.suspension(definition) is not None:
            yield
            return
        self.registry.suspend(definition, self._by_hand(reason))
        try:
            with held(self._store, definition, ASIDE_SECONDS):
                pass
            yield
        finally:
            if self.registry.is_there(definition):
                self.registry.resume(definition, self._by_hand("resumed"))


def failed(definition: SourceDefinition, trouble: Trouble) -> IngestReport:
    """What is told of a source that could not be read."""
    return IngestReport(
        definition.name,
        WAITING if trouble.state == WAITING else "failed",
        reason=trouble.reason,
        state=trouble.state,
        retry_at=trouble.retry_at,
    )


def _ended(report: IngestReport, stopped: Callable[[], bool]) -> IngestReport:
    return replace(report, action="interrupted") if stopped() else report


def _chosen(tables: Mapping[str, str], asked: Sequence[str] | None) -> list[str]:
    """Tables as the source calls them; they may be asked for by what the lake calls them."""
    if asked is None:
        return list(tables)
    by_any_name = {called: name for name, called in tables.items()} | {one: one for one in tables}
    unknown = [one for one in asked if one not in by_any_name]
    if unknown:
        raise InvalidOption(
            f"The source has no table {unknown[0]!r}. {suggest(unknown[0], by_any_name)}",
            table=unknown[0],
        )
    return [by_any_name[one] for one in asked]


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
