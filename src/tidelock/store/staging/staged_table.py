"""One table within a transaction: its base pin, what is staged on it, and how it is rebased.

Invariants: `current` is the base with the first `applied` operations on it; nobody but the
transaction knows it; `counts` are those of the applied operations. `origin` is what the transaction
read, whatever base its operations are on: a base may be one that is prepared and never published,
so that what others touched is always looked for from the origin on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from tidelock.errors import BrokenInvariant, CommitConflict, CorruptObject, SnapshotExpired
from tidelock.model.history.commit import Kind, TableChange, TableState
from tidelock.model.schema.schema import TableSchema
from tidelock.model.streams import PUBLISHING, StreamState
from tidelock.store.changes.touched import Touch, first_touch
from tidelock.store.log.line import Line
from tidelock.store.objects.failpoints import hit
from tidelock.store.operations.counts import Counts, Target
from tidelock.store.operations.found_rows import FoundRows
from tidelock.store.operations.labels import labels_after
from tidelock.store.operations.operations import (
    Append,
    Mutation,
    Operation,
    Overwrite,
    Replacement,
)
from tidelock.store.operations.upserts import Upsert
from tidelock.store.rows.defaults import NO_DEFAULTS, Defaults
from tidelock.store.schema.change import SchemaChange, has_rules
from tidelock.store.staging.conflicts import position_conflict, row_conflict, table_conflict
from tidelock.store.staging.rehearsal import rehearse
from tidelock.store.tables.datasets import TableFiles
from tidelock.store.tables.fragments import Addresses, Dataset
from tidelock.store.tables.next_row_id import next_row_id

DefaultsOf: TypeAlias = Callable[[TableSchema, str], Defaults]
"""The values of the defaults of a schema, for a table of a name."""


def no_defaults(schema: TableSchema, table: str) -> Defaults:
    return NO_DEFAULTS


@dataclass(frozen=True)
class Mark:
    """Where a staged table stood at one moment."""

    state: TableState
    name: str
    operations: tuple[Operation, ...]
    targets: tuple[Target, ...]
    applied: int
    current: Dataset | None
    counts: Counts
    dropped: bool
    stream: StreamState | None
    pruned: int


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
    advance: tuple[str, str] | None = None
    """For the ledger of a source: the position that the source was read from, and the next one."""
    name: str = ""
    """What the table will be called; its own name unless it is renamed."""
    defaults_of: DefaultsOf = no_defaults
    operations: list[Operation] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    """The table as each operation found it: an alteration changes it for those that follow."""
    counts: Counts = field(default_factory=Counts)
    applied: int = 0
    origin: TableState = field(init=False)
    """The table as the transaction read it."""
    _splits: list[bytes] | None = None
    """How each operation divided its rows (operations/upserts.py) while the base was the origin."""
    _operation_id: str = ""
    """On whose behalf it was rebased last."""
    own: int | None = None
    """How many operations were asked for, once there are some that follow from them."""
    _current: Dataset | None = None
    _settled: int = 0
    """So many of the operations take no more rows."""
    _lock: Any = field(default_factory=threading.RLock)
    """Held while operations are applied: readers of the transaction may be other threads."""

    def __post_init__(self) -> None:
        self.origin = self.state
        self.name = self.name or self.state.name

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

    @property
    def complete(self) -> bool:
        """Whether its next pin is there already, so that there is nothing to stage."""
        return False

    @cached_property
    def _first(self) -> Target:
        """The table before anything was staged."""
        schema = (
            self.declared
            or self.files.known_schema(self.state)
            or self.files.schema(self.state, self.base)
        )
        return Target(self.state.name, self.state.id, schema)

    @property
    def target(self) -> Target:
        """The table as the next operation will find it."""
        last = self.operations[-1] if self.operations else None
        if isinstance(last, SchemaChange):
            return Target(self.name, self.state.id, last.after)
        return self.targets[-1] if self.targets else self._first

    @property
    def schema(self) -> TableSchema:
        return self.target.schema

    @property
    def defaults(self) -> Defaults:
        """What rows get that do not name a column."""
        return self.defaults_of(self.schema, self.name)

    @property
    def altered(self) -> bool:
        return any(isinstance(operation, SchemaChange) for operation in self.operations)

    @property
    def shown(self) -> TableState:
        """The table as its transaction sees it, but for its rows."""
        if not self.altered and not self.renamed:
            return self.state
        return self._labelled(self.state)

    def _labelled(self, state: TableState, *, durable: bool = False) -> TableState:
        """A state with the name and the columns that are staged; `durable` when a commit may name
        them."""
        state = replace(state, name=self.name)
        if not self.altered and not (self.declared is not None and has_rules(self.declared)):
            return state
        schema, declarations = self.schema, self.files.declarations
        name = declarations.keep(schema) if durable else declarations.identify(schema)
        return replace(state, key=schema.key, schema=name)

    @property
    def pending(self) -> bool:
        return self.applied < len(self.operations)

    @property
    def changed(self) -> bool:
        moved = self.stream is not None and self.stream != self.state.stream
        moved = moved or self.advance is not None
        return self.created or self.dropped or moved or self.renamed or bool(self.operations)

    @property
    def redefined(self) -> bool:
        """Whether there is one table more or less, or one that follows from another query."""
        if self.created or self.dropped or self.altered or self.renamed:
            return True
        if self.stream is None:
            return False
        return self.state.stream is None or self.stream.definition != self.state.stream.definition

    @property
    def only_moved(self) -> bool:
        """Whether nothing changes but how far a source was read."""
        others = self.operations or self.created or self.dropped or self.renamed or self.stream
        return self.advance is not None and not others

    @property
    def only_defined(self) -> bool:
        """Whether what changes is what the table is, and not what is in it. A refresh that moves a
        frontier alone is about what is in it."""
        if self.dropped or self.operations:
            return self.dropped or all(isinstance(one, SchemaChange) for one in self.operations)
        refreshed = self.stream is not None and self.stream.refreshed == PUBLISHING
        return self.created or not refreshed

    def add(self, operation: Operation) -> None:
        target = self.target
        self.operations.append(operation)
        self.targets.append(target)

    def add_derived(self, operation: Operation) -> None:
        """Stage what follows from operations; it is found anew when the base moves."""
        self.current()
        if self.own is None:
            self.own = len(self.operations)
        self.add(operation)

    def forget_derived(self) -> None:
        """Go back to what was asked for."""
        if self.own is not None:
            del self.operations[self.own :], self.targets[self.own :]
            self.own = self._current = None
            self.applied, self.counts = 0, Counts()

    def open_append(self) -> Append | None:
        """The last operation, when it is an append that more rows can still be added to."""
        last = self._open()
        return last if isinstance(last, Append) and not last.fragments else None

    def open_upsert(self) -> Upsert | None:
        """The last operation, when it is an upsert that more rows can still be added to."""
        last = self._open()
        return last if isinstance(last, Upsert) else None

    def _open(self) -> Operation | None:
        pending = self.pending and len(self.operations) > self._settled
        return self.operations[-1] if pending else None

    def mark(self) -> Mark:
        """Where it stands now. Nothing is added from here on to operations that are there."""
        with self._lock:
            self._settled = len(self.operations)
            return Mark(
                self.state,
                self.name,
                tuple(self.operations),
                tuple(self.targets),
                self.applied,
                self._current,
                replace(self.counts),
                self.dropped,
                self.stream,
                self.pruned,
            )

    def return_to(self, mark: Mark) -> None:
        """Forget what was done since."""
        with self._lock:
            self.state, self.name = mark.state, mark.name
            self.operations[:], self.targets[:] = mark.operations, mark.targets
            self.applied, self._current, self.counts = mark.applied, mark.current, mark.counts
            self.dropped, self.stream, self.pruned = mark.dropped, mark.stream, mark.pruned

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
                operation, target = self.operations[self.applied], self.targets[self.applied]
                unread = isinstance(operation, Overwrite) or (
                    isinstance(operation, Append) and not target.schema.key
                )
                with self.files.reading(self.state, trusting=unread or self.created):
                    dataset = operation.apply(self.files, target, dataset, self.counts)
                self._refuse_other_split(operation)
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
        if self.altered:
            return
        for operation in self.operations[self.applied :]:
            if isinstance(operation, Append | Upsert):
                operation.write(self.files, self.target, self.files.any_pin(self.state))

    @property
    def renamed(self) -> bool:
        return self.name != self.state.name

    def rebase(self, line: Line, operation_id: str, leaving: frozenset[str] = frozenset()) -> None:
        """Make the staged state one that follows the given line, or raise CommitConflict.

        `leaving` are the ids of tables that the same transaction drops or renames: their names are
        free.
        """
        self._operation_id = operation_id
        if self.created or self.renamed:
            holder = line.tables.find(self.name)
            if holder is not None and holder.id not in {*leaving, self.state.id}:
                raise self._conflict(holder, "created")
        if self.created:
            return
        found = line.tables.same(self.origin)
        if found is None:
            raise self._conflict(None, "dropped")
        if self.advance is not None and found.position != self.advance[0]:
            raise position_conflict(self.advance[0], found.position, operation_id)
        if found == self.state:
            return
        if self.stream is not None and found.stream != self.origin.stream:
            # What was staged follows from where the stream table stood.
            raise self._conflict(found, "refreshed or altered")
        if self.renamed and found.name not in (self.state.name, self.name):
            raise self._conflict(found, "renamed")
        if found.schema != self.state.schema:
            self._follow_schema(found)
        moved = found.pin != self.state.pin
        if moved:
            self._renumber_own(found)
        if found.changed != self.origin.changed:
            self._refuse_changed(line, found)
        if moved:
            self.opened = None
            self._current = None
            self.applied = 0
            self.counts = Counts()
        if not self.renamed:
            self.name = found.name
        self.state = found

    def _follow_schema(self, found: TableState) -> None:
        """Go on with the columns that another commit gave the table, if nothing is lost by it."""
        old, new = self._first.schema, self.files.schema(found, self.files.read(found))
        labels = None if self.altered else labels_after(old, new)
        if labels is None:
            raise self._conflict(found, "altered")
        self._first = Target(found.name, found.id, new)
        self.targets = [self._first for _ in self.targets]
        for operation in self.operations:
            operation.follow(self._first, labels)

    def _refuse_changed(self, line: Line, found: TableState) -> None:
        """CommitConflict when what others did to the table is in the way of what is staged."""
        survives = all(operation.survives_data_changes for operation in self.operations)
        if self.dropped or not survives:
            raise self._conflict(found, "changed")
        try:
            with self.files.reading(found, trusting=True):
                touch = self._first_touch(line, found)
        except (SnapshotExpired, CorruptObject) as error:
            # Nobody can tell any more which rows they were.
            raise self._conflict(found, "changed") from error
        if touch is not None:
            raise row_conflict(self.files, self.origin, found, touch, self._operation_id)

    def _first_touch(self, line: Line, found: TableState) -> Touch | None:
        """Which commit since the origin touched rows that are updated or deleted here."""
        changed = [rows for _, rows in self._found_rows()]
        if not changed:
            return None
        dataset = self.files.read(found)
        away = [rows.out_of_place(self.files, found.id, dataset) for rows in changed]
        row_ids: Addresses = np.unique(np.concatenate(away))
        if not len(row_ids):
            return None
        return first_touch(self.files, line, self.origin, found, row_ids)

    def _found_rows(self) -> list[tuple[int, FoundRows]]:
        """The rows that operations found, with the number of each operation."""
        return [
            (number, operation.rows)
            for number, operation in enumerate(self.operations)
            if isinstance(operation, Mutation | Replacement)
        ]

    def _renumber_own(self, found: TableState) -> None:
        """Let operations know which ids the rows have, on top of another base, that the transaction
        itself added."""
        if self._splits is None:
            self._splits = [_split(operation) for operation in self.operations]
        rows = self._found_rows()
        if not rows or rows[-1][0] == len(rows) - 1:
            # Nothing comes before them that adds rows.
            return
        own_from = next_row_id(self.files.read(self.origin))
        shift = next_row_id(self.files.read(found)) - own_from
        for _, one in rows:
            one.follow(own_from, shift)

    def _refuse_other_split(self, operation: Operation) -> None:
        """CommitConflict when rows that the transaction added and then changed cannot be found,
        because other rows than before were added on top of this base."""
        before = self._splits
        if before is None or _split(operation) in before[self.applied : self.applied + 1]:
            return
        if any(number > self.applied and rows.has_own for number, rows in self._found_rows()):
            raise self._conflict(self.state, "changed")

    def rehearse(self, change: SchemaChange) -> None:
        """Let the table look as after an alteration, without rows, and write nothing."""
        self.add(change)
        self._current, self.applied = rehearse(change.after), len(self.operations)

    def change(self, version: int, kind: Kind, *, durable: bool = False) -> TableChange:
        """What publishing this table at a version would do to it; `durable` when it is to be."""
        before = None if self.created else self.state
        if self.dropped:
            return TableChange(before, None, deleted=self.state.rows)
        # A stream table whose frontier moves without its rows has not changed for its readers.
        moved = bool(self.operations) or self.advance is not None
        same = kind == "maintenance" or not (self.created or moved)
        dataset = self.current() if self.created or self.operations else None
        after = replace(
            self.state,
            changed=self.state.changed if same else version,
            stream=self.state.stream if self.stream is None else self.stream_at(version),
            pruned=max(self.state.pruned, self.pruned),
            position=self.state.position if self.advance is None else self.advance[1],
            origin=self.state.origin if same else "",
        )
        after = self._labelled(after, durable=durable)
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
        stream = self.stream
        if stream is None or stream.refreshed != PUBLISHING:
            return stream
        if stream.as_of != PUBLISHING:
            return replace(stream, refreshed=version)
        # It stands for the very commit that publishes it, as its inputs do.
        frontier = tuple(
            replace(one, version=version) if one.version == PUBLISHING else one
            for one in stream.frontier
        )
        return replace(stream, refreshed=version, as_of=version, frontier=frontier)

    def _conflict(self, found: TableState | None, what: str) -> CommitConflict:
        expected = 0 if self.created else self.origin.changed
        return table_conflict(self.origin.name, expected, found, what, self._operation_id)


def _split(operation: Operation) -> bytes:
    split: bytes = getattr(operation, "split", b"")
    return split
