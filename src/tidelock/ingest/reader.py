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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tidelock.errors import (
    Action,
    ConflictError,
    OutcomeUnknown,
    SourceMoved,
    SourceStopped,
)
from tidelock.ingest.intake.incoming import SPILL_BYTES, Incoming
from tidelock.ingest.intake.net import UnknownRow
from tidelock.ingest.intake.staging import stage_incoming
from tidelock.ingest.ledger import Ledger
from tidelock.ingest.protocol import Desk, Source
from tidelock.ingest.reports import IngestReport
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
    began: float = field(default_factory=time.monotonic)


class SourceReader:
    """Owns the reading of one source by this process, for as long as it holds the source's post."""

    spill_bytes: ClassVar[int] = SPILL_BYTES
    """Of a transaction that takes more, what came first goes to storage."""

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
    ) -> None:
        """`check` raises when the post was lost."""
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
        with self._known_rows():
            for incoming in self._source.poll(self.desk):
                self._take(incoming)
                if self.desk.stopped():
                    break
        return self.report("ingested" if self.done.commits else "idle")

    def report(self, action: str, reason: str = "") -> IngestReport:
        done = self.done
        return IngestReport(
            self._definition.name,
            action,
            done.rows,
            done.transactions,
            done.commits,
            self.desk.position,
            done.version,
            (),
            reason,
            time.monotonic() - done.began,
        )

    def _begin(self) -> Incoming:
        return Incoming(
            self._store,
            self._definition.branch,
            self._table_of,
            self.spill_bytes,
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
        finally:
            incoming.drop()
        self.desk.refresh()
        self.done.rows += incoming.rows
        self.done.transactions += incoming.transactions
        self.done.commits += 1
        self.done.version = commit.version
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
                "sent. Somebody removed them here. Load the table anew with `tidelock source "
                f"resnapshot {self._definition.name}`.",
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
