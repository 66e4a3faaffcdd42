"""Transactions: any mix of operations on any number of tables, as one commit or not at all.

A transaction reads the snapshot at which it began, and its own staged writes on top. Input is
checked when an operation is called, before anything of it is staged. Small inputs stay in memory
until they are needed; large ones go to storage as they arrive, under an intent.
After a crash before publication: nothing happened; staged files are garbage. After publication:
everything happened.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from tidelock.errors import (
    BrokenInvariant,
    OutcomeUnknown,
    StoreError,
    TransactionClosed,
)
from tidelock.model.commit import (
    BranchRef,
    Commit,
    TableChange,
    Tables,
    TableState,
)
from tidelock.model.ddl import parse_schema
from tidelock.model.names import check_table_name
from tidelock.model.schema import Column, TableSchema
from tidelock.model.streams import StreamState
from tidelock.model.zones import UTC
from tidelock.store.leases.intents import HeldIntent, Intent
from tidelock.store.leases.leases import Footing, owner_name
from tidelock.store.log.log import Head
from tidelock.store.log.pending import Pending, undecided
from tidelock.store.objects.failpoints import hit
from tidelock.store.parts import Parts
from tidelock.store.rows.inputs import Input, is_spark_frame, read_input
from tidelock.store.rows.refusals import without_key
from tidelock.store.snapshot import query_tables
from tidelock.store.spark import stage as stage_frames
from tidelock.store.staging import writes
from tidelock.store.staging.own_fragments import fold_own
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.staged_tables import StagedTables
from tidelock.store.table import Table
from tidelock.store.tables.fragments import Addresses, Dataset

if TYPE_CHECKING:
    from tidelock.store.spark.types import DataFrame


CheckTables: TypeAlias = Callable[[Tables], None]
"""Raises if tables cannot stand together."""
AfterCommits: TypeAlias = Callable[[BranchRef, list[Commit]], None]
"""Told of what was published from here, once it is."""


def refuse_nothing(tables: Tables) -> None:
    return


def do_nothing(branch: BranchRef, commits: list[Commit]) -> None:
    return


class _Shown:
    """What keeps a table of a transaction readable."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction


