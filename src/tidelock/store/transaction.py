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
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from tidelock.errors import (
    BrokenInvariant,
    InputError,
    OutcomeUnknown,
    StoreError,
    TransactionClosed,
)
from tidelock.model.history.commit import BranchRef, Commit, TableChange, Tables, TableState
from tidelock.model.isolation import Isolation
from tidelock.model.names import check_table_name
from tidelock.model.time.zones import UTC
from tidelock.store.kept_methods import KeptMethods
from tidelock.store.leases.intents import HeldIntent, Intent
from tidelock.store.leases.leases import Footing, owner_name
from tidelock.store.log.line import Line
from tidelock.store.log.log import MERGE, Head
from tidelock.store.log.pending import Pending, undecided
from tidelock.store.objects.failpoints import hit
from tidelock.store.parts import Parts
from tidelock.store.rows.defaults import Defaults
from tidelock.store.rows.inputs import Input, is_spark_frame, read_input
from tidelock.store.rows.refusals import without_key
from tidelock.store.rules.rule_checks import RuleChecks
from tidelock.store.schema.defaults import DefaultValues
from tidelock.store.source_methods import SourceMethods
from tidelock.store.sql_methods import SqlMethods
from tidelock.store.staging import writes
from tidelock.store.staging.own_fragments import fold_own
from tidelock.store.staging.staged_table import StagedTable
from tidelock.store.staging.staged_tables import StagedTables
from tidelock.store.table import Table
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset

if TYPE_CHECKING:
    from tidelock.model.ddl.statements import Statement
    from tidelock.model.schema.alterations import Alteration
    from tidelock.store.rooms_above import AfterCommits, CheckTables
    from tidelock.store.staging.read_set import ReadSet

CarryAlong: TypeAlias = Callable[["Transaction", bool], None]
"""Stages what follows for others from what a transaction has staged. Asked at its end, if it drops
tables; and at once, with True, by what takes away what others need, and carries them along."""


