"""Transactions: any mix of operations on any number of tables, as one commit or not at all.

A transaction reads the snapshot at which it began, and its own staged writes on top. Input is
checked when an operation is called, before anything of it is staged. Small inputs stay in memory
until they are needed; large ones go to storage as they arrive, under an intent.
After a crash before publication: nothing happened; staged files are garbage. After publication:
everything happened.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from tidelock.errors import (
    InvalidOption,
    KeyRequired,
    OutcomeUnknown,
    StoreError,
    StreamTableWrite,
    TableExists,
    TableNotFound,
    TransactionClosed,
)
from tidelock.model.commit import (
    BranchRef,
    Commit,
    Kind,
    TableChange,
    Tables,
    TableState,
    with_frontiers,
)
from tidelock.model.ddl import parse_schema
from tidelock.model.names import check_table_name, fold, is_hidden
from tidelock.model.schema import Column, TableSchema
from tidelock.model.streams import StreamState
from tidelock.model.zones import UTC
from tidelock.store import frame_staging, layout, writing
from tidelock.store.faults import hit
from tidelock.store.inputs import Input, is_spark_frame, read_input
from tidelock.store.intents import Footing, HeldIntent
from tidelock.store.log import Head
from tidelock.store.own_fragments import fold_own
from tidelock.store.pending import Pending, Request
from tidelock.store.reading import Table
from tidelock.store.snapshot import query_tables
from tidelock.store.staging import StagedTable
from tidelock.store.tables import Addresses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidelock.store.store import Store


class Transaction:
    """Use it as a context manager: leaving the block commits, an exception undoes everything."""

    def __init__(
        self,
        store: Store,
        head: Head,
        *,
        actor: str,
        message: str,
        operation_id: str,
        properties: Mapping[str, Any] | None = None,
        earlier: Commit | None = None,
        claimed: bool = False,
    ) -> None:
        self._store = store
        self._head = head
        self.actor = actor
        self.message = message
        self.operation_id = operation_id
        self.properties = dict(properties or {})
        self._earlier = earlier
        self._claimed = claimed
        self._staged: dict[str, StagedTable] = {}
        self._pruned = 0
        self._touched = bool(properties)
        self._intent: HeldIntent | None = None
        self._commit: Commit | None = None
        self._published: list[Commit] = []
        self._closed = False
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
        return self._earlier is not None

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
            self._refuse_existing(name)
            table_id = layout.new_id(name)
            dataset = self._store.files.create(table_id, declared)
            state = TableState(name, table_id, dataset.version, 0, 0, declared.key)
            self._staged[table_id] = StagedTable(self._store.files, state, dataset, created=True)

    def drop_table(self, name: str) -> None:
        """Remove a table. Its data stays readable in earlier snapshots while they are retained."""
        with self._lock:
            if not self._begins():
                return
            self._drop(self._stage_by_hand(name))

    def append(self, table: str, data: Any) -> None:
        """Add rows. On a table with a key, a key that is there already is refused."""
        with self._lock:
            if not self._begins():
                return
            staged = self._stage_by_hand(table)
            if is_spark_frame(data):
                self._announce()
                frame_staging.append_frame(self._view(staged), staged, data)
                return
            given = self._read(data, staged)
            if given.table is not None:
                if given.table.num_rows:
                    writing.append_table(staged, given.table)
                return
            self._announce()
            writing.append_stream(staged, given.batches())

    def upsert(self, table: str, data: Any) -> None:
        """Insert rows, and replace those that have the same key."""
        with self._lock:
            if not self._begins():
                return
            staged = self._stage_by_hand(table)
            if not staged.state.key:
                raise KeyRequired(
                    f"Table {staged.state.name!r} has no key, so rows cannot be matched. "
                    "Use append, or create the table with key=[...].",
                    table=staged.state.name,
                )
            if is_spark_frame(data):
                self._announce()
                frame_staging.upsert_frame(self._view(staged), staged, data)
                return
            given = self._read(data, staged)
            if given.table is not None:
                if given.table.num_rows:
                    writing.upsert_table(staged, given.table)
                return
            self._announce()
            writing.upsert_stream(staged, given.batches())

    def update(
        self, table: str, assignments: Mapping[str, object], where: str | None = None
    ) -> int:
        """Set columns to expressions in the rows for which `where` is true; returns how many."""
        with self._lock:
            if not self._begins():
                return 0
            staged = self._stage_by_hand(table)
            return writing.update(self._view(staged), staged, assignments, where)

    def delete(self, table: str, where: str) -> int:
        """Remove the rows for which `where` is true; returns how many. `"true"` removes all."""
        with self._lock:
            if not self._begins():
                return 0
            staged = self._stage_by_hand(table)
            return writing.delete(self._view(staged), staged, where)

    def prune(self, table: str, where: str, until: int | None = None) -> Addresses:
        """Remove rows because of their age, up to a sequence; returns their sequences.

        The commit is one of retention: it does nothing else, and feeds of inserted rows do not
        take it for a deletion. `lake.prune` also looks after the sinks of the table.
        """
        with self._lock:
            if not self._begins():
                return np.array([], dtype=np.uint64)
            staged = self._stage_by_hand(table)
            row_ids = writing.prune(self._view(staged), staged, where, until)
            self._pruned += bool(len(row_ids))
            return row_ids

    def overwrite(self, table: str, data: Any) -> None:
        """Replace all rows by these."""
        with self._lock:
            if not self._begins():
                return
            staged = self._stage_by_hand(table)
            if is_spark_frame(data):
                self._announce()
                frame_staging.overwrite_frame(self._view(staged), staged, data)
                return
            given = self._read(data, staged)
            if given.streaming:
                self._announce()
            writing.overwrite(staged, given)

    def stage(self, name: str) -> StagedTable:
        """A table with what is staged on it, for whoever keeps stream tables."""
        with self._lock:
            self._begins()
            return self._stage(name)

    def create_kept(self, name: str, schema: pa.Schema, stream: StreamState | None) -> StagedTable:
        """Create a table that is kept up to date: a stream table, or an internal one."""
        with self._lock:
            self._begins()
            self._refuse_existing(name)
            declared = TableSchema(tuple(Column(f.name, f.type, f.nullable) for f in schema))
            table_id = layout.new_id(name)
            dataset = self._store.files.create(table_id, declared)
            state = TableState(name, table_id, dataset.version, 0, 0, (), stream)
            staged = StagedTable(self._store.files, state, dataset, created=True)
            self._staged[table_id] = staged
            return staged

    def drop_kept(self, name: str) -> None:
        """Drop a table that create_kept made."""
        with self._lock:
            self._begins()
            self._drop(self._stage(name))

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
        staged = self._find(name)
        if isinstance(staged, StagedTable):
            return self._view(staged)
        if staged is None:
            raise self._unknown(name)
        dataset = self._store.files.read(staged)
        return Table(self._store.files, self._store.engine, staged, dataset, self)

    def tables(self) -> Tables:
        """All tables as this transaction sees them."""
        changes = tuple(s.change(self._head.version + 1, "data") for s in self._changed())
        return self._head.tables.after(changes)

    def sql(self, query: str) -> DataFrame:
        """Run a Spark SQL query over what this transaction sees."""
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
            try:
                if self._earlier is not None:
                    self._commit = self._earlier
                elif self._touched:
                    self._commit = self._publish()
            except BaseException as error:
                if not self._close():
                    self._say_unknown(error)
                raise
            self._close()
            self._store.after_commits(self._head.branch, self._published)
            return self._commit

    def _publish(self) -> Commit:
        changed = self._changed()
        pending = Pending(
            self,
            self._head,
            self.operation_id,
            self.actor,
            self._kind(),
            self.message,
            self.properties,
            names=self._names(),
            own_id=not self._claimed,
            request=self._request,
        )
        publisher = self._store.publisher
        with publisher.claim(self.branch.id, [staged.state.id for staged in changed]) as free:
            for staged in changed:
                if free or self._intent is not None:
                    staged.current()
                else:
                    staged.write(share=publisher.has_rivals(self.branch.id))
                hit("stage.after_table")
            if self._intent is not None:
                self._intent.seal(self.rebase(self._head.tables, self._head.version + 1))
                pending.sealed = True
            commit = publisher.publish(pending)
        self._published = pending.published
        if self._claimed:
            self._store.operation_ids.settle(self.branch, commit, self._head.version)
        return commit

    def _request(self) -> Request | None:
        """This transaction for another process to publish, if it only adds rows."""
        if self._intent is not None or self._claimed or self._store.files.durable:
            return None
        appended = [staged.appended() for staged in self._changed()]
        tables = tuple(one for one in appended if one is not None)
        if not tables or len(tables) < len(appended):
            return None
        return Request(
            self.operation_id,
            self.actor,
            self.message,
            self.properties,
            self._store.lease_until(self.footing),
            self._names(),
            self._head.fence,
            tables,
        )

    def _names(self) -> tuple[str, ...]:
        intent = () if self._intent is None else (self._intent.key,)
        return self.footing.lease, *intent

    def _kind(self) -> Kind:
        changed = self._changed()
        if self._pruned:
            others = sum(len(staged.operations) for staged in changed) > self._pruned
            if others or any(staged.created or staged.dropped for staged in changed):
                raise InvalidOption(
                    "A transaction that prunes does nothing else. Prune in a transaction of its "
                    "own. Nothing was written."
                )
            return "retention"
        return "schema" if changed and all(one.only_defined for one in changed) else "data"

    def rebase(self, tables: Tables, version: int) -> tuple[TableChange, ...]:
        """The changes of this transaction on top of the given tables (see publish.Staged)."""
        changed = self._changed()
        dropped = frozenset(staged.state.id for staged in changed if staged.dropped)
        for staged in changed:
            staged.rebase(tables, self.operation_id, dropped)
        changes = tuple(staged.change(version, self._kind()) for staged in changed)
        if any(staged.redefined for staged in changed):
            self._store.check_tables(tables.after(changes))
        return with_frontiers(changes)

    def check(self) -> None:
        self._store.check_lease(self.footing)
        if self._intent is not None:
            self._intent.check()

    def _close(self) -> bool:
        """End the transaction; False when an intent stays behind that healing may publish."""
        self._closed = True
        self._store.end_work(self)
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
        raise OutcomeUnknown(
            f"The commit on branch {self.branch.name!r} failed ({error}), and its intent could not "
            "be withdrawn, so that it may still be published. Look the outcome up with "
            f"lake.find_operation({self.operation_id!r}), or run the transaction again with the "
            "same operation_id: it is never published twice.",
            operation_id=self.operation_id,
            branch=self.branch.name,
            cause=str(error),
        ) from error

    # Staging

    def _begins(self) -> bool:
        """Whether an operation is to be staged: not when its transaction was published before."""
        self._refuse_closed()
        self._store.refuse_unusable()
        self._touched = True
        return self._earlier is None

    def _changed(self) -> list[StagedTable]:
        return [staged for staged in list(self._staged.values()) if staged.changed]

    def _stage(self, name: str) -> StagedTable:
        found = self._find(name)
        if isinstance(found, StagedTable):
            return found
        if found is None:
            raise self._unknown(name)
        staged = StagedTable(self._store.files, found)
        self._staged[found.id] = staged
        return staged

    def _drop(self, staged: StagedTable) -> None:
        if staged.created:
            del self._staged[staged.state.id]
        else:
            staged.operations.clear()
            staged.dropped = True

    def _stage_by_hand(self, name: str) -> StagedTable:
        staged = self._stage(name)
        if staged.state.stream is not None or is_hidden(staged.state.name):
            raise StreamTableWrite(
                f"{staged.state.name!r} is a stream table: its rows follow from its query. Change "
                "its sources and refresh it; lake.drop_stream_table removes it.",
                table=staged.state.name,
            )
        return staged

    def _read(self, data: Any, staged: StagedTable) -> Input:
        # Asked only where it matters: a session on a server answers over the network.
        zone = self._store.engine.zone if staged.schema.temporal else UTC
        return read_input(data, staged.schema, staged.state.name, zone)

    def _find(self, name: str) -> StagedTable | TableState | None:
        if not isinstance(name, str):
            raise InvalidOption(f"A table is named by a string, not {name!r}.", table=str(name))
        folded = fold(name)
        for staged in list(self._staged.values()):
            if not staged.dropped and fold(staged.state.name) == folded:
                return staged
        found = self._head.tables.find(name)
        if found is not None and found.id in self._staged:
            return None
        return found

    def _refuse_existing(self, name: str) -> None:
        found = self._find(name)
        if found is None:
            return
        there = (found.state if isinstance(found, StagedTable) else found).name
        alike = "" if there == name else f", and {name!r} is the same name in another case"
        raise TableExists(
            f"The table {there!r} exists{alike}. Drop it first, or choose another name.",
            table=there,
        )

    def _view(self, staged: StagedTable) -> Table:
        return Table(self._store.files, self._store.engine, staged.state, fold_own(staged), self)

    def _unknown(self, name: str) -> TableNotFound:
        try:
            self.tables()[name]
        except TableNotFound as error:
            return error
        raise AssertionError("unreachable")

    def _announce(self) -> None:
        """Leave an intent before work that may take long."""
        if self._intent is None:
            self._intent = self._store.hold_intent(self)

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