class Transaction:
    """Use it as a context manager: leaving the block commits, an exception undoes everything."""

    def __init__(
        self,
        store: Parts,
        head: Head,
        *,
        actor: str,
        message: str,
        operation_id: str,
        properties: Mapping[str, Any] | None = None,
        claimed: bool = False,
        check_tables: CheckTables = refuse_nothing,
        after_commits: AfterCommits = do_nothing,
    ) -> None:
        self._store = store
        self._head = head
        self.actor = actor
        self.message = message
        self.operation_id = operation_id
        self.properties = dict(properties or {})
        self.earlier: Commit | None = None
        """The commit of its operation id, if that was published before."""
        self._claimed = claimed
        self._check_tables = check_tables
        self._after_commits = after_commits
        self._tables = StagedTables(store.files, head, store.together)
        self._touched = bool(properties)
        self._intent: HeldIntent | None = None
        self._commit: Commit | None = None
        self._published: list[Commit] = []
        self._closed = False
        self.rehearsed = False
        """Whether it is only to be seen how it would look."""
        self._lock = threading.RLock()
        self.footing = Footing()
        """The lease of the handle when this began."""

    @property
    def commit(self) -> Commit | None:
        """The published commit; None before the end, and when nothing was asked for."""
        return self._commit

    @property
    def repeated(self) -> bool:
        """Whether its operation id was published before.

        Then nothing is staged: operations are accepted and do nothing, `update` and `delete` return
        0, and `commit` is the commit of the first time, whatever was asked for this time. So an
        operation id names one piece of work; give another piece another id.
        """
        return self.earlier is not None

    @property
    def base_version(self) -> int:
        """The version that this transaction reads."""
        return self._head.version

    @property
    def branch(self) -> BranchRef:
        return self._head.branch

    # Operations

    def create_table(
        self, name: str, schema: object, key: str | Sequence[str] | None = None
    ) -> None:
        """Create an empty table; it exists for everyone once the transaction commits."""
        with self._lock:
            if not self._begins():
                return
            name = check_table_name(name)
            declared = parse_schema(schema, key=key)
            self._tables.create(name, declared)

    def drop_table(self, name: str) -> None:
        """Remove a table. Its data stays readable in earlier snapshots while they are retained."""
        with self._lock:
            if not self._begins():
                return
            self._tables.drop(self._tables.stage_by_hand(name))

    def append(self, table: str, data: Any) -> None:
        """Add rows. On a table with a key, a key that is there already is refused."""
        with self._lock:
            if not self._begins():
                return
            staged = self._tables.stage_by_hand(table)
            if is_spark_frame(data):
                self._announce()
                stage_frames.append_frame(self._view(staged), staged, data)
                return
            given = self._read(data, staged)
            if given.table is not None:
                if given.table.num_rows:
                    writes.append_table(staged, given.table)
                return
            self._announce()
            writes.append_stream(staged, given.batches())

    def upsert(self, table: str, data: Any) -> None:
        """Insert rows, and replace those that have the same key."""
        with self._lock:
            if not self._begins():
                return
            staged = self._tables.stage_by_hand(table)
            if not staged.state.key:
                raise without_key(staged.state.name)
            if is_spark_frame(data):
                self._announce()
                stage_frames.upsert_frame(self._view(staged), staged, data)
                return
            given = self._read(data, staged)
            if given.table is not None:
                if given.table.num_rows:
                    writes.upsert_table(staged, given.table)
                return
            self._announce()
            writes.upsert_stream(staged, given.batches())

    def update(
        self, table: str, assignments: Mapping[str, object], where: str | None = None
    ) -> int:
        """Set columns to expressions in the rows for which `where` is true; returns how many."""
        with self._lock:
            if not self._begins():
                return 0
            staged = self._tables.stage_by_hand(table)
            return writes.update(self._view(staged), staged, assignments, where)

    def delete(self, table: str, where: str) -> int:
        """Remove the rows for which `where` is true; returns how many. `"true"` removes all."""
        with self._lock:
            if not self._begins():
                return 0
            staged = self._tables.stage_by_hand(table)
            return writes.delete(self._view(staged), staged, where)

    def prune(self, table: str, where: str, until: int | None = None) -> Addresses:
        """Remove rows because of their age, up to a sequence; returns their sequences.

        The commit is one of retention: it does nothing else, and feeds of inserted rows do not
        take it for a deletion. `lake.prune` also looks after the sinks of the table.
        """
        with self._lock:
            if not self._begins():
                return np.array([], dtype=np.uint64)
            staged = self._tables.stage_by_hand(table)
            row_ids = writes.prune(self._view(staged), staged, where, until)
            self._tables.prunings += bool(len(row_ids))
            return row_ids

    def overwrite(self, table: str, data: Any) -> None:
        """Replace all rows by these, also where those that are there are lost."""
        with self._lock:
            if not self._begins():
                return
            staged = self._tables.replacing_lost(self._tables.stage_by_hand(table))
            if is_spark_frame(data):
                self._announce()
                stage_frames.overwrite_frame(self._view(staged), staged, data)
                return
            given = self._read(data, staged)
            if given.streaming:
                self._announce()
            writes.overwrite(staged, given)

    def stage(self, name: str) -> StagedTable:
        """A table with what is staged on it, for a refresh of stream tables."""
        with self._lock:
            self._begins()
            return self._tables.stage(name)

    def create_kept(self, name: str, schema: pa.Schema, stream: StreamState | None) -> StagedTable:
        """Create a table that is kept up to date: a stream table, or an internal one."""
        with self._lock:
            self._begins()
            declared = TableSchema(tuple(Column(f.name, f.type, f.nullable) for f in schema))
            return self._tables.create(name, declared, stream, rehearsed=self.rehearsed)

    def drop_kept(self, name: str) -> None:
        """Drop a table that create_kept made."""
        with self._lock:
            self._begins()
            self._tables.drop(self._tables.stage(name))

    def announce(self) -> None:
        """Leave an intent before work that may take long."""
        with self._lock:
            self._announce()

    # Reads

    def table(self, name: str) -> Table:
        """The table as this transaction sees it: its snapshot and its own writes.

        Takes no lock of the transaction: an input that is being appended may read tables lazily,
        from whichever thread pulls it.
        """
        self._refuse_closed()
        known = self._tables.find(name)
        if isinstance(known, StagedTable):
            return self._view(known)
        if known is None:
            raise self._tables.unknown(name)
        return self._table(known, self._store.files.read(known))

    def tables(self) -> Tables:
        """All tables as this transaction sees them."""
        return self._tables.tables()

    def sql(self, query: str) -> DataFrame:
        """Run a Spark SQL query over what this transaction sees."""
        self._store.refuse_unusable()
        return query_tables(query, self.tables(), self.table, self._store.engine)

    # Ending

    def __enter__(self) -> Self:
        self._refuse_closed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._closed:
            return
        if error is None:
            self.publish()
        else:
            self.rollback()

    def rollback(self) -> None:
        """Forget everything that was staged."""
        with self._lock:
            if not self._closed:
                self._close()

    def publish(self) -> Commit | None:
        """Commit now. Leaving the block does this."""
        with self._lock:
            self._refuse_closed()
            if self.rehearsed:
                raise BrokenInvariant("What was only rehearsed cannot be published.")
            try:
                if self.earlier is not None:
                    self._commit = self.earlier
                elif self._touched:
                    self._commit = self._publish()
            except BaseException as error:
                if not self._close():
                    self._say_unknown(error)
                raise
            self._close()
            if self._claimed and self._commit is not None and self.earlier is None:
                self._store.settle_later(self.branch, self._commit, self._head.version)
            self._after_commits(self._head.branch, self._published)
            return self._commit

    def _publish(self) -> Commit:
        changed = self._tables.changed()
        pending = Pending(
            self,
            self._head,
            self.operation_id,
            self.actor,
            self._tables.kind(),
            self.message,
            self.properties,
            names=self._names(),
            own_id=not self._claimed,
        )
        publisher = self._store.publisher
        with publisher.claim(self.branch.id, [staged.state.id for staged in changed]) as free:
            whole = free or self._intent is not None

            def stage(staged: StagedTable) -> None:
                if staged.dropped:
                    return
                if whole or staged.created:
                    staged.current()
                else:
                    staged.write()
                hit("stage.after_table")

            self._store.together.map(stage, changed)
            if self._intent is not None:
                self._intent.seal(self.rebase(self._head.tables, self._head.version + 1))
                pending.sealed = True
            commit = publisher.publish(pending)
        self._published = [commit] if pending.published_here else []
        return commit

    def _names(self) -> tuple[str, ...]:
        intent = () if self._intent is None else (self._intent.key,)
        return self.footing.lease, *intent

    def rebase(self, tables: Tables, version: int) -> tuple[TableChange, ...]:
        """The changes of this transaction on top of the given tables (see publish.Staged)."""
        changes = self._tables.rebase(tables, version, self.operation_id)
        if self._tables.redefined:
            self._check_tables(tables.after(changes))
        return changes

    def check(self) -> None:
        self._store.lease.check(self.footing)
        if self._intent is not None:
            self._intent.check()

    def _close(self) -> bool:
        """End the transaction; False when an intent stays behind that healing may publish."""
        self._closed = True
        self._store.lease.end_work(self)
        if self._intent is None:
            return True
        try:
            self._intent.remove()
        except StoreError:
            self._intent.abandon()
            return not self._intent.sealed
        return True

    def _say_unknown(self, error: BaseException) -> None:
        """A failure whose sealed intent could not be taken back may still become a commit."""
        if isinstance(error, OutcomeUnknown | KeyboardInterrupt):
            return
        raise undecided(self.branch.name, self.operation_id, error) from error

    # Staging

    def _begins(self) -> bool:
        """Whether an operation is to be staged: not when its transaction was published before."""
        self._refuse_closed()
        self._store.refuse_unusable()
        self._touched = True
        return self.earlier is None

    def _read(self, data: Any, staged: StagedTable) -> Input:
        # Asked only where it matters: a session on a server answers over the network.
        zone = self._store.engine.zone if staged.schema.temporal else UTC
        return read_input(data, staged.schema, staged.state.name, zone)

    def _view(self, staged: StagedTable) -> Table:
        return self._table(staged.state, fold_own(staged))

    def _table(self, state: TableState, dataset: Dataset) -> Table:
        """What it shows stays readable while somebody holds it, also when the transaction ended."""
        owner = _Shown(self)
        self._store.uses.hold_pin(owner, state.id, dataset.version)
        return Table(self._store.files, self._store.engine, state, dataset, owner)

    def _announce(self) -> None:
        """Leave an intent before work that may take long."""
        if self._intent is None:
            self._intent = self._hold_intent()

    def _hold_intent(self) -> HeldIntent:
        intent = Intent(
            operation_id=self.operation_id,
            branch=self.branch.name,
            branch_id=self.branch.id,
            base_version=self.base_version,
            actor=self.actor,
            kind="data",
            message=self.message,
            owner=owner_name(),
            created=self._store.clock.now(),
            lease_seconds=self._store.lease_seconds,
            lease=self.footing.lease,
            properties=self.properties,
        )
        held = HeldIntent(self._store.keeper, self._store.objects, intent)
        # A transaction that is dropped without an end must not keep its intent alive.
        weakref.finalize(self, held.abandon)
        return held

    def _refuse_closed(self) -> None:
        if self._closed:
            raise TransactionClosed(
                "This transaction has ended. Begin another with lake.transaction().",
                operation_id=self.operation_id,
            )

    def __repr__(self) -> str:
        state = "open"
        if self._closed:
            state = f"committed as version {self._commit.version}" if self._commit else "closed"
        return f"Transaction(branch={self.branch.name!r}, base={self.base_version}, {state})"
