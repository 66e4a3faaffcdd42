"""One table within a transaction: its base pin, what is staged on it, and how it is rebased.

Invariants: `current` is the base with the first `applied` operations on it; nobody but the
transaction knows it; `counts` are those of the applied operations.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tidelock.errors import Advice, BrokenInvariant, CommitConflict
from tidelock.model.commit import Kind, TableChange, Tables, TableState
from tidelock.model.schema import TableSchema
from tidelock.model.streams import PUBLISHING, StreamState
from tidelock.store.objects.failpoints import hit
from tidelock.store.staging.operations import Append, Counts, Operation, Overwrite, Target
from tidelock.store.staging.upserts import Upsert
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Dataset


@dataclass
class StagedTable:
    """Owns what one transaction does to one table: its operations in order, the pin that they lead
    to so far, and how they follow another pin of the same table.
    """

    files: TableFiles
    state: TableState
    """The table at the base; for a table that the transaction creates, its first state."""
    opened: Dataset | None = None
    """The base pin, once it is open."""
    declared: TableSchema | None = None
    """The columns of a table that the transaction creates, which happens when it is needed."""
    dropped: bool = False
    stream: StreamState | None = None
    """Where the content of a stream table will stand; None leaves it as it is."""
    pruned: int = -1
    """The highest sequence of a row that is removed by retention."""
    operations: list[Operation] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    applied: int = 0
    _current: Dataset | None = None
    _lock: Any = field(default_factory=threading.RLock)
    """Held while operations are applied: readers of the transaction may be other threads."""

    @property
    def base(self) -> Dataset:
        """The pin at the base. What only adds rows may never need it."""
        with self._lock:
            if self.opened is None and self.declared is not None:
                self.opened = self.files.create(self.state.id, self.declared)
            elif self.opened is None:
                self.opened = self.files.read(self.state)
            return self.opened

    @property
    def created(self) -> bool:
        return self.declared is not None

    @cached_property
    def schema(self) -> TableSchema:
        return (
            self.declared
            or self.files.known_schema(self.state)
            or self.files.schema(self.state.id, self.base, self.state.key)
        )

    @cached_property
    def target(self) -> Target:
        return Target(self.state.name, self.state.id, self.schema)

    @property
    def pending(self) -> bool:
        return self.applied < len(self.operations)

    @property
    def changed(self) -> bool:
        moved = self.stream is not None and self.stream != self.state.stream
        return self.created or self.dropped or moved or bool(self.operations)

    @property
    def redefined(self) -> bool:
        """Whether there is one table more or less, or one that follows from another query."""
        if self.created or self.dropped or self.stream is None:
            return self.created or self.dropped
        return self.state.stream is None or self.stream.definition != self.state.stream.definition

    @property
    def only_defined(self) -> bool:
        """Whether what changes is what the table is, and not what is in it. A refresh that moves a
        frontier alone is about what is in it."""
        if self.dropped or self.operations:
            return self.dropped
        refreshed = self.stream is not None and self.stream.refreshed == PUBLISHING
        return self.created or not refreshed

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def open_append(self) -> Append | None:
        """The last operation, when it is an append that more rows can still be added to."""
        last = self.operations[-1] if self.pending else None
        return last if isinstance(last, Append) and not last.fragments else None

    def open_upsert(self) -> Upsert | None:
        """The last operation, when it is an upsert that more rows can still be added to."""
        last = self.operations[-1] if self.pending else None
        return last if isinstance(last, Upsert) else None

    def latest(self) -> Dataset:
        """The pin with the operations that were applied so far."""
        # Not `or`: a dataset without rows is false.
        return self.base if self._current is None else self._current

    def current(self) -> Dataset:
        """The pin with everything that was staged so far."""
        with self._lock:
            dataset = self.latest()
            while self.pending:
                hit("stage.before_operation")
                operation = self.operations[self.applied]
                unread = isinstance(operation, Overwrite) or (
                    isinstance(operation, Append) and not self.state.key
                )
                with self.files.reading(self.state, trusting=unread or self.created):
                    dataset = operation.apply(self.files, self.target, dataset, self.counts)
                self.applied += 1
                self._current = dataset
                hit("stage.after_operation")
            return dataset

    def put_in_order(self, found: Dataset, ordered: Dataset) -> Dataset:
        """Go on from a pin with the same rows as one that was current, unless that moved on."""
        with self._lock:
            if self.latest().version == found.version and not self.pending:
                self._current = ordered
            return self.current()

    def write(self) -> None:
        """Do the part of staging that is not done again when the base moves."""
        for operation in self.operations[self.applied :]:
            if isinstance(operation, Append | Upsert):
                operation.write(self.files, self.target, self.files.any_pin(self.state))

    def rebase(
        self, tables: Tables, operation_id: str, dropped: frozenset[str] = frozenset()
    ) -> None:
        """Make the staged state one that follows the given tables, or raise CommitConflict.

        `dropped` are the ids of tables that the same transaction drops: their names are free.
        """
        if self.created:
            holder = tables.find(self.state.name)
            if holder is not None and holder.id not in dropped:
                raise self._conflict(holder, operation_id, "created")
            return
        found = tables.same(self.state)
        if found is None:
            raise self._conflict(None, operation_id, "dropped")
        if found == self.state:
            return
        if self.stream is not None and found.stream != self.state.stream:
            # What was staged follows from where the stream table stood.
            raise self._conflict(found, operation_id, "refreshed or altered")
        if found.changed != self.state.changed:
            survives = all(operation.survives_data_changes for operation in self.operations)
            if self.dropped or not survives:
                raise self._conflict(found, operation_id, "changed")
        if found.pin != self.state.pin:
            self._move_to(found, operation_id)
        self.state = found

    def _move_to(self, found: TableState, operation_id: str) -> None:
        if found.key != self.state.key:
            raise self._conflict(found, operation_id, "given another key")
        self.opened = None
        self._current = None
        self.applied = 0
        self.counts = Counts()

    def change(self, version: int, kind: Kind) -> TableChange:
        """What publishing this table at a version would do to it."""
        before = None if self.created else self.state
        if self.dropped:
            return TableChange(before, None, deleted=self.state.rows)
        # A stream table whose frontier moves without its rows has not changed for its readers.
        same = kind == "maintenance" or not (self.created or self.operations)
        dataset = self.current() if self.created or self.operations else None
        after = replace(
            self.state,
            changed=self.state.changed if same else version,
            stream=self.state.stream if self.stream is None else self.stream_at(version),
            pruned=max(self.state.pruned, self.pruned),
        )
        if dataset is not None:
            after = replace(
                after,
                pin=dataset.version,
                rows=dataset.count_rows(),
                checksum=self.files.checksum(self.state.id, dataset),
            )
        counts = self.counts
        if kind == "maintenance" and after.rows != self.state.rows:
            raise BrokenInvariant(
                f"Maintenance of {self.state.name!r} would change its rows from "
                f"{self.state.rows} to {after.rows}."
            )
        return TableChange(before, after, counts.inserted, counts.updated, counts.deleted)

    def stream_at(self, version: int) -> StreamState | None:
        """The staged stream state, which learns here the version that publishes it."""
        if self.stream is not None and self.stream.refreshed == PUBLISHING:
            return replace(self.stream, refreshed=version)
        return self.stream

    def _conflict(self, found: TableState | None, operation_id: str, what: str) -> CommitConflict:
        expected = 0 if self.created else self.state.changed
        actual = found.changed if found else None
        read = f"read it as of version {expected}" if expected else "read that it did not exist"
        now = "it was dropped" if found is None else f"it is now at version {actual}"
        return CommitConflict(
            f"Table {self.state.name!r} was {what} by another commit: this transaction {read}, and "
            f"{now}. Nothing was written.",
            Advice(
                "Run the transaction again, or use lake.run(...), which retries.",
                "Run the command again.",
            ),
            table=self.state.name,
            expected=expected,
            actual=actual,
            operation_id=operation_id,
        )
