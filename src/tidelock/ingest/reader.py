"""Reading one source: each of its transactions becomes one commit, with the source's position.

    1. a transaction of the source is collected, in memory or in storage (intake/)
    2. it is staged in a transaction of the lake, together with the source's next position
    3. one commit publishes both, if the source was read up to the position before it
    4. the source is told that it is in the lake

Invariants: positions are published in the order in which the source gives them; nothing is
acknowledged before it is published; a source that is read by two processes is read once.
After a crash: before 3 nothing happened, and the source gives the transaction again; after it the
position says so, and it is not asked for again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tidelock.errors import (
    Action,
    ConflictError,
    OutcomeUnknown,
    SourceMoved,
    SourceStopped,
)
from tidelock.ingest.intake.incoming import Incoming
from tidelock.ingest.intake.net import UnknownRow
from tidelock.ingest.intake.staging import stage_incoming
from tidelock.ingest.ledger import Ledger
from tidelock.ingest.protocol import Desk, Source
from tidelock.ingest.reports import IngestReport, TableReport
from tidelock.model.history.commit import Commit
from tidelock.model.schema.schema import TableSchema
from tidelock.model.sources import SOURCE, Reading, SourceDefinition
from tidelock.store.objects.failpoints import hit
from tidelock.store.store import Store

ATTEMPTS_MAX = 8


@dataclass
class Done:
    """What was done so far."""

    rows: int = 0
    transactions: int = 0
    commits: int = 0
    version: int | None = None
    position: str = ""
    tables: dict[str, TableReport] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def add(self, incoming: Incoming, commit: Commit) -> None:
        """Count a transaction that was published."""
        self.rows += incoming.rows
        self.transactions += incoming.transactions
        # Those that move the position alone, over what is none of ours, are nobody's news.
        self.commits += incoming.transactions > 0
        self.version = commit.version
        self.position = incoming.position
        for work in incoming.tables.values():
            before = self.tables.get(work.name, TableReport(work.name, 0, 0))
            self.tables[work.name] = TableReport(
                work.name, before.puts + work.puts, before.removes + work.removes
            )

    def report(self, source: str, action: str, reason: str = "") -> IngestReport:
        return IngestReport(
            source,
            action,
            self.rows,
            self.transactions,
            self.commits,
            self.position,
            self.version,
            tuple(sorted(self.tables.values(), key=lambda one: one.table)),
            reason,
            time.monotonic() - self.began,
        )


class SourceReader:
    """Owns the reading of one source by this process, for as long as it holds the source's post."""

    def __init__(
        self,
        store: Store,
        definition: SourceDefinition,
        source: Source,
        tables: dict[str, str],
        *,
        live: bool = False,
        stopped: Callable[[], bool] = lambda: False,
        tell: Callable[[Reading], None] = lambda reading: None,
        check: Callable[[], None] = lambda: None,
        published: Callable[[Incoming, Commit], None] = lambda incoming, commit: None,
    ) -> None:
        """`check` raises when the post was lost; `published` is told of each commit."""
        self._published = published
        self._store = store
        self._definition = definition
        self._source = source
        self._check = check
        self.done = Done()
        head = store.branches.head(definition.branch)
        self.desk = Desk(
            definition,
            store,
            Ledger(store, definition, head),
            stopped,
            live,
            tables,
            tell,
            begin=self._begin,
        )

    def read(self) -> IngestReport:
        """Read until there is nothing more, or until stopped."""
        return self._take_all(self._source.poll(self.desk))

    def resnapshot(self, tables: Sequence[str]) -> IngestReport:
        """Let the source bring tables to what it has, whatever the lake has of them."""
        return self._take_all(self._source.resnapshot(self.desk, tables))

    def _take_all(self, given: Iterator[Incoming]) -> IngestReport:
        self._check()
        try:
            with self._known_rows():
                for incoming in given:
                    self._take(incoming)
                    if self.desk.stopped():
                        break
        finally:
            # It lets go of what it reads from now, and not once its frames are forgotten.
            if isinstance(given, Generator):
                given.close()
        self.done.position = self.desk.position
        action = "ingested" if self.done.commits else "idle"
        return self.done.report(self._definition.name, action)

    def _begin(self) -> Incoming:
        return Incoming(
            self._store,
            self._definition.branch,
            self._table_of,
            self._source.fragment_bytes,
            self._source.unknown,
        )

    def _table_of(self, name: str) -> tuple[str, TableSchema]:
        """What the lake calls a table of the source, and its columns."""
        table = self.desk.tables.get(name, name)
        head = self.desk.ledger.head
        state = head.tables.find(table)
        if state is None:
            raise head.tables.unknown(table)
        files = self._store.files
        return state.name, files.schema(state, files.read(state))

    def _take(self, incoming: Incoming) -> None:
        try:
            hit("ingest.before_publish")
            commit = self._publish(incoming)
            hit("ingest.after_publish")
            self.done.add(incoming, commit)
            self._published(incoming, commit)
        finally:
            incoming.drop()
        self.desk.refresh()
        self._source.acknowledge(incoming.position)
        hit("ingest.after_acknowledge")

    def _publish(self, incoming: Incoming) -> Commit:
        for attempt in range(ATTEMPTS_MAX):
            self._check()
            expected = self.desk.position
            transaction = self._store.begin(
                self._definition.branch,
                message=incoming.message or self._message(incoming),
                properties={SOURCE: self._told(incoming)},
            )
            try:
                with transaction:
                    stage_incoming(incoming, transaction)
                    for entries in incoming.entries:
                        transaction.note_entries(self._definition.ledger, entries)
                    transaction.move_position(self._definition.ledger, expected, incoming.position)
                assert transaction.commit is not None
                return transaction.commit
            except SourceMoved:
                raise
            except OutcomeUnknown:
                commit = self._find(incoming)
                if commit is None:
                    raise
                return commit
            except ConflictError as error:
                # Somebody else changed the same rows by hand.
                if error.action is not Action.REFRESH_AND_RETRY or attempt + 1 == ATTEMPTS_MAX:
                    raise
        raise AssertionError("unreachable")

    @contextmanager
    def _known_rows(self) -> Iterator[None]:
        try:
            yield
        except UnknownRow as error:
            raise SourceStopped(
                f"Source {self._definition.name!r}: rows were updated that the lake does not have, "
                f"such as {error.keys.slice(0, 3).to_pylist()}, and not all of their values were "
                "sent. Somebody removed them here. Drop the source, remove the rows of its tables, "
                "and make it again: it loads them anew.",
                source=self._definition.name,
                reason="unknown rows",
            ) from error

    def _find(self, incoming: Incoming) -> Commit | None:
        """The commit that holds a transaction, where it is not known whether it was published."""
        ledger = Ledger(
            self._store, self._definition, self._store.branches.head(self._definition.branch)
        )
        if ledger.position != incoming.position:
            return None
        return self._store.log.commit_at(ledger.head.branch, ledger.state.changed)

    def _message(self, incoming: Incoming) -> str:
        what = "row" if incoming.rows == 1 else "rows"
        return f"{self._definition.name}: {incoming.rows:,} {what}"

    def _told(self, incoming: Incoming) -> dict[str, Any]:
        told: dict[str, Any] = {
            "name": self._definition.name,
            "id": self._definition.id,
            "position": incoming.position,
            "transactions": incoming.transactions,
        }
        if incoming.time is not None:
            told["time"] = incoming.time.isoformat()
        return {**told, **incoming.properties}