class _Shown:
    """What keeps a table of a transaction readable."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction


class Transaction(SqlMethods, KeptMethods, SourceMethods):
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
        isolation: Isolation = "snapshot",
        check_tables: CheckTables,
        carry_along: CarryAlong,
        after_commits: AfterCommits,
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
        self._carry_along = carry_along
        self._after_commits = after_commits
        self._defaults = DefaultValues(store.engine, store.clock.now)
        self._tables = StagedTables(store.files, head, store.together, self._defaults.of)
        self.isolation = isolation
        self._reads: ReadSet | None = None
        """What it has read, where that has to hold when it commits."""
        if isolation == "serializable":
            from tidelock.store.staging.read_set import ReadSet

            self._reads = ReadSet(store.files, head.tables, head.version)
        self._rules = RuleChecks(store.files, store.engine)
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
        return self.earlier is not None

    @property
    def rehearsed(self) -> bool:
        """Whether it is only to be seen how it would look."""
        return self._tables.rehearsed

    @rehearsed.setter
    def rehearsed(self, rehearsed: bool) -> None:
        self._tables.rehearsed = rehearsed

    @property
    def base(self) -> Head:
        """The head that this transaction reads."""
        return self._head

    @property
    def base_version(self) -> int:
        """The version that this transaction reads."""
        return self._head.version

    @property
    def branch(self) -> BranchRef:
        return self._head.branch

    @property
    def files(self) -> TableFiles:
        return self._store.files

    # Operations

    def create_table(
        self, name: str, schema: object, key: str | Sequence[str] | None = None
    ) -> None:
        """Create an empty table; it exists for everyone once the transaction commits."""
        with self._lock:
            if not self._begins():
                return
            from tidelock.model.ddl import parse_declared
            from tidelock.store.staging.declare import create

            declared = parse_declared(check_table_name(name), schema, key)
            create(self._tables, declared, self._view)

    def declare(self, statement: Statement) -> None:
        """Stage a statement that declares tables (`model/ddl/statements.py`)."""
        with self._lock:
            if self._begins():
                from tidelock.store.staging.declare import declare

                if declare(self._tables, statement, self._view):
                    self._carry_along(self, True)

    def drop_table(self, name: str, *, cascade: bool = False) -> None:
        """Remove a table, and with `cascade` the stream tables that are computed from it, and what
        refers to it. Its data stays readable in earlier snapshots while they are retained."""
        with self._lock:
            if cascade:
                from tidelock.model.ddl.statements import DropTable

                self.declare(DropTable((name,), cascade=True))
            elif self._begins():
                self._tables.drop(self._tables.stage_by_hand(name))

    def alter_table(
        self, table: str, *alterations: Alteration | str, cascade: bool = False
    ) -> None:
        """Change the columns or the rules of a table, in this order.

        An alteration is a value, or what stands behind ALTER TABLE and the name, as text:
        `tx.alter_table("orders", "ADD COLUMN note STRING", "DROP COLUMN old")`. With `cascade`,
        stream tables that read a column that is dropped are dropped too, and those that read one
        that gets another type follow it.
        """
        with self._lock:
            if self._begins():
                from tidelock.store.staging.declare import alter_by

                if alter_by(self._tables, table, alterations, self._view) or cascade:
                    self._carry_along(self, True)

    def rename_table(self, table: str, name: str) -> None:
        """Give a table another name. Its rows, its rules and who follows it stay as they are."""
        with self._lock:
            if self._begins():
                staged = self._tables.stage_by_hand(table)
                self._tables.rename(staged, check_table_name(name))

    def append(self, table: str, data: Any, *, evolve: bool = False) -> None:
        """Add rows. On a table with a key, a key that is there already is refused."""
        with self._lock:
            if not self._begins():
                return
            staged = self._tables.stage_by_hand(table)
            data = self._evolved(staged, data) if evolve else data
            if is_spark_frame(data):
                from tidelock.store.spark.stage import append_frame

                self._announce()
                append_frame(self._view(staged), staged, data)
                return
            given = self._read(data, staged)
            if given.table is not None:
                if given.table.num_rows:
                    writes.append_table(staged, given.table)
                return
            self._announce()
            writes.append_stream(staged, given.batches())

    def upsert(self, table: str, data: Any, *, evolve: bool = False) -> None:
        """Insert rows, and replace those that have the same key."""
        with self._lock:
            if not self._begins():
                return
            staged = self._tables.stage_by_hand(table)
            if not staged.schema.key:
                raise without_key(staged.name)
            data = self._evolved(staged, data) if evolve else data
            if is_spark_frame(data):
                from tidelock.store.spark.stage import upsert_frame

                self._announce()
                upsert_frame(self._view(staged), staged, data)
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
            from tidelock.store.staging.updates import update

            return update(self._view(staged), staged, assignments, where)

    def delete(self, table: str, where: str) -> int:
        """Remove the rows for which `where` is true; returns how many. `"true"` removes all."""
        with self._lock:
            if not self._begins():
                return 0
            staged = self._tables.stage_by_hand(table)
            from tidelock.store.staging.updates import delete

            return delete(self._view(staged), staged, where)

    def prune(self, table: str, where: str, until: int | None = None) -> Addresses:
        """Remove rows because of their age, up to a sequence; returns their sequences.

        The commit is one of retention: it does nothing else, and feeds of inserted rows do not
        take it for a deletion. `lake.prune` also looks after the sinks of the table.
        """
        with self._lock:
            if not self._begins():
                return np.array([], dtype=np.uint64)
            staged = self._tables.stage_by_hand(table)
            from tidelock.store.staging.updates import prune

            row_ids = prune(self._view(staged), staged, where, until)
            self._tables.prunings += bool(len(row_ids))
            return row_ids

    def overwrite(self, table: str, data: Any, *, evolve: bool = False) -> None:
        """Replace all rows by these, also where those that are there are lost."""
        with self._lock:
            if not self._begins():
                return
            staged = self._tables.replacing_lost(self._tables.stage_by_hand(table))
            data = self._evolved(staged, data) if evolve else data
            if is_spark_frame(data):
                from tidelock.store.spark.stage import overwrite_frame

                self._announce()
                overwrite_frame(self._view(staged), staged, data)
                return
            given = self._read(data, staged)
            if given.streaming:
                self._announce()
            writes.overwrite(staged, given)

    def defaults(self, name: str) -> Defaults:
        """What rows of a table get in this transaction that do not name a column."""
        table = self.table(name)
        return self._defaults.of(table.schema, table.name)

    def place(self, staged: StagedTable) -> None:
        """Stage a table in a form of its own, as a merge does."""
        with self._lock:
            self._begins()
            self._tables.put(staged)

    def join(self, told: Mapping[str, Any], rules: RuleChecks) -> None:
        """Make the commit one that merges another branch: `told` names its head as the second
        parent, and what that descends from (log/merges.py). `rules` were compared already."""
        with self._lock:
            self._begins()
            self.properties[MERGE] = dict(told)
            self._rules = rules

    def changes(self) -> tuple[TableChange, ...]:
        """What publishing this would do to its tables as they were when it began."""
        return self._tables.staged_changes()

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
        if self._reads is not None:
            self._reads.note_name(name)
        if isinstance(known, StagedTable):
            return self._view(known)
        if known is None:
            raise self._tables.unknown(name)
        return self._table(known, self._store.files.read(known))

    def tables(self) -> Tables:
        """All tables as this transaction sees them."""
        if self._reads is not None:
            self._reads.note_tables()
        return self._tables.tables()

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
                self._store.refuse_unusable()
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
        if any(staged.dropped for staged in self._tables.changed()):
            self._carry_along(self, False)
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
                if staged.dropped or staged.complete:
                    return
                if whole or staged.created:
                    staged.current()
                else:
                    staged.write()
                hit("stage.after_table")

            self._store.together.map(stage, changed)
            if self._intent is not None and self._can_be_sealed:
                self._intent.seal(self.rebase(Line.up_to(self._store.log, self._head)))
                pending.sealed = True
            elif whole:
                self._check_ahead()
            commit = publisher.publish(pending)
        self._published = [commit] if pending.published_here else []
        return commit

    @property
    def _can_be_sealed(self) -> bool:
        """Whether others could publish it: not if what it has read would have to be looked at."""
        return self._reads is None or self._reads.empty

    def _check_ahead(self) -> None:
        """Compare what is staged with rules before its turn to publish, which others wait for. In
        its turn only what changed since has to be looked at."""
        # What came after it may be its own commit, if others know its operation id.
        head = self._head if self._claimed else self._store.log.newer_of(self._head)
        line = Line.up_to(self._store.log, head)
        try:
            self._rules.check_ahead(self._tables, line, self.operation_id)
        except InputError:
            if self._reads is not None:
                self.rebase(line)  # Tells first if what was read changed: then trying again helps.
            raise

    def _names(self) -> tuple[str, ...]:
        intent = () if self._intent is None else (self._intent.key,)
        return self.footing.lease, *intent

    def rebase(self, line: Line) -> tuple[TableChange, ...]:
        """The changes of this transaction on top of the given line (see pending.Staged)."""
        if self._reads is not None:
            self._tables.follow(line, self.operation_id)  # Names a row that both touch first.
            self._reads.refuse_changed(line, self.operation_id)
        changes = self._rules.rebase(self._tables, line, self.operation_id)
        if self._tables.redefined:
            self._check_tables(line.tables, line.tables.after(changes), self._store.files)
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

    def _evolved(self, staged: StagedTable, data: Any) -> Any:
        """Add columns that the data has and the table does not; the data, to be read then."""
        from tidelock.store.staging.declare import add_columns_of

        return add_columns_of(self._tables, staged, data, self._view)

    def _read(self, data: Any, staged: StagedTable) -> Input:
        # Asked only where it matters: a session on a server answers over the network.
        zone = self._store.engine.zone if staged.schema.temporal else UTC
        return read_input(data, staged.schema, staged.name, zone, staged.defaults)

    def _view(self, staged: StagedTable) -> Table:
        return self._table(staged.shown, fold_own(staged))

    def _table(self, state: TableState, dataset: Dataset) -> Table:
        """What it shows stays readable while somebody holds it, also when the transaction ended."""
        owner = _Shown(self)
        self._store.uses.hold_pin(owner, state.id, dataset.version)
        noted = None if self._reads is None else partial(self._reads.note_rows, state.id)
        return Table(self._store.files, self._store.engine, state, dataset, owner, noted=noted)

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
